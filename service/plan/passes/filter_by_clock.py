"""Turn conditions on NOW() into temporal filters, which insert and retract rows as time passes.

    ts > NOW() - INTERVAL '1' DAY     the row is in the result until ts + 1 day
    ts <= NOW()                       the row is in the result from ts onwards
    d >= CURRENT_DATE                 the row is in the result until the day after d begins

A condition that compares NOW() with an expression over the row determines when the row enters or leaves the result. So
a filter with such conditions becomes a temporal filter above a filter with the other conditions. (Materialize has the
same rule for such conditions: NOW() must be alone on one side, with or without added intervals.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.service.physical.clocks import Clock, ColumnTime
from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.logical.calc import LogicalFilter, LogicalProject, filtered
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.logical.subset import LogicalTemporalFilter
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.clock_conditions import TODAY, ClockCondition, moved_column, reads_clock
from rowkind.service.plan.scalar.conditions import may_fail
from rowkind.service.plan.scalar.scalars import resolved, type_of
from rowkind.service.plan.scalar.time_windows import DAY, Later, interval
from rowkind.service.plan.scalar.types import family
from rowkind.service.plan.tree import rewritten, walk


def filter_by_clock(query: Query) -> Query:
    """Turn each filter with conditions on NOW() into a temporal filter. Raises Refusal for such a condition in a join.

    >>> example(filter_by_clock, "SELECT item FROM bids WHERE at > NOW() - INTERVAL '1' DAY")
    Filter bids.at + 1d > NOW()
      Scan bids
    becomes
    TemporalFilter clock=the clock ends=bids.at + 1d
      Scan bids
    """
    names = {name for node in walk(query.root) for name in columns(node)}
    return replace(query, root=rewritten(query.root, {LogicalFilter: partial(_filter, names), LogicalJoin: _checked}))


def _checked(node: LogicalJoin) -> LogicalJoin:
    if at := next(filter(reads_clock, node.condition), None):
        raise Refusal(
            "NOW() cannot be compared here with a time of the side whose unmatched rows are also emitted: compare it "
            "with a time of the other side alone, or write the condition in WHERE or in a derived table",
            at,
        )
    return node


def _filter(names: set[str], node: LogicalFilter) -> LogicalNode:
    timed = [each for each in node.conjuncts if isinstance(each, ClockCondition)]
    if not timed:
        return node
    below = columns(node.input)
    first = node.conjuncts.index(timed[0])
    # A condition that may fail is evaluated only for rows for which all conditions before it are true.
    guarded = [each for each in node.conjuncts[first:] if each not in timed and may_fail(each)]
    others = [each for each in node.conjuncts if each not in (*timed, *guarded)]
    types = [_type(each, below) for each in timed]
    # If the time is NULL, the condition is not true. If the query moves the time out of range, that is an error.
    others += [
        exp.Not(this=exp.Is(this=each.this.copy(), expression=exp.Null()))
        for each, type_ in zip(timed, types, strict=True)
        if type_.nullable or not isinstance(each.this.unnest(), exp.Column)
    ]
    times: dict[bool, list[_Moment]] = {True: [], False: []}
    for each, type_ in zip(timed, types, strict=True):
        times[each.args["operator"] in ("<", "<=")].append(_moment(each, type_))
    outputs: dict[str, exp.Expr] = {name: resolved(name) for name in below}
    begins = _column(times[True], "GREATEST", "#begins", outputs, names)
    ends = _column(times[False], "LEAST", "#ends", outputs, names)
    input_ = filtered(node.input, others)
    if outputs.keys() > below.keys():
        input_ = LogicalProject(input_, outputs)
    passing: LogicalNode = LogicalTemporalFilter(
        LogicalInput(input_), Clock(), begins, ends, final=False, reason="NOW() advances", at=timed[0]
    )
    if outputs.keys() > below.keys():
        passing = LogicalProject(passing, {name: resolved(name) for name in below})
    return filtered(passing, guarded)


@dataclass(frozen=True)
class _Moment:
    """A time of the row plus `later_us` microseconds. The sum may be later than the last TIMESTAMP."""

    time: exp.Expr
    later_us: int

    @property
    def stamp(self) -> exp.Expr:
        """The moment as a TIMESTAMP; the last possible TIMESTAMP if the moment is later than that."""
        moved = Later(this=self.time.copy(), by=interval(self.later_us)) if self.later_us else self.time.copy()
        return exp.cast(moved, exp.DataType.build("TIMESTAMP"))


def _moment(condition: ClockCondition, type_: Type) -> _Moment:
    """Return the moment from which the condition is true, or from which it is no longer true."""
    time, operator, later = condition.this.copy(), condition.args["operator"], condition.args["later"]
    after = operator in ("<", ">=")
    if condition.args["clock"] != TODAY:
        return _Moment(time, later + after)
    if family(type_) == "date" and later % DAY == 0:
        return _Moment(time, later + DAY * after)
    # The first midnight after the time or, without `after`, the first midnight that is not before the time.
    return _Moment(exp.cast(_Moment(time, later + DAY - (not after)).stamp, exp.DataType.build("DATE")), 0)


def _column(
    times: Sequence[_Moment],
    of_all: str,
    name: str,
    outputs: dict[str, exp.Expr],
    names: set[str],
) -> ColumnTime | None:
    """Return a column with the latest (`of_all` is GREATEST) or earliest (LEAST) of `times`; None if there are none.

    If no column contains that time yet, a column is added to `outputs`.
    """
    if not times:
        return None
    if len(times) == 1 and (found := moved_column(times[0].time)) is not None:
        return ColumnTime(found[0].name, found[1] + times[0].later_us)
    stamps = [each.stamp for each in times]
    while name in names:
        name += "'"
    names.add(name)
    outputs[name] = exp.Anonymous(this=of_all, expressions=stamps) if len(stamps) > 1 else stamps[0]
    return ColumnTime(name)


def _type(condition: ClockCondition, below: Mapping[str, Type]) -> Type:
    """Return the type of the time in a condition. Raises Refusal for an expression that is not a time."""
    found = type_of(condition.this, {name: (name, type_) for name, type_ in below.items()})
    if family(found) not in ("timestamp", "local", "date"):
        clock = condition.args["clock"]
        raise Refusal(
            f"{clock} can be compared only with a TIMESTAMP or a DATE, but this is {found.sql}: write a CAST",
            condition.this,
        )
    return found
