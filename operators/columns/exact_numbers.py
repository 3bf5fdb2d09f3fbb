"""Exact sums of integers, decimals and doubles: subtracting a value that was added restores the earlier sum.

A number is an integer multiple of a fixed unit, written as a row of base-2**32 digits, least significant digit first.
The unit is 1 for integers, the last decimal place for decimals, and 2**-1074 for doubles, because every finite double
is a multiple of 2**-1074. Numbers are added digit by digit, in any order and with any sign, without rounding. A result
is rounded only if it is a double: once, to the nearest double (ties to even). (This is Kulisch's long accumulator, with
carries delayed as in Neal's superaccumulators.)

A number is serialized with only the digits that it needs: the index of the first nonzero digit, followed by all digits
from there to the last one, in two's complement. Zero takes no bytes. A sum of money amounts takes 12 to 16 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.columns.changes import Indices, Int64s, Mask
from rowkind.operators.columns.grouping import members, to_mask

Doubles = npt.NDArray[np.float64]

DOUBLE_UNIT = -1074
"""The unit of doubles is 2 ** DOUBLE_UNIT."""

_BITS = 32
_DIGIT = np.int64((1 << _BITS) - 1)
_HALF = np.int64((1 << 16) - 1)


@dataclass(frozen=True, slots=True)
class ExactNumbers:
    """Numbers as digits: number i is the sum over j of digits[i, j] * 2 ** (32 * (low + j)).

    Digits may have any sign and magnitude until `carried` normalizes them.
    """

    low: int
    digits: Int64s

    def __len__(self) -> int:
        return len(self.digits)

    @classmethod
    def of_integers(cls, values: Int64s) -> ExactNumbers:
        """Return 64-bit integers as exact numbers."""
        return cls(0, np.stack([values & _DIGIT, values >> _BITS], axis=1))

    @classmethod
    def of_decimals(cls, values: pa.Array) -> ExactNumbers:
        """Return decimals as exact numbers, in units of their last decimal place. NULL is not allowed."""
        words = np.frombuffer(values.buffers()[1], np.int64, 2 * len(values), values.offset * 16).reshape(-1, 2)
        halves = [words[:, 0] & _DIGIT, (words[:, 0] >> _BITS) & _DIGIT, words[:, 1] & _DIGIT, words[:, 1] >> _BITS]
        return cls(0, np.stack(halves, axis=1))

    @classmethod
    def of_doubles(cls, values: Doubles) -> ExactNumbers:
        """Return finite doubles as exact numbers, in units of 2 ** DOUBLE_UNIT."""
        bits = values.view(np.int64)
        exponent = (bits >> 52) & 0x7FF
        mantissa = (bits & ((1 << 52) - 1)) | ((exponent > 0).astype(np.int64) << 52)
        shift = np.maximum(exponent, 1) - 1
        used = mantissa != 0
        if not used.any():
            return cls(0, np.zeros((len(values), 1), np.int64))
        column, offset = shift // _BITS, shift % _BITS
        low = int(column[used].min())
        column = np.where(used, column - low, 0)
        digits = np.zeros((len(values), int(column.max()) + 3), np.int64)
        lower, upper = (mantissa & _DIGIT) << offset, (mantissa >> _BITS) << offset
        sign, row = np.where(bits < 0, -1, 1), np.arange(len(values))
        digits[row, column] = sign * (lower & _DIGIT)
        digits[row, column + 1] = sign * ((lower >> _BITS) + (upper & _DIGIT))
        digits[row, column + 2] = sign * (upper >> _BITS)
        return cls(low, digits)

    @classmethod
    def of_products(cls, *factors: Doubles) -> ExactNumbers:
        """Return products of finite doubles, row by row, in units of 2 ** (DOUBLE_UNIT * number of factors)."""
        rows = len(factors[0])
        quarters, shift, negative = np.ones((rows, 1), np.int64), np.zeros(rows, np.int64), np.zeros(rows, np.bool_)
        for values in factors:
            bits = values.view(np.int64)
            exponent = (bits >> 52) & 0x7FF
            mantissa = (bits & ((1 << 52) - 1)) | ((exponent > 0).astype(np.int64) << 52)
            quarters = _convolved(quarters, np.stack([(mantissa >> at) & _HALF for at in range(0, 64, 16)], axis=1))
            shift += np.maximum(exponent, 1) - 1
            negative ^= bits < 0
        used = quarters.any(axis=1)
        if not used.any():
            return cls(0, np.zeros((rows, 1), np.int64))
        column, offset = shift // _BITS, shift % _BITS
        low = int(column[used].min())
        column = np.where(used, column - low, 0)
        words = quarters[:, 0::2] | (quarters[:, 1::2] << 16)
        digits = np.zeros((rows, int(column.max()) + words.shape[1] + 1), np.int64)
        sign, row = np.where(negative, -1, 1), np.arange(rows)
        for number in range(words.shape[1]):
            word = words[:, number] << offset
            digits[row, column + number] += sign * (word & _DIGIT)
            digits[row, column + number + 1] += sign * (word >> _BITS)
        return cls(low, digits)

    @classmethod
    def total(cls, pieces: Sequence[tuple[ExactNumbers, Indices, Int64s]], count: int) -> ExactNumbers:
        """Return the sum of each of `count` groups. A piece consists of numbers, and the group and factor of each."""
        pieces = [piece for piece in pieces if len(piece[0])]
        if not pieces:
            return cls(0, np.zeros((count, 1), np.int64))
        low = min(numbers.low for numbers, _, _ in pieces)
        high = max(numbers.low + numbers.digits.shape[1] for numbers, _, _ in pieces)
        sums = np.zeros((high - low, count), np.int64)
        for numbers, group, sign in pieces:
            for number in range(numbers.digits.shape[1]):
                np.add.at(sums[numbers.low - low + number], group, numbers.digits[:, number] * sign)
        return cls(low, np.ascontiguousarray(sums.T))

    def take(self, rows: Indices) -> ExactNumbers:
        """Return the numbers at `rows`, in that order."""
        return ExactNumbers(self.low, self.digits[rows])

    def replaced(self, rows: Indices, others: ExactNumbers) -> ExactNumbers:
        """Return a copy in which the numbers at `rows` are replaced by `others`."""
        if not len(rows):
            return self
        low = min(self.low, others.low)
        high = max(each.low + each.digits.shape[1] for each in (self, others))
        digits = np.zeros((len(self), high - low), np.int64)
        digits[:, self.low - low : self.low - low + self.digits.shape[1]] = self.digits
        digits[rows] = 0
        digits[rows, others.low - low : others.low - low + others.digits.shape[1]] = others.digits
        return ExactNumbers(low, digits)

    def minus(self, other: ExactNumbers) -> ExactNumbers:
        """Return the differences, row by row."""
        rows, ones = np.arange(len(self)), np.ones(len(self), np.int64)
        return ExactNumbers.total([(self, rows, ones), (other, rows, -ones)], len(self))

    def times(self, other: ExactNumbers) -> ExactNumbers:
        """Return the products, row by row. The unit of the products is the product of the two units."""
        (left, one), (right, two) = self.magnitude(), other.magnitude()
        halves = _convolved(_halves(left.digits), _halves(right.digits))
        digits = halves[:, 0::2] | (halves[:, 1::2] << 16)
        return ExactNumbers(left.low + right.low, np.where(one ^ two, -1, 1)[:, None] * digits)

    def is_zero(self) -> Mask:
        """Return a mask of the numbers that are zero."""
        result: Mask = (self.carried().digits == 0).all(axis=1)
        return result

    def carried(self) -> ExactNumbers:
        """Return the numbers in two's complement: digits from 0 to 2**32 - 1, followed by a sign digit, 0 or -1."""
        rows, width = self.digits.shape
        digits = np.concatenate([self.digits, np.zeros((rows, 3), np.int64)], axis=1)
        for number in range(width + 2):
            digits[:, number + 1] += digits[:, number] >> _BITS
            digits[:, number] &= _DIGIT
        return ExactNumbers(self.low, digits)

    def magnitude(self) -> tuple[ExactNumbers, Mask]:
        """Return the absolute values, carried, and a mask of the negative numbers."""
        carried = self.carried()
        negative = carried.digits[:, -1] < 0
        if not negative.any():
            return carried, negative
        return ExactNumbers(self.low, np.where(negative[:, None], -1, 1) * carried.digits).carried(), negative

    def to_bytes(self) -> pa.BinaryArray:
        """Serialize each number with only the digits that it needs."""
        digits = self.carried().digits
        body, negative = digits[:, :-1], digits[:, -1:] < 0
        extended = body == np.where(negative, _DIGIT, 0)
        width = body.shape[1]
        length = np.where(extended.all(axis=1), 0, width - np.argmax(~extended[:, ::-1], axis=1))
        # The top bit of the last digit must be the sign; the body has a spare digit for it.
        top = body[np.arange(len(body)), np.maximum(length - 1, 0)] >> (_BITS - 1)
        length += (length == 0) | ((top != 0) != negative[:, 0])
        first = np.argmax(body != 0, axis=1)
        zero = (body == 0).all(axis=1)
        first[zero], length[zero] = 0, 0
        words = np.where(zero, 0, 1 + length - first)
        owner, rank = members(words)
        data = np.where(rank == 0, first[owner] + self.low, body[owner, np.maximum(first[owner] + rank - 1, 0)])
        offsets = np.concatenate(([0], np.cumsum(words * 4))).astype(np.int32)
        return pa.Array.from_buffers(
            pa.binary(), len(words), [None, pa.py_buffer(offsets), pa.py_buffer(data.astype(np.uint32))]
        )

    @classmethod
    def of_bytes(cls, values: pa.BinaryArray) -> ExactNumbers:
        """Return the numbers that `to_bytes` serialized."""
        offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * 4)
        words = np.diff(offsets) // 4
        if not words.any():
            return cls(0, np.zeros((len(values), 1), np.int64))
        data = np.frombuffer(values.buffers()[2], np.uint8, int(offsets[-1] - offsets[0]), int(offsets[0]))
        data = data.copy().view(np.uint32).astype(np.int64)
        owner, rank = members(words)
        starts = np.cumsum(words) - words
        there = np.flatnonzero(words)
        first = np.zeros(len(values), np.int64)
        first[there] = data[starts[there]]
        low, high = int(first[there].min()), int((first + words - 1)[there].max())
        last = rank == words[owner] - 1
        data[last] = np.where(data[last] >> (_BITS - 1), data[last] - (1 << _BITS), data[last])
        digits = np.zeros((len(values), high - low), np.int64)
        body = rank > 0
        digits[owner[body], first[owner[body]] - low + rank[body] - 1] = data[body]
        return cls(low, digits)

    def scaled_doubles(self, unit: int) -> Doubles:
        """Return each number times 2 ** unit, rounded to the nearest double; infinite if the result is too large."""
        magnitude, negative = self.magnitude()
        # Add two zero digits below, so that there are always three digits to read.
        digits = np.concatenate([np.zeros((len(self), 2), np.int64), magnitude.digits], axis=1).astype(np.uint64)
        row, width = np.arange(len(self)), digits.shape[1]
        top = np.maximum(width - 1 - np.argmax(digits[:, ::-1] != 0, axis=1), 2)
        top[(digits == 0).all(axis=1)] = 2
        high, middle, lowest = (digits[row, top - number] for number in range(3))
        spare = (_BITS - np.frexp(high.astype(np.float64))[1]).astype(np.uint64)
        below = np.cumsum(digits != 0, axis=1)[row, top - 2] - (lowest != 0) > 0
        lowest = lowest << spare
        bits = (((high << np.uint64(_BITS)) | middle) << spare) | (lowest >> np.uint64(_BITS))
        # The lowest of the 64 bits also represents all bits below it, which distinguishes a tie from a larger number.
        bits |= (((lowest & np.uint64(_DIGIT)) != 0) | below).astype(np.uint64)
        exponent = _BITS * (self.low + top - 3) - spare.astype(np.int64) + unit
        with np.errstate(over="ignore"):
            result: Doubles = np.ldexp(bits.astype(np.float64), exponent.astype(np.int32))
        return np.where(negative, -result, result)

    def _as_decimals(self) -> tuple[pa.Array, Mask]:
        """Return the numbers as decimals with 38 digits and scale 0, and a mask of the numbers that fit this type."""
        rows = len(self)
        digits = self.carried().digits
        below = np.zeros((rows, self.low), np.int64)
        digits = np.concatenate([below, digits, np.repeat(digits[:, -1:], 5, axis=1)], axis=1)
        words = (digits[:, 0:4:2] & _DIGIT) | (digits[:, 1:4:2] << _BITS)
        fits = ((digits[:, 4:] & _DIGIT) == ((words[:, 1:] >> 63) & _DIGIT)).all(axis=1)
        words[~fits] = 0
        raw: Any = pa.Array.from_buffers(pa.decimal128(38, 0), rows, [None, pa.py_buffer(np.ascontiguousarray(words))])
        inside = to_mask(pc.less_equal(pc.abs(raw), pa.scalar(10**38 - 1, pa.decimal128(38, 0))))
        return raw, fits & inside

    def to_decimals(self, type_: pa.DataType) -> pa.Array:
        """Return the numbers as decimals of this type; NULL if they do not fit.

        The unit of the numbers must be the type's last decimal place.
        """
        raw, fits = self._as_decimals()
        limit = pa.scalar(10**type_.precision - 1, pa.decimal128(38, 0))
        fits = fits & to_mask(pc.less_equal(pc.abs(raw), limit))
        return pa.Array.from_buffers(type_, len(raw), [_bitmap(fits), raw.buffers()[1]])

    def to_integers(self) -> pa.Array:
        """Return the numbers as 64-bit integers; NULL if they do not fit."""
        raw, fits = self._as_decimals()
        words = np.frombuffer(raw.buffers()[1], np.int64, 2 * len(raw)).reshape(-1, 2)
        fits = fits & (words[:, 1] == words[:, 0] >> 63)
        return pa.array(words[:, 0].copy(), pa.int64(), mask=~fits)


def _halves(digits: Int64s) -> Int64s:
    """Split base-2**32 digits into base-2**16 digits. Upper base-2**32 digits that are zero in all rows are omitted."""
    used = np.flatnonzero(digits.any(axis=0))
    digits = digits[:, : int(used[-1]) + 1 if len(used) else 1]
    return np.stack([digits & _HALF, digits >> 16], axis=2).reshape(len(digits), -1)


def _convolved(left: Int64s, right: Int64s) -> Int64s:
    """Multiply numbers given as base-2**16 digits, lowest digit first. Products have an even number of digits."""
    width = left.shape[1] + right.shape[1]
    products = np.zeros((len(left), width + width % 2), np.int64)
    for number in range(left.shape[1]):
        products[:, number : number + right.shape[1]] += left[:, number, None] * right
    for number in range(width - 1):
        products[:, number + 1] += products[:, number] >> 16
        products[:, number] &= _HALF
    return products


def _bitmap(mask: Mask) -> pa.Buffer:
    return pa.py_buffer(np.packbits(mask, bitorder="little"))
