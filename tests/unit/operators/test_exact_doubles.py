"""Exact sums of doubles: compared with fractions, and with the same bytes in any order of addition."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from rowkind.operators.columns.exact_doubles import ROUNDS, ExactDoubles
from tests.seeds import seeds

CASES = seeds(60)
HUGE = 1.7976931348623157e308
EDGES = (0.1, 0.2, -0.1, 1e300, -1e300, 5e-324, -5e-324, 1e16, 1.0, 2.0**-53, 0.0, -0.0, HUGE, -HUGE, 2.0**-1022)


def _double(generator: random.Random, *, tame: bool) -> float:
    choice = generator.random()
    if tame or choice < 0.4:
        return generator.random() * 500
    if choice < 0.7:
        return generator.choice(EDGES)
    return math.ldexp(generator.uniform(-1, 1), generator.randint(-1074, 1000))


def _sum(numbers: ExactDoubles, signs: list[int], groups: list[int], count: int) -> ExactDoubles:
    return ExactDoubles.total([(numbers, np.array(groups, np.int64), np.array(signs, np.int64))], count)


def _stored(numbers: ExactDoubles) -> str:
    """Return the stored form as text, in which -0.0 differs from 0.0."""
    high, low, digits = numbers.to_columns()
    return f"{high.tolist()} {low.tolist()} {digits.to_pylist()}"


def _again(numbers: ExactDoubles) -> ExactDoubles:
    high, low, digits = numbers.to_columns()
    return ExactDoubles.of_columns(high, low, digits)


def _float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


@pytest.mark.parametrize("number", CASES)
def test_sums_are_those_of_fractions(number: int) -> None:
    """A sum is rounded once, to the nearest double, and has the same bytes in any order and division of the rows."""
    generator = random.Random(number)
    tame, count = number % 4 == 0, 3
    rows = generator.choice((1, 3, 10, 3 * ROUNDS, 10 * ROUNDS))
    doubles = [_double(generator, tame=tame) for _ in range(rows)]
    signs, groups = ([generator.choice(of) for _ in range(rows)] for of in ((1, -1), range(count)))
    exact = [
        sum((Fraction(value) * sign for value, sign, of in zip(doubles, signs, groups, strict=True) if of == group))
        for group in range(count)
    ]

    total = _sum(ExactDoubles.of(np.array(doubles)), signs, groups, count)
    assert total.high.tolist() == [_float(Fraction(value)) for value in exact]

    sums, index, ones = _sum(ExactDoubles.of(np.empty(0)), [], [], count), np.arange(count), np.ones(count, np.int64)
    shuffled = generator.sample(range(rows), rows)
    for first in range(0, rows, 5):
        some = shuffled[first : first + 5]
        piece = ExactDoubles.of(np.array(doubles)[some]), np.array(groups)[some], np.array(signs)[some]
        sums = ExactDoubles.total([(_again(sums), index, ones), piece], count)
    assert _stored(sums) == _stored(total)

    nothing = ExactDoubles.total([(total, index, ones), (_again(total), index, -ones)], count)
    assert _stored(nothing) == f"{[0.0] * count} {[0.0] * count} {[b''] * count}"


def test_a_sum_takes_digits_only_while_two_doubles_do_not_hold_it() -> None:
    """A sum stores digits only while two doubles cannot represent it, as 1e300 + 1 + 2 ** -60."""
    values = ExactDoubles.of(np.array([1e300, 1.0, 2.0**-60]))
    three = _sum(values, [1, 1, 1], [0, 0, 0], 1)
    assert (three.high.tolist(), len(three.long)) == ([1e300], 1)

    one = np.zeros(1, np.int64)
    two = ExactDoubles.total([(_again(three), one, one + 1), (ExactDoubles.of(np.array([1e300])), one, one - 1)], 1)
    assert _stored(two) == f"[1.0] {[2.0**-60]} [b'']"


def test_a_sum_that_is_too_large_comes_back() -> None:
    """A sum that is too large for a double is infinite only until it fits again."""
    zero = np.zeros(2, np.int64)
    large = _sum(ExactDoubles.of(np.array([HUGE, HUGE])), [1, 1], [0, 0], 1)
    assert large.high.tolist() == [math.inf]

    back = ExactDoubles.total(
        [(_again(large), zero[:1], zero[:1] + 1), (ExactDoubles.of(np.array([HUGE])), zero[:1], zero[:1] - 1)], 1
    )
    assert _stored(back) == f"{[HUGE]} [0.0] [b'']"
