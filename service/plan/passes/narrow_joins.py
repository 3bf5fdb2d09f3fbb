"""Turn outer joins into inner joins where a condition above removes all null-padded rows.

For example, `p.paid > 10` above a LEFT JOIN of p is never true for a null-padded row, so it removes all of them. An
inner join needs no match counts, and filters can be pushed into both of its sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from sqlglot import exp

from rowkind.service.physical.join_kinds import PhysicalJoinKind
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.binary import LogicalJoin, LogicalLookup
from rowkind.service.plan.logical.calc import (
    LogicalExpand,
    LogicalFilter,
    LogicalProject,
    LogicalScan,
    LogicalUnion,
    filtered,
)
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.logical.per_row import LogicalStamp
from rowkind.service.plan.logical.subset import LogicalTemporalFilter
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.conjuncts import reads, substitute
from rowkind.service.plan.traits.null_rejection import rejects
from rowkind.service.plan.tree import first, with_inputs

_FEWER: dict[PhysicalJoinKind, dict[tuple[bool, bool], PhysicalJoinKind]] = {
    "left": {(False, True): "inner", (True, True): "inner"},
    "right": {(True, False): "inner", (True, True): "inner"},
    "full": {(True, False): "left", (False, True): "right", (True, True): "inner"},
}
"""The narrower kind of a join, by its kind and by whether rows with a padded left or right side are rejected."""


def narrow_joins(query: Query) -> Query:
    """Turn an outer join into an inner, left or right join if a condition above it rejects the null-padded rows.

    >>> example(narrow_joins, '''
    ...     SELECT o.order_id, p.paid FROM orders o LEFT JOIN payments p ON o.order_id = p.order_id
    ...     WHERE p.paid > 1''')
    Join left condition=[o.order_id = p.order_id]
      Scan orders o
      Scan payments p
    becomes
    Join inner condition=[o.order_id = p.order_id]
      Scan orders o
      Scan payments p
    """
    return replace(query, root=_narrow(query.root, ()))


def _narrow(node: LogicalNode, above: Sequence[exp.Expr]) -> LogicalNode:
    """Return the node with narrower joins. Rows for which a condition in `above` is not true are removed later."""
    match node:
        case LogicalFilter():
            return replace(node, input=_narrow(node.input, [*above, *node.conjuncts]))
        case LogicalProject():
            below = () if node.stands else [substitute(each, node.outputs) for each in above]
            return replace(node, input=_narrow(node.input, below))
        case LogicalExpand():
            return _narrow_expand(node, above)
        case LogicalJoin():
            return _narrow_join(node, above)
        case LogicalLookup():
            pads = node.pads and not any(rejects(each, set(columns(node.right.input))) for each in above)
            return _narrow_first(replace(node, pads=pads), above)
        case LogicalScan() | LogicalUnion():
            return with_inputs(node, lambda each: _narrow(each, above))
        case LogicalTemporalFilter() | LogicalStamp():
            return _narrow_first(node, above)
    return _narrow_first(node, _about(above, node.lets_pass(columns(first(node)).keys())))


def _narrow_first(node: LogicalNode, above: Sequence[exp.Expr]) -> LogicalNode:
    """Return the node with narrower joins in its inputs. The conditions `above` apply only to the first input."""
    own = iter([above])
    return with_inputs(node, lambda each: _narrow(each, next(own, ())))


def _narrow_expand(node: LogicalExpand, above: Sequence[exp.Expr]) -> LogicalNode:
    made = {node.place, *node.elements}
    kept = node.outer and not any(rejects(each, made) for each in above)
    below = _narrow(node.input, _about(above, columns(node.input).keys()))
    narrowed = replace(node, outer=kept, condition=node.condition if kept else (), input=below)
    return filtered(narrowed, () if kept else node.condition)


def _about(above: Sequence[exp.Expr], group: AbstractSet[str]) -> list[exp.Expr]:
    """Return the conditions that read only `group` columns, and so remove whole groups or partitions."""
    return [each for each in above if reads(each) and reads(each) <= group]


def _narrow_join(node: LogicalJoin, above: Sequence[exp.Expr]) -> LogicalJoin:
    left, right = set(columns(node.left.input)), set(columns(node.right.input))
    rejected = any(rejects(each, left) for each in above), any(rejects(each, right) for each in above)
    kind = _FEWER.get(node.kind, {}).get(rejected, node.kind)
    # A row for which the ON condition is never true has no match, so it matters only if unmatched rows are emitted.
    to_left = [*(() if kind in ("right", "full") else above)]
    to_left += node.condition if kind in ("inner", "right", "semi") else ()
    to_right = [*(above if kind in ("inner", "right") else ())]
    to_right += node.condition if kind in ("inner", "left", "semi", "anti", "mark") else ()
    return replace(
        node,
        kind=kind,
        left=replace(node.left, input=_narrow(node.left.input, to_left)),
        right=replace(node.right, input=_narrow(node.right.input, to_right)),
    )
