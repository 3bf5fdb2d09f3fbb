"""The aggregate functions by name, and which of them keep the values of a group."""

from __future__ import annotations

from typing import Literal

AggregateFunction = Literal["count", "sum", "avg", "min", "max", "any_value", "bool_and", "bool_or", "custom"]

ORDERED: tuple[AggregateFunction, ...] = ("min", "max", "any_value")
"""The functions whose result is one of the values."""


def keeps_values(function: AggregateFunction, *, distinct: bool, retracts: bool) -> bool:
    """Whether a call needs all different values of a group, because what it has added up cannot be taken back."""
    return retracts if function in ORDERED else distinct and function in ("count", "sum", "avg")
