"""Conditions on NOW() as passes know them: one time of the row, compared with the time that it is.

ts > NOW() - INTERVAL '1' DAY     ts, a day later, > NOW()
d >= CURRENT_DATE                 d, >= CURRENT_DATE
"""

from __future__ import annotations

from sqlglot import exp

from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar.intervals import amount
from rowkind.service.plan.scalar.time_windows import DAY

NOW, TODAY = "NOW()", "CURRENT_DATE"


class ClockCondition(exp.Expression, exp.Func):
    """Whether a time, which reads nothing but the row, stands so to the time that it is; no user writes it.

    `operator` is one of < <= > >=, with the row's time on its left, and `clock` is `NOW` or `TODAY`. The time is
    compared so many microseconds `later`. That need not be a TIMESTAMP, as NOW() moved the other way always is one.
    """

    arg_types = {"this": True, "operator": True, "clock": True, "later": True}  # noqa: RUF012 -- as sqlglot has it


def is_now(node: exp.Expr) -> bool:
    """Whether it is NOW(), in whichever spelling."""
    return isinstance(node, exp.CurrentTimestamp) or _is_call(node, ("NOW", "CURRENT_TIMESTAMP"))


def is_today(node: exp.Expr) -> bool:
    """Whether it is CURRENT_DATE, in whichever spelling."""
    return isinstance(node, exp.CurrentDate) or _is_call(node, ("CURRENT_DATE", "CURDATE"))


def _is_call(node: exp.Expr, names: tuple[str, ...]) -> bool:
    return isinstance(node, exp.Anonymous) and not node.expressions and node.name.upper() in names


def reads_clock(node: exp.Expr) -> bool:
    """Whether a condition depends on what time it is."""
    return node.find(ClockCondition) is not None


def moved_column(time: exp.Expr) -> tuple[exp.Column, int] | None:
    """The column that a time is, and how many microseconds later it is than that; None for any other time."""
    time, later = time.unnest(), 0
    while isinstance(time, exp.Add | exp.Sub) and isinstance(time.expression, exp.Interval):
        try:
            months, days, rest = amount(time.expression)
        except Refusal:
            return None
        if months:
            return None
        later += (days * DAY + rest) * (1 if isinstance(time, exp.Add) else -1)
        time = time.this.unnest()
    return (time, later) if isinstance(time, exp.Column) else None
