"""Window functions that return one row's value: the row at a position in the frame, or a number of rows away.

Each row carries these columns:

    FIRST_VALUE, NTH_VALUE      the number of rows so far, and the value once there are enough rows
    LAST_VALUE                  nothing; with IGNORE NULLS, the last non-null value so far
    LAG, LEAD                   nothing; LAG with IGNORE NULLS, the last non-null values so far
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rowkind.operators.columns import value_bytes
from rowkind.operators.columns.changes import Indices, Mask
from rowkind.operators.columns.grouping import to_mask
from rowkind.operators.columns.packed_columns import Column
from rowkind.operators.over.window_call import Given, OverCall, replaced, totals_of


@dataclass(frozen=True, slots=True)
class NthPick:
    """FIRST_VALUE and NTH_VALUE. Each row carries the number of rows so far and, after enough rows, the value."""

    call: OverCall

    @property
    def kinds(self) -> str:
        """The carried columns' kinds."""
        return "nb" if self.call.running else ""

    def over(self, given: Given) -> tuple[pa.Array, list[Column]]:
        """Return each row's value, and the carried columns."""
        values = value_bytes.canonical(_argument(self.call, given))
        nth, running, seeds = self.call.nth, self.call.running, given.seeds
        steps = _with_value(self.call, values).astype(np.int64)
        if running:
            # A seed row stands for all earlier rows; it carries the value if there have been enough earlier rows.
            steps[seeds.rows] = seeds.columns[0]
            had = seeds.columns[0] >= nth
            stored = _of_bytes(seeds.columns[1], values.type)
            values = replaced(values, seeds.rows[had], stored.filter(pa.array(had)))
        totals = totals_of(steps)
        place = np.searchsorted(totals[1:], totals[given.first] + nth)
        there = place < given.stop
        result = _or_default(_at(values, place, there), there, self.call, given)
        if not running:
            return result, []
        begin, now = given.so_far
        place = np.searchsorted(totals[1:], totals[begin] + nth)
        return result, [totals[now] - totals[begin], _to_bytes(_at(values, place, place < now))]


@dataclass(frozen=True, slots=True)
class LastPick:
    """LAST_VALUE. With IGNORE NULLS, each row carries the last non-null value so far."""

    call: OverCall

    @property
    def kinds(self) -> str:
        """The carried columns' kinds."""
        return "b" if self.call.running else ""

    def over(self, given: Given) -> tuple[pa.Array, list[Column]]:
        """Return each row's value, and the carried columns."""
        values = _argument(self.call, given)
        if self.call.running:
            values = value_bytes.canonical(values)
            values = replaced(values, given.seeds.rows, _of_bytes(given.seeds.columns[0], values.type))
        at = np.arange(len(given))
        last = np.maximum.accumulate(np.where(_with_value(self.call, values), at, -1))
        place = np.append(last, -1)[given.stop - 1]
        there = (given.stop > given.first) & (place >= given.first)
        result = _or_default(_at(values, place, there), there, self.call, given)
        return result, [_to_bytes(_at(values, last, last >= given.rows.begin))] if self.call.running else []


@dataclass(frozen=True, slots=True)
class LagPick:
    """LAG with IGNORE NULLS. Each row carries as many of the last non-null values as LAG goes back, latest first."""

    call: OverCall

    @property
    def kinds(self) -> str:
        """The carried columns' kinds."""
        return "b" * self.call.nth

    def over(self, given: Given) -> tuple[pa.Array, list[Column]]:
        """Return each row's value, and the carried columns."""
        values, seeds = value_bytes.canonical(_argument(self.call, given)), given.seeds
        counts = _with_value(self.call, values)
        counts[seeds.rows] = False
        totals = totals_of(counts.astype(np.int64))
        seed = np.full(len(given), -1)
        seed[seeds.rows] = np.arange(len(seeds.rows))
        begin, now = given.so_far
        seed = seed[begin]
        every = pa.concat_arrays([values, *(_of_bytes(column, values.type) for column in seeds.columns)])

        def last(number: int, stop: Indices) -> pa.Array:
            """Return the value `number` values before each position, counting the values that a seed row carries."""
            missing = number - (totals[stop] - totals[begin])
            older = len(values) + (missing - 1) * len(seeds.rows) + seed
            own = np.searchsorted(totals[1:], totals[stop] - number + 1)
            return _at(every, np.where(missing > 0, older, own), (missing <= 0) | (seed >= 0))

        result = last(self.call.nth, given.stop)
        result = _or_default(result, to_mask(result.is_valid()), self.call, given)
        return result, [_to_bytes(last(number, now)) for number in range(1, self.call.nth + 1)]


@dataclass(frozen=True, slots=True)
class NeighbourPick:
    """LAG and LEAD: the frame consists of the one row whose value is returned."""

    call: OverCall
    kinds: str = ""

    def over(self, given: Given) -> tuple[pa.Array, list[Column]]:
        """Return each row's value, and no carried columns."""
        there = given.stop > given.first
        return _or_default(_at(_argument(self.call, given), given.first, there), there, self.call, given), []


def _argument(call: OverCall, given: Given) -> pa.Array:
    assert call.argument is not None, "the function must have an argument"
    return given.arguments[call.argument]


def _with_value(call: OverCall, values: pa.Array) -> Mask:
    """Return a mask of the rows that IGNORE NULLS does not skip or, without IGNORE NULLS, of all rows."""
    return to_mask(values.is_valid()) if call.skips else np.ones(len(values), np.bool_)


def _or_default(values: pa.Array, there: Mask, call: OverCall, given: Given) -> pa.Array:
    """Return the values where `there` is true, and the row's default elsewhere."""
    if call.default is None:
        return values
    missing = np.flatnonzero(~there)
    return replaced(values, missing, given.arguments[call.default].take(pa.array(missing)))


def _at(values: pa.Array, places: Indices, there: Mask) -> pa.Array:
    """Return the values at the given positions, or NULL where `there` is false."""
    return values.take(pa.array(np.where(there, places, 0), mask=~there))


def _to_bytes(values: pa.Array) -> pa.BinaryArray:
    there = to_mask(values.is_valid())
    return value_bytes.to_bytes(values.drop_null()).take(pa.array(np.cumsum(there) - 1, mask=~there))


def _of_bytes(values: pa.BinaryArray, type_: pa.DataType) -> pa.Array:
    there = to_mask(values.is_valid())
    return value_bytes.from_bytes(values.drop_null(), type_).take(pa.array(np.cumsum(there) - 1, mask=~there))
