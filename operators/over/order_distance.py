"""Distances between order values, which are integers or doubles; doubles are stored as integer codes.

The *code* of a double (`framing.code`) has the order of doubles, with NaN after all others as in Spark. Negating the
codes reverses the order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rowkind.operators.columns.changes import Int64s, Mask
from rowkind.operators.columns.exact_numbers import Doubles
from rowkind.operators.over.framing import code

LEAST, LARGEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
"""The values of rows whose order value is NULL, which come before or after all others."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale by which distances are measured. If `doubles` is set, values and distances are codes of doubles."""

    doubles: bool = False

    def moved(self, values: Int64s, distance: int) -> Int64s:
        """Return values plus a distance; the values of NULL rows stay the same, and no other value reaches them."""
        if self.doubles:
            # Only NaN itself is within any distance of NaN.
            return np.where(_below(values, _NAN), codes(_sum(values, _doubles(np.array([distance])))), values)
        if distance < 0:
            result = np.where(values < LEAST + 1 - distance, LEAST + 1, values + distance)
        else:
            result = np.where(values > LARGEST - 1 - distance, LARGEST - 1, values + distance)
        return np.where((values == LEAST) | (values == LARGEST), values, result)

    def reach(self, values: Int64s, distance: int) -> Int64s:
        """Return the farthest values that, moved back by the distance and rounded, may still reach these values."""
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
    """Return which numbers are codes of smaller absolute value than the bound, and therefore not NULL."""
    result: Mask = (numbers > -bound) & (numbers < bound)
    return result
