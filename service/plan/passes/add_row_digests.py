"""Add a digest of the whole row where rows of a table without a key are found by their content.

A table without a key retracts a row by a row that is equal in all columns. The first operator above such a table, a
join, a rank or a Normalize, finds this row among those that it stores. If it does not, the retraction is unmatched. But
the operator stores only the columns that are read, and in these a retraction of a row that was never sent may equal a
row that was. So if columns have been pruned, a digest of the whole row is stored with the others (`calc.ROW_DIGEST`).
It goes no further than that operator, whose output is exact.

The table is then read whole, which costs a digest and 17 bytes of state for each row. This is not done for a table that
is marked `exact`: there every retraction has its row, and it does not matter which of two rows that look alike it
removes. It does matter if a Normalize keeps the arrival of each row.

A table whose columns come from the registry may have gained columns since the checkpoint was written. Its rows are
then distinguished by the columns that existed at the time: the stored rows do not have the new ones, and a new column
that is not read must not keep the job from continuing.
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
    """Carry a digest of the whole row in operators that find the rows of a table without a key by their content.

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
    """Return the columns by which rows of a table are distinguished: all except those added since the checkpoint."""
    declared = frozenset(source.declared.names)
    if source.known_as is None or recorded is None:
        return declared
    scans = [fact.removesuffix(".topic") for fact in recorded if fact.endswith(".topic")]
    scans = [scan for scan in scans if scan != "sink" and recorded[f"{scan}.topic"] == source.topic]
    if not scans:
        return declared
    digest = next((recorded[f"{scan}.digest"] for scan in scans if f"{scan}.digest" in recorded), None)
    # Without a digest all columns were carried.
    there = carried if digest is None else [name for name in declared if re.search(rf"(^|, ){name} [A-Z]", digest)]
    return declared - {name for name in declared.difference(there) if source.declared.type(name).nullable}


def _carried(node: LogicalNode, names: set[str]) -> set[str]:
    """Return which columns of the scan below are among these columns of the node, unchanged."""
    if isinstance(node, LogicalProject):
        bare = (node.outputs[name].unnest() for name in names)
        return _carried(node.input, {each.name for each in bare if isinstance(each, exp.Column)})
    return _carried(node.input, names) if isinstance(node, LogicalFilter) else names


def _digested(node: LogicalNode, apart: Collection[str]) -> LogicalNode:
    """Return the filters and projections above a scan, and the scan itself, with the digest of these columns."""
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
