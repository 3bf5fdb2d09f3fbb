"""The calls in the conditions and measures of a row pattern: navigations, aggregates, CLASSIFIER and MATCH_NUMBER.

    LAST(B.price, 1)     Navigation      the row before the last one of B
    SUM(B.price)         MatchAggregate  over the rows of B
    CLASSIFIER()         Classifier      the variable to which a row is assigned
    MATCH_NUMBER()       MatchNumber     the number of the match in its partition, from 1

A variable's rows are the rows that have been assigned to the variable in the match so far. Calls refer to variables by
number. A call without variables applies to all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Literal

from rowkind.operators.field_roles import COLUMN

MatchFunction = Literal["count", "sum", "avg", "min", "max"]

_EXACT = Context(prec=100)
_BIGINT = 1 << 63


@dataclass(frozen=True)
class Navigation:
    """A column's value in a row of the given variables: `offset` rows after the first or before the last one.

    Only the variables' rows are counted. The value is NULL if that row does not exist. If `final` is set, the call is
    evaluated over the whole match for every row of the match, instead of over the match up to the row.
    """

    variables: tuple[int, ...]
    column: str = field(metadata=COLUMN)
    first: bool = False
    offset: int = 0
    final: bool = False


@dataclass(frozen=True)
class MatchAggregate:
    """An aggregate of a column over the rows of the given variables; `column` is None for COUNT(*).

    `decimal` is the precision and scale of a decimal result. A result that does not fit its type is NULL. Doubles are
    added in row order.
    """

    function: MatchFunction
    variables: tuple[int, ...]
    column: str | None = field(metadata=COLUMN)
    decimal: tuple[int, int] | None = None
    final: bool = False

    def add(self, so_far: Any, value: Any) -> Any:
        """Return the state after adding one value; the initial state is None."""
        if value is None:
            return so_far
        match self.function:
            case "count":
                return (so_far or 0) + 1
            case "sum":
                return value if so_far is None else _plus(so_far, value)
            case "avg":
                return (value, 1) if so_far is None else (_plus(so_far[0], value), so_far[1] + 1)
            case "min":
                return value if so_far is None or _before(value, so_far) else so_far
            case "max":
                return value if so_far is None or _before(so_far, value) else so_far

    def result(self, so_far: Any) -> Any:
        """Return the aggregate's result, given its state."""
        if self.function == "count":
            return so_far or 0
        if so_far is None or self.function in ("min", "max"):
            return so_far
        if self.decimal is not None:
            return self._decimal(so_far)
        if self.function == "avg":
            total, count = so_far
            return total / count
        return so_far if not isinstance(so_far, int) or -_BIGINT <= so_far < _BIGINT else None

    def _decimal(self, so_far: Any) -> Decimal | None:
        assert self.decimal is not None, "only a decimal is rounded"
        precision, scale = self.decimal
        total, count = so_far if self.function == "avg" else (so_far, 1)
        exact = _EXACT.divide(total, Decimal(count)) if count > 1 else total
        rounded: Decimal = exact.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _EXACT)
        return rounded if len(rounded.as_tuple().digits) <= precision else None


@dataclass(frozen=True)
class Classifier:
    """The name of the variable to which a row is assigned."""

    names: tuple[str, ...]
    final: bool = False


@dataclass(frozen=True)
class MatchNumber:
    """The number of a match within its partition, from 1."""

    final: bool = False


MatchCall = Navigation | MatchAggregate | Classifier | MatchNumber


def _plus(a: Any, b: Any) -> Any:
    return _EXACT.add(a, b) if isinstance(a, Decimal) else a + b


def _before(a: Any, b: Any) -> bool:
    """Return whether `a` is less than `b`; NaN is the greatest double."""
    if isinstance(a, float) and (a != a or b != b):  # noqa: PLR0124 -- only NaN is not itself
        return b != b and a == a  # noqa: PLR0124 -- as above
    return bool(a < b)
