"""Window functions that pick the value of a row: a place of the frame, or so many rows away.

FIRST_VALUE, NTH_VALUE      with each row goes how many there are up to it, and the value once there are enough
LAST_VALUE                  nothing; where rows without a value are passed over, the last value so far
LAG, LEAD                   nothing; where rows without a value are passed over, the last values so far
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
    """With each row goes how many there are up to it, and the value once there are enough."""

    call: OverCall

    @property
    def kinds(self) -> str:
        """What goes with each row."""
        return "nb" if self.call.running else ""

    def over(self, given: Given) -> tuple[pa.Array, list[Column]]:
        """The value of each row, and what goes with it."""
        values = value_bytes.canonical(_argument(self.call, given))
        nth, running, seeds = self.call.nth, self.call.running, given.seeds
        steps = _with_value(self.call, values).astype(np.int64)
        if running:
            # A first row that stands for those before has the value with it if there have been enough.
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
    """Where rows are passed over, the last value so far goes with each row."""

    call: OverCall

    @property
    def kinds(self) -> str:
        """What goes with each row."""
        return "b" if self.call.running else ""

    def over(self, given: Given) -> tuple[pa.Array, list[Column]]:
        """The value of each row, and what goes with it."""
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
    """LAG that passes over rows: with each row go the last values so far, as many as it goes back, the latest first."""

    call: OverCall

    @property
    def kinds(self) -> str:
        """What goes with each row."""
        return "b" * self.call.nth

    def over(self, given: Given) -> tuple[pa.Array, list[Column]]:
        """The value of each row, and what goes with it."""
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
            """The value that is the so manieth last before each place, of those that a first row stands for as well."""
            missing = number - (totals[stop] - totals[begin])
            older = len(values) + (missing - 1) * len(seeds.rows) + seed
            own = np.searchsorted(totals[1:], totals[stop] - number + 1)
            return _at(every, np.where(missing > 0, older, own), (missing <= 0) | (seed >= 0))

        result = last(self.call.nth, given.stop)
        result = _or_default(result, to_mask(result.is_valid()), self.call, given)
        return result, [_to_bytes(last(number, now)) for number in range(1, self.call.nth + 1)]


@dataclass(frozen=True, slots=True)
class NeighbourPick:
    """LAG and LEAD: the row that is all of the frame."""

    call: OverCall
    kinds: str = ""

    def over(self, given: Given) -> tuple[pa.Array, list[Column]]:
        """The value of each row, and what goes with it."""
        there = given.stop > given.first
        return _or_default(_at(_argument(self.call, given), given.first, there), there, self.call, given), []


def _argument(call: OverCall, given: Given) -> pa.Array:
    assert call.argument is not None, "it is given a value"
    return given.arguments[call.argument]


def _with_value(call: OverCall, values: pa.Array) -> Mask:
    """The rows that are not passed over."""
    return to_mask(values.is_valid()) if call.skips else np.ones(len(values), np.bool_)


def _or_default(values: pa.Array, there: Mask, call: OverCall, given: Given) -> pa.Array:
    """The values, or the default of the row where there is none."""
    if call.default is None:
        return values
    missing = np.flatnonzero(~there)
    return replaced(values, missing, given.arguments[call.default].take(pa.array(missing)))


def _at(values: pa.Array, places: Indices, there: Mask) -> pa.Array:
    """The values at places; NULL where nothing is there."""
    return values.take(pa.array(np.where(there, places, 0), mask=~there))


def _to_bytes(values: pa.Array) -> pa.BinaryArray:
    there = to_mask(values.is_valid())
    return value_bytes.to_bytes(values.drop_null()).take(pa.array(np.cumsum(there) - 1, mask=~there))


def _of_bytes(values: pa.BinaryArray, type_: pa.DataType) -> pa.Array:
    there = to_mask(values.is_valid())
    return value_bytes.from_bytes(values.drop_null(), type_).take(pa.array(np.cumsum(there) - 1, mask=~there))
