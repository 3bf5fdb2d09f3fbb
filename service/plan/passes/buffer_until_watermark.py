"""Buffer the input rows of OVER and ranks until the watermark passes them, so that their results are final.

A temporal filter below the operator buffers each row until no further row with an earlier or equal time can arrive, and
releases rows in time order, as an ORDER BY by time does. No further row can then arrive between released rows, so a
frame that ends with the current row or with its peers is complete (Flink's append OVER). A frame that looks ahead by
time is complete once the watermark has passed that time, which `delay_until_final` waits for above the Over. A frame
that looks ahead by rows is not handled here, because it may wait indefinitely. Row numbers do not change either, so the
first rows of a partition remain first (Flink's first-row deduplication).

All rows of a partition are in one shard, so they remain in order even if more rows are due than one batch releases. The
pass applies if the sink accepts only final rows, and below row patterns, whose input rows must not change. It does not
apply if `allowed_lateness` admits late rows, or if a partition column is a window's time: a window is final as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from rowkind.service.physical.clocks import Closing
from rowkind.service.plan.calls import LogicalWindowCall
from rowkind.service.plan.columns import kept
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.node import LogicalInput
from rowkind.service.plan.logical.per_row import LogicalOver
from rowkind.service.plan.logical.subset import LogicalRank, LogicalTemporalFilter
from rowkind.service.plan.passes import delay_until_final
from rowkind.service.plan.passes.apply_allowed_lateness import allowed_ms
from rowkind.service.plan.passes.delay_until_final import wants_final, where_final
from rowkind.service.plan.passes.derive_state_cleanup import Tables, passed, timed_tables
from rowkind.service.plan.query import Query
from rowkind.service.plan.traits.event_times import event_times
from rowkind.service.plan.tree import Rules, changed


def buffer_until_watermark(query: Query) -> Query:
    """Buffer rows until the watermark passes them, below operators that order by time and must emit final rows.

    Raises Refusal if the time may be NULL.

    >>> example(buffer_until_watermark, '''
    ...     SELECT item, LAG(price) OVER (PARTITION BY item ORDER BY at) AS before FROM bids''',
    ...     sink="append")
    Scan bids
    becomes
    TemporalFilter clock=bids begins=bids.at + 1us final most=500000 input.closing=(bids passes bids.at + 1us)
        partition=[bids.item]
      Scan bids
    """
    other = ", or set `emit: changes` and give the sink mode retract or upsert" * wants_final(query.root, query)
    tables = timed_tables(query.root)
    rules: Rules = {LogicalOver: partial(_over, tables, other), LogicalRank: partial(_rank, tables, other)}
    return replace(query, root=where_final(query, partial(changed, rules)))


def _over(tables: Tables, other: str, node: LogicalOver) -> LogicalOver:
    ahead = _ahead(node.calls.values())
    side = None if ahead is None else _in_time(tables, other, node)
    return node if side is None else replace(node, input=side, ahead=ahead)


def _rank(tables: Tables, other: str, node: LogicalRank) -> LogicalRank:
    side = _in_time(tables, other, node)
    return node if side is None else replace(node, input=side, in_time=True)


def _in_time(tables: Tables, other: str, node: LogicalOver | LogicalRank) -> LogicalInput | None:
    """Return the node's input with rows in the time order that the node requires; None if it requires no such order.

    Raises Refusal if the time may be NULL. `other` is an additional remedy for the message.
    """
    if not node.order or node.order[0].descending:
        return None
    below, first = node.input.input, node.order[0].column
    times = event_times(below)
    if first not in times or any(name in times and passed(tables, name, times[name]) for name in node.partition):
        return None
    found = passed(tables, first, times[first])
    if found is None or allowed_ms(tables, found[0]):
        return None
    clock, begins = found
    if kept(node.input)[first].nullable:
        raise Refusal(
            "this time may be NULL, and no watermark passes a row without a time: remove such rows with "
            f"WHERE … IS NOT NULL{other}",
            node.at,
        )
    held = LogicalTemporalFilter(
        LogicalInput(below, closing=Closing(clock, begins, begins)),
        clock,
        begins,
        None,
        final=True,
        reason="rows are released in time order, so that their results do not change later",
        at=node.at,
        most=delay_until_final.AT_ONCE,
        partition=node.partition,
    )
    return replace(node.input, input=held)


def _ahead(calls: Iterable[LogicalWindowCall]) -> int | None:
    """Return how long after a row's time its results may change, in microseconds; None if there is no limit."""
    ends = [(call.frame.kind, call.frame.end) for call in calls]
    if any(end is None or (kind == "rows" and end > 0) for kind, end in ends):
        return None
    return max(0, *(end for _, end in ends if end is not None))
