"""A job for its status page: the plan of an example with invented counters of its tasks."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rowkind.service.execute.metrics import sample
from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.kafka.errors import AppendOnlyError
from rowkind.service.kafka.lag import Lag
from rowkind.service.kafka.progress import BatchPartition
from rowkind.service.kafka.sink import Counted
from rowkind.service.monitoring.incidents import incident
from rowkind.service.monitoring.monitor import Monitor
from rowkind.service.plan.explain.describe import describe
from rowkind.service.plan.explain.description import QueryDescription
from rowkind.service.query.errors import QueryFailedError
from rowkind.service.query.queries import planned
from rowkind.service.query.spark_sink import Report

EXAMPLES = Path(__file__).parents[2] / "rowkind" / "examples"
ROWS = 1_200
SHARDS = 8
HOT = 3


def job(name: str = "orders-payments") -> Job:
    """Return the job of an example."""
    return load(EXAMPLES / name / "job.yaml")


def plans(of: Job) -> list[QueryDescription]:
    """Return the plans of the job's queries in the page's form."""
    sqls = {name: sink.sql for name, sink in of.sinks.items()}
    return [describe(name, query.sinks, sqls) for name, query in planned(of).items()]


def lively(of: Job, batches: int = 40, *, calm: frozenset[str] = frozenset()) -> Monitor:
    """Return the job's monitor after the given number of batches per query, with some of everything that can be shown.

    In the operators of `calm` sinks no row is late and no shard is hot.
    """
    monitor = Monitor(of.name, "0.1.0", "4.3.0", "17.0.15")
    chance = random.Random(7)
    for plan in plans(of):
        monitor.add(plan.name, replace(plan), None)
        for number in range(batches):
            monitor.progress(plan.name, progress(number, chance.randint(180, 900)))
            counted = Counted(_carried(plan, number, chance, calm), _written(plan, chance))
            monitor.collect(plan.name, [Report(BatchPartition("c", number, 0), counted)])
        topics = {step.value("topic") for sink in plan.sinks for step in sink.root.walk() if step.kind == "scan"}
        monitor.lags(plan.name, {(topic, 0): Lag(480_000, 95.0, 480_000) for topic in sorted(topics)})
    return monitor


def troubled(of: Job) -> Monitor:
    """Return the same monitor with a failed query, after an outage and dead letters."""
    monitor = lively(of)
    name = plans(of)[0].name
    monitor.outage()
    for _ in range(3):
        monitor.waits(name, "Kafka at broker-1:9092 does not answer")
    monitor.warns(
        {"orders": "table orders: 104 of the last 900 records, 11.6 %, were no row: see the dead letter topic."}
    )
    reason = "Sink order_payments: the query retracts a row, but topic order-payments is an append topic"
    failure = QueryFailedError(name, reason, AppendOnlyError)
    monitor.failed(name, str(failure), incident(time.time(), name, failure))
    return monitor


def progress(batch: int, milliseconds: int) -> dict[str, object]:
    """Return Spark's progress of a batch."""
    durations = {"addBatch": milliseconds - 40, "triggerExecution": milliseconds}
    began = datetime.now(UTC).isoformat()
    sources = [{"endOffset": "null"}]
    return {"batchId": batch, "timestamp": began, "durationMs": durations, "stateOperators": [], "sources": sources}


def _carried(plan: QueryDescription, batch: int, chance: random.Random, calm: frozenset[str]) -> Mapping[str, float]:
    counters: dict[str, float] = {}
    for sink in plan.sinks:
        for step in sink.root.walk():
            if step.kind == "scan":
                table = step.value("table")
                counters[sample("rowkind_rows_in_total", table=table, kind="+I")] = chance.randint(ROWS, 2 * ROWS)
                counters[sample("rowkind_watermark_timestamp_seconds", table=table)] = 1_767_225_600 + batch
                counters[sample("rowkind_watermark_lag_seconds", table=table)] = 6.5
                if batch == 3:
                    counters[sample("rowkind_dead_letters_total", table=table, reason="value")] = 17
            elif step.kind not in ("sink", "union") and step.same_as is None:
                labels = {"sink": sink.root.name, "operator": step.name}
                counters[sample("rowkind_operator_rows_in_total", **labels, kind="+I")] = 2 * ROWS
                counters[sample("rowkind_operator_rows_out_total", **labels, kind="+U")] = ROWS
                counters[sample("rowkind_late_rows_total", **labels)] = float(batch == 5 and sink.root.name not in calm)
                for shard in range(SHARDS):
                    rows = ROWS * (batch + 1) * (5 if shard == HOT and sink.root.name not in calm else 1)
                    counters[sample("rowkind_state_rows", **labels, shard=shard)] = rows
                    counters[sample("rowkind_state_bytes", **labels, shard=shard)] = rows * 61
    return counters


def _written(plan: QueryDescription, chance: random.Random) -> Mapping[str, float]:
    names = (sink.root.name for sink in plan.sinks)
    return {sample("rowkind_rows_out_total", sink=name, kind="+I"): chance.randint(ROWS // 2, ROWS) for name in names}
