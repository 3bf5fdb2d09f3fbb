"""Blocks: Arrow IPC streams with a batch for one shard. Spark shuffles no other data.

A block is one record batch: the changes, then the refreshes, then the dead letters, which use only the payload column.
The schema's metadata contains the number of refreshes, the number of dead letters, and the other contents of the block:
truncations, counters, the extent of the source's batch, time marks and a flag. Only this module knows the encoding.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pyarrow as pa

from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, constant

Counters = Mapping[str, float]
"""Metric samples that a block carries to the writer, by their names in Prometheus's exposition format, such as
`rowkind_rows_in_total{table="orders",kind="+I"}`. Samples whose names end in `_total` are counters, which are added up.
All other samples are gauges of one shard, and a later value replaces an earlier one."""

TimeMarks = Mapping[str, Mapping[int, int | None]]
"""The event time that each partition of each table has reached, in ms since the epoch; None if it is unknown."""

_BESIDE = b"rowkind.beside"
_COUNTERS = b"rowkind.counters"
_MARKS = b"rowkind.marks"
_REPORTS = b"rowkind.reports"
_EXTENT = b"rowkind.extent"


@dataclass(frozen=True, slots=True)
class Block:
    """A batch for one shard, together with other data that Spark shuffles with the batch.

    These are counters, the extent of the source's batch, time marks, and a flag (`reports`) that asks the shard to
    report its state.
    """

    batch: Batch = field(default_factory=Batch.empty)
    counters: Counters = field(default_factory=dict)
    extent: str = ""
    marks: TimeMarks = field(default_factory=dict)
    reports: bool = False

    @property
    def changes(self) -> Changes:
        """The changes of the batch."""
        return self.batch.changes

    def to_bytes(self) -> bytes:
        """Return this block as an Arrow IPC stream."""
        metadata = {_COUNTERS: json.dumps(self.counters)} if self.counters else {}
        if self.extent:
            metadata[_EXTENT] = self.extent
        if self.marks:
            metadata[_MARKS] = json.dumps(self.marks)
        if self.reports:
            metadata[_REPORTS] = ""
        rows, batch = self.batch.touched, self.batch
        if len(batch.refreshes) or len(batch.letters) or batch.truncations:
            metadata[_BESIDE] = json.dumps([len(batch.refreshes), len(batch.letters), batch.truncations])
            rows = Changes.concat([rows, _as_rows(batch.letters)])
        columns = pa.RecordBatch.from_arrays(
            [
                pa.array(rows.side, pa.int16()),
                pa.array(rows.kind),
                pa.array(rows.hash),
                rows.key,
                rows.sub_key,
                pa.array(rows.seq),
                rows.payload,
            ],
            schema=_SCHEMA.with_metadata(metadata or None),
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, columns.schema) as stream:
            stream.write_batch(columns)
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    @classmethod
    def from_bytes(cls, data: bytes | pa.Buffer) -> Self:
        """Return the block that `to_bytes` serialized. Where Arrow allows it, the columns are views of `data`."""
        with pa.ipc.open_stream(data) as stream:
            columns: Any = stream.read_next_batch()
        side, kind, hashes, key, sub_key, seq, payload = columns.columns
        metadata = columns.schema.metadata or {}
        rows = Changes(side.to_numpy(), kind.to_numpy(), hashes.to_numpy(), key, sub_key, seq.to_numpy(), payload)
        return cls(
            _taken_apart(rows, *json.loads(metadata[_BESIDE])) if _BESIDE in metadata else Batch(rows),
            json.loads(metadata[_COUNTERS]) if _COUNTERS in metadata else {},
            metadata.get(_EXTENT, b"").decode(),
            _marks(metadata[_MARKS]) if _MARKS in metadata else {},
            _REPORTS in metadata,
        )


def _as_rows(letters: pa.BinaryArray) -> Changes:
    count = len(letters)
    none, zeros = constant(b"", count), np.zeros(count, np.int8)
    return Changes(zeros, zeros, zeros.astype(np.uint64), none, none, zeros.astype(np.int64), letters)


def _taken_apart(rows: Changes, refreshes: int, letters: int, truncations: Mapping[str, int]) -> Batch:
    """Split a block's rows into changes, refreshes and dead letters.

    The sides in `truncations` are strings, because they were read from JSON.
    """
    changed, kept = len(rows) - refreshes - letters, len(rows) - letters
    return Batch(
        rows.slice(0, changed),
        rows.slice(changed, kept),
        {int(side): seq for side, seq in truncations.items()},
        rows.payload.slice(kept),
    )


def _marks(text: bytes) -> TimeMarks:
    """Parse time marks from JSON, in which partition numbers are strings."""
    tables = json.loads(text).items()
    return {table: {int(number): mark for number, mark in partitions.items()} for table, partitions in tables}


_SCHEMA = pa.schema(
    [
        pa.field("side", pa.int16(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("hash", pa.uint64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("sub_key", pa.binary(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
