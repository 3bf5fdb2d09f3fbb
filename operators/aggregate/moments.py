"""Moments: variance, covariance, correlation, regression, skewness and kurtosis from exact sums of powers and products.

The state consists of the number of rows, n, and the sums of x, x², xy and so on, as exact numbers. Retracting a row
therefore undoes its insertion exactly, a variance is never negative, the variance of equal values is zero, and the
result does not depend on the order of rows. In double arithmetic, the textbook formulas can lose all significant
digits. Here, they lose none: n times the sum of squares minus the square of the sum is computed exactly, and rounded
once. While a group contains NaN or an infinity, the result is NaN.

As in Spark, the sample variance of a single row is NULL, and a correlation is NULL if one of the variances is zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rowkind.operators.aggregate.accumulators import AccumulatorCall, AccumulatorPiece, counts_where, summed
from rowkind.operators.columns.changes import Int64s, Mask
from rowkind.operators.columns.exact_numbers import DOUBLE_UNIT, Doubles, ExactNumbers
from rowkind.operators.columns.packed_columns import Column

_VARIANCE = ("x", "xx")
_PAIR = ("x", "y", "xy")
_PAIRS = ("x", "y", "xy", "xx", "yy")
_POWERS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("var_pop", "var_samp", "stddev_pop", "stddev_samp"), _VARIANCE),
    "skewness": ("x", "xx", "xxx"),
    "kurtosis": ("x", "xx", "xxx", "xxxx"),
    **dict.fromkeys(("covar_pop", "covar_samp"), _PAIR),
    **dict.fromkeys(("corr", "regr_slope", "regr_intercept", "regr_r2", "regr_sxx", "regr_syy", "regr_sxy"), _PAIRS),
}
"""The products whose sums each function stores. A product is written as its factors: "xxx" is x³."""


_OF_SEVERAL = ("var_samp", "stddev_samp", "covar_samp", "corr")
"""The functions that need at least two rows, and return NULL for a single row."""


@dataclass(frozen=True, slots=True)
class MomentsPart:
    """The number of rows, the number of rows with NaN or an infinity (`odd`), and the sums over the other rows.

    `sums` contains the sum of each product by the product's name.
    """

    count: Int64s
    odd: Int64s
    sums: dict[str, ExactNumbers]


@dataclass(frozen=True, slots=True)
class Moments:
    """The sums of powers and products. The argument is a double or, for functions of two variables, a struct (y, x)."""

    call: AccumulatorCall

    @property
    def kinds(self) -> str:
        """The column kinds of the two counts and the sums."""
        return "nn" + "b" * len(self._products)

    @property
    def _products(self) -> tuple[str, ...]:
        return _POWERS[self.call.function]

    def lift(self, values: pa.Array | None, counted: Mask) -> MomentsPart:
        """Return the powers and products of each row, or zeros if the row is not aggregated."""
        assert values is not None
        there = counts_where(values, counted)
        pair = pa.types.is_struct(values.type)
        columns = values.flatten() if pair else [values]
        plain = [column.fill_null(0.0).to_numpy(zero_copy_only=False) for column in columns]
        finite = there & np.isfinite(plain).all(axis=0)
        of = dict(zip("yx" if pair else "x", (np.where(finite, column, 0.0) for column in plain), strict=True))
        sums = {name: ExactNumbers.of_products(*(of[factor] for factor in name)) for name in self._products}
        return MomentsPart(there.astype(np.int64), (there & ~finite).astype(np.int64), sums)

    def total(self, pieces: Sequence[AccumulatorPiece], count: int) -> MomentsPart:
        """Return the sums."""
        return MomentsPart(
            summed([(part.count, group, sign) for part, group, sign in pieces], count),
            summed([(part.odd, group, sign) for part, group, sign in pieces], count),
            {
                name: ExactNumbers.total([(part.sums[name], group, sign) for part, group, sign in pieces], count)
                for name in self._products
            },
        )

    def to_columns(self, part: MomentsPart) -> list[Column]:
        """Return the counts and the sums as columns."""
        return [part.count, part.odd, *(part.sums[name].to_bytes() for name in self._products)]

    def of_columns(self, columns: Sequence[Column]) -> MomentsPart:
        """Convert columns that `to_columns` returned back to the part."""
        count, odd, *sums = columns
        numbers = map(ExactNumbers.of_bytes, sums)
        return MomentsPart(count, odd, dict(zip(self._products, numbers, strict=True)))

    def finish(self, part: MomentsPart) -> pa.Array:
        """Return the result of the function. It is NULL if there are too few rows, or if the result is undefined."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            values, none = _finished(self.call.function, _Central(part))
        few = part.count <= (1 if self.call.function in _OF_SEVERAL else 0)
        odd = part.odd > 0
        return pa.array(np.where(odd, np.nan, values), pa.float64(), mask=few | (none & ~odd))


