"""A query's counters that start at 0 before anything is counted.

Prometheus computes growth between two values. If a counter first appeared with a value above 0, Prometheus would see no
growth, so the first dead letter would not raise an alert. Among the counters by row kind, only the one for new rows
starts at 0: `+I`, or `+U` for an upsert sink. Counters of the other kinds appear with their first row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.block import Counters
from rowkind.service.execute.lateness import may_be_late
from rowkind.service.execute.metrics import sample
from rowkind.service.execute.promises import Promise
from rowkind.service.kafka.dead_letter import EXPRESSION, READING
from rowkind.service.physical.graph import Graph


def births(graph: Graph) -> Counters:
    """Return a query's initial counters, all with the value 0."""
    return dict.fromkeys(_samples(graph), 0.0)


def _samples(graph: Graph) -> Iterator[str]:
    kind = RowKind.INSERT.symbol
    for scan in graph.scans:
        table = scan.scan.source.table
        yield sample("rowkind_rows_in_total", table=table, kind=kind)
        yield sample("rowkind_bytes_in_total", table=table)
        yield from (sample("rowkind_dead_letters_total", table=table, reason=each) for each in (*READING, EXPRESSION))
        yield from (sample("rowkind_broken_promises_total", table=table, promise=each) for each in get_args(Promise))
    for operator in graph.operators:
        of = {"sink": operator.sink, "operator": operator.node.node}
        yield sample("rowkind_operator_rows_in_total", **of, kind=kind)
        yield sample("rowkind_operator_rows_out_total", **of, kind=kind)
        yield sample("rowkind_operator_refreshes_total", **of)
        yield sample("rowkind_unmatched_retractions_total", **of)
        yield sample("rowkind_expired_retractions_total", **of)
        yield sample("rowkind_failed_rows_total", **of)
        if may_be_late(operator.node):
            yield sample("rowkind_late_rows_total", **of)
    for sink in graph.sinks:
        written = RowKind.UPDATE_AFTER.symbol if sink.mode == "upsert" else kind
        yield sample("rowkind_rows_out_total", sink=sink.name, kind=written)
        yield sample("rowkind_bytes_out_total", sink=sink.name)
    yield sample("rowkind_dead_letters_written_total")
    yield from (sample("rowkind_transactions_total", outcome=each) for each in ("committed", "skipped", "retried"))
