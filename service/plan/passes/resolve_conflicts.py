"""Keep one row per key for an upsert sink whose key does not identify rows, if the job says which row to keep.

`on_conflict: last` keeps the row that arrived last, `first` the row that arrived first. The pass adds ROW_NUMBER() = 1
by arrival. So if the kept row is deleted, the next row takes its place. (Flink's SinkUpsertMaterializer keeps the last
row.)
"""

from __future__ import annotations

from dataclasses import replace

from rowkind.operators.rank.ranking import Ranking
from rowkind.service.physical.aggregation import OrderColumn
from rowkind.service.plan.logical.calc import LogicalProject
from rowkind.service.plan.logical.node import LogicalInput
from rowkind.service.plan.logical.subset import LogicalRank
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.traits.unique_keys import unique_keys


def resolve_conflicts(query: Query) -> Query:
    """Add a rank below an upsert sink whose key several rows may share, if `on_conflict` says which row wins.

    >>> example(resolve_conflicts, "SELECT customer_id, status FROM orders",
    ...     sink="upsert (customer_id)", on_conflict="last")
    Project customer_id: orders.customer_id, status: orders.status
    becomes
    Project …
      Rank row_number 1..1 partition=[customer_id] order=[PROCTIME() DESC]
        Project customer_id: orders.customer_id, status: orders.status
    """
    sink = query.sink
    known = set(sink.key) <= set(query.outputs)
    if sink.on_conflict == "refuse" or not known or any(key <= set(sink.key) for key in unique_keys(query.root)):
        return query
    last = sink.on_conflict == "last"
    rank = LogicalRank(
        input=LogicalInput(query.root),
        ranking=Ranking("row_number", 1, 1, "latest first" if last else "earliest first"),
        partition=sink.key,
        order=(OrderColumn(None, descending=last),),
        numbers={},
        at=query.select,
    )
    return replace(query, root=LogicalProject(rank, {name: resolved(name) for name in query.outputs}))
