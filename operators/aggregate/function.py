"""The names of the aggregate functions, by the kind of state that they store for a group."""

from __future__ import annotations

from typing import Literal, get_args

AddedFunction = Literal["count", "sum", "avg", "bool_and", "bool_or"]
"""Functions computed from counts and exact sums."""

BitFunction = Literal["bit_and", "bit_or", "bit_xor"]
"""Functions computed from the number of rows that have each bit set."""

MomentFunction = Literal[
    "var_pop", "var_samp", "stddev_pop", "stddev_samp", "skewness", "kurtosis", "covar_pop", "covar_samp", "corr",
    "regr_slope", "regr_intercept", "regr_r2", "regr_sxx", "regr_syy", "regr_sxy",
]  # fmt: skip
"""Functions computed from exact sums of powers and products. The argument of a function of two variables is a pair,
such as (y, x) for REGR_*(y, x)."""

ExtremeFunction = Literal["min", "max", "any_value", "min_by", "max_by", "first", "last"]
"""Functions that return one of the values: the least, the greatest, the first to arrive or the last to arrive."""

GatheredFunction = Literal["collect_list", "collect_set", "listagg", "percentile_cont", "percentile_disc", "mode"]
"""Functions computed from all values of a group."""

Stage = Literal["whole", "first", "between", "second"]
"""The step of an aggregate that is computed in several steps, each of which adds up the results of the previous step;
"whole" for an aggregate that is computed in a single step."""

AggregateFunction = (
    AddedFunction | BitFunction | MomentFunction | ExtremeFunction | GatheredFunction | Literal["custom"]
)
"""The aggregate functions. "custom" is a user-defined function (`operators.aggregate.group_function`)."""

BITS: frozenset[str] = frozenset(get_args(BitFunction))
MOMENTS: frozenset[str] = frozenset(get_args(MomentFunction))
EXTREMES: frozenset[str] = frozenset(get_args(ExtremeFunction))
GATHERED: frozenset[str] = frozenset(get_args(GatheredFunction))
ARRIVALS: frozenset[str] = frozenset({"first", "last"})
GREATEST: frozenset[str] = frozenset({"max", "max_by", "last"})
"""The functions in `EXTREMES` that are computed as a maximum; the others are computed as a minimum."""


def keeps_values(function: AggregateFunction, *, distinct: bool, retracts: bool) -> bool:
    """Return whether a call needs all distinct values of a group in state, because an accumulator is not sufficient."""
    if function in EXTREMES:
        return retracts
    return function in GATHERED or (distinct and function not in ("bool_and", "bool_or"))
