"""The aggregate functions by name, grouped by the kind of state that they keep for a group."""

from __future__ import annotations

from typing import Literal, get_args

AddedFunction = Literal["count", "sum", "avg", "bool_and", "bool_or"]
"""Functions of counts and exact sums."""

BitFunction = Literal["bit_and", "bit_or", "bit_xor"]
"""Functions of the counts of each bit."""

MomentFunction = Literal[
    "var_pop", "var_samp", "stddev_pop", "stddev_samp", "skewness", "kurtosis", "covar_pop", "covar_samp", "corr",
    "regr_slope", "regr_intercept", "regr_r2", "regr_sxx", "regr_syy", "regr_sxy",
]  # fmt: skip
"""Functions of exact sums of powers and products. Those of two arguments take pairs; the first of REGR_*(y, x) is y."""

ExtremeFunction = Literal["min", "max", "any_value", "min_by", "max_by", "first", "last"]
"""Functions that return one of the values: the least, the greatest, the first to arrive or the last to arrive."""

GatheredFunction = Literal["collect_list", "collect_set", "listagg", "percentile_cont", "percentile_disc", "mode"]
"""Functions that are computed from all values."""

Stage = Literal["whole", "first", "between", "second"]
"""The step of an aggregate that is computed in several steps: each step adds up the results of the one before it."""

AggregateFunction = (
    AddedFunction | BitFunction | MomentFunction | ExtremeFunction | GatheredFunction | Literal["custom"]
)
"""A "custom" function is user-defined (`operators.aggregate.group_function`)."""

BITS: frozenset[str] = frozenset(get_args(BitFunction))
MOMENTS: frozenset[str] = frozenset(get_args(MomentFunction))
EXTREMES: frozenset[str] = frozenset(get_args(ExtremeFunction))
GATHERED: frozenset[str] = frozenset(get_args(GatheredFunction))
ARRIVALS: frozenset[str] = frozenset({"first", "last"})
GREATEST: frozenset[str] = frozenset({"max", "max_by", "last"})
"""The extremes that are the greatest; the others are the least."""


def keeps_values(function: AggregateFunction, *, distinct: bool, retracts: bool) -> bool:
    """Whether a call needs all different values of a group, because its accumulator cannot subtract a retracted one."""
    if function in EXTREMES:
        return retracts
    return function in GATHERED or (distinct and function not in ("bool_and", "bool_or"))