class _Central:
    """Sums of powers of distances from the mean. Each is an exact number, rounded once, and divided by a power of n."""

    def __init__(self, part: MomentsPart) -> None:
        self.n = np.maximum(part.count, 1).astype(np.float64)
        self._n = ExactNumbers.of_integers(np.maximum(part.count, 1))
        self._sums = part.sums

    def mean(self, name: str) -> Doubles:
        """Return the mean of x or y."""
        return self._sums[name].scaled_doubles(DOUBLE_UNIT) / self.n

    def second(self, name: str) -> Doubles:
        """Return the sum of (x - mean of x) * (y - mean of y) if `name` is xy; likewise for xx and yy."""
        product = self._sums[name[0]].times(self._sums[name[1]])
        exact = self._n.times(self._sums[name]).minus(product).scaled_doubles(2 * DOUBLE_UNIT)
        # If the input has retracted rows that were not present, the sums may not be possible for any set of rows.
        return (np.maximum(exact, 0.0) if name[0] == name[1] else exact) / self.n

    def third(self) -> Doubles:
        """Return the sum of (x - mean of x)³."""
        n, (x, xx, xxx) = self._n, (self._sums[name] for name in ("x", "xx", "xxx"))
        exact = _sum([(1, n.times(n).times(xxx)), (-3, n.times(x).times(xx)), (2, x.times(x).times(x))])
        return exact.scaled_doubles(3 * DOUBLE_UNIT) / self.n / self.n

    def fourth(self) -> Doubles:
        """Return the sum of (x - mean of x)⁴."""
        n, (x, xx, xxx, xxxx) = self._n, (self._sums[name] for name in ("x", "xx", "xxx", "xxxx"))
        square = x.times(x)
        terms = [(1, n.times(n).times(n).times(xxxx)), (-4, n.times(n).times(x).times(xxx))]
        exact = _sum([*terms, (6, n.times(square).times(xx)), (-3, square.times(square))])
        return exact.scaled_doubles(4 * DOUBLE_UNIT) / self.n / self.n / self.n


def _sum(terms: Sequence[tuple[int, ExactNumbers]]) -> ExactNumbers:
    rows = len(terms[0][1])
    return ExactNumbers.total([(each.carried(), np.arange(rows), np.full(rows, times)) for times, each in terms], rows)


def _finished(function: str, central: _Central) -> tuple[Doubles, Mask]:
    """Return the results, and a mask of the results that are undefined."""
    n, never = central.n, np.zeros(len(central.n), np.bool_)
    match function:
        case "var_pop" | "stddev_pop" | "var_samp" | "stddev_samp":
            variance = central.second("xx") / (n if function.endswith("pop") else n - 1)
            return np.sqrt(variance) if function.startswith("stddev") else variance, never
        case "covar_pop" | "covar_samp":
            return central.second("xy") / (n if function.endswith("pop") else n - 1), never
        case "skewness":
            spread = central.second("xx")
            return np.sqrt(n) * central.third() / np.sqrt(spread * spread * spread), spread == 0
        case "kurtosis":
            spread = central.second("xx")
            return n * central.fourth() / (spread * spread) - 3.0, spread == 0
        case "regr_sxx" | "regr_syy" | "regr_sxy":
            return central.second(function.removeprefix("regr_s")), never
        case _:
            return _regression(function, central)


def _regression(function: str, central: _Central) -> tuple[Doubles, Mask]:
    """Return the results of CORR or a REGR_* function, and a mask of the results that are undefined."""
    xx, yy, xy = central.second("xx"), central.second("yy"), central.second("xy")
    # If the product overflows or is subnormal, multiply the square roots instead. Clip the correlation, because
    # rounding may push it beyond 1.
    usual = np.isfinite(xx * yy) & (xx * yy > np.finfo(np.float64).tiny)
    corr = np.clip(xy / np.where(usual, np.sqrt(xx * yy), np.sqrt(xx) * np.sqrt(yy)), -1.0, 1.0)
    match function:
        case "corr":
            return corr, (xx == 0) | (yy == 0)
        case "regr_r2":
            return np.where(yy == 0, 1.0, corr * corr), xx == 0
        case "regr_slope":
            return xy / xx, xx == 0
    assert function == "regr_intercept", "unknown function of two columns"
    return central.mean("y") - xy / xx * central.mean("x"), xx == 0
