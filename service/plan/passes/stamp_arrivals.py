"""Order rows by processing time where OVER, ORDER BY or a first-row rank uses arrival order and must be final.

    SELECT id, SUM(v) OVER (PARTITION BY k ORDER BY PROCTIME() ROWS 2 PRECEDING) FROM a        into an append sink
    SELECT … ROW_NUMBER() OVER (PARTITION BY k ORDER BY PROCTIME()) AS n … WHERE n = 1         into an append sink

Each row gets the time of its batch as a column, as if the query selected `PROCTIME() AS p` and ordered rows by `p`.
Within a batch, rows are ordered by their arrival numbers. Arrival numbers alone are not enough: if one of several
partitions lags behind, or if rows wait for a watermark, a later row may have a lower number than rows that have been
emitted. Rows of a SELECT DISTINCT are ordered here by the arrival of each row's first record, not by their group
columns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from rowkind.service.physical.aggregation import OrderColumn
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.logical.per_row import LogicalOver, LogicalStamp
from rowkind.service.plan.logical.subset import LogicalRank, LogicalTemporalFilter
from rowkind.service.plan.passes.delay_until_final import below_matches, where_final
from rowkind.service.plan.query import Query
from rowkind.service.plan.traits.changelog_modes import produced
from rowkind.service.plan.tree import bottom_up

_Ordered = TypeVar("_Ordered", LogicalOver, LogicalRank, LogicalTemporalFilter)


def stamp_arrivals(query: Query) -> Query:
    """Stamp rows with their processing time if they are only inserted, ordered by arrival, and emitted once.

    >>> example(stamp_arrivals, "SELECT page FROM clicks ORDER BY PROCTIME()", sink="append")
    TemporalFilter clock=the clock final order=[PROCTIME()]
      Scan clicks
    becomes
    TemporalFilter clock=the clock final order=[proctime, PROCTIME()]
      Stamp time=proctime
        Scan clicks
    """
    root = where_final(query, lambda node: _stamped(node) if isinstance(node, LogicalOver) else node)
    root = bottom_up(root, _first_rows) if query.sink.mode == "append" else below_matches(root, _first_rows)
    return replace(query, root=bottom_up(root, _in_order))


def _first_rows(node: LogicalNode) -> LogicalNode:
    if not isinstance(node, LogicalRank) or not node.order or node.ranking.function != "row_number":
        return node
    stamped = _stamped(node)
    return node if stamped is node else replace(stamped, in_time=True)


def _in_order(node: LogicalNode) -> LogicalNode:
    return _stamped(node) if isinstance(node, LogicalTemporalFilter) and node.order else node


def _stamped(node: _Ordered) -> _Ordered:
    below, first = node.input.input, node.order[0]
    if first.column is not None or first.descending or produced(below) != "append":
        return node
    time = "proctime"
    while time in columns(below):
        time += "_"
    stamped = replace(node.input, input=LogicalStamp(LogicalInput(below), time, node.at), arrival=None, ids=())
    return replace(node, input=stamped, order=(OrderColumn(time), first))
