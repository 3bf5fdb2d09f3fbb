"""Window functions: the result for each row, computed column-wise over ordered rows.

    added        COUNT, SUM, AVG, BOOL_AND, BOOL_OR    differences of exact prefix sums
    extreme      MIN, MAX                              a table of minima over 1, 2, 4, … rows; or a running minimum
    picked       FIRST_VALUE, NTH_VALUE, LAST_VALUE    the row at a position in the frame
    neighbour    LAG, LEAD                             the row a number of rows away
    numbers      ROW_NUMBER, RANK, DENSE_RANK          the count of rows, or of different order keys, so far
    places       NTILE, PERCENT_RANK, CUME_DIST        the row's position among all rows of its partition

A function that looks back to the beginning of the partition is *running*: each row carries the function's state over
all rows up to and including itself. So a stretch need not begin where the partition begins: the state that the
stretch's first row carries stands for all earlier rows. Sums are exact (`columns.exact_numbers`). So they equal the
sums of aggregates, regardless of earlier insertions and retractions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rowkind.operators.aggregate.accumulators import AccumulatorCall, Counts, Extremes, Sums, misfits
from rowkind.operators.aggregate.function import GREATEST
from rowkind.operators.columns import value_bytes
from rowkind.operators.columns.changes import Indices, Int64s, Mask
from rowkind.operators.columns.exact_doubles import ExactDoubles
from rowkind.operators.columns.exact_numbers import ExactNumbers
from rowkind.operators.columns.grouping import to_mask
from rowkind.operators.columns.packed_columns import Column
from rowkind.operators.over.framing import OverFunction
from rowkind.operators.over.value_functions import LagPick, LastPick, NeighbourPick, NthPick
from rowkind.operators.over.window_call import Computed, Given, OverCall, replaced, totals_of

_Sum = tuple[Int64s, ExactNumbers, Int64s]
"""The number of values, their exact sum and, for doubles, the numbers of NaNs and of both infinities."""


def computed(call: OverCall) -> Computed:
    """Return the implementation of a call."""
    if call.function == "lag" and call.skips:
        return LagPick(call)
    return _COMPUTED[call.function](call)


def _aggregate(call: OverCall) -> AccumulatorCall:
    assert call.aggregate is not None, "the call must have an aggregate function"
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
            totals = totals_of(part)
            parts.append(totals[given.stop] - totals[given.first])
            begin, now = given.so_far
            carried.append(totals[now] - totals[begin])
        return counts.finish(parts), carried if self.call.running else []


@dataclass(frozen=True, slots=True)
class Summed:
    """SUM and AVG. For doubles, NaNs and the two infinities are counted separately."""

    call: OverCall

    @property
    def kinds(self) -> str:
        """The carried columns' kinds: the count, the sum and, for doubles, the counts of NaNs and both infinities."""
        return ("nbnnn" if self._doubles else "nb") if self.call.running else ""

    @property
    def _doubles(self) -> bool:
        return bool(pa.types.is_floating(_aggregate(self.call).argument_type))

    def over(self, given: Given) -> tuple[pa.Array, list[Column]]:
        """Return the results and the carried columns."""
        (count, sums, specials), carried = self._sums(given)
        doubles = self._doubles
        finish = Sums(_aggregate(self.call)).finish
        result = finish((count, ExactDoubles.of_digits(sums, specials) if doubles else sums))
        if not self.call.running:
            return result, []
        count, sums, specials = carried
        return result, [count, sums.to_bytes(), *(specials.T.copy() if doubles else ())]

    def misfits(self, given: Given, output: pa.Array) -> Mask:
        """Return a mask of the results that do not fit their type."""
        if not output.null_count:
            return np.zeros(len(output), np.bool_)
        (count, _, _), _ = self._sums(given)
        return misfits(output, count)

    def _sums(self, given: Given) -> tuple[_Sum, _Sum]:
        """Return the sums over each row's frame, and the sums over each row's stretch up to the row."""
        call = _aggregate(self.call)
        values, counted = given.counted(call)
        assert values is not None, "a sum must have an argument"
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
        totals = [totals_of(each) for each in (count, numbers.digits, odd)]

        def between(begin: Indices, end: Indices) -> _Sum:
            counts, digits, specials = (each[end] - each[begin] for each in totals)
            return counts, ExactNumbers(numbers.low, digits), specials

        return between(given.first, given.stop), between(*given.so_far)


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
            values = replaced(values, given.seeds.rows, extremes.of_columns(given.seeds.columns))
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
        # The ranks of each stretch are shifted below those of all earlier stretches, so that one running minimum works
        # for all stretches.
        depth = given.rows.begin * (nothing + 1)
        least = np.minimum.accumulate(rank - depth) + depth
        best = np.where(given.stop > given.first, np.append(least, nothing)[given.stop - 1], nothing)
        return extremes.finish(value(best)), extremes.to_columns(value(least))


def _least(rank: Int64s, first: Indices, stop: Indices, nothing: int) -> Int64s:
    """Return the least rank at the positions from `first` to `stop` - 1, using tables of minima over 2**level rows."""
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
        totals = totals_of(steps)
        number = totals[1:] - totals[given.rows.begin]
        return pa.array((number[given.rows.peer] if self.call.function == "rank" else number).astype(np.int32)), [
            number
        ]


@dataclass(frozen=True, slots=True)
class _Placed:
    call: OverCall
    kinds: str = ""

    def over(self, given: Given) -> tuple[pa.Array, list[Column]]:
        rows = given.rows
        size = rows.stop - rows.begin
        match self.call.function:
            case "percent_rank":
                return pa.array((rows.peer - rows.begin) / np.maximum(size - 1, 1)), []
            case "cume_dist":
                return pa.array((rows.peer_stop - rows.begin) / size), []
        # If the rows do not divide evenly, each of the first tiles has one more row than the other tiles.
        number, (least, larger) = np.arange(len(given)) - rows.begin, np.divmod(size, self.call.nth)
        behind = number - larger * (least + 1)
        tile = np.where(behind < 0, number // (least + 1), larger + behind // np.maximum(least, 1))
        return pa.array((tile + 1).astype(np.int32)), []


_COMPUTED: Mapping[OverFunction, Callable[[OverCall], Computed]] = {
    **dict.fromkeys(("count", "bool_and", "bool_or"), _Counted),
    **dict.fromkeys(("sum", "avg"), Summed),
    **dict.fromkeys(("min", "max"), _Extreme),
    **dict.fromkeys(("lag", "lead"), NeighbourPick),
    "last_value": LastPick,
    **dict.fromkeys(("first_value", "nth_value"), NthPick),
    **dict.fromkeys(("row_number", "rank", "dense_rank"), _Numbered),
    **dict.fromkeys(("ntile", "percent_rank", "cume_dist"), _Placed),
}
