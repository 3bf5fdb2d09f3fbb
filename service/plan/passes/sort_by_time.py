"""Emit rows in time order if the whole query has an ORDER BY whose first column is derived from a table's time.

A row is buffered until no earlier row can arrive, that is, until the watermark passes its time. `sql.time_order` has
already added a temporal filter below the SELECT list; this pass makes the filter follow the watermark. All rows are in
one shard, because they share a single order. A row that arrives after the watermark has passed its time is late,
because it can no longer be placed in the order. (This is Flink's temporal sort, which also has a parallelism of one.)
"""

from __future__ import annotations

from dataclasses import replace

from rowkind.service.physical.clocks import Closing
from rowkind.service.plan.columns import kept
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.calc import LogicalProject
from rowkind.service.plan.logical.subset import LogicalTemporalFilter
from rowkind.service.plan.passes import delay_until_final
from rowkind.service.plan.passes.delay_until_final import wants_final
from rowkind.service.plan.passes.derive_state_cleanup import passed, timed_tables
from rowkind.service.plan.query import Query
from rowkind.service.plan.traits.changelog_modes import produced
from rowkind.service.plan.traits.event_times import event_times
from rowkind.service.plan.tree import walk

_ORDER = (
    "rows can be sorted only by time: start ORDER BY with the time of a table that has a `watermark`, ascending, or "
    "with a time derived from it, such as window_end. For another order, keep the first rows with LIMIT n, or sort "
    "where the result is read"
)


def sort_by_time(query: Query) -> Query:
    """Release the rows of a query with ORDER BY in time order, as the watermark passes them.

    Raises Refusal if the rows cannot be emitted in that order.

    >>> example(sort_by_time, "SELECT item, price FROM bids ORDER BY at", sink="append")
    TemporalFilter clock=the clock final
      Scan bids
    becomes
    TemporalFilter clock=bids begins=bids.at + 1us final most=500000 input.closing=(bids passes bids.at + 1us)
      Scan bids
    """
    root = query.root
    below = root.input if isinstance(root, LogicalProject) else None
    sorted_ = [node for node in walk(root) if isinstance(node, LogicalTemporalFilter) and node.order]
    if not sorted_:
        return query
    if not isinstance(root, LogicalProject) or below is not sorted_[-1]:
        raise Refusal(
            "ORDER BY cannot be combined with `on_conflict`, because rows that replace each other cannot be moved in "
            "the order once they are emitted: remove one of the two",
            sorted_[-1].at,
        )
    return replace(query, root=replace(root, input=_sorted(sorted_[-1], query)))


def _sorted(node: LogicalTemporalFilter, query: Query) -> LogicalTemporalFilter:
    """Return the filter, changed to release rows in time order. Raises Refusal if that is not possible."""
    below, first = node.input.input, node.order[0]
    time = event_times(below).get(first.column or "")
    found = None if time is None or first.descending else passed(timed_tables(below), str(first.column), time)
    if produced(below) != "append" and not wants_final(below, query):
        raise Refusal(
            "rows of this result change after they are emitted, and can then no longer be moved to their place: set "
            "`emit: final` for a result of windows, keep the first rows with LIMIT n, or sort where the result is read",
            node.at,
        )
    if found is None:
        raise Refusal(_ORDER, node.at)
    clock, begins = found
    if kept(node.input)[begins.column].nullable:
        raise Refusal(
            "this time may be NULL, and a row without a time has no place in the order: remove such rows with "
            "WHERE … IS NOT NULL",
            node.at,
        )
    arrival = next((number for number, each in enumerate(node.order) if each.column is None), len(node.order))
    if arrival < len(node.order) and node.order[arrival].descending:
        raise Refusal("rows with equal times are emitted in order of arrival: remove PROCTIME() DESC", node.at)
    return replace(
        node,
        input=replace(node.input, closing=Closing(clock, begins, begins)),
        clock=clock,
        begins=begins,
        most=delay_until_final.AT_ONCE,
        order=node.order[:arrival],
    )
