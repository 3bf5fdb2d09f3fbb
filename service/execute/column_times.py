"""Times of packed rows, computed from a time column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.schema import Record
from rowkind.operators.columns.changes import Int64s
from rowkind.operators.columns.rowtime import END, later
from rowkind.operators.join.rows import Near
from rowkind.service.physical.clocks import Closing, ColumnTime, TimeBounds


@dataclass(frozen=True)
class TimeOf:
    """Computes the time of each packed row of `record` in ms, rounded up.

    If the column is NULL, the result is `END`, or `-END` if NULL stands for a time that has always passed.
    """

    record: Record
    time: ColumnTime

    def __call__(self, payloads: pa.BinaryArray) -> Int64s:
        """Return the time of each row."""
        values = codec.read(self.record, payloads).column(self.time.column)
        return in_ms(values, self.time.later_us, END if self.time.null == "never" else -END)


def until(record: Record, closing: Closing | None) -> TimeOf | None:
    """Return a function for the time until which packed rows of `record` are kept, or None if time evicts no rows."""
    return None if closing is None or closing.kept is None else TimeOf(record, closing.kept)


def in_ms(values: pa.Array, later_us: int = 0, null: int = END) -> Int64s:
    """Return each time plus `later_us` microseconds, in ms and rounded up. For NULL, return `null`.

    The sum is computed in ms, because the range of an int64 in ms covers all times that a column can contain.
    """
    ms, rest_us = _parts(values)
    whole, more_us = divmod(later_us, 1000)
    # Rounded up.
    result = np.clip(ms + whole - (-(rest_us + more_us) // 1000), 1 - END, END - 1)
    return np.where(values.is_valid().to_numpy(zero_copy_only=False), result, null) if values.null_count else result


def _parts(values: pa.Array) -> tuple[Int64s, Int64s]:
    """Split TIMESTAMPs or DATEs into whole ms since the epoch and the remaining microseconds. NULL becomes 0."""
    if pa.types.is_date(values.type):
        days: Int64s = values.cast(pa.int32()).cast(pa.int64()).fill_null(0).to_numpy()
        return days * 86_400_000, np.zeros(len(days), np.int64)
    found: Int64s = values.cast(pa.int64()).fill_null(0).to_numpy()
    per_ms = {"ms": 1, "us": 1_000, "ns": 1_000_000}[values.type.unit]
    ms, rest = np.divmod(found, per_ms)
    # Remaining nanoseconds are rounded up to the next microsecond.
    return np.clip(ms, 1 - END, END - 1), -(-rest * 1000 // per_ms)


def in_us(values: pa.Array) -> Int64s:
    """Convert TIMESTAMPs or DATEs to microseconds since the epoch, clipped to the range of int64. NULL becomes 0."""
    if pa.types.is_date(values.type):
        return _multiplied(values.cast(pa.int32()).cast(pa.int64()), 86_400_000_000)
    found = values.cast(pa.int64())
    if values.type.unit == "ms":
        return _multiplied(found, 1_000)
    plain: Int64s = found.fill_null(0).to_numpy()
    return plain // 1_000 if values.type.unit == "ns" else plain


def _multiplied(values: pa.Array, by: int) -> Int64s:
    most = np.iinfo(np.int64).max // by
    result: Int64s = np.clip(values.fill_null(0).to_numpy(), -most, most) * by
    return result


def near_of(bounds: TimeBounds, left: Record, right: Record) -> Near:
    """Return the bounds between the times of a left and a right packed row within which the two rows can match."""
    of_left, of_right = MicrosOf(left, ColumnTime(bounds.left)), MicrosOf(right, ColumnTime(bounds.right))
    return Near(of_left, of_right, bounds.earliest, bounds.latest)


@dataclass(frozen=True)
class MicrosOf:
    """Computes the time of each packed row of `record` in microseconds. The result for NULL is arbitrary."""

    record: Record
    time: ColumnTime

    def __call__(self, payloads: pa.BinaryArray) -> Int64s:
        """Return the time of each row."""
        return later(in_us(codec.read(self.record, payloads).column(self.time.column)), self.time.later_us)
