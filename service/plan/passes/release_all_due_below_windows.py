"""Below an operator that closes by the same watermark, release all rows that are due in one batch.

A temporal filter releases a limited number of rows at a time (`delay_until_final.AT_ONCE`), and the remaining rows in
the next batches. By then, a downstream window may have been closed, so that the remaining rows would be late, or would
start the window again. The limit is kept for the filter directly below the sink, and for the filter below an OVER or a
rank whose rows go to the sink.
"""

from __future__ import annotations

from dataclasses import replace

from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.logical.subset import LogicalTemporalFilter
from rowkind.service.plan.query import Query
from rowkind.service.plan.tree import sides, with_inputs


def release_all_due_below_windows(query: Query) -> Query:
    """Remove the limit on how many rows temporal filters release at a time, below operators that close by time.

    >>> example(release_all_due_below_windows, '''
    ...     SELECT item, SUM(price) OVER (
    ...         PARTITION BY item ORDER BY at RANGE BETWEEN CURRENT ROW AND INTERVAL '1' MINUTE FOLLOWING) AS s
    ...     FROM bids''',
    ...     sink="append")
    TemporalFilter clock=bids begins=bids.at + 1us final most=500000
      Scan bids
    becomes
    TemporalFilter clock=bids begins=bids.at + 1us final
      Scan bids
    """
    return replace(query, root=_visit(query.root, closes=False))


def _visit(node: LogicalNode, *, closes: bool) -> LogicalNode:
    if closes and isinstance(node, LogicalTemporalFilter):
        node = replace(node, most=None)
    closes = closes or _closes(node)
    return with_inputs(node, lambda below: _visit(below, closes=closes))


def _closes(node: LogicalNode) -> bool:
    ends = isinstance(node, LogicalAggregate) and node.ending is not None
    return ends or any(side.closing is not None for side in sides(node))
