"""Event times: which columns are derived from a table's time, and how far before that time they may be.

Once a table's watermark has reached W, a node emits no further change in which a column derived from that time is
earlier than W - slack. For example:

    window_start          at most a window's length before the time: the slack is the window's size
    window_end            after the time: the slack is 0
    …                     (`traits.derived_times`)

A column that a node passes on keeps its derived time if each change that the node emits is caused by input rows with
the same value in that column. This is true of the following columns:

    filter, project, expand, normalize    all columns, and columns computed from them
    aggregate                             the group columns
    rank, window                          the partition columns: a row displaces only other rows of its partition
    session                               the partition columns, and the time with the gap as additional slack: a row
                                          changes no row before its own time. If rows contain their session's end, the
                                          end replaces the time, because it may change for all rows of the session
    stamp                                 all columns, and the added time, which is derived from the wall clock
    aggregate over sessions               the sessions' last time, with the gap as slack
    sessions of rows that may be          the end, with the gap as additional slack: after a row is retracted, the rest
      retracted                           of its session may end up to one gap earlier
    join                                  key columns that are derived from times on both sides, except those of a
                                          null-padded side; COALESCE of the two sides of a full join's key
    interval join                         the two times that bound each other, with the time until a row's matches are
                                          final as slack
    lookup by processing time             the columns of the left side
    lookup by time, of an earlier row     the left time: a right row changes only left rows at or after its own time
    row pattern                           the ordering time of any row of a match, with the WITHIN interval as slack
    union                                 columns that are derived from times in all inputs

A retraction is a change like any other: if its time is before the watermark, it is late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from sqlglot import exp

from rowkind.operators.match.calls import Navigation
from rowkind.service.physical.memoized import memoized
from rowkind.service.plan.logical.binary import LogicalJoin, LogicalLookup
from rowkind.service.plan.logical.calc import (
    LogicalExpand,
    LogicalFilter,
    LogicalProject,
    LogicalScan,
    LogicalUnion,
    LogicalWindow,
)
from rowkind.service.plan.logical.grouping import LogicalAggregate, LogicalMatch
from rowkind.service.plan.logical.node import LogicalNode, LogicalUnary
from rowkind.service.plan.logical.per_row import LogicalOver, LogicalSession, LogicalStamp
from rowkind.service.plan.logical.subset import LogicalNormalize, LogicalRank, LogicalTemporalFilter
from rowkind.service.plan.scalar.time_windows import PANE, PANES, WindowEnds, WindowStarts, micros
from rowkind.service.plan.scalar.types import family
from rowkind.service.plan.traits.derived_times import (
    PROCESSING,
    Below,
    EventTime,
    RowColumn,
    TimeColumn,
    TimeKind,
    both,
    field_of,
    fields_of,
    followed,
    is_field,
    moved,
)
from rowkind.service.plan.traits.sessions import only_comes, session_of
from rowkind.service.plan.traits.time_bounds import stays_of, time_bounds
from rowkind.service.plan.tree import rule_for


def event_times(node: LogicalNode) -> dict[str, EventTime]:
    """Return, by column name, the derived times of those columns of a node that have one."""
    return _times(_known(node))


def _times(known: Below) -> dict[str, EventTime]:
    times = ((name, each.time if isinstance(each, RowColumn) else each) for name, each in known.items())
    return {name: time for name, time in times if time is not None and not is_field(name)}


@memoized
def _known(node: LogicalNode) -> Below:
    """Return what is known about a node's columns, by name.

    For each column, this is its derived time or, if the watermark's expression reads the column, the table column.
    """
    rule = rule_for(node, _RULES)
    assert rule is not None, f"{type(node).__name__} has no known shape"
    return rule(node)


def _in_time(node: LogicalTemporalFilter) -> Below:
    # A filter that inserts or retracts rows by the wall clock does not preserve the input's time order. A filter that
    # follows a watermark does: it releases each row just before the watermark passes the row's time.
    held = node.final or (node.ends is None and node.clock.tables)
    return _known(node.input.input) if held else {}


def _of_operator(node: LogicalUnary) -> Below:
    """Return what is known about the columns by which an operator groups rows, and about its other time columns."""
    known = _of_names(_known(node.input.input), node.lets_pass(frozenset()))
    match node:
        case LogicalOver(ahead=0) | LogicalRank(in_time=True):
            return _known(node.input.input)
        case LogicalOver(ahead=int(ahead)):
            return {**known, **_settled(node, ahead)}
        case LogicalAggregate():
            return {**known, **_last_times(node)}
        case LogicalSession():
            return {**known, **_in_session(node)}
    return known


def _projected(node: LogicalProject) -> dict[str, EventTime | RowColumn]:
    below, either = _known(node.input), _either(node.input)
    found: dict[str, EventTime | RowColumn] = {}
    for name, output in node.outputs.items():
        column = below.get(output.name) if isinstance(output.unnest(), exp.Column) else None
        if (known := column or followed(output, below) or _coalesced(output, either)) is not None:
            found[name] = known
        found |= {field_of(name, field): each for field, each in fields_of(output, below)}
    return found


def _last_times(node: LogicalAggregate) -> dict[str, EventTime]:
    """Return the derived time of the column that contains the sessions' last times.

    A session no longer changes once the watermark has passed its last time plus the gap.
    """
    session = session_of(node)
    if session is None or (end := _end(session)) is None:
        return {}
    return {session.last: replace(end, kind="session_last", slack=end.slack + session.gap)}


def _in_session(session: LogicalSession) -> dict[str, EventTime]:
    """Return the derived time of the sessions' end column or, if there is none, of the rows' time column."""
    if session.end is not None:
        return {} if (end := _end(session)) is None else {session.end: end}
    time = event_times(session.input.input).get(session.time)
    return {} if time is None else {session.time: replace(time, slack=time.slack + session.gap, short=0)}


def _end(session: LogicalSession) -> EventTime | None:
    """Return the derived time of the sessions' end.

    A row changes only sessions that end after it. But a row extends its session to its own time plus the gap. After the
    row is retracted, the rest of the session may end up to one gap earlier.
    """
    time = event_times(session.input.input).get(session.time)
    short = 0 if only_comes(session) else session.gap
    return time and EventTime(time.origins, "session_end", time.slack + short, short=short)


def _of_names(known: Below, names: Iterable[str]) -> dict[str, EventTime | RowColumn]:
    """Return what is known about the columns `names`, by which rows are grouped."""
    found = {name: known[name] for name in names if name in known}
    return {name: each.of_group if isinstance(each, EventTime) else each for name, each in found.items()}


def _settled(node: LogicalOver, ahead: int) -> dict[str, EventTime]:
    """Return the derived time of the ordering column, for frames that look `ahead` by this number of microseconds."""
    name = str(node.order[0].column)
    time = event_times(node.input.input)[name]
    return {name: replace(time, kind="other", slack=time.slack + ahead, short=0)}


def _matched(match: LogicalMatch) -> dict[str, EventTime]:
    """Return the derived times of a match's rows.

    A match is emitted at the latest when its WITHIN interval has elapsed.
    """
    time, within = event_times(match.input.input).get(match.time), match.sought.within
    if time is None or within is None:
        return {}
    own = (each.name for each in match.calls if isinstance(each.call, Navigation) and each.call.column == match.time)
    found = replace(time, slack=time.slack + within, short=0)
    return dict.fromkeys([*own, *(name for name in match.carried if name == match.time)], found)


def _scanned(scan: LogicalScan) -> dict[str, EventTime | RowColumn]:
    declared, source = scan.source.declared, scan.source
    found: dict[str, EventTime | RowColumn] = {
        scan.name(each.name): EventTime(frozenset([TimeColumn(source.table, each.name)]), "time")
        for each in declared.fields
        if family(each.type) in ("timestamp", "local", "date")
    }
    if source.watermark is not None and source.watermark.of.column is None:
        times = _times(found)
        for column in source.watermark.of.columns:
            name = scan.name(column)
            found[name] = RowColumn(scan, column, times.get(name))
    return found


def _expanded(node: LogicalExpand) -> dict[str, EventTime]:
    array, below = node.array, _known(node.input)
    if not isinstance(array, WindowStarts | WindowEnds) or node.outer:
        return {}
    size = micros(array.args["size"])
    kind: TimeKind = "window_start" if isinstance(array, WindowStarts) else "window_end"
    found = moved(array.this, below, kind, size if kind == "window_start" else 0, size)
    if found is not None and array.this.name.endswith((PANE, PANES)):
        # The slack of a pane, or of a run of panes, already covers the windows that contain it.
        found = replace(found, slack=found.slack - size)
    return {} if found is None else dict.fromkeys(node.elements, found)


def _joined(join: LogicalJoin) -> dict[str, EventTime]:
    left, right = _known(join.left.input), _known(join.right.input)
    found: dict[str, EventTime] = {}
    for a, b in _equal_sides(join):
        times = followed(a, left), followed(b, right)
        if times[0] is None or times[1] is None:
            continue
        together = both(times[0], times[1])
        kept = ((a, not join.pads_right), (b, not join.pads_left and not join.keeps_left))
        for column in (side.unnest() for side, stays in kept if stays):
            if isinstance(column, exp.Column):
                found[column.name] = together
    return found or _bound(join)


def _bound(join: LogicalJoin) -> dict[str, EventTime]:
    """Return the derived times of an interval join's columns.

    A pair is emitted when its later row arrives. A null-padded row is emitted when the row has settled.
    """
    left, right = event_times(join.left.input), event_times(join.right.input)
    found: dict[str, EventTime] = {}
    for bounds in time_bounds(join, left.keys(), right.keys()):
        a, b = left[bounds.left], right[bounds.right]
        of = stays_of(join, bounds, (a.slack, b.slack))
        stays = not join.pads_right, not join.pads_left and not join.keeps_left
        for name, stay, there in zip((bounds.left, bounds.right), of, stays, strict=True):
            if there and stay.settled is not None and name not in found:
                found[name] = EventTime(a.origins | b.origins, "other", stay.settled)
    return found


def _either(node: LogicalNode) -> dict[frozenset[str], EventTime]:
    """Return the derived time of each pair of key columns of a full join, one of which may be null-padded."""
    while isinstance(node, LogicalFilter):
        node = node.input
    if not isinstance(node, LogicalJoin) or node.kind != "full":
        return {}
    left, right = _known(node.left.input), _known(node.right.input)
    found: dict[frozenset[str], EventTime] = {}
    for sides in _equal_sides(node):
        a, b = (side.unnest() for side in sides)
        times = followed(a, left), followed(b, right)
        if isinstance(a, exp.Column) and isinstance(b, exp.Column) and times[0] is not None and times[1] is not None:
            found[frozenset([a.name, b.name])] = both(times[0], times[1])
    return found


def _coalesced(expression: exp.Expr, either: Mapping[frozenset[str], EventTime]) -> EventTime | None:
    """Return the derived time of a COALESCE over the two columns of a key; None for any other expression."""
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
    if not node.match.looks_back or own is None or theirs is None:
        return {}
    return {node.match.left: both(own, theirs)}


def _equal_sides(join: LogicalJoin) -> list[tuple[exp.Expr, exp.Expr]]:
    """Return the operands of a join's equalities, the left operand first. The equalities need not be keys yet."""
    if join.keys:
        return [(key.left, key.right) for key in join.keys]
    left = _known(join.left.input)
    found = []
    for each in join.condition:
        bare = each.unnest()
        if isinstance(bare, exp.EQ | exp.NullSafeEQ):
            a, b = bare.left, bare.right
            found.append((a, b) if followed(a, left) is not None else (b, a))
    return found


def _united(inputs: list[dict[str, EventTime]]) -> dict[str, EventTime]:
    found = dict(inputs[0]) if inputs else {}
    for each in inputs[1:]:
        found = {name: both(found[name], each[name]) for name in found if name in each}
    return found


_RULES: Mapping[type[Any], Callable[[Any], Below]] = {
    LogicalScan: _scanned,
    LogicalFilter: lambda node: _known(node.input),
    LogicalProject: _projected,
    LogicalExpand: lambda node: {**_known(node.input), **_expanded(node)},
    LogicalWindow: lambda node: _of_names(_known(node.input), node.partition),
    # Expired rows are retracted long after their time.
    LogicalNormalize: lambda node: {} if node.takes_back else _known(node.input.input),
    LogicalTemporalFilter: _in_time,
    LogicalStamp: lambda node: {**_known(node.input.input), node.time: EventTime(frozenset([PROCESSING]), "time")},
    LogicalMatch: _matched,
    LogicalUnary: _of_operator,
    LogicalJoin: _joined,
    LogicalLookup: _looked_up,
    LogicalUnion: lambda node: _united([event_times(each) for each in node.inputs]),
}
"""Rules that return what is known about a node's columns, by the node's class or base class."""
