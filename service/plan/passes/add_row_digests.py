"""Add a digest of the whole row wherever rows of a table without a key are found by their content.

To retract a row, a table without a key sends a row that is equal in all columns. The first operator above such a table
(a join, a rank or a Normalize) looks for this row among its stored rows. If it finds none, the retraction is unmatched.
But the operator stores only the columns that are read. In these columns, the retraction of a row that was never sent
may equal a row that was sent. So if columns have been pruned, a digest of the whole row is stored with the remaining
columns (`calc.ROW_DIGEST`). The digest is not needed downstream of that operator, because its output is exact.

All columns of the table are then read, which costs one digest and 17 bytes of state per row. No digest is added for a
table that is marked `exact`: every retraction of such a table finds its row, and it does not matter which of two rows
with equal remaining columns is removed. It does matter if a Normalize stores the arrival number of each row, so a
digest is added in that case.

A table whose columns come from the registry may have gained columns since the checkpoint was written. The digest then
covers only the columns that existed at that time, for two reasons: the stored rows do not have the new columns, and a
new column that is not read must not prevent the job from resuming.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

from sqlglot import exp

from rowkind.service.physical.calc import ROW_DIGEST
from rowkind.service.physical.source_table import SourceTable
from rowkind.service.plan.logical.calc import LogicalFilter, LogicalProject, LogicalScan
from rowkind.service.plan.logical.node import LogicalBinary, LogicalInput, LogicalNode, LogicalUnary
from rowkind.service.plan.logical.subset import LogicalNormalize
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.traits.changelog_modes import bare_scan
from rowkind.service.plan.tree import Rules, first, over, rewritten


def add_row_digests(query: Query) -> Query:
    """Add a row digest to the columns of each operator that finds the rows of a table without a key by their content.

    >>> example(add_row_digests, "SELECT m.item, c.page FROM moves m JOIN clicks c ON m.shop = c.customer_id")
    Join inner keys=[m.shop = c.customer_id] left.carried=[m.item]
      Scan moves m used=[item, shop]
      Scan clicks c used=[customer_id, page]
    becomes
    Join inner keys=[m.shop = c.customer_id] left.carried=[m.item, m.#row]
      Scan moves m digested used=[item, shop, quantity]
      Scan clicks c used=[customer_id, page]
    """
    rules: Rules = {
        LogicalBinary: partial(_binary, query.recorded),
        LogicalUnary: partial(_unary, query.recorded),
    }
    return replace(query, root=rewritten(query.root, rules))


_Recorded = Mapping[str, str] | None


def _binary(recorded: _Recorded, node: LogicalBinary) -> LogicalBinary:
    return replace(node, left=_side(recorded, node.left), right=_side(recorded, node.right))


def _unary(recorded: _Recorded, node: LogicalUnary) -> LogicalUnary:
    if not node.finds_by_content:
        return node
    arrival = isinstance(node, LogicalNormalize) and node.arrival is not None
    return replace(node, input=_side(recorded, node.input, arrival=arrival))


def _side(recorded: _Recorded, side: LogicalInput, *, arrival: bool = False) -> LogicalInput:
    scan = bare_scan(side.input)
    if scan is None or scan.source.primary_key or not (scan.source.may_retract_unsent or arrival):
        return side
    carried = _carried(side.input, set(side.carried))
    apart = _apart(recorded, scan.source, {name for name in scan.source.declared.names if scan.name(name) in carried})
    if carried.issuperset(map(scan.name, apart)):
        return side
    return replace(side, input=_digested(side.input, apart), carried=(*side.carried, scan.name(ROW_DIGEST)))


def _apart(recorded: _Recorded, source: SourceTable, carried: Collection[str]) -> frozenset[str]:
    """Return the columns that distinguish a table's rows: all except those added since the checkpoint was written."""
    declared = frozenset(source.declared.names)
    if source.known_as is None or recorded is None:
        return declared
    scans = [fact.removesuffix(".topic") for fact in recorded if fact.endswith(".topic")]
    scans = [scan for scan in scans if scan != "sink" and recorded[f"{scan}.topic"] == source.topic]
    if not scans:
        return declared
    digest = next((recorded[f"{scan}.digest"] for scan in scans if f"{scan}.digest" in recorded), None)
    # If the checkpoint has no digest, all columns were carried.
    there = carried if digest is None else [name for name in declared if re.search(rf"(^|, ){name} [A-Z]", digest)]
    return declared - {name for name in declared.difference(there) if source.declared.type(name).nullable}


def _carried(node: LogicalNode, names: set[str]) -> set[str]:
    """Return the columns of the scan below that are among the node's columns `names`, unchanged."""
    if isinstance(node, LogicalProject):
        bare = (node.outputs[name].unnest() for name in names)
        return _carried(node.input, {each.name for each in bare if isinstance(each, exp.Column)})
    return _carried(node.input, names) if isinstance(node, LogicalFilter) else names


def _digested(node: LogicalNode, apart: Collection[str]) -> LogicalNode:
    """Return a scan, and the filters and projections above it, with a digest of these columns."""
    if isinstance(node, LogicalScan):
        used = tuple(each for each in node.source.declared.names if each in apart or each in node.used)
        return replace(node, used=used, digested=True)
    scan = bare_scan(node)
    assert scan is not None, "only scans are digested"
    below = _digested(first(node), apart)
    if not isinstance(node, LogicalProject):
        return over(node, below)
    name = scan.name(ROW_DIGEST)
    return replace(node, input=below, outputs={**node.outputs, name: resolved(name)})
