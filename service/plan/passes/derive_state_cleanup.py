"""Evict state by the watermark: if a key contains a time, rows before the watermark can no longer change anything.

    aggregate       a group column is derived from a table's time: a window, a day, or the time itself
    rank            a partition column is derived from a table's time
    lookup          both sides have a time; for each key, the last right row before the watermark is kept
    join            key columns are derived from times on both sides, as in a join of windows
    interval join   the condition bounds the time of one side by that of the other (`traits.time_bounds`)
    session         a row is late after its time plus the gap; the row is kept for another gap because other rows may
                    need it, or until the end of its session if rows contain that end
    aggregate       over sessions, a group is evicted after the session's last time plus the gap
    over            if rows are final and frames are time intervals, a row is evicted by the times of later rows

Once the watermark has passed a key's time, no further change can arrive for that key, so its state is evicted. A change
that arrives afterwards is late. This state needs no TTL, which would only approximate the same effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from sqlglot import exp

from rowkind.service.physical.clocks import Clock, Closing, ColumnTime, Ending, TimeBounds
from rowkind.service.physical.source_table import SourceTable
from rowkind.service.plan.logical.binary import LogicalJoin, LogicalLookup
from rowkind.service.plan.logical.calc import LogicalScan
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.logical.per_row import LogicalOver, LogicalSession
from rowkind.service.plan.logical.subset import LogicalRank
from rowkind.service.plan.query import Query
from rowkind.service.plan.traits.derived_times import EventTime, is_processing_time
from rowkind.service.plan.traits.event_times import event_times
from rowkind.service.plan.traits.sessions import session_of
from rowkind.service.plan.traits.time_bounds import Stay, stays_of, time_bounds
from rowkind.service.plan.tree import Rules, rewritten, walk

Tables = Mapping[str, SourceTable]


def derive_state_cleanup(query: Query) -> Query:
    """Set when a watermark evicts the state of each input.

    >>> example(derive_state_cleanup, '''
    ...     SELECT CAST(at AS DATE) AS day, COUNT(*) AS n FROM bids GROUP BY CAST(at AS DATE)''')
    Aggregate input.ttl_ms=2592000000 group=[day] calls=[n: count()]
      Project day: CAST(bids.at AS DATE)
    becomes
    Aggregate input.closing=(bids passes day + 1d 1us) group=[day] calls=[n: count()]
      Project day: CAST(bids.at AS DATE)
    """
    tables = timed_tables(query.root)
    rules: Rules = {
        LogicalAggregate: partial(_closed_groups, tables),
        LogicalSession: partial(_closed_session, tables),
        LogicalOver: partial(_closed_partitions, tables),
        LogicalRank: partial(_closed_partitions, tables),
        LogicalJoin: partial(_closed_pairs, tables),
        LogicalLookup: partial(_closed_lookup, tables),
    }
    return replace(query, root=rewritten(query.root, rules))


def timed_tables(root: LogicalNode) -> Tables:
    """Return the tables below a node that have watermarks, by name."""
    scans = (node.source for node in walk(root) if isinstance(node, LogicalScan))
    return {source.table: source for source in scans if source.watermark is not None}


def passed(tables: Tables, column: str, time: EventTime) -> tuple[Clock, ColumnTime] | None:
    """Return the clock that a column follows, and the time on that clock from which a value of the column is final.

    From then on, no further row contains the value. Returns None if there is no such clock.
    """
    # A window that ends exactly at the watermark gets no further row. For other times, a row may still arrive.
    exclusive = time.kind in ("window_start", "window_end")
    later = ColumnTime(column, time.slack + (0 if exclusive else 1))
    if is_processing_time(time):
        return Clock(processing=True), later
    own = [(each.table, each.column) for each in time.origins]
    marks = [(table, tables[table].watermark, column) for table, column in own if table in tables]
    if len(marks) < len(own):
        return None
    clock = []
    for table, mark, origin in sorted(marks, key=lambda each: each[0]):
        if mark is None or mark.subject != origin:
            return None
        clock.append((table, mark.idle_ms))
    return Clock(tuple(dict.fromkeys(clock))), later


def _closed_groups(tables: Tables, node: LogicalAggregate) -> LogicalAggregate:
    if node.is_global:
        return node
    closed = replace(node, input=_closed(node.input, tables, node.group))
    return closed if closed.input.closing is not None else _ended(closed, tables)


def _closed_partitions(tables: Tables, node: LogicalRank | LogicalOver) -> LogicalNode:
    if isinstance(node, LogicalOver) and node.passes:
        return replace(node, input=replace(node.input, ttl_ms=None))
    return replace(node, input=_closed(node.input, tables, node.partition))


def _closed_pairs(tables: Tables, node: LogicalJoin) -> LogicalJoin:
    if node.counts_right:
        return node
    return _closed_join(node, tables) or _closed_interval_join(node, tables) or node


def _closed(side: LogicalInput, tables: Tables, key: Iterable[str]) -> LogicalInput:
    times = event_times(side.input)
    found = [at for name in key if name in times and (at := passed(tables, name, times[name])) is not None]
    if not found:
        return side
    clock, time = min(found, key=lambda each: (len(each[0].tables), each[1].later_us))
    return _evicted(side, Closing(clock, time, time))


def _closed_join(join: LogicalJoin, tables: Tables) -> LogicalJoin | None:
    left, right = event_times(join.left.input), event_times(join.right.input)
    for key in join.keys:
        a, b = key.left.unnest(), key.right.unnest()
        if not (isinstance(a, exp.Column) and isinstance(b, exp.Column) and a.name in left and b.name in right):
            continue
        of = passed(tables, a.name, left[a.name]), passed(tables, b.name, right[b.name])
        if of[0] is None or of[1] is None or (clock := _both(of[0][0], of[1][0])) is None:
            continue
        later = max(of[0][1].later_us, of[1][1].later_us)
        sides = [ColumnTime(name, later) for name in (a.name, b.name)]
        return replace(
            join,
            left=_evicted(join.left, Closing(clock, sides[0], sides[0])),
            right=_evicted(join.right, Closing(clock, sides[1], sides[1])),
        )
    return None


@dataclass(frozen=True)
class Interval:
    """The times at which an interval join evicts its rows, on a clock that both sides share."""

    clock: Clock
    bounds: TimeBounds
    left: Stay
    right: Stay


def interval(join: LogicalJoin, tables: Tables) -> Interval | None:
    """Return a join's interval if the join's times have watermarks; None for any other join.

    Also returns None for a join whose rows are evicted by the times in its key.
    """
    if join.counts_right or _closed_join(join, tables) is not None:
        return None
    left, right = event_times(join.left.input), event_times(join.right.input)
    clocks = [
        {name: at[0] for name, time in times.items() if (at := passed(tables, name, time)) is not None}
        for times in (left, right)
    ]
    for bounds in time_bounds(join, clocks[0].keys(), clocks[1].keys()):
        if (clock := _both(clocks[0][bounds.left], clocks[1][bounds.right])) is None:
            continue
        return Interval(clock, bounds, *stays_of(join, bounds, (left[bounds.left].slack, right[bounds.right].slack)))
    return None


def _closed_interval_join(join: LogicalJoin, tables: Tables) -> LogicalJoin | None:
    """Return the join, with rows evicted by its interval; None if the interval evicts no rows.

    Also returns None if a side that the interval does not evict has a TTL, because a TTL follows the batch time.
    """
    found = interval(join, tables)
    if found is None:
        return None
    sides = (join.left, found.bounds.left, found.left), (join.right, found.bounds.right, found.right)
    if all(stay.kept is None for _, _, stay in sides) or any(s.ttl_ms and stay.kept is None for s, _, stay in sides):
        return None
    left, right = (
        _evicted(
            side, Closing(found.clock, past(name, stay.late), None if stay.kept is None else past(name, stay.kept))
        )
        for side, name, stay in sides
    )
    return replace(join, left=left, right=right)


def past(column: str, later_us: int) -> ColumnTime:
    """Return the first time at which a watermark has passed, not only reached, a column's time plus `later_us`."""
    return ColumnTime(column, later_us + 1)


