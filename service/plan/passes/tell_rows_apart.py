"""Where rows are found by their content, they are told apart by all columns of their table, also by those pruned.

A retraction of a table without a key takes back a row that is equal in all columns. The first operator above such a
table, a join, a rank or a Normalize, finds the row among those that it keeps, or finds none, and the retraction is
unmatched. But it keeps only the columns that somebody reads, and a retraction of a row that was never sent may agree in
these with one that was. So where columns have been pruned, a digest of the whole row is kept with the others
(`calc.ROW_DIGEST`), and goes no further than that operator: whatever comes out of it is exact.

The table is then read whole. It costs a digest and 17 bytes of state for each row, and is not done for a table that is
said to be `exact`, where every retraction has its row and it does not matter which of two that look alike it takes. It
does matter where a Normalize keeps the arrival of each row.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from rowkind.service.calc import ROW_DIGEST
from rowkind.service.plan.logical import (
    LogicalFilter,
    LogicalInput,
    LogicalJoin,
    LogicalLookup,
    LogicalNode,
    LogicalNormalize,
    LogicalOver,
    LogicalProject,
    LogicalRank,
    LogicalScan,
    LogicalSession,
    LogicalTemporalFilter,
)
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.traits.changelog_modes import bare_scan
from rowkind.service.plan.tree import bottom_up


def tell_rows_apart(query: Query) -> Query:
    """Operators above tables without a key with a digest of each row among what they carry, where they need it."""
    return replace(query, root=bottom_up(query.root, _visit))


def _visit(node: LogicalNode) -> LogicalNode:
    match node:
        case LogicalJoin() | LogicalLookup():
            return replace(node, left=_side(node.left), right=_side(node.right))
        case LogicalNormalize():
            return replace(node, input=_side(node.input, arrival=node.arrival is not None))
        case LogicalRank() | LogicalSession() | LogicalOver() | LogicalTemporalFilter():
            return replace(node, input=_side(node.input))
    return node


def _side(side: LogicalInput, *, arrival: bool = False) -> LogicalInput:
    scan = bare_scan(side.input)
    if scan is None or scan.source.primary_key or not (scan.source.strays or arrival):
        return side
    if _carried(side.input, set(side.carried)).issuperset(map(scan.name, scan.source.declared.names)):
        return side
    return replace(side, input=_digested(side.input), carried=(*side.carried, scan.name(ROW_DIGEST)))


def _carried(node: LogicalNode, names: set[str]) -> set[str]:
    """Which columns of the scan below are among these columns of the node, as they are."""
    match node:
        case LogicalFilter():
            return _carried(node.input, names)
        case LogicalProject():
            bare = (node.outputs[name].unnest() for name in names)
            return _carried(node.input, {each.name for each in bare if isinstance(each, exp.Column)})
        case _:
            return names


def _digested(node: LogicalNode) -> LogicalNode:
    """The filters and projections above a scan, and the scan itself, with the digest."""
    match node:
        case LogicalFilter():
            return replace(node, input=_digested(node.input))
        case LogicalProject():
            scan = bare_scan(node)
            assert scan is not None, "nothing but a scan is digested"
            name = scan.name(ROW_DIGEST)
            return replace(node, input=_digested(node.input), outputs={**node.outputs, name: resolved(name)})
        case LogicalScan():
            return replace(node, used=node.source.declared.names, digested=True)
        case _:
            raise AssertionError("nothing but a scan is digested")
