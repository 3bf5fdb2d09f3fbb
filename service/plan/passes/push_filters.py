"""Filters sink: conditions move down to the scans, or into the joins, as far as they may.

    WHERE on one side       sinks into a side that is not padded (both of an inner join, the left one of a LEFT JOIN)
    WHERE on both sides     becomes part of an inner join's condition
    ON, one side only       sinks into a side whose rows the join does not preserve
    on groups               sinks below an aggregate or a window if it reads nothing but their groups or partitions
    over a union            sinks into every input

Elsewhere a condition stays where it is: below an outer join it would decide about pads that it was not asked about.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sqlglot import exp

from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical import (
    LogicalAggregate,
    LogicalFilter,
    LogicalJoin,
    LogicalNode,
    LogicalNormalize,
    LogicalProject,
    LogicalRank,
    LogicalScan,
    LogicalUnion,
    LogicalWindow,
    Query,
    reads,
    substitute,
)


def push_filters(query: Query) -> Query:
    """The same query with its filters as far down as they may be."""
    return replace(query, root=_push(query.root, ()))


def _push(node: LogicalNode, conditions: Sequence[exp.Expr]) -> LogicalNode:
    """The node with `conditions` applied to what it emits, or further down."""
    match node:
        case LogicalScan():
            return _filtered(node, conditions)
        case LogicalFilter():
            return _push(node.input, [*node.conjuncts, *conditions])
        case LogicalProject():
            return replace(node, input=_push(node.input, [substitute(each, node.outputs) for each in conditions]))
        case LogicalJoin():
            return _push_join(node, conditions)
        case LogicalWindow():
            sink, stay = _parted(conditions, set(node.partition))
            return _filtered(replace(node, input=_push(node.input, sink)), stay)
        case LogicalAggregate():
            sink, stay = _parted(conditions, set(node.group))
            return _filtered(replace(node, input=replace(node.input, input=_push(node.input.input, sink))), stay)
        case LogicalUnion():
            return replace(node, inputs=tuple(_push(each, conditions) for each in node.inputs))
        case LogicalRank() | LogicalNormalize():
            raise AssertionError("filters sink before ranks and old rows are thought of")


def _parted(conditions: Sequence[exp.Expr], group: set[str]) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """The conditions that remove whole groups, and the others."""
    sink = [each for each in conditions if _within(each, group)]
    return sink, [each for each in conditions if each not in sink]


def _push_join(node: LogicalJoin, conditions: Sequence[exp.Expr]) -> LogicalNode:
    left, right = set(columns(node.left.input)), set(columns(node.right.input))
    stay: list[exp.Expr] = []
    to_left: list[exp.Expr] = []
    to_right: list[exp.Expr] = []
    on: list[exp.Expr] = []
    for each in conditions:
        if node.filters_left or (not node.pads_right and _within(each, left)):
            to_left.append(each)
        elif not node.pads_left and _within(each, right):
            to_right.append(each)
        elif node.kind == "inner":
            on.append(each)
        else:
            stay.append(each)
    for each in node.condition:
        if not node.pads_left and node.kind != "anti" and _within(each, left):
            to_left.append(each)
        elif not node.pads_right and _within(each, right):
            to_right.append(each)
        else:
            on.append(each)
    joined = replace(
        node,
        left=replace(node.left, input=_push(node.left.input, to_left)),
        right=replace(node.right, input=_push(node.right.input, to_right)),
        condition=tuple(on),
    )
    return _filtered(joined, stay)


def _within(condition: exp.Expr, side: set[str]) -> bool:
    """Whether a condition reads one side only. One that reads no column at all stays where it is."""
    read = reads(condition)
    return bool(read) and read <= side


def _filtered(node: LogicalNode, conditions: Iterable[exp.Expr]) -> LogicalNode:
    kept = tuple(conditions)
    return LogicalFilter(node, kept) if kept else node
