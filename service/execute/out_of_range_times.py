"""Evaluation of expressions over far times, which are times outside DuckDB's range.

DuckDB's range is slightly smaller than Arrow's range, and DuckDB reserves some values for infinity. PostgreSQL's
infinity arrives as a far time, so comparisons with far times must work. An expression is evaluated with two stand-ins
for the far time. They are times near the end of the range that differ in everything except year and month. If both
results are equal, they are also the result for the far time. If the results are the two stand-ins, the result is the
far time. In all other cases, the expression fails on the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro.buffers import offsets_of, validity
from rowkind.avro.timestamp_text import FIRST_DATE, FIRST_MOMENT, LAST_DATE, LAST_MOMENT
from rowkind.operators.columns.changes import Int64s, Mask
from rowkind.service.physical.expression import Expression

Pair = tuple[pa.Array, pa.Array]

_APART_US = 90_061_000_001
"""The distance between two stand-ins: a day, an hour, a minute, a second and a microsecond."""


@dataclass(frozen=True)
class _Limits:
    """The first and the last value that DuckDB supports for a type, and the distance between two stand-ins."""

    first: int
    last: int
    apart: int

    def stand_ins(self, values: Int64s, step: int) -> Int64s:
        """Replace values outside the limits with the nearest value that is `step` distances inside the limits."""
        return np.clip(values, self.first + step * self.apart, self.last - step * self.apart)


def _limits(type_: pa.DataType) -> _Limits | None:
    if pa.types.is_date32(type_):
        return _Limits(FIRST_DATE, LAST_DATE, 1)
    if pa.types.is_timestamp(type_) and type_.unit in ("ms", "us"):
        per = 1 if type_.unit == "us" else 1_000
        return _Limits(-(-FIRST_MOMENT // per), LAST_MOMENT // per, _APART_US // per)
    if pa.types.is_time(type_):
        day = 86_400_000_000 if type_.unit == "us" else 86_400_000
        return _Limits(0, day, _APART_US // 1_000 % day)
    return None


def far(columns: Mapping[str, pa.Array]) -> Mapping[str, Mask]:
    """Return the columns that contain far times, each with a mask of the rows with far times."""
    found = {name: _beyond(column) for name, column in columns.items()}
    return {name: mask for name, mask in found.items() if mask is not None and mask.any()}


def _beyond(column: pa.Array) -> Mask | None:
    """Return a mask of the rows in which a column contains far times, even nested, or None if its type has no times."""
    type_ = column.type
    if (limits := _limits(type_)) is not None:
        values = _numbers(column)
        beyond: Mask = (values < limits.first) | (values > limits.last)
        return beyond
    if pa.types.is_struct(type_):
        parts = [part for part in map(_beyond, column.flatten()) if part is not None]
        return np.logical_or.reduce(parts) if parts else None
    if pa.types.is_list(type_) or pa.types.is_map(type_):
        offsets = offsets_of(column).astype(np.int64)
        items = column.items if pa.types.is_map(type_) else column.values
        inside = _beyond(items[offsets[0] : offsets[-1]])
        if inside is None:
            return None
        rows = np.zeros(len(column), np.bool_)
        rows[np.repeat(np.arange(len(column)), np.diff(offsets))[inside]] = True
        return rows
    return None


def _numbers(column: pa.Array) -> Int64s:
    """Return times as numbers. NULL becomes 0."""
    plain = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    found: Int64s = plain.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return found


def at_ends(
    evaluate: Callable[[Mapping[str, pa.Array]], Mapping[Expression, pa.Array]],
    columns: Mapping[str, pa.Array],
    beyond: Mapping[str, Mask],
) -> tuple[Mapping[Expression, pa.Array], Expression | None]:
    """Return the values of expressions, and the first expression whose value is uncertain in a row with far times."""
    near, nearer = (
        {name: _near(column, step) if name in beyond else column for name, column in columns.items()} for step in (0, 1)
    )
    one = dict(evaluate(near))
    if _ambiguous(columns, beyond):
        return one, next(iter(one))
    other = dict(evaluate(nearer))
    rows = pa.array(np.flatnonzero(np.logical_or.reduce(list(beyond.values()))))
    for each, found in one.items():
        both = found, other[each]
        # An expression that passes a time through, such as CASE or COALESCE, returns the far time itself.
        for name in beyond:
            both = _handed_on(columns[name], (near[name], nearer[name]), both)
        if not both[0].take(rows).equals(both[1].take(rows)):
            return one, each
        one[each] = both[0]
    return one, None


def _handed_on(column: pa.Array, stand_ins: Pair, found: Pair) -> Pair:
    """If both results equal their stand-ins, replace them with the far time that the stand-ins represent."""
    if found[0].type != column.type:
        return found
    handed = pc.and_(*(pc.equal(a, b) for a, b in zip(stand_ins, found, strict=True)))
    return pc.if_else(handed, column, found[0]), pc.if_else(handed, column, found[1])


def _near(column: pa.Array, step: int) -> pa.Array:
    limits = _limits(column.type)
    if limits is None:
        return column
    values = limits.stand_ins(_numbers(column), step)
    plain = values.astype(np.int32) if column.type.bit_width == 32 else values
    return pa.array(plain, mask=~validity(column)).view(column.type)


def _ambiguous(columns: Mapping[str, pa.Array], beyond: Mapping[str, Mask]) -> bool:
    """Return whether a far time is nested, or a row contains two different far times with the same stand-in."""
    if any(_limits(columns[name].type) is None for name in beyond):
        return True
    firsts = None
    for name, mask in beyond.items():
        values = np.where(mask, _numbers(columns[name]), 0)
        if firsts is not None and ((values != firsts) & (np.sign(values) == np.sign(firsts)) & (values != 0)).any():
            return True
        firsts = values if firsts is None else np.where(mask, values, firsts)
    return False
