"""Accumulators: an aggregate function's state for a group. Accumulators can be added up in any order.

An accumulator works on *parts*: columns with one element per row or per group. `lift` converts single rows to a part,
`total` adds up parts by group, and `finish` computes the result. Rows, partial sums and stored sums have the same form.
Except in `Extremes`, each element has a sign, so that retractions are subtracted.

    counts     COUNT, BOOL_AND, BOOL_OR         a count, or the counts of true and of false
    sums       SUM, AVG                         a count, and an exact number (`operators.columns.exact_numbers`,
                                                for doubles `operators.columns.exact_doubles`)
    bits       BIT_AND, BIT_OR, BIT_XOR         a count, and the count of each bit (`operators.aggregate.bits`)
    moments    VAR_POP, CORR, REGR_SLOPE, …     a count, and exact sums of powers (`operators.aggregate.moments`)
    extremes   MIN, MAX, ANY_VALUE (as MIN),    the value; no signs, see `operators.aggregate.arranged_values`
               MIN_BY, MAX_BY, FIRST, LAST
    gathered   COLLECT_LIST, LISTAGG, MODE, …   nothing: the functions read all values of a group, see
                                                `operators.aggregate.gathered`
    custom     user-defined functions           the state and the result, see `operators.aggregate.group_function`

MIN_BY and MAX_BY are computed as MIN and MAX of byte strings: the comparable bytes of the ordering value, followed by
the value. FIRST and LAST are computed as MIN and MAX of byte strings that begin with the arrival number
(`operators.aggregate.arrivals`). If rows are only inserted, each of these functions therefore stores a single value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.aggregate.arrivals import arrived
from rowkind.operators.aggregate.function import ARRIVALS, GREATEST, AggregateFunction, Stage
from rowkind.operators.aggregate.group_function import GroupFunction
from rowkind.operators.columns import value_bytes
from rowkind.operators.columns.changes import Indices, Int64s, Mask
from rowkind.operators.columns.exact_doubles import ExactDoubles
from rowkind.operators.columns.exact_numbers import ExactNumbers
from rowkind.operators.columns.grouping import to_mask
from rowkind.operators.columns.packed_columns import Column

AccumulatorColumn = Any
"""A part with an element per row or group. Its structure depends on the accumulator that created it."""

AccumulatorPiece = tuple[AccumulatorColumn, Indices, Int64s]
"""A part, the group of each element, and the multiplicity of each element: +1 or -1 for a single row."""


Gather = Callable[[pa.Array, Indices, Int64s, int], pa.Array]
"""A function that computes a result from all values of each group. Its arguments are the values, the group and the
multiplicity of each value, and the number of groups."""


@dataclass(frozen=True, slots=True)
class AccumulatorCall:
    """One call of an aggregate function.

    - `type`: the type of the result. It is BIGINT for COUNT; BIGINT, DOUBLE or a decimal with the argument's scale for
      SUM; DOUBLE or a decimal for AVG; BOOLEAN or the argument's type for the others. A result that does not fit its
      type is NULL.
    - `argument`: the argument's name among the spec's arguments; None for COUNT(*). COUNT(DISTINCT a, b) has one
      argument: the two values packed into bytes, or NULL if either value is NULL.
    - `argument_type`: the Arrow type of the argument: an integer, a float, decimal128, boolean, a date or time, text or
      bytes. SUM and AVG take numbers. BIT_AND, BIT_OR and BIT_XOR take integers. BOOL_AND and BOOL_OR take booleans.
      Moments take doubles, or a struct of two doubles. MIN_BY, MAX_BY, FIRST, LAST and gathered functions take bytes.
    - `filter`: the name of a boolean column among the arguments. Only rows in which this column is true are aggregated.
    - `grows`: whether the input never retracts the minimum or maximum without inserting a better value. Other
      retractions are allowed.
    - `gather`: the implementation of a function that is computed from all values of a group.
    - `stage`: the step that this call represents, if the aggregate is computed in several steps. The first step returns
      packed accumulators, and the last step takes packed accumulators as its argument. The calls of all steps are the
      same, including `argument_type`, except that the first step has a different `type`.
    - `custom`: the implementation of a user-defined function, which takes its arguments as a single struct.
    """

    function: AggregateFunction
    type: pa.DataType
    argument: str | None = None
    argument_type: pa.DataType | None = None
    filter: str | None = None
    distinct: bool = False
    grows: bool = False
    gather: Gather | None = None
    stage: Stage = "whole"
    custom: GroupFunction | None = None


class Accumulator(Protocol):
    """The operations on the state of one aggregate call."""

    @property
    def kinds(self) -> str:
        """The kind of each of a part's columns, as a string with one letter per column (`packed_columns.unpack`)."""

    def lift(self, values: pa.Array | None, counted: Mask) -> AccumulatorColumn:
        """Return a part with one element per row. Rows with a NULL argument or outside `counted` are not aggregated."""

    def total(self, pieces: Sequence[AccumulatorPiece], count: int) -> AccumulatorColumn:
        """Return the sums of `count` groups over all pieces."""

    def to_columns(self, part: AccumulatorColumn) -> list[Column]:
        """Convert the part to columns that can be packed."""

    def of_columns(self, columns: Sequence[Column]) -> AccumulatorColumn:
        """Convert columns that `to_columns` returned back to the part."""

    def finish(self, part: AccumulatorColumn) -> pa.Array:
        """Return the result of each group."""


