"""What distances between the values of an order are: of whole numbers, or of doubles, which are kept as numbers, too.

The number of a double, its *code* (`framing.code`), has the order of doubles, NaN behind all others as in Spark, and
turning its sign over turns the order over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rowkind.operators.columns.changes import Int64s, Mask
from rowkind.operators.columns.exact_numbers import Doubles
from rowkind.operators.over.framing import code

LEAST, LARGEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
"""The values of rows without one, before or behind all others."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How far values are from each other. Distances and values are codes where they are `doubles`."""

    doubles: bool = False

    def moved(self, values: Int64s, distance: int) -> Int64s:
        """Values so much further on; those of rows without one stay where they are, and none goes so far."""
        if self.doubles:
            # NaN is near to itself only.
            return np.where(_below(values, _NAN), codes(_sum(values, _doubles(np.array([distance])))), values)
        if distance < 0:
            result = np.where(values < LEAST + 1 - distance, LEAST + 1, values + distance)
        else:
            result = np.where(values > LARGEST - 1 - distance, LARGEST - 1, values + distance)
        return np.where((values == LEAST) | (values == LARGEST), values, result)

    def reach(self, values: Int64s, distance: int) -> Int64s:
        """At least as far on as values may be from which these are so far back, after rounding."""
        found = self.moved(values, distance)
        if not self.doubles or not distance:
            return found
        near, far = (np.abs(np.where(_below(each, _INFINITE), _doubles(each), 0.0)) for each in (values, found))
        further = codes(_sum(found, np.sign(distance) * (np.spacing(near) + np.spacing(far))))
        return np.where(_below(found, _INFINITE), further, found)


WHOLE = Scale()
"""That of whole numbers."""


def codes(values: Doubles) -> Int64s:
    """The codes of doubles."""
    plain = np.where(np.isnan(values), np.nan, values + 0.0)
    size = np.abs(plain).view(np.int64)
    return np.where(plain < 0, -size, size)


def _sum(values: Int64s, others: Doubles) -> Doubles:
    """Of codes and doubles; what is too large is infinite."""
    with np.errstate(over="ignore"):
        return _doubles(values) + others


def _doubles(numbers: Int64s) -> Doubles:
    size = np.abs(np.where((numbers == LEAST) | (numbers == LARGEST), 0, numbers))
    return np.copysign(size.view(np.float64), numbers)


_NAN, _INFINITE = code(math.nan), code(math.inf)


def _below(numbers: Int64s, bound: int) -> Mask:
    """Which of them are codes of smaller size than this one, and so not NULL either."""
    result: Mask = (numbers > -bound) & (numbers < bound)
    return result
