"""Emit each result once, when it is final: for `emit: final`, and for append sinks of results that change.

A window's row is buffered until it can no longer change, that is, until the watermark passes the window's end. Instead
of a window's end, any column that is derived from a table's time can be used, whatever the query computes.

If tables allow late rows (`passes.apply_allowed_lateness`), a row is emitted at the same time as without them, and late
rows correct it afterwards. An append sink cannot accept such corrections.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlglot import exp

from rowkind.service.physical.clocks import Clock, Closing, ColumnTime
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.calc import LogicalFilter, LogicalProject
from rowkind.service.plan.logical.grouping import LogicalMatch
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.logical.per_row import LogicalSession
from rowkind.service.plan.logical.subset import LogicalNormalize, LogicalTemporalFilter
from rowkind.service.plan.passes.apply_allowed_lateness import allowed_ms
from rowkind.service.plan.passes.derive_state_cleanup import Tables, passed, timed_tables
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.scalar.time_windows import WindowEnd, WindowTime, micros
from rowkind.service.plan.traits.changelog_modes import produced
from rowkind.service.plan.traits.derived_times import PROCESSING, TimeColumn
from rowkind.service.plan.traits.event_times import event_times
from rowkind.service.plan.traits.partitioning import partitioning
from rowkind.service.plan.tree import bottom_up, walk, with_inputs

AT_ONCE = 500_000
"""The approximate number of rows that a shard releases per batch, so that no batch must emit all windows of a day."""

BY_THEIR_END = "use both window_start and window_end wherever rows of sessions are grouped, ranked or joined"
"""Advice on session results, which are final when the session ends. The start alone does not determine the end."""

_ENDS = ("window_end", "session_end")


def delay_until_final(query: Query) -> Query:
    """Add a temporal filter below a sink that accepts only final rows. Raises Refusal if nothing makes rows final.

    >>> example(delay_until_final, '''
    ...     SELECT CAST(at AS DATE) AS day, COUNT(*) AS n FROM bids GROUP BY CAST(at AS DATE)''',
    ...     sink="append")
    Aggregate group=[day] calls=[n: count()]
    becomes
    TemporalFilter clock=bids begins=day + 1d 1us final most=500000 input.closing=(bids passes day + 1d 1us)
      Project …
        Aggregate group=[day] calls=[n: count()]
    """
    if not wants_final(query.root, query) or _is_sorted(query.root):
        return query
    held = final_at(query)
    if held is None and query.sink.emit == "final" and any(map(_takes_back, walk(query.root))):
        raise Refusal(
            "`emit: final` needs rows that do not change any more, but with `on_expire: retract` they are retracted "
            "when the rows from which they are derived expire: set `on_expire: forget`, or `emit: changes`",
            field="emit",
        )
    if held is None and query.sink.emit == "final":
        asked = " and ".join(f"table {each.table} a watermark on {each.column}" for each in without_watermark(query))
        advice = "group by a window of the column that has a `watermark`"
        if asked:
            advice = f"give {asked}"
        elif produced(query.root) == "append":
            # Rows such as the matches of a row pattern do not change once they are emitted.
            return query
        elif has_sessions(query):
            advice = BY_THEIR_END
        raise Refusal(
            f"`emit: final` needs rows that a watermark makes final: {advice}, or set `emit: changes`", field="emit"
        )
    if held is None:
        return query
    # The root is the SELECT list.
    root = (
        held
        if isinstance(held, LogicalProject)
        else LogicalProject(held, dict(zip(query.outputs, map(resolved, query.outputs), strict=True)))
    )
    return replace(query, root=root)


def final_at(query: Query) -> LogicalNode | None:
    """Return the plan with a filter that releases rows when they are final; None if nothing makes them final."""
    tables = timed_tables(query.root)
    # A window's end is preferred. If no column contains it, a start is used, which may be that of a longer window.
    return _held(query.root, tables, query, ends=True) or _held(query.root, tables, query, ends=False)


def without_watermark(query: Query) -> list[TimeColumn]:
    """Return the time columns without a watermark on which the result's windows are based."""
    node, tables = query.root, timed_tables(query.root)
    while not (times := event_times(node)) and isinstance(node, LogicalProject | LogicalFilter):
        node = node.input
    windows = [each for each in times.values() if each.kind != "time"]
    origins = sorted(min((each.origins for each in windows), key=sorted, default=frozenset()))
    marks = {name: table.watermark.subject for name, table in tables.items() if table.watermark is not None}
    return [each for each in origins if each != PROCESSING and marks.get(each.table) != each.column]


def has_sessions(query: Query) -> bool:
    """Whether the query has sessions whose end a watermark can determine."""
    sessions = (each for each in walk(query.root) if isinstance(each, LogicalSession))
    times = ((each.time, event_times(each.input.input).get(each.time)) for each in sessions)
    tables = timed_tables(query.root)
    return any(time is not None and passed(tables, name, time) is not None for name, time in times)