@dataclass(frozen=True, slots=True)
class Counts:
    """One or two counts per group. A count is never negative unless rows have expired."""

    call: AccumulatorCall

    @property
    def kinds(self) -> str:
        """The column kinds of the counts."""
        return "n" if self.call.function == "count" else "nn"

    def lift(self, values: pa.Array | None, counted: Mask) -> list[Int64s]:
        """Return 1 for each row to count, and 0 for the others."""
        there = counts_where(values, counted)
        if self.call.function == "count":
            return [there.astype(np.int64)]
        assert values is not None
        true = to_mask(values.fill_null(fill_value=False))
        return [(there & true).astype(np.int64), (there & ~true).astype(np.int64)]

    def total(self, pieces: Sequence[AccumulatorPiece], count: int) -> list[Int64s]:
        """Return the sums."""
        return summed_each(pieces, len(self.kinds), count)

    def to_columns(self, part: list[Int64s]) -> list[Column]:
        """Return the counts."""
        return [*part]

    def of_columns(self, columns: Sequence[Column]) -> list[Column]:
        """Return the counts."""
        return [*columns]

    def finish(self, part: list[Int64s]) -> pa.Array:
        """Return the count, or the result of BOOL_AND or BOOL_OR. Without values, BOOL_AND and BOOL_OR are NULL."""
        if self.call.function == "count":
            return pa.array(np.maximum(part[0], 0), pa.int64()).cast(self.call.type)
        true, false = part
        result = false <= 0 if self.call.function == "bool_and" else true > 0
        return pa.array(result, pa.bool_(), mask=(true <= 0) & (false <= 0))


SumsPart = tuple[Int64s, Any]
"""The counts, and the sums as `ExactDoubles` or `ExactNumbers`."""


@dataclass(frozen=True, slots=True)
class Sums:
    """The number of values and the exact sum of the values."""

    call: AccumulatorCall

    @property
    def kinds(self) -> str:
        """The column kinds of the count and the sum."""
        return "nffb" if self._doubles else "nb"

    @property
    def _doubles(self) -> bool:
        return bool(pa.types.is_floating(self.call.argument_type))

    @property
    def _decimals(self) -> bool:
        return bool(pa.types.is_decimal(self.call.argument_type))

    def lift(self, values: pa.Array | None, counted: Mask) -> SumsPart:
        """Return each row's value, or zero if the row is not aggregated."""
        assert values is not None
        there = counts_where(values, counted)
        count = there.astype(np.int64)
        if self._decimals:
            numbers = ExactNumbers.of_decimals(_with_zeros(values))
            return count, ExactNumbers(numbers.low, numbers.digits * there[:, None])
        plain = _with_zeros(values.cast(pa.float64() if self._doubles else pa.int64())).to_numpy(zero_copy_only=False)
        plain = plain if there.all() else np.where(there, plain, 0)
        return count, ExactDoubles.of(plain) if self._doubles else ExactNumbers.of_integers(plain)

    def total(self, pieces: Sequence[AccumulatorPiece], count: int) -> SumsPart:
        """Return the sums."""
        counts = summed([(part[0], group, sign) for part, group, sign in pieces], count)
        numbers = [(part[1], group, sign) for part, group, sign in pieces]
        return counts, (ExactDoubles if self._doubles else ExactNumbers).total(numbers, count)

    def to_columns(self, part: SumsPart) -> list[Column]:
        """Return the columns of the count and the sum."""
        count, number = part
        return [count, *number.to_columns()] if self._doubles else [count, number.to_bytes()]

    def of_columns(self, columns: Sequence[Column]) -> SumsPart:
        """Return the count and the sum."""
        count, *number = columns
        return count, ExactDoubles.of_columns(*number) if self._doubles else ExactNumbers.of_bytes(*number)

    def finish(self, part: SumsPart) -> pa.Array:
        """Return the sum or the mean. It is NULL if there are no values, or if the result does not fit its type."""
        count, number = part
        none = count <= 0
        if self._doubles or (self.call.function == "avg" and not self._decimals):
            doubles = number.high if self._doubles else number.scaled_doubles(0)
            if self.call.function == "avg":
                doubles = doubles / np.maximum(count, 1)
            return pa.array(doubles, pa.float64(), mask=none)
        if not self._decimals:
            return pc.if_else(pa.array(~none), number.to_integers(), None)
        if self.call.function == "sum":
            return pc.if_else(pa.array(~none), number.to_decimals(self.call.type), None)
        return self._decimal_mean(number, count)

    def _decimal_mean(self, number: ExactNumbers, count: Int64s) -> pa.Array:
        """Return the mean, rounded half up as in Spark, with at most 20 more decimal places than the argument."""
        scale = self.call.argument_type.scale  # type: ignore[union-attr]
        sums = number.to_decimals(pa.decimal128(38, scale)).cast(pa.decimal256(38, scale))
        counts = pa.array(count, pa.int64(), mask=count <= 0).cast(pa.decimal256(19, 0))
        quotient = pc.round(pc.divide(sums, counts), self.call.type.scale, "half_towards_infinity")
        # If the input has retracted rows that were not present, a mean may be larger than any value.
        digits = self.call.type.precision - self.call.type.scale
        if digits < quotient.type.precision - quotient.type.scale:
            limit = pa.scalar(Decimal(1).scaleb(digits), quotient.type)
            quotient = pc.if_else(pc.less(pc.abs(quotient), limit), quotient, None)
        return quotient.cast(self.call.type)


