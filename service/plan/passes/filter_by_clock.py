"""Conditions on NOW(): rows that come and go because time passes.

    ts > NOW() - INTERVAL '1' DAY     until ts + 1 day
    ts <= NOW()                       from ts on
    d >= CURRENT_DATE                 until the day after d begins

A condition that compares NOW() with something of the row says from when on the row is in the result, or until when. So
a filter with such conditions is a temporal filter over one with the others. (Materialize's, whose rule of what such a
condition may look like is this one: NOW() by itself on one side, with intervals added or not.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from sqlglot import exp

from rowkind.service.clocks import Clock, ColumnTime
from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical import LogicalFilter, LogicalInput, LogicalNode, LogicalProject, LogicalTemporalFilter
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.intervals import amount
from rowkind.service.plan.scalar.scalars import compile_scalar, resolved
from rowkind.service.plan.scalar.time_windows import DAY
from rowkind.service.plan.scalar.types import family
from rowkind.service.plan.tree import bottom_up, walk

_NOW = (exp.CurrentTimestamp, exp.CurrentDate)
_MIRRORED: Mapping[type[exp.Expr], type[exp.Binary]] = {
    exp.GT: exp.LT,
    exp.LT: exp.GT,
    exp.GTE: exp.LTE,
    exp.LTE: exp.GTE,
}
_FORM = (
    "write it as a condition by itself that compares it with one time of the row, such as ts > {} - INTERVAL '1' DAY"
)


def filter_by_clock(query: Query) -> Query:
    """The query with a temporal filter for each filter with conditions on NOW(). Raises Refusal for any other NOW()."""
    names = {name for node in walk(query.root) for name in columns(node)}
    return replace(query, root=bottom_up(query.root, partial(_visit, names)))


def of_clock(condition: exp.Expr) -> bool:
    """Whether a condition asks what the time is."""
    return condition.transform(_known).find(*_NOW) is not None


def _visit(names: set[str], node: LogicalNode) -> LogicalNode:
    if not isinstance(node, LogicalFilter):
        return node
    conjuncts = [part for each in node.conjuncts for part in _parts(each.transform(_known))]
    timed = [each for each in conjuncts if each.find(*_NOW)]
    if not timed:
        return node
    below = columns(node.input)
    found = [_compared(each) for each in timed]
    # Where there is no time, the condition is not true.
    others = [each for each in conjuncts if each not in timed]
    others += [
        exp.Not(this=exp.Is(this=time.copy(), expression=exp.Null())) for _, time in found if _nullable(time, below)
    ]
    times = {begins: [time for each, time in found if each is begins] for begins in (True, False)}
    outputs: dict[str, exp.Expr] = {name: resolved(name) for name in below}
    begins = _column(times[True], "GREATEST", "#begins", outputs, names)
    ends = _column(times[False], "LEAST", "#ends", outputs, names)
    input_: LogicalNode = LogicalFilter(node.input, tuple(others)) if others else node.input
    if outputs.keys() > below.keys():
        input_ = LogicalProject(input_, outputs)
    passing = LogicalTemporalFilter(
        LogicalInput(input_), Clock(), begins, ends, final=False, reason="NOW() moves", at=timed[0]
    )
    if outputs.keys() == below.keys():
        return passing
    return LogicalProject(passing, {name: resolved(name) for name in below})


def _known(node: exp.Expr) -> exp.Expr:
    """NOW() and CURRENT_DATE in one form each, whichever way they are written."""
    if isinstance(node, exp.Anonymous) and not node.expressions:
        if node.name.upper() in ("NOW", "CURRENT_TIMESTAMP"):
            return exp.CurrentTimestamp()
        if node.name.upper() in ("CURRENT_DATE", "CURDATE"):
            return exp.CurrentDate()
    return node


def _parts(conjunct: exp.Expr) -> Sequence[exp.Expr]:
    """A BETWEEN with NOW() as two comparisons, anything else as it is."""
    node = conjunct.unnest()
    if isinstance(node, exp.Between) and node.find(*_NOW):
        return (
            exp.GTE(this=node.this.copy(), expression=node.args["low"].copy()),
            exp.LTE(this=node.this.copy(), expression=node.args["high"].copy()),
        )
    return (conjunct,)


def _compared(conjunct: exp.Expr) -> tuple[bool, exp.Expr]:
    """Whether a row is there from a time on, or else until then, and the time. Raises Refusal."""
    node = conjunct.unnest()
    now = next(iter(node.find_all(*_NOW)))
    refusal = Refusal(f"{_word(now)} cannot stand here: {_FORM.format(_word(now))}", conjunct)
    if type(node) not in _MIRRORED:
        raise refusal
    left, right, operator = node.this.unnest(), node.expression.unnest(), type(node)
    if left.find(*_NOW):
        left, right, operator = right, left, _MIRRORED[operator]
    time = left
    while isinstance(right, exp.Add | exp.Sub):
        moved, by = right.this.unnest(), right.expression.unnest()
        if isinstance(right, exp.Add) and not moved.find(*_NOW):
            moved, by = by, moved
        if by.find(*_NOW):
            raise refusal
        back = exp.Sub if isinstance(right, exp.Add) else exp.Add
        time, right = back(this=exp.paren(time.copy()), expression=by.copy()), moved
    if not isinstance(right, _NOW) or left.find(*_NOW):
        raise refusal
    begins = operator in (exp.LT, exp.LTE)
    if isinstance(right, exp.CurrentDate):
        time = exp.cast(time.copy(), exp.DataType.build("DATE"))
        after, by = operator in (exp.LT, exp.GTE), exp.Interval(this=exp.Literal.string("1"), unit=exp.var("DAY"))
    else:
        after = operator in (exp.LT, exp.GTE)
        by = exp.Interval(this=exp.Literal.string("1"), unit=exp.var("MICROSECOND"))
    return begins, exp.Add(this=exp.paren(time.copy()), expression=by) if after else time


def _column(
    times: Sequence[exp.Expr],
    of_all: str,
    name: str,
    outputs: dict[str, exp.Expr],
    names: set[str],
) -> ColumnTime | None:
    """The column with the time when all of these have come, or one of them, computed where it is none yet."""
    if not times:
        return None
    stamps = [exp.cast(each.copy(), exp.DataType.build("TIMESTAMP")) for each in times]
    several = len(times) > 1
    time: exp.Expr = exp.Anonymous(this=of_all, expressions=stamps) if several else times[0]
    if (plain := _of_column(time)) is not None:
        return plain
    while name in names:
        name += "'"
    names.add(name)
    outputs[name] = time if several else stamps[0]
    return ColumnTime(name)


def _of_column(time: exp.Expr) -> ColumnTime | None:
    """A time that is a column's, or so much later or earlier; None for any other."""
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
    return ColumnTime(time.name, later) if isinstance(time, exp.Column) else None


def _nullable(time: exp.Expr, below: Mapping[str, object]) -> bool:
    known = {name: (name, type_) for name, type_ in below.items()}
    found = compile_scalar(time, known).type  # type: ignore[arg-type]
    if family(found) not in ("timestamp", "local", "date"):
        raise Refusal(f"NOW() is compared with a TIMESTAMP or a DATE, and this is {found.sql}", time)
    return found.nullable


def _word(now: exp.Expr) -> str:
    return "CURRENT_DATE" if isinstance(now, exp.CurrentDate) else "NOW()"
