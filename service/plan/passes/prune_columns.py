"""Only columns that somebody further up reads are carried, and only those are read from the topics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rowkind.operators.match_calls import MatchAggregate, Navigation
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical import (
    LogicalAggregate,
    LogicalExpand,
    LogicalFilter,
    LogicalInput,
    LogicalJoin,
    LogicalLookup,
    LogicalMatch,
    LogicalNode,
    LogicalNormalize,
    LogicalOver,
    LogicalProject,
    LogicalRank,
    LogicalScan,
    LogicalSession,
    LogicalStamp,
    LogicalTemporalFilter,
    LogicalUnion,
    LogicalWindow,
)
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.conjuncts import reads
from rowkind.service.plan.traits.partitioning import temporal_key


def prune_columns(query: Query) -> Query:
    """Scans with the columns they read, operators with the columns that their rows are made of."""
    return replace(query, root=_prune(query.root, set(query.outputs)))


def _prune(node: LogicalNode, wanted: set[str]) -> LogicalNode:
    """The node, which need emit no more than `wanted`."""
    match node:
        case LogicalScan():
            return replace(node, used=tuple(each for each in node.used if node.name(each) in wanted))
        case LogicalFilter():
            return replace(node, input=_prune(node.input, wanted.union(*map(reads, node.conjuncts))))
        case LogicalProject():
            kept = wanted | (node.view.wanted if node.view is not None else set())
            outputs = {name: output for name, output in node.outputs.items() if name in kept}
            return replace(node, input=_prune(node.input, set().union(*map(reads, outputs.values()))), outputs=outputs)
        case LogicalJoin() if node.answer is not None and node.answer not in wanted:
            return _prune(node.left.input, wanted)
        case LogicalExpand():
            return _expand(node, wanted)
        case LogicalJoin():
            return _join(node, wanted)
        case LogicalLookup():
            return _lookup(node, wanted)
        case LogicalAggregate():
            return _aggregate(node, wanted)
        case LogicalRank():
            numbers = {name: function for name, function in node.numbers.items() if name in wanted}
            ordered = {order.column for order in node.order if order.column is not None}
            needed = wanted.union(node.identity, *map(reads, node.condition), _closing(node.input))
            return replace(node, numbers=numbers, input=_side(node.input, needed, [{*node.partition, *ordered}]))
        case LogicalSession():
            return replace(
                node, input=_side(node.input, {*wanted, node.time, *_closing(node.input)}, [{*node.partition}])
            )
        case LogicalOver():
            return _over(node, wanted)
        case LogicalTemporalFilter():
            return replace(node, input=_side(node.input, wanted.union(node.reads), [set(temporal_key(node))]))
        case LogicalStamp() if node.time not in wanted:
            return _prune(node.input.input, wanted)
        case LogicalStamp():
            return replace(node, input=_side(node.input, wanted, [set(temporal_key(node))]))
        case LogicalMatch():
            return _match(node, wanted)
        case LogicalNormalize():
            return replace(node, input=_side(node.input, wanted, [set(node.key)]))
        case LogicalUnion():
            return replace(node, inputs=tuple(_prune(each, wanted) for each in node.inputs))
        case LogicalWindow():
            raise AssertionError("windows are ranks by now")


def _expand(node: LogicalExpand, wanted: set[str]) -> LogicalExpand:
    wanted = wanted.union(*map(reads, node.condition))
    below = wanted.intersection(columns(node.input)) | reads(node.array)
    elements = {name: part for name, part in node.elements.items() if name in wanted}
    return replace(node, input=_prune(node.input, below), elements=elements)


def _join(node: LogicalJoin, wanted: set[str]) -> LogicalJoin:
    conditions = set[str]().union(*map(reads, node.condition))
    right = conditions if node.keeps_left else wanted | conditions
    return replace(
        node,
        left=_side(node.left, wanted | conditions | _closing(node.left), (reads(key.left) for key in node.keys)),
        right=_side(node.right, right | _closing(node.right), (reads(key.right) for key in node.keys)),
    )


def _lookup(node: LogicalLookup, wanted: set[str]) -> LogicalLookup:
    needed = wanted if node.match is None else wanted | {node.match.left, node.match.right}
    return replace(
        node,
        left=_side(node.left, needed | _closing(node.left), (reads(key.left) for key in node.keys)),
        right=_side(node.right, needed | _closing(node.right), (reads(key.right) for key in node.keys)),
    )


def _aggregate(node: LogicalAggregate, wanted: set[str]) -> LogicalAggregate:
    # An aggregate that nobody asks for anything still says which groups there are, so one without calls stays one.
    ending = {node.ending.at.column} if node.ending is not None else set()
    calls = {name: call for name, call in node.calls.items() if name in wanted | ending}
    needed = set(node.group)
    for call in calls.values():
        needed.update(call.reads)
    return replace(node, calls=calls, input=_side(node.input, needed, []))


def _match(node: LogicalMatch, wanted: set[str]) -> LogicalMatch:
    calls = tuple(each for each in node.calls if each.name in wanted)
    asked = [*calls, *(call for each in node.conditions if each is not None for call in each.calls)]
    columns_ = (each.call.column for each in asked if isinstance(each.call, Navigation | MatchAggregate))
    carried = tuple(name for name in node.carried if name in wanted)
    needed = {*carried, node.time, *(name for name in columns_ if name is not None)}
    needed.update(*(reads(part) for each in node.conditions if each is not None for part in each.conjuncts))
    side = _side(node.input, needed, [{*node.partition, *node.ordered}])
    return replace(node, carried=carried, calls=calls, input=side)


def _over(node: LogicalOver, wanted: set[str]) -> LogicalNode:
    calls = {name: call for name, call in node.calls.items() if name in wanted}
    if not calls:
        return _prune(node.input.input, wanted)
    kept = replace(node, calls=calls)
    needed = wanted.union(*(call.reads for call in calls.values()), _closing(node.input))
    needed |= set() if kept.measure is None else {kept.measure}
    ordered = {each.column for each in node.order if each.column is not None}
    return replace(kept, input=_side(node.input, needed, [{*node.partition, *ordered}]))


def _closing(side: LogicalInput) -> set[str]:
    """The columns by whose time the rows of a side are let go of."""
    times = () if side.closing is None else (side.closing.late, side.closing.kept)
    return {time.column for time in times if time is not None}


def _side(side: LogicalInput, needed: set[str], keys: Iterable[set[str]]) -> LogicalInput:
    """The side with what is carried through the operator; keys and sub-key are read where the side's rows come from."""
    carried = tuple(name for name in columns(side.input) if name in needed)
    return replace(side, carried=carried, input=_prune(side.input, {*carried, *side.sub_key}.union(*keys)))
