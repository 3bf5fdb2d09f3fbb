"""Time windows: adds columns with the start and end of each window that contains a row.

    TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' MINUTE))     Flink's table functions, in FROM
    TUMBLE(t, ts, INTERVAL '10' MINUTE)                              the same, as in RisingWave
    GROUP BY TUMBLE(ts, INTERVAL '10' MINUTE)                        Flink's group windows (`sql.group_windows`)
    GROUP BY window(ts, '10 minutes')                                Spark's group windows (likewise)

Tumbling windows are planned as a projection. With hopping or cumulating windows, a row belongs to several windows, and
is repeated for each of them. Session windows depend on other rows, and so need an operator. A row whose time is NULL
belongs to no window.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.service.plan.columns import by_name, columns
from rowkind.service.plan.errors import Refusal, word
from rowkind.service.plan.logical.calc import LogicalExpand, LogicalFilter, LogicalProject
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.logical.per_row import LogicalSession
from rowkind.service.plan.scalar.scalars import resolved, type_of
from rowkind.service.plan.scalar.time_windows import (
    DAY,
    SessionTime,
    WindowEnd,
    WindowEnds,
    WindowStart,
    WindowStarts,
    WindowTime,
    interval,
    micros,
)
from rowkind.service.plan.scalar.types import family
from rowkind.service.plan.sql.scope import Relation, Scope
from rowkind.service.plan.syntax import TableArgument

WindowKind = Literal["TUMBLE", "HOP", "CUMULATE", "SESSION"]
COLUMNS = ("window_start", "window_end", "window_time")
"""The columns that a table function adds after its input columns."""

_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "TUMBLE": ("SIZE", "OFFSET"),
    "HOP": ("SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("STEP", "SIZE", "OFFSET"),
    "SESSION": ("GAP",),
}
_TEXT = re.compile(r"\s*(?:interval\s+)?((?:[+-]?\d+(?:\.\d+)?\s*[a-z]+\s*)+)", re.IGNORECASE)
_PART = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE)
_MOST = 10_000


@dataclass(frozen=True)
class TimeWindow:
    """A division of time into windows. All lengths are in microseconds.

    `size` is the length of a window, the maximum length of cumulating windows, or the gap that ends a session. `step`
    is the interval between the starts of consecutive windows, or between the ends of cumulating windows. For tumbling
    windows, `step` equals `size`.
    """

    kind: WindowKind
    size: int
    step: int
    offset: int = 0


@dataclass(frozen=True)
class WindowFunction:
    """A table function in FROM: its windows, its input, the time column, and the columns that partition sessions."""

    window: TimeWindow
    rows: exp.Expr
    time: exp.Expr
    partition: tuple[exp.Expr, ...]
    call: exp.Anonymous


def time_window(kind: WindowKind, lengths: Mapping[str, exp.Expr], at: exp.Expr) -> TimeWindow:
    """Return the windows with the given lengths, which are nodes keyed by parameter name. Raises Refusal."""
    known = {name: length_of(node) for name, node in lengths.items()}
    for name, node in lengths.items():
        if name != "OFFSET" and known[name] <= 0:
            raise Refusal(f"the {name.lower()} of a window must be greater than 0", node)
    size = known.get("GAP", known.get("SIZE", 0))
    step = known.get("SLIDE", known.get("STEP", size))
    if step > size:
        raise Refusal(
            "the slide cannot be longer than the window, because rows between two windows would be in no window: "
            "filter them in WHERE, or make the window as long as its slide",
            at,
        )
    if kind == "CUMULATE" and size % step:
        raise Refusal("the size of a cumulating window must be a multiple of its step", at)
    if -(-size // step) > _MOST:
        raise Refusal(f"every row would be in {-(-size // step)} windows: the maximum is {_MOST}", at)
    offset = known.get("OFFSET", 0) % (size if kind == "CUMULATE" else step)
    return TimeWindow("TUMBLE" if size == step and kind != "SESSION" else kind, size, step, offset)


def length_of(node: exp.Expr) -> int:
    """Return the length of an INTERVAL, or of a string such as '1 hour 30 minutes', in microseconds. Raises Refusal."""
    if not isinstance(node, exp.Literal) or not node.is_string:
        if isinstance(node, exp.Interval | exp.Add | exp.Sub):
            return micros(node)
        raise Refusal("a length of time must be a literal: INTERVAL '10' MINUTE, or '10 minutes'", node)
    found = _TEXT.fullmatch(str(node.this))
    if found is None:
        raise Refusal(f"{node.this!r} is not a length of time such as '10 minutes'", node)
    written = _PART.findall(found[1])
    parts = (exp.Interval(this=exp.Literal.string(number), unit=exp.var(unit.upper())) for number, unit in written)
    try:
        return sum(map(micros, parts))
    except Refusal as refusal:
        raise Refusal(refusal.text, node) from None


def window_function(at: exp.Expr) -> WindowFunction | None:
    """Return the window function in an item of FROM, or None for any other item. Raises Refusal."""
    call = at.this if isinstance(at, exp.Table) else None
    if isinstance(call, exp.Anonymous) and word(call) == "TABLE" and len(call.expressions) == 1:
        call = call.expressions[0]
    if not isinstance(call, exp.Anonymous) or word(call) not in _PARAMETERS:
        return None
    kind = cast("WindowKind", word(call))
    given = _arguments(call, ("DATA", "TIMECOL", *_PARAMETERS[kind]))
    rows, descriptor = given.pop("DATA"), given.pop("TIMECOL")
    partition: Sequence[exp.Expr] = ()
    if isinstance(rows, TableArgument):
        rows, partition = rows.this, rows.expressions
    elif isinstance(rows, exp.Column) and not rows.table:
        named = exp.Table(this=rows.this.copy())
        named.meta.update(rows.meta)
        rows = named
    if not isinstance(rows, exp.Table | exp.Subquery):
        raise Refusal(f"the input of {kind} must be TABLE name, or a query in parentheses", rows)
    if partition and kind != "SESSION":
        raise Refusal(
            f"PARTITION BY is allowed only with SESSION: the windows of {kind} are the same for all rows", partition[0]
        )
    return WindowFunction(time_window(kind, given, call), rows, _time(kind, descriptor), tuple(partition), call)


def _time(kind: WindowKind, descriptor: exp.Expr) -> exp.Expr:
    """Return a table function's time column. Raises Refusal."""
    if isinstance(descriptor, exp.Column):
        return descriptor
    if (
        not isinstance(descriptor, exp.Anonymous)
        or word(descriptor) != "DESCRIPTOR"
        or len(descriptor.expressions) != 1
    ):
        raise Refusal(f"the time of {kind} must be one column: DESCRIPTOR(ts)", descriptor)
    time: exp.Expr = descriptor.expressions[0]
    return time


