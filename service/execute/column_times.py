"""The times of packed rows, by a column of theirs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.schema import Record
from rowkind.operators.columns.changes import Int64s
from rowkind.operators.join_rows import Near
from rowkind.operators.rowtime import END
from rowkind.service.clocks import Closing, ColumnTime, TimeBounds


@dataclass(frozen=True)
class TimeOf:
    """A time of each packed row of `record`: the first ms that is not before it.

    Where it is NULL, it is `END`, or `-END` for a time that has always been.
    """

    record: Record
    time: ColumnTime

    def __call__(self, payloads: pa.BinaryArray) -> Int64s:
        """The time of each row."""
        values = codec.read(self.record, payloads).column(self.time.column)
        return in_ms(values, self.time.later_us, END if self.time.null == "never" else -END)


def until(record: Record, closing: Closing | None) -> TimeOf | None:
    """Until when packed rows of `record` are kept; None where they are not let go of because of their time."""
    return None if closing is None or closing.kept is None else TimeOf(record, closing.kept)


def in_ms(values: pa.Array, later_us: int = 0, null: int = END) -> Int64s:
    """The first ms that is not before each of these times and `later_us` microseconds; `null` where it is NULL."""
    # Rounded up.
    result: Int64s = -(-(in_us(values) + later_us) // 1000)
    return np.where(values.is_valid().to_numpy(zero_copy_only=False), result, null) if values.null_count else result


def in_us(values: pa.Array) -> Int64s:
    """TIMESTAMPs or DATEs in microseconds since the epoch; 0 where they are NULL."""
    zone = values.type.tz if pa.types.is_timestamp(values.type) else None
    found: Int64s = values.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64()).fill_null(0).to_numpy()
    return found


def near_of(bounds: TimeBounds, left: Record, right: Record) -> Near:
    """How far apart the times of packed rows of two sides may lie for them to match."""
    of_left, of_right = MicrosOf(left, ColumnTime(bounds.left)), MicrosOf(right, ColumnTime(bounds.right))
    return Near(of_left, of_right, bounds.earliest, bounds.latest)


@dataclass(frozen=True)
class MicrosOf:
    """A time of each packed row of `record` in microseconds; of a NULL, whichever."""

    record: Record
    time: ColumnTime

    def __call__(self, payloads: pa.BinaryArray) -> Int64s:
        """The time of each row."""
        return in_us(codec.read(self.record, payloads).column(self.time.column)) + self.time.later_us
