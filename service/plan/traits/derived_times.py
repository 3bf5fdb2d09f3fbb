"""Derived times: the table time from which an expression is derived, and how far before that time its value may be.

    ts                                        the time itself                        slack = 0
    the expression of a table's watermark     the time itself                        slack = 0
    window_start                              at most a window's length before it    slack = size; for CUMULATE, the
                                                                                     size of the longest window
    window_end                                after it                               slack = 0
    window_time                               just before the end                    slack = the subtracted length
    DATE_TRUNC, CAST                          at most one unit before it             slack = the longest such unit
    + INTERVAL                                later                                  slack = minus the interval
    FROM_UTC_TIMESTAMP, CONVERT_TIMEZONE      the local time in a zone               slack = minus the least UTC offset

An expression counts as a watermark's expression if it compiles to the same SQL, however it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlglot import exp

from rowkind.avro.errors import SchemaError
from rowkind.avro.schema import Type
from rowkind.service.plan.errors import Refusal, word
from rowkind.service.plan.logical.calc import LogicalScan
from rowkind.service.plan.scalar.intervals import amount
from rowkind.service.plan.scalar.scalars import compile_scalar
from rowkind.service.plan.scalar.time_units import LONGEST
from rowkind.service.plan.scalar.time_windows import DAY, PaneStart, WindowEnd, WindowStart, WindowTime, micros
from rowkind.service.plan.scalar.types import family
from rowkind.service.plan.scalar.zones import offsets
from rowkind.service.plan.syntax import sql_text
from rowkind.service.plan.tree import rule_for

TimeKind = Literal["time", "window_start", "window_end", "window_time", "session_last", "session_end", "other"]


@dataclass(frozen=True, order=True)
class TimeColumn:
    """A time column of a table, or the text of an expression over the table's columns; or `PROCESSING`."""

    table: str
    column: str


@dataclass(frozen=True)
class EventTime:
    """How a column is derived from times: no further value is before the watermark of all `origins` minus `slack`.

    `slack` is in microseconds, and negative if values are later than the time. `size` is the window's length in
    microseconds, for CUMULATE that of the longest window; None if the column does not belong to a window. `short` is
    the part of the slack within which rows may still be inserted, but no earlier row is retracted. It exists because a
    session that becomes shorter may have ended already.
    """

    origins: frozenset[TimeColumn]
    kind: TimeKind
    slack: int = 0
    size: int | None = None
    short: int = 0

    @property
    def final(self) -> EventTime:
        """The same time without `short`: from then on, no earlier row is retracted any more."""
        return replace(self, slack=self.slack - self.short, short=0)

    @property
    def of_group(self) -> EventTime:
        """The same time for a group's row: it is computed from all rows with that value, and changes with each one."""
        return replace(self, short=0)


@dataclass(frozen=True)
class RowColumn:
    """A plain column of a table whose watermark is on an expression. `time` is the column's own derived time, if any.

    Columns of one `scan` belong to one row.
    """

    scan: LogicalScan
    column: str
    time: EventTime | None


PROCESSING = TimeColumn("", "PROCTIME()")
"""The time at which rows are processed. It is not a table column, and has passed when the clock has passed it."""


def is_processing_time(time: EventTime) -> bool:
    """Whether a time is derived only from the time at which rows are processed."""
    return time.origins == {PROCESSING}


Below = Mapping[str, EventTime | RowColumn]
"""Known facts about columns, and about the fields of structs under the names that `field_of` gives them."""

_FIELD = "#field:"


def field_of(column: str, field: str) -> str:
    """Return the column name that stands for a struct's field; no query can use this name."""
    return f"{column}{_FIELD}{field}"


def is_field(name: str) -> bool:
    """Whether a column name stands for a struct's field."""
    return _FIELD in name


def fields_of(expression: exp.Expr, below: Below) -> Iterator[tuple[str, EventTime | RowColumn]]:
    """Yield the known facts about a struct's fields, by field name, if the struct is copied or built from columns."""
    node = expression.unnest()
    if isinstance(node, exp.Column):
        prefix = field_of(node.name, "")
        yield from ((name.removeprefix(prefix), each) for name, each in below.items() if name.startswith(prefix))
    elif isinstance(node, exp.Anonymous) and word(node) == "NAMED_STRUCT":
        for name, value in zip(node.expressions[::2], node.expressions[1::2], strict=True):
            if (known := followed(value, below)) is not None:
                yield name.name.lower(), known


def followed(expression: exp.Expr, below: Below) -> EventTime | None:
    """Return the time from which an expression is derived; None if nothing is known."""
    node = expression.unnest()
    if (declared := _declared(node, below)) is not None:
        return declared
    rule = rule_for(node, _RULES)
    return rule and rule(node, below)


def _field(node: exp.Dot, below: Below) -> EventTime | None:
    of = node.this.unnest()
    return _time(below.get(field_of(of.name, node.expression.name.lower()))) if isinstance(of, exp.Column) else None


def _time(found: EventTime | RowColumn | None) -> EventTime | None:
    return found.time if isinstance(found, RowColumn) else found


def _window(node: WindowStart | WindowEnd, below: Below) -> EventTime | None:
    size = micros(node.args["size"])
    if (time := followed(node.this, below)) is not None and time.kind == "session_last":
        return replace(time, kind="session_end", slack=time.slack - size)
    kind: TimeKind = "window_start" if isinstance(node, WindowStart) else "window_end"
    return moved(node.this, below, kind, size if kind == "window_start" else -size, size)


