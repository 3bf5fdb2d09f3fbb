"""Exact numbers: sums compared with Python's integers, fractions and decimals."""

from __future__ import annotations

import math
import random
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rowkind.operators.columns.exact_numbers import DOUBLE_UNIT, ExactNumbers

CASES = 80
EDGES = (0.1, 0.2, -0.1, 1e300, -1e300, 5e-324, -5e-324, 1e16, 0.0, -0.0, 1.7976931348623157e308, 2.0**-1022)


def _double(generator: random.Random) -> float:
    choice = generator.random()
    if choice < 0.3:
        return generator.uniform(-1e6, 1e6)
    if choice < 0.5:
        return generator.choice(EDGES)
    if choice < 0.7:
        return round(generator.uniform(-100, 100), 2)
    return math.ldexp(generator.uniform(-1, 1), generator.randint(-1070, 1000))


def _totals(numbers: ExactNumbers, signs: list[int], groups: list[int]) -> list[ExactNumbers]:
    """Return the sums by group: as they are, after serialization, and after a doubled sum less the sum."""
    count = max(groups) + 1
    total = ExactNumbers.total([(numbers, np.array(groups), np.array(signs))], count)
    stored = ExactNumbers.of_bytes(total.to_bytes())
    index, ones = np.arange(count), np.ones(count, np.int64)
    again = ExactNumbers.total([(total, index, 2 * ones), (stored, index, -ones)], count)
    nothing = ExactNumbers.total([(total, index, ones), (stored, index, -ones)], count)
    assert nothing.to_bytes().to_pylist() == [b""] * count
    assert again.to_bytes().equals(total.to_bytes())
    return [total, stored, again]


def _expected(values: list[Any], signs: list[int], groups: list[int]) -> list[Any]:
    return [
        sum((value * sign for value, sign, of in zip(values, signs, groups, strict=True) if of == group), 0)
        for group in range(max(groups) + 1)
    ]


def _float(value: Fraction | int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


@pytest.mark.parametrize("number", range(CASES))
def test_sums_are_those_of_unbounded_numbers(number: int) -> None:
    """Sums of integers and decimals are exact, or NULL if they do not fit; sums of doubles are rounded once."""
    generator = random.Random(number)
    rows = generator.randint(1, 30)
    signs, groups = ([generator.choice(of) for _ in range(rows)] for of in ((1, -1), (0, 1, 2)))

    doubles = [_double(generator) for _ in range(rows)]
    expected = _expected([Fraction(value) for value in doubles], signs, groups)
    for total in _totals(ExactNumbers.of_doubles(np.array(doubles)), signs, groups):
        assert total.scaled_doubles(DOUBLE_UNIT).tolist() == [_float(value) for value in expected]

    edges = [(-5, 5), (-(1 << 63), (1 << 63) - 1), ((1 << 63) - 1, (1 << 63) - 1), (1 << 31, 1 << 31), (-(1 << 32), 0)]
    integers = [generator.randint(*generator.choice(edges)) for _ in range(rows)]
    expected = _expected(integers, signs, groups)
    for total in _totals(ExactNumbers.of_integers(np.array(integers)), signs, groups):
        assert total.to_integers().to_pylist() == [
            value if -(1 << 63) <= value < 1 << 63 else None for value in expected
        ]
        assert total.scaled_doubles(0).tolist() == [_float(value) for value in expected]

    wide = [generator.choice([generator.randint(-500, 500), 10**38 - 1, 1 - 10**38, 1 << 96]) for _ in range(rows)]
    decimals = pa.array([Decimal(value).scaleb(-2, Context(prec=60)) for value in wide], pa.decimal128(38, 2))
    expected = [
        Decimal(value).scaleb(-2, Context(prec=60)) if abs(value) < 10**38 else None
        for value in _expected(wide, signs, groups)
    ]
    for total in _totals(ExactNumbers.of_decimals(decimals), signs, groups):
        assert total.to_decimals(pa.decimal128(38, 2)).to_pylist() == expected


def _unbounded(numbers: ExactNumbers) -> list[int]:
    digits = numbers.carried().digits.tolist()
    return [sum(digit << 32 * (numbers.low + at) for at, digit in enumerate(row)) for row in digits]


@pytest.mark.parametrize("number", range(CASES))
def test_products_are_those_of_unbounded_numbers(number: int) -> None:
    """Products of doubles and of exact numbers equal those of fractions, also after serialization."""
    generator = random.Random(f"products, {number}")
    rows = generator.randint(1, 5)
    factors = [[_double(generator) for _ in range(rows)] for _ in range(generator.randint(1, 4))]
    products = ExactNumbers.of_products(*map(np.array, factors))
    pairs = zip(*factors, strict=True)
    fractions = [math.prod(Fraction(each) / 2 ** Fraction(DOUBLE_UNIT) for each in row) for row in pairs]
    assert _unbounded(products) == fractions
    assert _unbounded(ExactNumbers.of_bytes(products.to_bytes())) == fractions
    single = ExactNumbers.of_products(np.array(factors[0]))
    difference = products.minus(single)
    expected = [a * b for a, b in zip(_unbounded(difference), _unbounded(single), strict=True)]
    assert _unbounded(difference.times(single)) == expected
