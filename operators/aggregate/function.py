"""The aggregate functions by name, in families that keep the same kind of thing of a group."""

from __future__ import annotations

from typing import Literal, get_args

AddedFunction = Literal["count", "sum", "avg", "bool_and", "bool_or"]
"""Counts and exact sums."""

BitFunction = Literal["bit_and", "bit_or", "bit_xor"]
"""Counts of each bit."""

MomentFunction = Literal[
    "var_pop", "var_samp", "stddev_pop", "stddev_samp", "skewness", "kurtosis", "covar_pop", "covar_samp", "corr",
    "regr_slope", "regr_intercept", "regr_r2", "regr_sxx", "regr_syy", "regr_sxy",
]  # fmt: skip
"""Exact sums of powers and products; those of two arguments take pairs. Of REGR_*(y, x) the first is y."""

ExtremeFunction = Literal["min", "max", "any_value", "min_by", "max_by", "first", "last"]
"""One of the values: the least or the greatest, or the first or last to arrive."""

GatheredFunction = Literal["collect_list", "collect_set", "listagg", "percentile_cont", "percentile_disc", "mode"]
"""What is made of all values."""

Stage = Literal["whole", "first", "between", "second"]
"""An aggregate may be done in two steps, of which the first one's results are what the second one adds up."""

AggregateFunction = (
    AddedFunction | BitFunction | MomentFunction | ExtremeFunction | GatheredFunction | Literal["custom"]
)
"""A custom one is none of ours (`operators.aggregate.group_function`)."""

BITS: frozenset[str] = frozenset(get_args(BitFunction))
MOMENTS: frozenset[str] = frozenset(get_args(MomentFunction))
EXTREMES: frozenset[str] = frozenset(get_args(ExtremeFunction))
GATHERED: frozenset[str] = frozenset(get_args(GatheredFunction))
ARRIVALS: frozenset[str] = frozenset({"first", "last"})
GREATEST: frozenset[str] = frozenset({"max", "max_by", "last"})
"""The extremes that are the greatest; the others are the least."""


def keeps_values(function: AggregateFunction, *, distinct: bool, retracts: bool) -> bool:
    """Whether a call needs all different values of a group, because what it has added up cannot be taken back."""
    if function in EXTREMES:
        return retracts
    return function in GATHERED or (distinct and function not in ("bool_and", "bool_or"))
