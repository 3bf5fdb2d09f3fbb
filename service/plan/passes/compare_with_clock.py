"""Rewrite conditions that compare NOW() with one of the row's times into a common form, before filters are moved.

A condition compares NOW(), alone or shifted by intervals, with an expression over the row's columns. Each shift moves
to the other side with the opposite sign, so that NOW() is alone. A shift by months is refused: NOW() minus a month may
be an earlier time tomorrow than today, so rows that had left the result would return.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.clock_conditions import NOW, TODAY, ClockCondition, is_now, is_today
from rowkind.service.plan.scalar.intervals import amount
from rowkind.service.plan.scalar.time_windows import micros
from rowkind.service.plan.tree import Conditions, with_conditions

_MIRRORED: Mapping[type[exp.Expr], type[exp.Binary]] = {
    exp.GT: exp.LT,
    exp.LT: exp.GT,
    exp.GTE: exp.LTE,
    exp.LTE: exp.GTE,
}
_SIGNS: Mapping[type[exp.Expr], str] = {exp.GT: ">", exp.LT: "<", exp.GTE: ">=", exp.LTE: "<="}


def compare_with_clock(query: Query) -> Query:
    """Rewrite every condition on NOW() into a common form: a time of the row compared with NOW().

    Raises Refusal for a condition that cannot be rewritten in this way.

    >>> example(compare_with_clock, "SELECT item FROM bids WHERE NOW() - INTERVAL '1' HOUR < at")
    Filter NOW() - INTERVAL '1' HOUR < bids.at
      Scan bids
    becomes
    Filter bids.at + 1h > NOW()
      Scan bids
    """
    return replace(query, root=with_conditions(query.root, _all_in_one_form))


def _all_in_one_form(conditions: Conditions) -> Conditions:
    return tuple(_in_one_form(conditions)) if any(map(_has_clock, conditions)) else conditions


def _has_clock(node: exp.Expr) -> bool:
    return any(is_now(each) or is_today(each) for each in node.walk())


def _in_one_form(conjuncts: Sequence[exp.Expr]) -> Iterator[exp.Expr]:
    for each in conjuncts:
        for part in _parts(each):
            yield _compared(part, each) if _has_clock(part) else part


def _parts(conjunct: exp.Expr) -> Sequence[exp.Expr]:
    """Split a BETWEEN that contains NOW() into two comparisons; return any other condition unchanged."""
    node = conjunct.unnest()
    if isinstance(node, exp.Between) and _has_clock(node):
        return (
            exp.GTE(this=node.this.copy(), expression=node.args["low"].copy()),
            exp.LTE(this=node.this.copy(), expression=node.args["high"].copy()),
        )
    return (conjunct,)


def _compared(conjunct: exp.Expr, written: exp.Expr) -> ClockCondition:
    """Return a condition on NOW() in the common form. Raises Refusal if it cannot be rewritten in this way."""
    node = conjunct.unnest()
    clock = TODAY if any(is_today(each) for each in node.walk()) else NOW
    refusal = Refusal(
        f"{clock} is not supported here: write a separate condition that compares it with one time of the row, "
        f"such as ts > {clock} - INTERVAL '1' DAY",
        written,
    )
    if type(node) not in _MIRRORED:
        raise refusal
    left, right, operator = node.this.unnest(), node.expression.unnest(), type(node)
    if _has_clock(left):
        left, right, operator = right, left, _MIRRORED[operator]
    _check_length(left, clock, written)
    time, later = left.copy(), 0
    while isinstance(right, exp.Add | exp.Sub):
        moved, by = right.this.unnest(), right.expression.unnest()
        if isinstance(right, exp.Add) and not _has_clock(moved):
            moved, by = by, moved
        if _has_clock(by):
            raise refusal
        _check_length(by, clock, written)
        if isinstance(by, exp.Interval):
            later += micros(by) * (-1 if isinstance(right, exp.Add) else 1)
        else:
            back = exp.Sub if isinstance(right, exp.Add) else exp.Add
            time = back(this=exp.paren(time), expression=by.copy())
        right = moved
    if not (is_now(right) or is_today(right)) or _has_clock(left):
        raise refusal
    found = ClockCondition(this=time, operator=_SIGNS[operator], clock=clock, later=later)
    found.meta.update(written.meta)
    return found


def _check_length(by: exp.Expr, clock: str, written: exp.Expr) -> None:
    """Raise Refusal if an interval contains months, which differ in length."""
    if isinstance(by, exp.Interval) and amount(by)[0]:
        raise Refusal(
            f"months cannot be added to or subtracted from {clock}: the result may be earlier on the next day, so rows "
            f"that have left would return. Move the row's time instead, as in ts + INTERVAL '1' MONTH > {clock}",
            written,
        )