def _is_sorted(root: LogicalNode) -> bool:
    """Whether an ORDER BY buffers rows until they can be emitted in time order, and are therefore final."""
    below = root.input if isinstance(root, LogicalProject) else None
    return isinstance(below, LogicalTemporalFilter) and bool(below.order)


def wants_final(node: LogicalNode, query: Query) -> bool:
    """Whether the sink accepts the node's rows only when they are final."""
    updates = produced(node) != "append"
    return query.sink.emit == "final" or (query.sink.emit is None and query.sink.mode == "append" and updates)


def where_final(query: Query, visit: Callable[[LogicalNode], LogicalNode]) -> LogicalNode:
    """Return the plan, with `visit` applied bottom-up where rows must be final.

    Rows must be final in the whole plan if the sink accepts only final rows, and otherwise below row patterns.
    """
    if wants_final(query.root, query):
        return bottom_up(query.root, visit)
    return below_matches(query.root, visit)


def below_matches(node: LogicalNode, visit: Callable[[LogicalNode], LogicalNode]) -> LogicalNode:
    """Return the plan, with `visit` applied bottom-up below row patterns."""
    if isinstance(node, LogicalMatch):
        return replace(node, input=replace(node.input, input=bottom_up(node.input.input, visit)))
    return with_inputs(node, lambda below: below_matches(below, visit))


def _takes_back(node: LogicalNode) -> bool:
    return isinstance(node, LogicalNormalize) and node.takes_back


def _held(node: LogicalNode, tables: Tables, query: Query, *, ends: bool) -> LogicalNode | None:
    """Return the node with a filter above the highest node that has a time column; None if there is no such column.

    If `ends` is true, the time must be the end of a window or session.
    """
    times = {name: time.final for name, time in event_times(node).items() if time.kind in _ENDS or not ends}
    found = [at for name, time in times.items() if (at := passed(tables, name, time)) is not None]
    if found:
        clock, begins = min(found, key=lambda each: each[1].later_us)
        corrected = bool(allowed_ms(tables, clock)) and produced(node) != "append"
        if corrected and query.sink.mode == "append":
            raise _corrected(tables, clock)
        return _where_rows_are(node, _Holding(clock, begins, query.select, corrected=corrected))
    if isinstance(node, LogicalProject | LogicalFilter):
        below = _held(node.input, tables, query, ends=ends)
        return None if below is None else replace(node, input=below)
    return None


@dataclass(frozen=True)
class _Holding:
    """The filter to add, which buffers rows until `clock` reaches the time `begins`.

    `corrected` is true if late rows may correct the emitted rows. `at` is the position in the SQL.
    """

    clock: Clock
    begins: ColumnTime
    at: exp.Expr
    corrected: bool

    def over(self, node: LogicalNode) -> LogicalNode:
        """Return the filter above a node."""
        reason = "rows are emitted once, when they are final"
        if self.corrected:
            reason = "rows are emitted when the watermark has passed them, and late rows correct them"
        final = not self.corrected
        # A change that arrives after a row is final is late: it can neither update nor retract the row.
        late = Closing(self.clock, self.begins, self.begins) if final else None
        held = LogicalInput(node, closing=late)
        return LogicalTemporalFilter(held, self.clock, self.begins, None, final, reason, self.at, AT_ONCE)


def _where_rows_are(node: LogicalNode, holding: _Holding) -> LogicalNode:
    """Return the node with the filter below projections that drop partition columns, so that rows are not shuffled."""
    parts = partitioning(node)
    if parts is None or all(part.columns for part in parts):
        return holding.over(node)
    if isinstance(node, LogicalFilter):
        return replace(node, input=_where_rows_are(node.input, holding))
    if isinstance(node, LogicalProject) and node.view is None:
        begins = _computed_of(node.outputs[holding.begins.column], holding.begins)
        if begins is not None:
            return replace(node, input=_where_rows_are(node.input, replace(holding, begins=begins)))
    return holding.over(node)


def _computed_of(output: exp.Expr, time: ColumnTime) -> ColumnTime | None:
    """Convert a time on a column that is computed as `output` into a time on the column that `output` reads.

    Returns None unless `output` is a column, a window's end or a window time.
    """
    match node := output.unnest():
        case exp.Column():
            return replace(time, column=node.name)
        case WindowEnd():
            return _computed_of(node.this, replace(time, later_us=time.later_us + micros(node.args["size"])))
        case WindowTime():
            return _computed_of(node.this, replace(time, later_us=time.later_us - micros(node.args["by"])))
    return None


def _corrected(tables: Tables, clock: Clock) -> Refusal:
    late = [name for name, _ in clock.tables if allowed_ms(tables, Clock(((name, 0),)))]
    return Refusal(
        f"an append sink accepts only inserts, but rows of {' and '.join(late)} may be late by `allowed_lateness`, "
        f"and would correct rows that have been emitted: remove `allowed_lateness` from the watermark, so that late "
        f"rows are dropped, or give the sink mode upsert or retract",
        field="mode",
    )
