"""What sessions need to know of packed rows: their times, and the beginning of its session behind each."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.schema import Record
from rowkind.operators.columns.changes import Int64s
from rowkind.service.execute.values import read


@dataclass(frozen=True)
class Times:
    """A column of packed rows of `record`, a time that is never NULL."""

    record: Record
    column: str

    def __call__(self, payloads: pa.BinaryArray) -> Int64s:
        """The time of each row, in microseconds since the epoch."""
        values = read(self.record, payloads).column(self.column)
        micros = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
        found: Int64s = micros.to_numpy(zero_copy_only=False)
        return found


@dataclass(frozen=True)
class Started:
    """Puts a time behind each row; `start` is the record of this one column."""

    start: Record

    def __call__(self, payloads: pa.BinaryArray, starts: Int64s) -> pa.BinaryArray:
        """The rows with their times, which are given in microseconds since the epoch."""
        (field,) = self.start.fields
        column = pa.array(starts).cast(pa.timestamp("us", field.type.arrow.tz)).cast(field.type.arrow)
        return codec.concat_rows(payloads, codec.encode(self.start, {field.name: column}))
