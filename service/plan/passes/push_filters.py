"""Push conditions down to the scans, or into joins, as far as possible without changing the result.

    WHERE on one side       moves into that side if the join does not pad it (either side of an inner join, the left
                            side of a LEFT JOIN)
    WHERE on both sides     becomes part of an inner join's condition
    ON, one side only       moves into that side if the join does not preserve the side's rows
    on groups               moves below an aggregate, a window, a session or a pattern if it reads only group or
                            partition columns
    on split rows           moves below a node that splits a row into several if it reads no column in which they differ
    on the left of a lookup moves into the left side, because other left rows do not affect what a row finds
    over a union            moves into every input
    OR over both sides      what all alternatives require of one side is also pushed into that side: for
                            (l.v = 1 AND r.v = 2) OR (l.v = 2 AND r.v = 1), `l` is filtered by l.v = 1 OR l.v = 2

Any other condition stays where it is: below an outer join, it would change which rows are null-padded.

The conditions of an AND guard each other in the order in which they are written, as in `k <> 0 AND 10 / k > 1`, and a
join guards the conditions above it. So a condition that may fail stays where it is if moving it would leave a guard
behind. Instead, a `Possible` of the condition is pushed down. It removes the rows for which the condition is not true,
and passes the rows on which the condition fails.

A condition on NOW() later becomes a temporal filter (`passes.filter_by_clock`), so this pass does not make it part of a
join's condition. If it cannot be pushed down, it stays above an inner join.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from sqlglot import exp

from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.logical.calc import LogicalFilter, LogicalProject, LogicalScan, LogicalUnion, filtered
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.passes.extract_equal_keys import equal_sides
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.clock_conditions import reads_clock
from rowkind.service.plan.scalar.conditions import Possible, may_fail, may_move
from rowkind.service.plan.scalar.conjuncts import conjuncts, reads, substitute
from rowkind.service.plan.scalar.job_functions import functions_in
from rowkind.service.plan.tree import first, with_inputs


def push_filters(query: Query) -> Query:
    """Push filters down to the scans, or into joins, as far as possible without changing the result.

    >>> example(push_filters, '''
    ...     SELECT o.order_id, p.paid FROM orders o JOIN payments p ON o.order_id = p.order_id
    ...     WHERE p.paid > 1''')
    Filter p.paid > 1
      Join inner condition=[o.order_id = p.order_id]
        Scan orders o
        Scan payments p
    becomes
    Join inner condition=[o.order_id = p.order_id]
      Scan orders o
      Filter p.paid > 1
        Scan payments p
    """
    return replace(query, root=_push(query.root, ()))


def _push(node: LogicalNode, conditions: Sequence[exp.Expr]) -> LogicalNode:
    """Return the node with `conditions` applied to its output, or below it."""
    match node:
        case LogicalScan():
            return filtered(node, conditions)
        case LogicalFilter():
            return _push(node.input, [*node.conjuncts, *conditions])
        case LogicalProject(stands=True):
            return filtered(replace(node, input=_push(node.input, ())), conditions)
        case LogicalProject():
            return replace(node, input=_push(node.input, [substitute(each, node.outputs) for each in conditions]))
        case LogicalJoin():
            return _push_join(node, conditions)
        case LogicalUnion():
            return replace(node, inputs=tuple(_push(each, conditions) for each in node.inputs))
    sink, stay = _parted(conditions, node.lets_pass(columns(first(node)).keys()))
    # Only the first input gets the conditions.
    own = iter([sink])
    return filtered(with_inputs(node, lambda each: _push(each, next(own, ()))), stay)


def _parted(conditions: Sequence[exp.Expr], group: AbstractSet[str]) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """Return the conditions to push down, which remove whole groups, and the conditions that stay above the node."""
    sink: list[exp.Expr] = []
    stay: list[exp.Expr] = []
    for each in conditions:
        whole = _within(each, group)
        held = bool(stay) and may_fail(each)
        if whole:
            sink += _sunk(each, held=held)
        if held or not whole:
            stay.append(each)
    return sink, stay


def _push_join(node: LogicalJoin, conditions: Sequence[exp.Expr]) -> LogicalNode:
    left, right = set(columns(node.left.input)), set(columns(node.right.input))
    to_left: list[exp.Expr] = []
    to_right: list[exp.Expr] = []
    on: list[exp.Expr] = []
    above: list[exp.Expr] = []

    def put(each: exp.Expr, sink: list[exp.Expr] | None, otherwise: list[exp.Expr]) -> None:
        held = may_fail(each)
        for operand, beyond in zip(equal_sides(each, left, right) or (), (to_right, to_left), strict=False):
            if may_fail(operand):
                # As a join key, the operand is computed from its own side alone, so conditions that were pushed into
                # the other side would not guard it. These conditions are kept in ON as well.
                on.extend(one for one in beyond if not isinstance(one, Possible) and one not in on)
        if sink is not None:
            sink += _sunk(each, held=held)
        if held or sink is None:
            (above if node.kind == "inner" and reads_clock(each) else otherwise).append(each)

    def place(each: exp.Expr, *, in_left: bool, in_right: bool, otherwise: list[exp.Expr]) -> None:
        sides = [(left, to_left)] * in_left + [(right, to_right)] * in_right
        whole = [sink for side, sink in sides if _within(each, side)]
        put(each, whole[0] if whole else None, otherwise)
        if not whole:
            for side, sink in sides:
                sink.extend(part for part in _of_alternatives(each, side) if part not in sink)

    for each in node.condition:
        in_left = not node.pads_left and node.kind not in ("anti", "mark")
        place(each, in_left=in_left, in_right=not node.pads_right, otherwise=on)
    for each in conditions:
        if node.filters_left:
            put(each, to_left, above)
        else:
            otherwise = on if node.kind == "inner" else above
            place(each, in_left=not node.pads_right, in_right=not node.pads_left, otherwise=otherwise)
    joined = replace(
        node,
        left=replace(node.left, input=_push(node.left.input, to_left)),
        right=replace(node.right, input=_push(node.right.input, to_right)),
        condition=tuple(on),
    )
    return filtered(joined, above)


def _of_alternatives(condition: exp.Expr, side: set[str]) -> Sequence[exp.Expr]:
    """Return, as an OR, what the alternatives of a condition require of one side.

    Returns nothing if the condition is not an OR, or if one of its alternatives requires nothing of that side.
    """
    bare = condition.unnest()
    if not isinstance(bare, exp.Or):
        return []
    parts = [
        [each for each in conjuncts(branch) if _within(each, side) and may_move(each) and not reads_clock(each)]
        for branch in bare.flatten()
    ]
    return [exp.or_(*dict.fromkeys(exp.and_(*every) for every in parts))] if all(parts) else []


def _sunk(condition: exp.Expr, *, held: bool) -> Sequence[exp.Expr]:
    """Return what to push down for a condition: the condition or, if it must stay (`held`), its `Possible`.

    Nothing is pushed down for a condition on NOW() that must stay.
    """
    if not held:
        return [condition]
    return [] if reads_clock(condition) else [Possible(this=condition.copy())]


def _within(condition: exp.Expr, side: AbstractSet[str]) -> bool:
    """Whether a condition can move into a side: it reads columns of that side only, and is deterministic.

    A condition that reads no column stays where it is.
    """
    read = reads(condition)
    return bool(read) and read <= side and all(function.deterministic for function in functions_in(condition))
