"""Group only by a window's start if the SQL groups by its start and end, because the end follows from the start.

    GROUP BY window_start, window_end, k      window_start + size AS window_end … GROUP BY window_start, k

This shortens keys, and turns a filter on the end into a filter on the start.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.calc import LogicalProject
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.conjuncts import reads, substitute
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.scalar.time_windows import WindowEnd, WindowTime
from rowkind.service.plan.traits.column_meanings import meaning
from rowkind.service.plan.tree import bottom_up


def narrow_groups(query: Query) -> Query:
    """Drop group columns that follow from other group columns, as a window's end follows from its start.

    >>> example(narrow_groups, '''
    ...     SELECT window_end, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' MINUTE))
    ...     GROUP BY window_start, window_end''')
    Aggregate group=[bids.window_start, bids.window_end] calls=[n: count()]
      Project …
    becomes
    Project …, bids.window_end: WINDOW_END(bids.window_start, INTERVAL '10' MINUTE)
      Aggregate group=[bids.window_start] calls=[n: count()]
        Project …
    """
    return replace(query, root=bottom_up(query.root, _visit))


def _visit(node: LogicalNode) -> LogicalNode:
    if not isinstance(node, LogicalAggregate):
        return node
    meanings = {name: meaning(node.input.input, resolved(name)) for name in node.group}
    found: dict[str, exp.Expr] = {}
    for name, meant in meanings.items():
        if isinstance(meant, WindowEnd | WindowTime):
            others = {other: each for other, each in meanings.items() if other != name and other not in found}
            told = _told_by(meant, others)
            if reads(told) <= others.keys():
                # Dropped columns that were computed from this column now read the columns that determine it.
                found = {each: substitute(by, {name: told}) for each, by in found.items()} | {name: told}
    if not found:
        return node
    narrow = replace(node, group=tuple(name for name in node.group if name not in found))
    return LogicalProject(narrow, {name: found.get(name, resolved(name)) for name in columns(node)})


def _told_by(meant: exp.Expr, others: dict[str, exp.Expr]) -> exp.Expr:
    """Return the expression `meant`, with each part that is the meaning of another column replaced by that column."""
    by = {each: name for name, each in others.items()}
    return meant.transform(lambda each: resolved(by[each.unnest()]) if each.unnest() in by else each)
