"""The order of arrival as an order of time, where rows have to come once: OVER and ORDER BY by PROCTIME().

    SELECT id, SUM(v) OVER (PARTITION BY k ORDER BY PROCTIME() ROWS 2 PRECEDING) FROM a        into an append sink

A row gets the time of its batch as a column, as where `PROCTIME() AS p` is selected and ordered by; those of one batch
stand as they came. Arrival numbers alone do not do: of several partitions one may be behind, and its next row then has
a place among those that are out.
"""

from __future__ import annotations

from dataclasses import replace

from rowkind.service.plan.calls import OrderColumn
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical import LogicalInput, LogicalNode, LogicalOver, LogicalStamp, LogicalTemporalFilter
from rowkind.service.plan.passes.hold_back import where_final
from rowkind.service.plan.query import Query
from rowkind.service.plan.traits.changelog_modes import produced
from rowkind.service.plan.tree import bottom_up


def stamp_arrivals(query: Query) -> Query:
    """The query with the time of arrival in its order, where rows only come below and they are to come once."""
    root = where_final(query, lambda node: _stamped(node) if isinstance(node, LogicalOver) else node)
    return replace(query, root=bottom_up(root, _in_order))


def _in_order(node: LogicalNode) -> LogicalNode:
    return _stamped(node) if isinstance(node, LogicalTemporalFilter) and node.order else node


def _stamped(node: LogicalOver | LogicalTemporalFilter) -> LogicalNode:
    below, first = node.input.input, node.order[0]
    if first.column is not None or first.descending or produced(below) != "append":
        return node
    time = "proctime"
    while time in columns(below):
        time += "_"
    stamped = LogicalInput(LogicalStamp(LogicalInput(below), time, node.at))
    return replace(node, input=stamped, order=(OrderColumn(time), first))