def _arguments(call: exp.Anonymous, names: Sequence[str]) -> dict[str, exp.Expr]:
    """Return a call's arguments, keyed by parameter name. Raises Refusal."""
    optional = [name for name in names if name == "OFFSET"]
    written = {"DATA": "TABLE t", "TIMECOL": "DESCRIPTOR(ts)"}
    needed = [written.get(name, name.lower()) for name in names if name not in optional]
    shown = ", ".join([*needed, *(f"[{name.lower()}]" for name in optional)])
    given: dict[str, exp.Expr] = {}
    for place, each in enumerate(call.expressions):
        name = each.this.name.upper() if isinstance(each, exp.Kwarg) else names[place] if place < len(names) else ""
        if name not in names or name in given:
            raise Refusal(f"{word(call)} must be written {word(call)}({shown})", each)
        given[name] = each.expression if isinstance(each, exp.Kwarg) else each
    if not given.keys() >= set(names) - set(optional):
        raise Refusal(f"{word(call)} must be written {word(call)}({shown})", call)
    return given


def with_windows(
    found: WindowFunction, rows: LogicalNode, relation: Relation, time: exp.Expr, path: str
) -> tuple[LogicalNode, dict[str, str]]:
    """Return a relation's rows with the columns that a table function adds, and the plan's names for the added columns.

    `time` must be resolved. Raises Refusal.
    """
    scope = Scope((relation,))
    for name in COLUMNS:
        if relation.find(name):
            raise Refusal(
                f"there is already a column {name}: select it under another name in a derived table", found.call
            )
    names = {name: f"{path}.{name}" for name in COLUMNS}
    start, end, last = names.values()
    parts = tuple(scope.resolve(each).unnest() for each in found.partition)
    for part in parts:
        if not isinstance(part, exp.Column):
            raise Refusal("PARTITION BY takes columns here: compute the expression in a derived table", part)
    partition = tuple(part.name for part in parts)
    placed = InWindows(found.window, time, start, end, found.call).over(rows, partition)
    every = {name: resolved(name) for name in columns(placed)}
    return LogicalProject(placed, {**every, last: WindowTime(this=resolved(end), by=interval(1_000))}), names


