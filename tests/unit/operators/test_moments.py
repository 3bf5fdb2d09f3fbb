"""Variances and other moments: rounding, retractions, and special numbers."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from rowkind.operators.aggregate.accumulators import AccumulatorCall
from rowkind.operators.aggregate.function import MomentFunction
from rowkind.operators.aggregate.spec import accumulator

DOUBLE = pa.float64()


def moment(function: MomentFunction, added: list[float], taken: list[float] | None = None) -> float | None:
    """Return the moment of the values `added` less the retracted values `taken`, in one group."""
    of = accumulator(AccumulatorCall(function, DOUBLE, "x", DOUBLE))
    pieces = []
    for values, sign in ((added, 1), (taken or [], -1)):
        part = of.lift(pa.array(values, DOUBLE), np.ones(len(values), np.bool_))
        # Converted to columns and back, as when it is read from the state.
        stored = of.of_columns(of.to_columns(part))
        pieces.append((stored, np.zeros(len(values), np.int64), np.full(len(values), sign)))
    result: float | None = of.finish(of.total(pieces, 1)).to_pylist()[0]
    return result


def test_a_small_variance_of_large_numbers_keeps_its_digits() -> None:
    """A small variance of large numbers keeps its digits, which the usual formula in doubles loses."""
    values = [1e15 + each for each in (0.0, 0.125, 0.25)]
    assert moment("var_pop", values) == pytest.approx(0.03125 / 3, rel=1e-15)


def test_the_variance_of_equal_values_is_zero() -> None:
    """The variance of equal values is exactly zero, although 0.1 is not a binary fraction."""
    assert moment("var_pop", [0.1] * 7) == 0.0
    assert moment("stddev_samp", [0.1, 0.1, 0.1]) == 0.0
    assert moment("skewness", [0.1] * 3) is None


def test_what_comes_and_goes_leaves_no_trace() -> None:
    """Retracted values have no effect on the result, at any size, even NaN and the infinities."""
    odd = [1e300, -1e300, 5e-324, math.nan, math.inf, -math.inf, 1e-200]
    assert moment("var_pop", [0.1, 0.2, *odd], odd) == moment("var_pop", [0.2, 0.1])


def test_a_value_that_is_not_finite_makes_the_result_nan_while_it_is_there() -> None:
    """A value that is not finite makes the result NaN, as in Spark; a sample of one row still has no variance."""
    assert math.isnan(moment("var_pop", [1.0, math.inf]) or 0.0)
    assert moment("var_samp", [math.nan]) is None


@pytest.mark.parametrize("seed", range(20))
def test_moments_are_the_exact_ones_rounded(seed: int) -> None:
    """Moments of random values of very different sizes equal the rounded moments of fractions."""
    rng = random.Random(seed)
    values = [rng.uniform(-1, 1) * 10.0 ** rng.randint(-5, 60) for _ in range(rng.randint(2, 9))]
    exact = [Fraction(each) for each in values]
    mean = sum(exact) / len(exact)
    squares = sum((each - mean) ** 2 for each in exact)
    assert moment("var_pop", values) == pytest.approx(float(squares / len(exact)), rel=1e-15)
    assert moment("var_samp", values) == pytest.approx(float(squares / (len(exact) - 1)), rel=1e-15)
    fourth = sum((each - mean) ** 4 for each in exact)
    assert moment("kurtosis", values) == pytest.approx(
        float(len(exact) * fourth / squares**2 - 3), rel=1e-14, abs=1e-14
    )


def test_the_correlation_of_a_line_is_one() -> None:
    """The correlation of points on a line is 1, and rounding never makes it greater."""
    pair = pa.struct([pa.field("y", DOUBLE), pa.field("x", DOUBLE)])
    of = accumulator(AccumulatorCall("corr", DOUBLE, "pair", pair))
    rows = [(3 * each, each) for each in (0.1, 0.2, 0.4, 1e10)]
    part = of.lift(pa.array(rows, pair), np.ones(4, np.bool_))
    total = of.total([(part, np.zeros(4, np.int64), np.ones(4, np.int64))], 1)
    assert 1 - 1e-15 < of.finish(total).to_pylist()[0] <= 1