def misfits(results: pa.Array, counts: Int64s) -> Mask:
    """Return which results of SUM or AVG do not fit their type. `counts` has the number of values of each group."""
    return ~to_mask(results.is_valid()) & (counts > 0)


@dataclass(frozen=True, slots=True)
class Extremes:
    """The minimum or maximum of each group, or NULL if the group has no values. Signs are ignored."""

    call: AccumulatorCall
    kinds: str = "b"

    def lift(self, values: pa.Array | None, counted: Mask) -> pa.Array:
        """Return each row's value, or NULL if the row is not aggregated."""
        assert values is not None
        return values if counted.all() else pc.if_else(pa.array(counted), values, None)

    def total(self, pieces: Sequence[AccumulatorPiece], count: int) -> pa.Array:
        """Return the minimum or maximum of each group."""
        values = pa.concat_arrays([pa.array([], self._type), *(part for part, _, _ in pieces)])
        group = np.concatenate([np.empty(0, np.int64), *(group for _, group, _ in pieces)])
        if values.null_count:
            there = values.is_valid()
            values, group = values.filter(there), group[to_mask(there)]
        ranks = value_bytes.ranks(values)
        if self.call.function in GREATEST:
            ranks = ~ranks
        best = np.full(count, np.iinfo(np.int64).max)
        np.minimum.at(best, group, ranks)
        winner = np.full(count, -1)
        winners = np.flatnonzero(ranks == best[group])
        winner[group[winners]] = winners
        return values.take(pa.array(winner, mask=winner < 0))

    def to_columns(self, part: pa.Array) -> list[Column]:
        """Return each value as bytes, or null if there is no value."""
        there = to_mask(part.is_valid())
        if there.all():
            return [value_bytes.to_bytes(part)]
        return [value_bytes.to_bytes(part.drop_null()).take(pa.array(np.cumsum(there) - 1, mask=~there))]

    def of_columns(self, columns: Sequence[Column]) -> pa.Array:
        """Return the values."""
        there = to_mask(columns[0].is_valid())
        values = value_bytes.from_bytes(columns[0].drop_null(), self._type)
        return values if there.all() else values.take(pa.array(np.cumsum(there) - 1, mask=~there))

    def finish(self, part: pa.Array) -> pa.Array:
        """Return the value in canonical form. A later retraction reads the same form from the state.

        For FIRST and LAST, return the value without the arrival number.
        """
        if self.call.function in ARRIVALS:
            return arrived(part)
        return value_bytes.canonical(part).cast(self.call.type)

    @property
    def _type(self) -> pa.DataType:
        return self.call.argument_type


def counts_where(values: pa.Array | None, counted: Mask) -> Mask:
    """Return a mask of the rows in `counted` that have a value."""
    return counted & to_mask(values.is_valid()) if values is not None and values.null_count else counted


def _with_zeros(values: pa.Array) -> pa.Array:
    return values.fill_null(pa.scalar(0, values.type)) if values.null_count else values


def summed(pieces: Sequence[tuple[Int64s, Indices, Int64s]], count: int) -> Int64s:
    """Return the sums of `count` groups. A piece consists of numbers, and the group and multiplicity of each."""
    sums = np.zeros(count, np.int64)
    for numbers, group, sign in pieces:
        np.add.at(sums, group, numbers * sign)
    return sums


def summed_each(pieces: Sequence[AccumulatorPiece], numbers: int, count: int) -> list[Int64s]:
    """Return the sums for `count` groups, for each of the `numbers` columns of the parts."""
    return [summed([(part[at], group, sign) for part, group, sign in pieces], count) for at in range(numbers)]