@dataclass(frozen=True)
class InWindows:
    """A rule that assigns rows to windows.

    `time` is an expression over the rows. `start` and `end` are the names of the added columns.
    """

    window: TimeWindow
    time: exp.Expr
    start: str
    end: str
    at: exp.Expr

    def over(self, rows: LogicalNode, partition: tuple[str, ...] = ()) -> LogicalNode:
        """Return each row once for every window that contains its time, with the columns `start` and `end`.

        Sessions are partitioned by the columns `partition`. Raises Refusal.
        """
        window, start, end = self.window, self.start, self.end
        size, step = interval(window.size), interval(window.step)
        moved = {"offset": interval(window.offset)} if window.offset else {}
        first = WindowStart(this=self.time.copy(), size=size.copy(), **moved)
        types = columns(rows)
        nullable = type_of(first, by_name(types)).nullable
        if nullable or window.kind == "SESSION":
            there = self.time.copy()
            if window.kind == "SESSION":
                # If a time is too close to the first or last timestamp for a session's gap, the row fails.
                there = SessionTime(this=there, gap=size.copy())
            rows = LogicalFilter(rows, (exp.Not(this=exp.Is(this=there, expression=exp.Null())),))
        every = {name: resolved(name) for name in types}
        match window.kind:
            case "TUMBLE":
                return LogicalProject(rows, {**every, start: first, end: WindowEnd(this=first.copy(), size=size)})
            case "HOP":
                starts = WindowStarts(this=self.time.copy(), slide=step, size=size.copy(), **moved)
                expand = LogicalExpand(rows, starts, {start: 0}, self._hidden("window"), starts, distinct=True)
                ends = WindowEnd(this=resolved(start), size=size)
                return LogicalProject(expand, {**every, start: resolved(start), end: ends})
            case "CUMULATE":
                several = WindowEnds(this=self.time.copy(), step=step, size=size, **moved)
                expand = LogicalExpand(rows, several, {end: 0}, self._hidden("window"), several, distinct=True)
                return LogicalProject(expand, {**every, start: first, end: resolved(end)})
            case "SESSION":
                return self._sessions(rows, types, partition)

    def _sessions(self, rows: LogicalNode, types: Mapping[str, Type], partition: tuple[str, ...]) -> LogicalNode:
        for name in partition:
            if not types[name].orderable:
                raise Refusal(
                    f"rows cannot be partitioned by type {types[name].sql}: use one of the value's fields, or a key",
                    self.at,
                )
        time = self.time.unnest()
        kind = family(type_of(time, by_name(types)))
        own = time.name
        if not isinstance(time, exp.Column) or kind == "date":
            own = self._hidden("time")
            # A DATE means midnight of that day.
            moment = WindowStart(this=time, size=interval(DAY)) if kind == "date" else time
            rows = LogicalProject(rows, {**{name: resolved(name) for name in types}, own: moment})
        return LogicalSession(LogicalInput(rows), partition, own, self.window.size, self.start, self.end, self.at)

    def _hidden(self, name: str) -> str:
        """Return a column name that no query can refer to."""
        return f"{self.start.rpartition('.')[0]}.#{name}"
