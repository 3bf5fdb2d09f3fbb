"""Results that come once, when they are final: `emit: final`, which an append sink of windows needs.

A row of a window is held back until no change of it can come any more: until the watermark passes the end of the
window. What follows the time of a table is enough for that, whatever the query has made of it.
"""

from __future__ import annotations

from dataclasses import replace

from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical import LogicalFilter, LogicalInput, LogicalNode, LogicalProject, LogicalTemporalFilter
from rowkind.service.plan.passes.close_inputs import Tables, passed, timed_tables
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.traits.changelog_modes import produced
from rowkind.service.plan.traits.event_times import event_times

AT_ONCE = 500_000
"""About how many rows are let out of one shard at a time, so that no batch has to carry all windows of a day."""


def hold_back(query: Query) -> Query:
    """The query with a temporal filter below the sink where it wants final rows. Raises Refusal."""
    updates = produced(query.root) != "append"
    wanted = query.sink.emit == "final" or (query.sink.emit is None and query.sink.mode == "append" and updates)
    if not wanted:
        return query
    tables = timed_tables(query.root)
    # Where the end of a window is no column any more, its beginning may be that of a longer one.
    held = _held(query.root, tables, query, ends=True) or _held(query.root, tables, query, ends=False)
    if held is None and query.sink.emit == "final":
        raise Refusal(
            "`emit: final` needs rows that a watermark makes final: group by a window of the time column of a table "
            "that has a `watermark`, or say `emit: changes`",
            field="emit",
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


def _held(node: LogicalNode, tables: Tables, query: Query, *, ends: bool) -> LogicalNode | None:
    """The node with a filter as high up as there is a time, or the end of a window, above its last operator."""
    times = {name: time for name, time in event_times(node).items() if time.kind == "window_end" or not ends}
    found = [at for name, time in times.items() if (at := passed(tables, name, time)) is not None]
    if found:
        clock, begins = min(found, key=lambda each: each[1].later_us)
        reason = "rows come once, when they are final"
        return LogicalTemporalFilter(LogicalInput(node), clock, begins, None, True, reason, query.select, AT_ONCE)
    if isinstance(node, LogicalProject | LogicalFilter):
        below = _held(node.input, tables, query, ends=ends)
        return None if below is None else replace(node, input=below)
    return None
