"""Exact sums of doubles, almost always stored as two doubles.

The exact sum of two doubles is the rounded sum plus a remainder that is also a double (Knuth's TwoSum). A sum is
therefore stored as `high`, the nearest double, and `low`, the remainder. The two have 106 bits, enough for the exact
sum of values of similar magnitude. If two doubles do not suffice, or if a batch adds so many rows to a group that
digits are faster, the sum is computed in digits by `exact_numbers`. It is stored in digits only if two doubles cannot
represent it exactly. The same sum always has the same representation, bit for bit, regardless of how the sum was
computed. The result of SUM is `high`, which has been rounded once, with ties to even.

NaN and infinities are counted, so that they can be retracted. A sum of values that include NaN or infinities is also
stored in digits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.columns.changes import Indices, Int64s, constant
from rowkind.operators.columns.exact_numbers import DOUBLE_UNIT, Doubles, ExactNumbers
from rowkind.operators.columns.packed_columns import Column, pack, unpack

ROUNDS = 16
"""The maximum number of elements per group that are added as doubles, in rounds of one element per group. A round takes
0.05 to 0.1 us per element. Digits take 0.06 us per element and 1.4 us per group, mostly for the conversion back to two
doubles."""

DoublesPiece = tuple["ExactDoubles", Indices, Int64s]
"""Numbers, the group of each number, and the sign (+1 or -1) of each number."""


@dataclass(frozen=True, slots=True)
class ExactDoubles:
    """Numbers stored as high + low or, for the numbers at the indices `long`, as `digits` and `special`.

    For the numbers at `long`, `low` is NaN, and `special` has three counts: of NaN, of positive infinities and of
    negative infinities in the sum. For all numbers, `high` is the number rounded to a double, and never -0.0.
    """

    high: Doubles
    low: Doubles
    long: Indices
    digits: ExactNumbers
    special: Int64s

    def __len__(self) -> int:
        return len(self.high)

    @classmethod
    def of(cls, values: Doubles) -> ExactDoubles:
        """Return doubles, including NaN and infinities, as exact numbers."""
        # Adding zero makes -0.0 positive.
        high, low = values + 0.0, np.where(np.isfinite(values), 0.0, np.nan)
        long = np.flatnonzero(np.isnan(low))
        if len(long) == 0:
            return cls._short(high, low)
        odd = high[long]
        special = np.stack([np.isnan(odd), odd == np.inf, odd == -np.inf], axis=1).astype(np.int64)
        return cls(high, low, long, ExactNumbers.of_doubles(np.zeros(len(long))), special)

    @classmethod
    def _short(cls, high: Doubles, low: Doubles) -> ExactDoubles:
        nothing = np.zeros((0, 1), np.int64)
        return cls(high, low, np.empty(0, np.int64), ExactNumbers(0, nothing), nothing)

    @classmethod
    def of_columns(cls, high: Doubles, low: Doubles, rest: pa.BinaryArray) -> ExactDoubles:
        """Return the numbers that `to_columns` converted to the given columns."""
        long = np.flatnonzero(pc.binary_length(rest).to_numpy(zero_copy_only=False))
        if len(long) == 0:
            return cls._short(high, low)
        low = low.copy()
        low[long] = np.nan
        *special, digits = unpack("nnnb", rest.take(pa.array(long)))
        return cls(high, low, long, ExactNumbers.of_bytes(digits), np.stack(special, axis=1))

    @classmethod
    def of_digits(cls, digits: ExactNumbers, special: Int64s) -> ExactDoubles:
        """Return numbers, given their finite parts in digits, and the counts of their NaN and infinities."""
        high, low = _two_doubles(digits, special)
        long = np.flatnonzero(np.isnan(low))
        return cls(high, low, long, digits.take(long), special[long])

    def to_columns(self) -> list[Column]:
        """Return three columns: `high`, `low`, and the packed counts and digits of the numbers at `long`."""
        if len(self.long) == 0:
            return [self.high, self.low, constant(b"", len(self))]
        short = ~np.isnan(self.low)
        number = np.zeros(len(self), np.int64)
        number[self.long] = np.arange(len(self.long))
        rest = pack([*self.special.T, self.digits.to_bytes()]).take(pa.array(number, mask=short)).fill_null(b"")
        return [self.high, np.where(short, self.low, 0.0), rest]

    @classmethod
    def total(cls, pieces: Sequence[DoublesPiece], count: int) -> ExactDoubles:
        """Return the sum of each of `count` groups over all pieces."""
        high, low = np.zeros(count), np.zeros(count)
        with np.errstate(over="ignore", invalid="ignore"):
            for numbers, group, sign in pieces:
                numbers.add_to(high, low, group, sign)
        hard = np.isnan(low)
        if not hard.any():
            return cls._short(high, low)
        rows, number = np.flatnonzero(hard), np.cumsum(hard) - 1
        special = np.zeros((len(rows), 3), np.int64)
        parts = []
        for numbers, group, sign in pieces:
            for digits, of, times in numbers.as_digits(np.flatnonzero(hard[group]), group, sign):
                parts.append((digits, number[of], times))
            if len(numbers.long):
                np.add.at(special, number[group[numbers.long]], numbers.special * sign[numbers.long, None])
        sums = ExactNumbers.total(parts, len(rows))
        high[rows], low[rows] = _two_doubles(sums, special)
        long = np.flatnonzero(np.isnan(low[rows]))
        return cls(high, low, rows[long], sums.take(long), special[long])

    def add_to(self, high: Doubles, low: Doubles, group: Indices, sign: Int64s) -> None:
        """Add these numbers to the sums of their groups, in place. If a sum needs digits, its `low` is set to NaN."""
        low[np.bincount(group, minlength=len(low)) > ROUNDS] = np.nan
        waiting = np.flatnonzero(~np.isnan(low[group]))
        turn = np.empty(len(low), np.int64)
        while len(waiting):
            # Each round adds one element of every group: the last element that this assignment writes.
            turn[group[waiting]] = waiting
            last = turn[group[waiting]] == waiting
            rows, waiting = waiting[last], waiting[~last]
            of, times = group[rows], sign[rows]
            total, missing = _two_sum(high[of], self.high[rows] * times)
            rest, lost = _two_sum(low[of], missing)
            rest, lost_too = _two_sum(rest, self.low[rows] * times)
            high[of], rest = _two_sum(total, rest)
            # A NaN remainder is not equal to zero, so it also makes `low` NaN.
            low[of] = np.where((lost == 0) & (lost_too == 0), rest, np.nan)

    def as_digits(self, rows: Indices, group: Indices, sign: Int64s) -> Iterator[tuple[ExactNumbers, Indices, Int64s]]:
        """Yield the finite parts of the numbers at `rows` in digits, with the groups and signs of the numbers."""
        is_long = np.isnan(self.low[rows])
        short, long = rows[~is_long], rows[is_long]
        for doubles in (self.high[short], self.low[short]):
            if doubles.any():
                yield ExactNumbers.of_doubles(doubles), group[short], sign[short]
        if len(long):
            yield self.digits.take(np.searchsorted(self.long, long)), group[long], sign[long]


def _two_sum(left: Doubles, right: Doubles) -> tuple[Doubles, Doubles]:
    """Return the rounded sum and the remainder. If the sum overflows, the remainder is NaN."""
    total = left + right
    of_right = total - left
    return total, (left - (total - of_right)) + (right - of_right)


def _two_doubles(numbers: ExactNumbers, special: Int64s) -> tuple[Doubles, Doubles]:
    """Return each number as `high` and `low`. If two doubles do not suffice, `low` is NaN."""
    high = numbers.scaled_doubles(DOUBLE_UNIT)
    rest = numbers.minus(_finite(high))
    low = rest.scaled_doubles(DOUBLE_UNIT)
    exact = np.isfinite(high) & rest.minus(_finite(low)).is_zero() & ~special.any(axis=1)
    nan, above, below = (special > 0).T
    high = np.where(above, np.inf, np.where(below, -np.inf, high))
    return np.where(nan | (above & below), np.nan, high), np.where(exact, low, np.nan)


def _finite(values: Doubles) -> ExactNumbers:
    return ExactNumbers.of_doubles(np.where(np.isfinite(values), values, 0.0))
