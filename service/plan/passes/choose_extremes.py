"""Store only one value for MAX of a column that only grows, and for MIN of a column that only shrinks.

This is possible even if rows are replaced. For example, a count over inserts is only ever replaced by a larger count.
So the greatest of several such counts is never lost, and smaller values need not be stored. A row's group columns must
not change when the row is replaced. (This is Flink's monotonicity, extended to aggregates.) Over an append input, every
MAX and MIN stores one value in any case. The same applies to sessions over an append input, because a session loses
either none or all of its rows.
"""

from __future__ import annotations

from dataclasses import replace

from rowkind.service.plan.calls import LogicalAggregateCall
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.query import Query
from rowkind.service.plan.traits.monotonic import grows, progress, stays_in_groups
from rowkind.service.plan.traits.sessions import only_merges
from rowkind.service.plan.tree import bottom_up


def choose_extremes(query: Query) -> Query:
    """Mark the calls of MAX and MIN whose value is never retracted unless a better value replaces it.

    >>> example(choose_extremes, '''
    ...     SELECT day, MAX(n) AS most
    ...     FROM (SELECT day, page, COUNT(*) AS n FROM clicks GROUP BY day, page) GROUP BY day''')
    Aggregate group=[derived_1.day] calls=[most: max(derived_1.n)]
      Project …
    becomes
    Aggregate group=[derived_1.day] calls=[most: max(derived_1.n) grows]
      Project …
    """
    return replace(query, root=bottom_up(query.root, _visit))


def _visit(node: LogicalNode) -> LogicalNode:
    if not isinstance(node, LogicalAggregate):
        return node
    if only_merges(node):
        return replace(node, calls={name: replace(call, grows=_is_extreme(call)) for name, call in node.calls.items()})
    known = progress(node.input.input)
    if known is None or not stays_in_groups(node, known):
        return node
    return replace(node, calls={name: replace(call, grows=grows(call, known)) for name, call in node.calls.items()})


def _is_extreme(call: LogicalAggregateCall) -> bool:
    return call.function in ("max", "min", "any_value", "max_by", "min_by")
