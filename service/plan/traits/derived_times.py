"""Derived times: the table time from which an expression is derived, and how far its value may be before that time.

    ts                                        the time itself                        slack = 0
    the expression of a table's watermark     the time itself                        slack = 0
    window_start                              at most a window's length before it    slack = size; for CUMULATE, the
                                                                                     size of the longest window
    window_end                                after it                               slack = 0
    window_time                               just before the end                    slack = the subtracted length
    DATE_TRUNC, CAST                          at most one unit before it             slack = the unit's greatest length
    + INTERVAL                                later                                  slack = minus the interval
    FROM_UTC_TIMESTAMP, CONVERT_TIMEZONE      the local time in a zone               slack = minus the least UTC offset

An expression counts as the watermark's expression if both compile to the same SQL, even if their texts differ.
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
    """A time column of a table, an expression over the table's columns (as text), or `PROCESSING`."""

    table: str
    column: str


@dataclass(frozen=True)
class EventTime:
    """The derived time of a column: no further value is before the common watermark of `origins` minus `slack`.

    `slack` is in microseconds. It is negative if values are later than the time. `size` is the length of the window in
    microseconds (for CUMULATE, of the longest window), or None if the column does not belong to a window. `short` is
    the last part of the slack, in microseconds. During this part, rows may still be inserted, but are no longer
    retracted: a session that becomes shorter is inserted again, with an end that may already have passed.
    """

    origins: frozenset[TimeColumn]
    kind: TimeKind
    slack: int = 0
    size: int | None = None
    short: int = 0

    @property
    def final(self) -> EventTime:
        """The same derived time without `short`: once the watermark has passed it, rows are no longer retracted."""
        return replace(self, slack=self.slack - self.short, short=0)

    @property
    def of_group(self) -> EventTime:
        """The derived time of a group's row. The whole slack applies, because each inserted row changes that row."""
        return replace(self, short=0)


@dataclass(frozen=True)
class RowColumn:
    """An unchanged table column that the expression of the table's watermark reads.

    `time` is the column's own derived time, or None. Columns with the same `scan` belong to the same row.
    """

    scan: LogicalScan
    column: str
    time: EventTime | None


PROCESSING = TimeColumn("", "PROCTIME()")
"""The processing time of rows. It is not a table column, and follows the wall clock instead of a watermark."""


def is_processing_time(time: EventTime) -> bool:
    """Whether a time is derived only from the processing time of rows."""
    return time.origins == {PROCESSING}


Below = Mapping[str, EventTime | RowColumn]
"""What is known about each column, by name. The fields of structs have the names that `field_of` returns."""

_FIELD = "#field:"


def field_of(column: str, field: str) -> str:
    """Return the internal column name that represents a struct's field. No query can use this name."""
    return f"{column}{_FIELD}{field}"


def is_field(name: str) -> bool:
    """Whether a column name represents a struct's field."""
    return _FIELD in name


def fields_of(expression: exp.Expr, below: Below) -> Iterator[tuple[str, EventTime | RowColumn]]:
    """Yield, by field name, what is known about the fields of a struct.

    The struct must be a column or a call of NAMED_STRUCT. Nothing is yielded for other expressions.
    """
    node = expression.unnest()
    if isinstance(node, exp.Column):
        prefix = field_of(node.name, "")
        yield from ((name.removeprefix(prefix), each) for name, each in below.items() if name.startswith(prefix))
    elif isinstance(node, exp.Anonymous) and word(node) == "NAMED_STRUCT":
        for name, value in zip(node.expressions[::2], node.expressions[1::2], strict=True):
            if (known := followed(value, below)) is not None:
                yield name.name.lower(), known


def followed(expression: exp.Expr, below: Below) -> EventTime | None:
    """Return the derived time of an expression; None if the expression is not known to be derived from a time."""
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
    # A session's last time is never NULL, so COALESCE always returns it (`sql.session_ends`).
    found = followed(node.this, below)
    return found if found is not None and found.kind == "session_last" else None


def _window_time(node: WindowTime, below: Below) -> EventTime | None:
    end = followed(node.this, below)
    return moved(node.this, below, "window_time", micros(node.args["by"]), end.size if end else None)


def _declared(node: exp.Expr, below: Below) -> EventTime | None:
    """Return the derived time of an expression on which a table's watermark is declared; None for others."""
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
    """Return the derived time of an expression whose value is at most `back` microseconds before `time`."""
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
    """Return the derived time of a timestamp that is converted from zone `source` to zone `target`. None means UTC.

    Local times go back by an hour when clocks are set back in autumn. But a local time is never before UTC plus the
    smallest offset that the zone ever had.
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
    # A pane may change as long as any window that contains it may change. The last of these windows ends at most one
    # window length later.
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
"""Rules that return an expression's derived time, by the expression's class. Other expressions have none."""


def both(one: EventTime, other: EventTime) -> EventTime:
    """Combine two derived times into one, which has the origins of both and the larger slack."""
    kind: TimeKind = one.kind if one.kind == other.kind else "other"
    size = one.size if one.kind == other.kind and one.size == other.size else None
    return EventTime(one.origins | other.origins, kind, max(one.slack, other.slack), size)
