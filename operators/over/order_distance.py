"""Distances between order values, which are integers or doubles; doubles are represented by integer codes.

The *codes* of doubles (`framing.code`) have the same order as the doubles, with NaN after all other values as in Spark.
Negating the codes reverses the order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rowkind.operators.columns.changes import Int64s, Mask
from rowkind.operators.columns.exact_numbers import Doubles
from rowkind.operators.over.framing import code

LEAST, LARGEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
"""The numbers that represent NULL order values, which come before or after all other values."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale on which distances are measured. If `doubles` is set, values and distances are codes of doubles."""

    doubles: bool = False

    def moved(self, values: Int64s, distance: int) -> Int64s:
        """Return values plus a distance; NULL stays unchanged, and no other value becomes NULL."""
        if self.doubles:
            # Only NaN is within any distance of NaN.
            return np.where(_below(values, _NAN), codes(_sum(values, _doubles(np.array([distance])))), values)
        if distance < 0:
            result = np.where(values < LEAST + 1 - distance, LEAST + 1, values + distance)
        else:
            result = np.where(values > LARGEST - 1 - distance, LARGEST - 1, values + distance)
        return np.where((values == LEAST) | (values == LARGEST), values, result)

    def reach(self, values: Int64s, distance: int) -> Int64s:
        """Return the farthest values that may equal the given values when moved back by the distance and rounded."""
        found = self.moved(values, distance)
        if not self.doubles or not distance:
            return found
        near, far = (np.abs(np.where(_below(each, _INFINITE), _doubles(each), 0.0)) for each in (values, found))
        further = codes(_sum(found, np.sign(distance) * (np.spacing(near) + np.spacing(far))))
        return np.where(_below(found, _INFINITE), further, found)


WHOLE = Scale()
"""The scale of integers."""


def codes(values: Doubles) -> Int64s:
    """Return the codes of doubles."""
    plain = np.where(np.isnan(values), np.nan, values + 0.0)
    size = np.abs(plain).view(np.int64)
    return np.where(plain < 0, -size, size)


def _sum(values: Int64s, others: Doubles) -> Doubles:
    """Add doubles to values given as codes, and return doubles; an overflow becomes infinity."""
    with np.errstate(over="ignore"):
        return _doubles(values) + others


def _doubles(numbers: Int64s) -> Doubles:
    size = np.abs(np.where((numbers == LEAST) | (numbers == LARGEST), 0, numbers))
    return np.copysign(size.view(np.float64), numbers)


_NAN, _INFINITE = code(math.nan), code(math.inf)


def _below(numbers: Int64s, bound: int) -> Mask:
    """Return a mask of the codes whose absolute value is less than `bound`, and which are therefore not NULL."""
    result: Mask = (numbers > -bound) & (numbers < bound)
    return result
