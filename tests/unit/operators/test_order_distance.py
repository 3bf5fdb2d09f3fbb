"""Distances between doubles, computed on integer codes: the same as on doubles, NULL, NaN and infinities included."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rowkind.operators.over.framing import code
from rowkind.operators.over.order_distance import LARGEST, LEAST, Scale, codes
from tests.seeds import seeds

DOUBLES = Scale(doubles=True)
ORDERED = [-math.inf, -1e308, -2.5, -5e-324, 0.0, 5e-324, 0.3, 2.5, 1e308, math.inf, math.nan]


def test_codes_are_in_the_order_of_doubles() -> None:
    """Codes are in the order of doubles: NaN is the greatest, both zeros are 0, and signs are kept."""
    found = codes(np.array(ORDERED)).tolist()
    assert found == sorted(set(found))
    assert found == list(map(code, ORDERED))
    assert found[0] > LEAST
    assert found[-1] < LARGEST
    assert code(-0.0) == code(0.0) == 0
    assert code(-2.5) == -code(2.5)
    assert code(-math.nan) == code(math.nan)


@pytest.mark.parametrize(
    ("value", "distance", "moved"),
    [
        (code(0.3), code(-0.1), code(0.3 - 0.1)),
        (code(-2.5), code(2.5), 0),
        (code(math.inf), code(-1.0), code(math.inf)),
        (code(math.nan), code(1.0), code(math.nan)),
        (-code(math.nan), code(1.0), -code(math.nan)),
        (code(1e308), code(1e308), code(math.inf)),
        (LEAST, code(1.0), LEAST),
        (LARGEST, code(-1.0), LARGEST),
    ],
)
def test_a_value_is_moved_as_doubles_are_added(value: int, distance: int, moved: int) -> None:
    """A code is moved as doubles are added; NULL, NaN and infinities do not move."""
    assert DOUBLES.moved(np.array([value]), distance).tolist() == [moved]


def test_reach_is_far_enough_whatever_is_rounded() -> None:
    """Every value whose moved code is at or before another value lies within that value's reach."""
    for seed in seeds(20):
        dice = np.random.default_rng(seed)
        sizes = 10.0 ** dice.integers(-20, 20, 400)
        one, other = dice.choice([-1, 1], 400) * sizes, dice.normal(size=400) * sizes[::-1]
        for distance in (0.1, 1e-9, 3.7e5, 1e17):
            seen = DOUBLES.moved(codes(one), code(-distance)) <= codes(other)
            near = codes(one) <= DOUBLES.reach(codes(other), code(distance))
            assert not (seen & ~near).any(), seed