def _both(one: Clock, other: Clock) -> Clock | None:
    """Return the common clock of two times; None if one follows watermarks and the other the wall clock."""
    if bool(one.tables) != bool(other.tables):
        return None
    return replace(one, tables=tuple(dict.fromkeys(sorted([*one.tables, *other.tables]))))


def _closed_lookup(tables: Tables, node: LogicalLookup) -> LogicalLookup:
    """Return a lookup by time, in which a row of either side is late once the common watermark has passed its time."""
    match = node.match
    if match is None:
        return node
    left, right = event_times(node.left.input).get(match.left), event_times(node.right.input).get(match.right)
    of = [
        None if time is None else passed(tables, name, time)
        for name, time in ((match.left, left), (match.right, right))
    ]
    if of[0] is None or of[1] is None or (clock := _both(of[0][0], of[1][0])) is None:
        return node
    later = max(of[0][1].later_us, of[1][1].later_us)
    sides = [ColumnTime(name, later) for name in (match.left, match.right)]
    return replace(
        node,
        left=_evicted(node.left, Closing(clock, sides[0], sides[0])),
        right=_evicted(node.right, Closing(clock, sides[1], sides[1])),
    )


def _closed_session(tables: Tables, node: LogicalSession) -> LogicalSession:
    time = event_times(node.input.input).get(node.time)
    if time is None or (at := passed(tables, node.time, time)) is None:
        return replace(node, input=_closed(node.input, tables, node.partition))
    clock, late = at
    late = replace(late, later_us=late.later_us + node.gap)
    # A row that contains its session's end is kept until that end, so its own time does not determine its eviction.
    kept = None if node.end is not None else replace(late, later_us=late.later_us + node.gap)
    return replace(node, input=_evicted(node.input, Closing(clock, late, kept)))


def _ended(node: LogicalAggregate, tables: Tables) -> LogicalAggregate:
    """Return an aggregate over sessions with the time at which each session ends."""
    session = session_of(node)
    time = None if session is None else event_times(node).get(session.last)
    if session is None or time is None or (at := passed(tables, session.last, time.final)) is None:
        return node
    return replace(node, ending=Ending(*at), input=replace(node.input, ttl_ms=None))


def _evicted(side: LogicalInput, closing: Closing) -> LogicalInput:
    return replace(side, closing=closing, ttl_ms=None)
