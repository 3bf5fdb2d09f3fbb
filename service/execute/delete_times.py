"""End times for versions of rows that are deleted by key alone, as in an upsert topic.

A delete by key has no time of its own. It gets the watermark of its partition at the delete's position in the topic:
the highest time of the rows before the delete, minus the delay. So the delete affects no left row that the watermark
has passed, and the delete's time does not depend on how the topic is divided into batches. The reader knows the rows of
the current batch, and each shard knows the marks of earlier batches (`service.execute.watermarks`). The later of the
two times counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.schema import Record
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import Changes, Indices, Int64s, Rows, concat_binary
from rowkind.service.execute.column_times import in_us
from rowkind.service.execute.watermarks import Watermarks
from rowkind.service.physical.graph import GraphScan
from rowkind.service.physical.node import PhysicalOperator, PhysicalScan
from rowkind.service.physical.operators import PhysicalLookup
from rowkind.service.physical.source_table import Watermark

_YEAR_1_US = -62_135_596_800_000_000
"""The time of a delete if no mark is known yet."""


def with_delete_times(scan: GraphScan, rows: Rows, known: Mapping[int, int | None]) -> Rows:
    """Return a scan's rows, with times set on deletes if an operator reads them. `known` contains earlier marks."""
    watermark, column, record = scan.scan.source.watermark, scan.delete_time, scan.scan.calc.input
    at = np.flatnonzero(rows.kind == RowKind.DELETE)
    if column is None or watermark is None or not len(at):
        return rows
    reached = _marks(watermark, codec.read(record, rows.payload).column(column), rows, known)
    return replace(rows, payload=_timed(record, column, rows.payload, at, reached[at]))


@dataclass(frozen=True)
class DeleteTimes:
    """Moves the times of deletes by key forward to the marks of earlier batches, if the marks are later."""

    node: PhysicalLookup

    @classmethod
    def of(cls, node: PhysicalOperator) -> DeleteTimes | None:
        """Return the times of the deletes that an operator receives, or None if its deletes have no times."""
        if not isinstance(node, PhysicalLookup) or not isinstance(node.right, PhysicalScan):
            return None
        return None if node.right.calc.delete_time is None else cls(node)

    def __call__(self, changes: Changes, before: Watermarks) -> Changes:
        """Return the changes with the times of deletes moved forward."""
        node = self.node
        at = np.flatnonzero((changes.side == 1) & (changes.kind == RowKind.DELETE))
        if not len(at):
            return changes
        assert isinstance(node.right, PhysicalScan), "the right side is a table"
        assert node.match is not None, "versions are looked up by a time"
        record, column = node.right.calc.output, node.match.right
        reached = in_us(codec.read(record, changes.payload.take(pa.array(at))).column(column))
        partitions = ArrivalNumber.partitions(changes.seq[at])
        for partition, (mark, _) in before.seen.get(node.right.source.table, {}).items():
            known = np.where(partitions == partition, max(_YEAR_1_US, 1000 * mark), _YEAR_1_US)
            reached = np.maximum(reached, known)
        return replace(changes, payload=_timed(record, column, changes.payload, at, reached))


def _marks(watermark: Watermark, times: pa.Array, rows: Rows, known: Mapping[int, int | None]) -> Int64s:
    """Return each row's mark, in microseconds: the mark of the row's partition directly after the row."""
    told = times.is_valid().to_numpy(zero_copy_only=False) & (rows.kind != RowKind.DELETE)
    # The times are rounded down to whole ms, as marks are.
    marks = np.where(told, (in_us(times) - watermark.delay_us) // 1000 * 1000, _YEAR_1_US)
    partitions = ArrivalNumber.partitions(rows.seq)
    reached = np.empty(len(rows), np.int64)
    for partition in np.unique(partitions).tolist():
        at = np.flatnonzero(partitions == partition)
        at = at[np.argsort(rows.seq[at], kind="stable")]
        first = known.get(partition)
        marks[at[0]] = max(marks[at[0]], _YEAR_1_US if first is None else 1000 * first)
        reached[at] = np.maximum.accumulate(marks[at])
    return reached


def _timed(record: Record, column: str, payload: pa.BinaryArray, at: Indices, reached: Int64s) -> pa.BinaryArray:
    """Return packed rows of `record`. The rows at the indices `at` get the times `reached`, in microseconds."""
    rows = codec.read(record, payload.take(pa.array(at)))
    times = pa.array(reached, pa.timestamp("us")).cast(record.type(column).arrow, safe=False)
    timed = rows.assemble(record, [times if name == column else name for name in record.names])
    order = np.arange(len(payload))
    order[at] = len(payload) + np.arange(len(at))
    return concat_binary([payload, timed]).take(pa.array(order))
