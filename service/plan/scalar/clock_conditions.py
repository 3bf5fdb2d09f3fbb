"""Conditions on NOW(), rewritten for the planner's passes as comparisons of a row's time with the current time.

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
    """A comparison of the current time with a time that depends only on the row. Only the planner creates this node.

    `operator` is <, <=, > or >=; the row's time is its left operand. `clock` is `NOW` or `TODAY`. `later` is the number
    of microseconds that are added to the row's time before the comparison. This sum may be outside the range of
    TIMESTAMP, but NOW() minus `later` is always within it.
    """

    arg_types = {"this": True, "operator": True, "clock": True, "later": True}  # noqa: RUF012 -- sqlglot's convention


def is_now(node: exp.Expr) -> bool:
    """Return whether a node is NOW() or a synonym of it."""
    return isinstance(node, exp.CurrentTimestamp) or _is_call(node, ("NOW", "CURRENT_TIMESTAMP"))


def is_today(node: exp.Expr) -> bool:
    """Return whether a node is CURRENT_DATE or a synonym of it."""
    return isinstance(node, exp.CurrentDate) or _is_call(node, ("CURRENT_DATE", "CURDATE"))


def _is_call(node: exp.Expr, names: tuple[str, ...]) -> bool:
    return isinstance(node, exp.Anonymous) and not node.expressions and node.name.upper() in names


def reads_clock(node: exp.Expr) -> bool:
    """Return whether a condition depends on the current time."""
    return node.find(ClockCondition) is not None


def moved_column(time: exp.Expr) -> tuple[exp.Column, int] | None:
    """Return a time's column and offset in µs if it is a column plus or minus constant intervals, otherwise None."""
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
