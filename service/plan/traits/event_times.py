"""Event times: which columns follow a time of the rows of tables, and how far behind it they may lie.

Where no row of a table comes any more whose time is before a watermark W, no change of a node's rows comes any more in
which a column that follows that time is before W less its slack:

    ts                    the time itself                        slack 0
    window_start          a window's length before it            slack size; of those that cumulate, of the longest
    window_end            behind it                              slack 0
    window_time           just before the end                    slack of what is taken off it
    DATE_TRUNC, CAST      the unit before it                     slack of the longest such unit
    + INTERVAL            later                                  slack less that much

The rules: what a node hands on of a row follows what it followed below, as long as each change of a node is one of rows
with these values below.

    filter, project, expand, normalize    each column, and what is computed of it
    aggregate                             the group columns
    rank, window                          the partition's columns: a row pushes out others of its partition
    session                               the partition's columns and the time: it moves none before its own
    sessions by their start               their last time, with the gap as slack
    join                                  columns of the key that follow times on both sides; not those that are padded,
                                          but COALESCE of the two sides of a full join's key
    lookup by processing time             those of the left side
    lookup by time, of the last before    the left time: no row to come of the right side changes one before its own
    row pattern                           the time of its order, in any row of a match: slack of the time WITHIN
    interval join                         the two that are bound to each other: until their rows have settled
    union                                 columns that do so in all inputs

A row that is taken back is a change like any other: one whose time is before the watermark is late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from sqlglot import exp

from rowkind.avro.errors import SchemaError
from rowkind.avro.schema import Type
from rowkind.operators.match_calls import Navigation
from rowkind.service.plan.errors import Refusal, word
from rowkind.service.plan.logical import (
    LogicalAggregate,
    LogicalExpand,
    LogicalFilter,
    LogicalJoin,
    LogicalLookup,
    LogicalMatch,
    LogicalNode,
    LogicalNormalize,
    LogicalProject,
    LogicalRank,
    LogicalScan,
    LogicalSession,
    LogicalTemporalFilter,
    LogicalUnion,
    LogicalWindow,
)
from rowkind.service.plan.memoized import memoized
from rowkind.service.plan.scalar.intervals import amount
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.scalar.time_windows import (
    DAY,
    PANE,
    PaneStart,
    WindowEnd,
    WindowEnds,
    WindowStart,
    WindowStarts,
    WindowTime,
    micros,
)
from rowkind.service.plan.scalar.types import family
from rowkind.service.plan.traits.sessions import session_of
from rowkind.service.plan.traits.time_bounds import spans, time_bounds
from rowkind.service.plan.watermarks import time_of

TimeKind = Literal["time", "window_start", "window_end", "window_time", "session", "other"]

_UNITS: Mapping[str, int] = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    **dict.fromkeys(("DAY", "DD"), DAY),
    "WEEK": 7 * DAY,
    **dict.fromkeys(("MONTH", "MON", "MM"), 31 * DAY),
    "QUARTER": 92 * DAY,
    **dict.fromkeys(("YEAR", "YYYY", "YY"), 366 * DAY),
}
"""The longest that a unit of DATE_TRUNC can be, in microseconds."""


@dataclass(frozen=True, order=True)
class TimeColumn:
    """A column of a table that is a time, or the expression over its columns that its watermark is of."""

    table: str
    column: str


@dataclass(frozen=True)
class EventTime:
    """What a column follows: no value of a change to come is before the watermark of all `origins` less the slack.

    `slack` is in microseconds, and negative where values are later than the time. `size` is the length of a window in
    microseconds, of the longest where they cumulate; None for what is no window.
    """

    origins: frozenset[TimeColumn]
    kind: TimeKind
    slack: int = 0
    size: int | None = None

    @property
    def slack_ms(self) -> int:
        """The slack in milliseconds, rounded up."""
        return -(-self.slack // 1_000)


@memoized
def event_times(node: LogicalNode) -> dict[str, EventTime]:
    """The columns of a node that follow times of tables."""
    match node:
        case LogicalScan():
            return _scanned(node)
        case LogicalFilter() | LogicalWindow():
            below = event_times(node.input)
            return below if isinstance(node, LogicalFilter) else _of_names(below, node.partition)
        case LogicalProject():
            return _projected(node)
        case LogicalExpand():
            return event_times(node.input) | _expanded(node)
        case LogicalNormalize():
            # Rows that expire go long after their time.
            return {} if node.takes_back else event_times(node.input.input)
        case LogicalTemporalFilter():
            # What time moves is out of the order of its input, but for what a watermark lets out just before it passes.
            held = node.final or (node.ends is None and node.clock.tables)
            return event_times(node.input.input) if held else {}
        case LogicalAggregate():
            return _of_names(event_times(node.input.input), node.group) | _last_times(node)
        case LogicalRank():
            return _of_names(event_times(node.input.input), node.partition)
        case LogicalSession():
            return _of_names(event_times(node.input.input), (*node.partition, node.time))
        case LogicalMatch():
            return _matched(node)
        case LogicalJoin():
            return _joined(node)
        case LogicalLookup():
            return _looked_up(node)
        case LogicalUnion():
            return _united([event_times(each) for each in node.inputs])


def _projected(node: LogicalProject) -> dict[str, EventTime]:
    below, either, of = event_times(node.input), _either(node.input), _of_watermark(node.input)
    if of is not None:
        below = below | {_TIME: EventTime(frozenset([of.origin]), "time")}
    found = {}
    for name, output in node.outputs.items():
        meant = output if of is None else output.transform(of.named)
        if (time := _followed(meant, below) or _coalesced(meant, either)) is not None:
            found[name] = time
    return found


@dataclass(frozen=True)
class _Computed:
    """The time that a watermark is of, where it is no column but computed of some."""

    origin: TimeColumn
    time: exp.Expr

    def named(self, node: exp.Expr) -> exp.Expr:
        """A column for it, for use by `transform`."""
        return resolved(_TIME) if node == self.time else node


_TIME = "#time"


def _of_watermark(node: LogicalNode) -> _Computed | None:
    """What rows straight from a table have for their time, if that is computed."""
    while isinstance(node, LogicalFilter):
        node = node.input
    if not isinstance(node, LogicalScan) or node.source.watermark is None or node.source.watermark.of.column:
        return None
    time = time_of(node.source, node.name)
    return None if time is None else _Computed(TimeColumn(node.source.table, node.source.watermark.subject), time)


def _last_times(node: LogicalAggregate) -> dict[str, EventTime]:
    """The last time of sessions: no change comes any more of one whose last time and the gap have passed."""
    session = session_of(node)
    if session is None or (time := event_times(session).get(session.time)) is None:
        return {}
    return {session.last: replace(time, kind="session", slack=time.slack + session.gap)}


def _of_names(times: Mapping[str, EventTime], names: Iterable[str]) -> dict[str, EventTime]:
    return {name: times[name] for name in names if name in times}


def _matched(match: LogicalMatch) -> dict[str, EventTime]:
    """The times of rows of a match, which comes out when the time is over in which it must be, at the latest."""
    time, within = event_times(match.input.input).get(match.time), match.sought.within
    if time is None or within is None:
        return {}
    own = (each.name for each in match.calls if isinstance(each.call, Navigation) and each.call.column == match.time)
    found = replace(time, slack=time.slack + within)
    return dict.fromkeys([*own, *(name for name in match.carried if name == match.time)], found)


def _scanned(scan: LogicalScan) -> dict[str, EventTime]:
    declared, table = scan.source.declared, scan.source.table
    times = (each for each in declared.fields if family(each.type) in ("timestamp", "local", "date"))
    return {
        scan.name(each.name): EventTime(frozenset([TimeColumn(table, each.name)]), "time")
        for each in times
    }  # fmt: skip


def _followed(expression: exp.Expr, below: Mapping[str, EventTime]) -> EventTime | None:
    """What an expression follows, None where nothing is known."""
    node = expression.unnest()
    match node:
        case exp.Column():
            return below.get(node.name)
        case PaneStart():
            # Changes of a pane are those of the windows that it is in: the last of them ends so much later.
            return _moved(node.this, below, "window_start", micros(node.args["windows"]), micros(node.args["size"]))
        case WindowStart() | WindowEnd():
            size = micros(node.args["size"])
            if (time := _followed(node.this, below)) is not None and time.kind == "session":
                return replace(time, slack=time.slack - size)
            kind: TimeKind = "window_start" if isinstance(node, WindowStart) else "window_end"
            return _moved(node.this, below, kind, size if kind == "window_start" else -size, size)
        case exp.Coalesce():
            # That of a session is never NULL (`sql.session_ends`).
            found = _followed(node.this, below)
            return found if found is not None and found.kind == "session" else None
        case WindowTime():
            end = _followed(node.this, below)
            return _moved(node.this, below, "window_time", micros(node.args["by"]), end.size if end else None)
        case exp.Add() | exp.Sub():
            return _by_interval(node, below)
        case exp.Cast():
            return _cast(node, below)
        case exp.Anonymous():
            return _called(node, below)
    return None


def _moved(
    time: exp.Expr, below: Mapping[str, EventTime], kind: TimeKind, back: int, size: int | None = None
) -> EventTime | None:
    """What follows a time by a length of time at most before it."""
    found = _followed(time, below)
    return found and replace(found, kind=kind, slack=found.slack + back, size=size)


def _by_interval(node: exp.Add | exp.Sub, below: Mapping[str, EventTime]) -> EventTime | None:
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
    return None if months else _moved(time, below, "other", back)


def _cast(node: exp.Cast, below: Mapping[str, EventTime]) -> EventTime | None:
    found = _followed(node.this, below)
    try:
        to = family(Type.of(node.to.sql("spark")))
    except SchemaError:
        return None
    if found is None or to in ("timestamp", "local"):
        return found
    return replace(found, kind="other", slack=found.slack + DAY, size=None) if to == "date" else None


def _called(node: exp.Anonymous, below: Mapping[str, EventTime]) -> EventTime | None:
    match word(node), node.expressions:
        case "DATE_TRUNC", [exp.Literal() as unit, time] if unit.is_string and unit.name.upper() in _UNITS:
            return _moved(time, below, "other", _UNITS[unit.name.upper()])
        case (("TO_DATE" | "DATE"), [time]):
            return _moved(time, below, "other", DAY)
    return None


def _expanded(node: LogicalExpand) -> dict[str, EventTime]:
    array, below = node.array, event_times(node.input)
    if not isinstance(array, WindowStarts | WindowEnds) or node.outer:
        return {}
    size = micros(array.args["size"])
    kind: TimeKind = "window_start" if isinstance(array, WindowStarts) else "window_end"
    found = _moved(array.this, below, kind, size if kind == "window_start" else 0, size)
    if found is not None and array.this.name.endswith(PANE):
        # A time is in the windows that its pane is in, of which its slack tells already.
        found = replace(found, slack=found.slack - size)
    return {} if found is None else dict.fromkeys(node.elements, found)


def _joined(join: LogicalJoin) -> dict[str, EventTime]:
    left, right = event_times(join.left.input), event_times(join.right.input)
    found: dict[str, EventTime] = {}
    for key in join.keys or _equal_sides(join):
        a, b = key if isinstance(key, tuple) else (key.left, key.right)
        times = _followed(a, left), _followed(b, right)
        if times[0] is None or times[1] is None:
            continue
        both = _both(times[0], times[1])
        kept = ((a, not join.pads_right), (b, not join.pads_left and not join.keeps_left))
        for column in (side.unnest() for side, stays in kept if stays):
            if isinstance(column, exp.Column):
                found[column.name] = both
    return found or _bound(join, left, right)


def _bound(join: LogicalJoin, left: Mapping[str, EventTime], right: Mapping[str, EventTime]) -> dict[str, EventTime]:
    """The times of an interval join: a pair comes with the later of its rows, and a pad when it has settled."""
    found: dict[str, EventTime] = {}
    for bounds in time_bounds(join, left.keys(), right.keys()):
        a, b = left[bounds.left], right[bounds.right]
        of = spans(join, bounds, (a.slack, b.slack))
        stays = not join.pads_right, not join.pads_left and not join.keeps_left
        for name, span, there in zip((bounds.left, bounds.right), of, stays, strict=True):
            if there and span.settled is not None and name not in found:
                found[name] = EventTime(a.origins | b.origins, "other", span.settled)
    return found


def _either(node: LogicalNode) -> dict[frozenset[str], EventTime]:
    """Columns of which a full join pads one at most, with what the other follows: those of equal keys."""
    while isinstance(node, LogicalFilter):
        node = node.input
    if not isinstance(node, LogicalJoin) or node.kind != "full":
        return {}
    left, right = event_times(node.left.input), event_times(node.right.input)
    found: dict[frozenset[str], EventTime] = {}
    for key in node.keys or _equal_sides(node):
        a, b = (side.unnest() for side in (key if isinstance(key, tuple) else (key.left, key.right)))
        times = _followed(a, left), _followed(b, right)
        if isinstance(a, exp.Column) and isinstance(b, exp.Column) and times[0] is not None and times[1] is not None:
            found[frozenset([a.name, b.name])] = _both(times[0], times[1])
    return found


def _coalesced(expression: exp.Expr, either: Mapping[frozenset[str], EventTime]) -> EventTime | None:
    """What COALESCE of the two sides of an equal key follows."""
    node = expression.unnest()
    if not isinstance(node, exp.Coalesce):
        return None
    parts = [part.unnest() for part in (node.this, *node.expressions)]
    return (
        either.get(frozenset(part.name for part in parts if isinstance(part, exp.Column))) if len(parts) == 2 else None
    )


def _looked_up(node: LogicalLookup) -> dict[str, EventTime]:
    left, right = event_times(node.left.input), event_times(node.right.input)
    if node.match is None:
        return left
    own, theirs = left.get(node.match.left), right.get(node.match.right)
    if not node.match.comparison.startswith(">") or own is None or theirs is None:
        return {}
    return {node.match.left: _both(own, theirs)}


def _equal_sides(join: LogicalJoin) -> list[tuple[exp.Expr, exp.Expr]]:
    """The equalities of a join before its keys have been taken out of its condition, left before right."""
    left = event_times(join.left.input)
    found = []
    for each in join.condition:
        bare = each.unnest()
        if isinstance(bare, exp.EQ | exp.NullSafeEQ):
            a, b = bare.left, bare.right
            found.append((a, b) if _followed(a, left) is not None else (b, a))
    return found


def _both(one: EventTime, other: EventTime) -> EventTime:
    """What follows times of both: changes come from either."""
    kind: TimeKind = one.kind if one.kind == other.kind else "other"
    size = one.size if one.kind == other.kind and one.size == other.size else None
    return EventTime(one.origins | other.origins, kind, max(one.slack, other.slack), size)


def _united(inputs: list[dict[str, EventTime]]) -> dict[str, EventTime]:
    found = dict(inputs[0]) if inputs else {}
    for each in inputs[1:]:
        found = {name: _both(found[name], each[name]) for name in found if name in each}
    return found
