"""Access to packed rows for sessions: reading of times, and appending of the bounds of each row's session."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.schema import Record
from rowkind.operators.columns.changes import Int64s
from rowkind.service.execute.column_times import in_us
from rowkind.service.execute.values import read


@dataclass(frozen=True)
class Times:
    """Reads a time column from packed rows of `record`. The column is never NULL."""

    record: Record
    column: str

    def __call__(self, payloads: pa.BinaryArray) -> Int64s:
        """Return the time of each row, in microseconds since the epoch."""
        return in_us(read(self.record, payloads).column(self.column))


@dataclass(frozen=True)
class Started:
    """Appends times to each row. `times` is the record of the appended columns."""

    times: Record

    def __call__(self, payloads: pa.BinaryArray, *micros: Int64s) -> pa.BinaryArray:
        """Return the rows with the given times appended. Times are given in microseconds since the epoch."""
        columns = {
            field.name: pa.array(each).cast(pa.timestamp("us", field.type.arrow.tz)).cast(field.type.arrow)
            for field, each in zip(self.times.fields, micros, strict=True)
        }
        return codec.concat_rows(payloads, codec.encode(self.times, columns))
