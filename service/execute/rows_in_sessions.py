"""What sessions need to know of packed rows: their times, and the window of its session behind each."""

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
    """A column of packed rows of `record`, a time that is never NULL."""

    record: Record
    column: str

    def __call__(self, payloads: pa.BinaryArray) -> Int64s:
        """The time of each row, in microseconds since the epoch."""
        return in_us(read(self.record, payloads).column(self.column))


@dataclass(frozen=True)
class Started:
    """Puts times behind each row; `times` is the record of their columns."""

    times: Record

    def __call__(self, payloads: pa.BinaryArray, *micros: Int64s) -> pa.BinaryArray:
        """The rows with their times, which are given column by column in microseconds since the epoch."""
        columns = {
            field.name: pa.array(each).cast(pa.timestamp("us", field.type.arrow.tz)).cast(field.type.arrow)
            for field, each in zip(self.times.fields, micros, strict=True)
        }
        return codec.concat_rows(payloads, codec.encode(self.times, columns))
