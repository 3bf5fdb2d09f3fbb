"""Turn a mark join whose flag is used only as a filter into a semi or anti join.

    WHERE or HAVING has           mark join             becomes
    the flag                      EXISTS, IN            a semi join
    NOT the flag                  EXISTS                an anti join
    NOT the flag                  IN, with its NULLs    a NOT IN join

Such a filter comes from `HAVING k IN (SELECT …)`, or from a derived table with `EXISTS (…) AS found` if the outer query
filters by `found`. A semi or anti join can be pushed below other joins (`passes.push_semi_joins`), and does not emit
the rows that the filter would remove.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp

from rowkind.service.physical.join_kinds import PhysicalJoinKind
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.logical.calc import LogicalFilter, LogicalProject, filtered
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.tree import bottom_up

_KINDS: Mapping[tuple[PhysicalJoinKind, bool], PhysicalJoinKind] = {
    ("mark", True): "semi",
    ("mark", False): "anti",
    ("in", False): "not in",
}
"""The join kind that replaces a mark join, by the mark join's kind and by whether its flag must be true."""


def mark_joins_to_semi_joins(query: Query) -> Query:
    """Turn a mark join whose flag is used only as a filter into a semi or anti join.

    >>> example(mark_joins_to_semi_joins, '''
    ...     SELECT customer_id FROM orders o GROUP BY customer_id
    ...     HAVING EXISTS (SELECT 1 FROM customers c WHERE c.customer_id = o.customer_id)''')
    Filter exists_1.found
      Join mark answer=exists_1.found condition=[exists_1.c.customer_id = o.customer_id]
        Aggregate group=[o.customer_id]
        Scan customers exists_1.c
    becomes
    Project …, exists_1.found: TRUE
      Join semi condition=[exists_1.c.customer_id = o.customer_id]
        Aggregate group=[o.customer_id]
        Scan customers exists_1.c
    """
    return replace(query, root=bottom_up(query.root, _visit))


def _visit(node: LogicalNode) -> LogicalNode:
    if not isinstance(node, LogicalFilter) or not isinstance(join := node.input, LogicalJoin) or join.answer is None:
        return node
    for each in node.conjuncts:
        bare = each.unnest()
        asked = bare.this.unnest() if isinstance(bare, exp.Not) else bare
        holds = asked is bare
        kind = _KINDS.get((join.kind, holds))
        if kind is not None and isinstance(asked, exp.Column) and asked.name == join.answer:
            rest = tuple(other for other in node.conjuncts if other is not each)
            left = {name: resolved(name) for name in columns(join.left.input)}
            answer = exp.true() if holds else exp.false()
            rows = LogicalProject(replace(join, kind=kind, answer=None), {**left, join.answer: answer})
            return filtered(rows, rest)
    return node