def _session_last(node: exp.Coalesce, below: Below) -> EventTime | None:
    # The last time of a session is never NULL, so COALESCE always returns it (`sql.session_ends`).
    found = followed(node.this, below)
    return found if found is not None and found.kind == "session_last" else None


def _window_time(node: WindowTime, below: Below) -> EventTime | None:
    end = followed(node.this, below)
    return moved(node.this, below, "window_time", micros(node.args["by"]), end.size if end else None)


def _declared(node: exp.Expr, below: Below) -> EventTime | None:
    """Return the derived time of an expression on which a table's watermark is declared; None for any other."""
    columns = {each.name: below.get(each.name) for each in node.find_all(exp.Column)}
    parts = {name: each for name, each in columns.items() if isinstance(each, RowColumn)}
    if not parts or len(parts) < len(columns) or isinstance(node, exp.Column):
        return None
    scan = next(iter(parts.values())).scan
    declared, watermark = scan.source.declared, scan.source.watermark
    assert watermark is not None, "a RowColumn belongs to a table with a watermark"
    of_row = all(each.scan.path == scan.path for each in parts.values())
    if not of_row or {each.column for each in parts.values()} != set(watermark.of.columns):
        return None
    try:
        meant = compile_scalar(node, {name: (each.column, declared.type(each.column)) for name, each in parts.items()})
    except Refusal:
        return None
    if meant.sql != watermark.of.sql:
        return None
    return EventTime(frozenset([TimeColumn(scan.source.table, watermark.subject)]), "time")


def moved(time: exp.Expr, below: Below, kind: TimeKind, back: int, size: int | None = None) -> EventTime | None:
    """Return the derived time of an expression that is at most `back` microseconds before another time."""
    found = followed(time, below)
    return found and replace(found, kind=kind, slack=found.slack + back, size=size)


def _by_interval(node: exp.Add | exp.Sub, below: Below) -> EventTime | None:
    time, length = node.left.unnest(), node.right.unnest()
    if isinstance(node, exp.Add) and isinstance(time, exp.Interval):
        time, length = length, time
    if not isinstance(length, exp.Interval):
        return None
    try:
        months, days, rest = amount(length)
    except Refusal:
        return None
    back = (days * DAY + rest) * (1 if isinstance(node, exp.Sub) else -1)
    return None if months else moved(time, below, "other", back)


def _cast(node: exp.Cast, below: Below) -> EventTime | None:
    found = followed(node.this, below)
    try:
        to = family(Type.of(sql_text(node.to)))
    except SchemaError:
        return None
    if found is None or to in ("timestamp", "local"):
        return found
    return replace(found, kind="other", slack=found.slack + DAY, size=None) if to == "date" else None


def _called(node: exp.Anonymous, below: Below) -> EventTime | None:
    match word(node), node.expressions:
        case "DATE_TRUNC", [exp.Literal() as unit, time] if unit.is_string and unit.name.upper() in LONGEST:
            return moved(time, below, "other", LONGEST[unit.name.upper()])
        case (("TO_DATE" | "DATE"), [time]):
            return moved(time, below, "other", DAY)
        case "FROM_UTC_TIMESTAMP", [time, zone]:
            return _in_zone(time, below, None, zone)
        case "TO_UTC_TIMESTAMP", [time, zone]:
            return _in_zone(time, below, zone, None)
        case "CONVERT_TIMEZONE", [zone, time]:
            return _in_zone(time, below, None, zone)
        case "CONVERT_TIMEZONE", [source, target, time]:
            return _in_zone(time, below, source, target)
    return None


def _in_zone(time: exp.Expr, below: Below, source: exp.Expr | None, target: exp.Expr | None) -> EventTime | None:
    """Return the derived time of a local time that is converted between two zones. A zone of None is UTC.

    Local times may go back by an hour when clocks are set back in autumn. But a local time is never less than UTC plus
    the least offset that the zone ever had.
    """
    known = [(0, 0) if zone is None else offsets(zone.name) for zone in (source, target) if _is_constant(zone)]
    if len(known) < 2 or known[0] is None or known[1] is None:
        return None
    return moved(time, below, "other", known[0][1] - known[1][0])


def _is_constant(zone: exp.Expr | None) -> bool:
    return zone is None or (isinstance(zone, exp.Literal) and bool(zone.is_string))


_RULES: Mapping[type[exp.Expr], Callable[[Any, Below], EventTime | None]] = {
    exp.Column: lambda node, below: _time(below.get(node.name)),
    exp.Dot: _field,
    # A pane may change as long as one of the windows that contain it may. The last of them ends this much later.
    PaneStart: lambda node, below: moved(
        node.this, below, "window_start", micros(node.args["windows"]), micros(node.args["size"])
    ),
    WindowStart: _window,
    WindowEnd: _window,
    WindowTime: _window_time,
    exp.Coalesce: _session_last,
    exp.Add: _by_interval,
    exp.Sub: _by_interval,
    exp.Cast: _cast,
    exp.Anonymous: _called,
}
"""Rules for the expressions that are derived from times, by class. All other expressions are not."""


def both(one: EventTime, other: EventTime) -> EventTime:
    """Return the derived time of rows with two times: a change may be caused by either of them."""
    kind: TimeKind = one.kind if one.kind == other.kind else "other"
    size = one.size if one.kind == other.kind and one.size == other.size else None
    return EventTime(one.origins | other.origins, kind, max(one.slack, other.slack), size)
