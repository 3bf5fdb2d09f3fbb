"""Carry only the columns that a downstream operator reads, and read only those from the topics."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace

from rowkind.service.physical.calc import ARRIVAL
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.binary import LogicalJoin, LogicalLookup
from rowkind.service.plan.logical.calc import LogicalExpand, LogicalFilter, LogicalProject, LogicalScan
from rowkind.service.plan.logical.node import LogicalBinary, LogicalGrouping, LogicalInput, LogicalNode, LogicalUnary
from rowkind.service.plan.logical.per_row import LogicalOver, LogicalStamp
from rowkind.service.plan.logical.subset import LogicalNormalize
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.conjuncts import reads
from rowkind.service.plan.traits.partitioning import shard_key
from rowkind.service.plan.tree import first, with_inputs


def prune_columns(query: Query) -> Query:
    """Read only the columns that the query uses, and carry only those through operators.

    >>> example(prune_columns, "SELECT page FROM clicks WHERE day > DATE '2026-01-01'")
    Scan clicks used=[customer_id, page, at, day]
    becomes
    Scan clicks used=[page, day]
    """
    return replace(query, root=_prune(query.root, set(query.outputs)))


def _prune(node: LogicalNode, wanted: set[str]) -> LogicalNode:
    """Return the node without the columns that are not needed to compute the `wanted` columns."""
    match node:
        case LogicalScan():
            used = tuple(each for each in node.used if node.name(each) in wanted)
            return replace(node, used=used, numbered=node.numbered and node.name(ARRIVAL) in wanted)
        case LogicalFilter():
            return replace(node, input=_prune(node.input, wanted.union(*map(reads, node.conjuncts))))
        case LogicalProject():
            kept = wanted | (node.view.wanted if node.view is not None else set())
            outputs = {name: output for name, output in node.outputs.items() if name in kept}
            return replace(node, input=_prune(node.input, set().union(*map(reads, outputs.values()))), outputs=outputs)
        case LogicalExpand():
            return _expand(node, wanted)
        case _ if _adds_nothing(node, wanted):
            return _prune(first(node), wanted)
        case LogicalBinary():
            return _binary(node, wanted)
        case LogicalUnary():
            return _unary(node, wanted)
    return with_inputs(node, lambda each: _prune(each, wanted))


def _adds_nothing(node: LogicalNode, wanted: set[str]) -> bool:
    """Whether an operator only adds columns to its first input's rows, and none of the added columns is wanted."""
    if isinstance(node, LogicalOver | LogicalStamp):
        return wanted.isdisjoint(node.adds(columns(node.input.input)))
    return isinstance(node, LogicalJoin) and node.answer is not None and node.answer not in wanted


def _expand(node: LogicalExpand, wanted: set[str]) -> LogicalExpand:
    wanted = wanted.union(*map(reads, node.condition))
    below = wanted.intersection(columns(node.input)) | reads(node.array)
    elements = {name: part for name, part in node.elements.items() if name in wanted}
    return replace(node, input=_prune(node.input, below), elements=elements)


def _binary(node: LogicalBinary, wanted: set[str]) -> LogicalBinary:
    asked = set(_times(node)).union(*map(reads, node.condition))
    read = wanted | asked
    right = asked if isinstance(node, LogicalJoin) and node.keeps_left else read
    return replace(
        node,
        left=_side(node.left, read, (reads(key.left) for key in node.keys)),
        right=_side(node.right, right, (reads(key.right) for key in node.keys)),
    )


def _times(node: LogicalBinary) -> tuple[str, ...]:
    match = node.match if isinstance(node, LogicalLookup) else None
    return () if match is None else (match.left, match.right)


def _unary(node: LogicalUnary, wanted: set[str]) -> LogicalUnary:
    kept = node.only(wanted)
    needed = kept.reads if isinstance(kept, LogicalGrouping) else kept.reads | wanted
    ordered = {each.column for each in kept.sorts_by if each.column is not None}
    # A Normalize without a key is partitioned by the columns that it carries, which are determined only here.
    key = node.key if isinstance(node, LogicalNormalize) else shard_key(node)
    return replace(kept, input=_side(kept.input, needed, [{*key, *ordered}]))


def _closing(side: LogicalInput) -> set[str]:
    """Return the columns whose times determine when a side's rows are late or evicted."""
    times = () if side.closing is None else (side.closing.late, side.closing.kept)
    return {time.column for time in times if time is not None}


def _side(side: LogicalInput, needed: AbstractSet[str], keys: Iterable[set[str]]) -> LogicalInput:
    """Return the side with the columns that it carries. Key and sub-key columns are read, but need not be carried."""
    needed = {*needed, *side.ids, *_closing(side)}
    carried = tuple(name for name in columns(side.input) if name in needed)
    read = {*carried, *side.sub_key, *([] if side.arrival is None else [side.arrival])}
    return replace(side, carried=carried, input=_prune(side.input, read.union(*keys)))
