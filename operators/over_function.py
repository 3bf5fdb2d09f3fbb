"""What a window function gives each row, over rows in the order of their partitions, by columns.

    added        COUNT, SUM, AVG, BOOL_AND, BOOL_OR    differences of exact prefix sums
    extreme      MIN, MAX                              a table of the least of 1, 2, 4, … rows; or the least so far
    picked       FIRST_VALUE, NTH_VALUE, LAST_VALUE    the row at a place of the frame
    neighbour    LAG, LEAD                             the row so many rows away
    numbers      ROW_NUMBER, RANK, DENSE_RANK          how many rows, or different order keys, there are so far

What looks back to the beginning of the partition is *running*: it carries with each row what it has made of all rows
up to it. So a stretch need not begin where the partition does: what its first row carries stands for all rows before.
Sums are exact (`columns.exact_numbers`), so that they are those of the aggregates, whatever came and went.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from rowkind.operators.accumulators import AccumulatorCall, Counts, Extremes, Sums
from rowkind.operators.aggregate_function import GREATEST
from rowkind.operators.columns import value_bytes
from rowkind.operators.columns.changes import Indices, Int64s, Mask
from rowkind.operators.columns.exact_doubles import ExactDoubles
from rowkind.operators.columns.exact_numbers import ExactNumbers
from rowkind.operators.columns.grouping import to_mask
from rowkind.operators.columns.packed_columns import Column
from rowkind.operators.framing import Frame, OverFunction
from rowkind.operators.over_frame import Stretches

CallArguments = Mapping[str, pa.Array]


@dataclass(frozen=True, slots=True)
class Seeds:
    """The first rows of the stretches that begin later than their partitions, and the columns that they carry."""

    rows: Indices
    columns: Sequence[Column]


@dataclass(frozen=True, slots=True)
class Given:
    """The rows, where the frame of each begins and stops, the arguments of calls, and what stands for rows before."""

    rows: Stretches
    first: Indices
    stop: Indices
    arguments: CallArguments
    seeds: Seeds

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def so_far(self) -> tuple[Indices, Indices]:
        """From the beginning of the stretch up to each row."""
        return self.rows.begin, np.arange(1, len(self) + 1)

    def counted(self, call: AccumulatorCall) -> tuple[pa.Array | None, Mask]:
        """The values of an aggregate, and which rows count."""
        counted = np.ones(len(self), np.bool_)
        if call.filter is not None:
            counted = to_mask(self.arguments[call.filter].fill_null(fill_value=False))
        return (None if call.argument is None else self.arguments[call.argument]), counted


@dataclass(frozen=True, slots=True)
class OverCall:
    """One call: an aggregate as an `AccumulatorCall`, or any other function with the name of its argument.

    `nth` is the number of the row in the frame, or how many rows away it is; `default` what is given where there is no
    such row: the name of an argument, None for NULL.
    """

    function: OverFunction
    frame: Frame
    aggregate: AccumulatorCall | None = None
    argument: str | None = None
    nth: int = 1
    default: str | None = None

    @property
    def running(self) -> bool:
        """Whether it depends on all rows from the beginning of the partition on."""
        return self.frame.start is None and self.function != "last_value"

    @property
    def looks_back(self) -> bool:
        """Whether its frame ends before the row, so that what the row before carries is too much."""
        return self.frame.end is not None and self.frame.end < 0

    @property
    def whole(self) -> bool:
        """Whether it depends on all rows up to the end of the partition."""
        return self.frame.end is None

    def computed(self) -> Computed:
        """What computes it."""
        match self.function:
            case "count" | "bool_and" | "bool_or":
                return _Counted(self)
            case "sum" | "avg":
                return _Summed(self)
            case "min" | "max":
                return _Extreme(self)
            case "lag" | "lead":
                return _Neighbouring(self)
            case "last_value":
                return _Last(self)
            case "first_value" | "nth_value":
                return _Nth(self)
            case "row_number" | "rank" | "dense_rank":
                return _Numbered(self)


class Computed(Protocol):
    """What computes one call; `kinds` are the columns that each row carries, as for `packed_columns.unpack`."""

    @property
    def kinds(self) -> str:
        """A letter per column."""

    def over(self, given: Given) -> tuple[pa.Array, list[Column]]:
        """The result of each row, and what it carries."""


def _totals(values: Int64s) -> Int64s:
    """The sums before each row, and of all."""
    return np.concatenate([np.zeros((1, *values.shape[1:]), np.int64), np.cumsum(values, axis=0)])


def _aggregate(call: OverCall) -> AccumulatorCall:
    assert call.aggregate is not None, "an aggregate is called"
    return call.aggregate


@dataclass(frozen=True, slots=True)
class _Counted:
    call: OverCall

    @property
    def kinds(self) -> str:
        return Counts(_aggregate(self.call)).kinds if self.call.running else ""

    def over(self, given: Given) -> tuple[pa.Array, list[Column]]:
        counts = Counts(_aggregate(self.call))
        parts, carried = [], []
        for number, part in enumerate(counts.lift(*given.counted(counts.call))):
            if self.call.running:
                part[given.seeds.rows] = given.seeds.columns[number]
            totals = _totals(part)
            parts.append(totals[given.stop] - totals[given.first])
            begin, now = given.so_far
            carried.append(totals[now] - totals[begin])
        return counts.finish(parts), carried if self.call.running else []


@dataclass(frozen=True, slots=True)
class _Summed:
    """Of doubles NaN and the two infinities are counted apart."""

    call: OverCall

    @property
    def kinds(self) -> str:
        return ("nbnnn" if self._doubles else "nb") if self.call.running else ""

    @property
    def _doubles(self) -> bool:
        return bool(pa.types.is_floating(_aggregate(self.call).argument_type))

    def over(self, given: Given) -> tuple[pa.Array, list[Column]]:
        call = _aggregate(self.call)
        values, counted = given.counted(call)
        assert values is not None, "sums have an argument"
        odd = np.zeros((len(given), 3), np.int64)
        if self._doubles:
            there = counted & to_mask(values.is_valid())
            plain = np.where(there, values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False), 0.0)
            odd = np.stack([np.isnan(plain), plain == np.inf, plain == -np.inf], axis=1).astype(np.int64)
            count, numbers = there.astype(np.int64), ExactNumbers.of_doubles(np.where(np.isfinite(plain), plain, 0.0))
        else:
            count, numbers = Sums(call).lift(values, counted)
        if self.call.running:
            count[given.seeds.rows] = given.seeds.columns[0]
            numbers = numbers.replaced(given.seeds.rows, ExactNumbers.of_bytes(given.seeds.columns[1]))
            if self._doubles:
                odd[given.seeds.rows] = np.stack(given.seeds.columns[2:], axis=1)
        totals = [_totals(each) for each in (count, numbers.digits, odd)]

        def between(begin: Indices, end: Indices) -> tuple[Int64s, ExactNumbers, Int64s]:
            counts, digits, specials = (each[end] - each[begin] for each in totals)
            return counts, ExactNumbers(numbers.low, digits), specials

        counts, sums, specials = between(given.first, given.stop)
        result = Sums(call).finish((counts, ExactDoubles.of_digits(sums, specials) if self._doubles else sums))
        if not self.call.running:
            return result, []
        counts, sums, specials = between(*given.so_far)
        return result, [counts, sums.to_bytes(), *(specials.T.copy() if self._doubles else ())]


@dataclass(frozen=True, slots=True)
class _Extreme:
    call: OverCall

    @property
    def kinds(self) -> str:
        return "b" if self.call.running else ""

    def over(self, given: Given) -> tuple[pa.Array, list[Column]]:
        extremes = Extremes(_aggregate(self.call))
        values = extremes.lift(*given.counted(extremes.call))
        if self.call.running:
            values = _replaced(values, given.seeds.rows, extremes.of_columns(given.seeds.columns))
        there = np.flatnonzero(to_mask(values.is_valid()))
        ranks = value_bytes.ranks(values.take(pa.array(there)))
        _, dense = np.unique(~ranks if extremes.call.function in GREATEST else ranks, return_inverse=True)
        nothing = len(there)
        rank = np.full(len(given), nothing)
        rank[there] = dense
        example = np.zeros(nothing + 1, np.int64)
        example[dense] = there

        def value(best: Int64s) -> pa.Array:
            return values.take(pa.array(example[best], mask=best == nothing))

        if not self.call.running:
            return extremes.finish(value(_least(rank, given.first, given.stop, nothing))), []
        # The ranks of each stretch lie below all of those before, so that one running minimum serves all of them.
        depth = given.rows.begin * (nothing + 1)
        least = np.minimum.accumulate(rank - depth) + depth
        best = np.where(given.stop > given.first, np.append(least, nothing)[given.stop - 1], nothing)
        return extremes.finish(value(best)), extremes.to_columns(value(least))


def _least(rank: Int64s, first: Indices, stop: Indices, nothing: int) -> Int64s:
    """The least rank from each `first` to before `stop`, both from a table of the least of 2**level rows from each."""
    length = stop - first
    level = np.frexp(np.maximum(length, 1).astype(np.float64))[1] - 1
    result = np.full(len(rank), nothing)
    table = rank
    for number in range(int(level.max(initial=0)) + 1):
        own = np.flatnonzero((level == number) & (length > 0))
        result[own] = np.minimum(table[first[own]], table[stop[own] - (1 << number)])
        table = np.minimum(table, np.append(table[1 << number :], np.full(min(1 << number, len(table)), nothing)))
    return result


@dataclass(frozen=True, slots=True)
class _Nth:
    """With each row goes how many there are up to it, and the value once there are enough."""

    call: OverCall

    @property
    def kinds(self) -> str:
        return "nb" if self.call.running else ""

    def over(self, given: Given) -> tuple[pa.Array, list[Column]]:
        assert self.call.argument is not None, "it is given a value"
        values = value_bytes.canonical(given.arguments[self.call.argument])
        nth = self.call.nth
        if not self.call.running:
            return _at(values, given.first + nth - 1, given.first + nth <= given.stop), []
        before = np.zeros(len(given), np.int64)
        before[given.seeds.rows] = given.seeds.columns[0] - 1
        before = before[given.rows.begin]
        # A given.first row that stands for those before has the value with it if there have been enough.
        stored = _of_bytes(given.seeds.columns[1], values.type)
        had = given.seeds.columns[0] >= nth
        values = _replaced(values, given.seeds.rows[had], stored.filter(pa.array(had)))
        place = given.rows.begin + np.maximum(nth - 1 - before, 0)
        result = _at(values, place, place < given.stop)
        now = np.arange(1, len(given) + 1)
        carried = _at(values, place, place < now)
        return result, [before + now - given.rows.begin, _to_bytes(carried)]


@dataclass(frozen=True, slots=True)
class _Last:
    call: OverCall
    kinds: str = ""

    def over(self, given: Given) -> tuple[pa.Array, list[Column]]:
        assert self.call.argument is not None, "it is given a value"
        return _at(given.arguments[self.call.argument], given.stop - 1, given.stop > given.first), []


@dataclass(frozen=True, slots=True)
class _Neighbouring:
    call: OverCall
    kinds: str = ""

    def over(self, given: Given) -> tuple[pa.Array, list[Column]]:
        assert self.call.argument is not None, "it is given a value"
        values, there = given.arguments[self.call.argument], given.stop > given.first
        if self.call.default is None:
            return _at(values, given.first, there), []
        both = pa.concat_arrays([values, given.arguments[self.call.default].cast(values.type)])
        return both.take(pa.array(np.where(there, given.first, len(given) + np.arange(len(given))))), []


@dataclass(frozen=True, slots=True)
class _Numbered:
    call: OverCall
    kinds: str = "n"

    def over(self, given: Given) -> tuple[pa.Array, list[Column]]:
        at = np.arange(len(given))
        steps = (
            (given.rows.peer == at).astype(np.int64)
            if self.call.function == "dense_rank"
            else np.ones(len(at), np.int64)
        )
        steps[given.seeds.rows] = given.seeds.columns[0]
        totals = _totals(steps)
        number = totals[1:] - totals[given.rows.begin]
        return pa.array((number[given.rows.peer] if self.call.function == "rank" else number).astype(np.int32)), [
            number
        ]


def _at(values: pa.Array, places: Indices, there: Mask) -> pa.Array:
    """The values at places; NULL where nothing is there."""
    return values.take(pa.array(np.where(there, places, 0), mask=~there))


def _replaced(values: pa.Array, rows: Indices, others: pa.Array) -> pa.Array:
    """The values with others at some rows."""
    if not len(rows):
        return values
    at = np.arange(len(values))
    at[rows] = len(values) + np.arange(len(rows))
    return pa.concat_arrays([values, others.cast(values.type)]).take(pa.array(at))


def _to_bytes(values: pa.Array) -> pa.BinaryArray:
    there = to_mask(values.is_valid())
    return value_bytes.to_bytes(values.drop_null()).take(pa.array(np.cumsum(there) - 1, mask=~there))


def _of_bytes(values: pa.BinaryArray, type_: pa.DataType) -> pa.Array:
    there = to_mask(values.is_valid())
    return value_bytes.from_bytes(values.drop_null(), type_).take(pa.array(np.cumsum(there) - 1, mask=~there))
