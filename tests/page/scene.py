"""A job for its status page: the plan of an example with invented counters of its tasks."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from rowkind.avro.codec import encode
from rowkind.avro.schema import Record
from rowkind.operators.changelog import RowKind
from rowkind.service.execute.metrics import sample
from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.kafka.dead_letter import DeadLetter
from rowkind.service.kafka.errors import AppendOnlyError
from rowkind.service.kafka.lag import Lag
from rowkind.service.kafka.progress import BatchPartition
from rowkind.service.kafka.sink import Counted
from rowkind.service.kafka.written_sample import SampledRows, WrittenSample
from rowkind.service.monitoring.activity import edges
from rowkind.service.monitoring.incidents import incident
from rowkind.service.monitoring.monitor import Monitor
from rowkind.service.physical.node import PhysicalSink
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
    queries = planned(of)
    for plan in plans(of):
        sinks = queries[plan.name].sinks
        monitor.add(plan.name, replace(plan), None, tasks=2, records={sink.name: sink.value for sink in sinks})
        yesterday(monitor, plan.name, chance)
        for number in range(batches):
            monitor.progress(plan.name, progress(number, chance.randint(180, 900)))
            counted = Counted(_carried(plan, number, chance, calm), _written(plan, chance), [_sample(sinks, number)])
            monitor.collect(plan.name, [Report(BatchPartition("c", number, 0), counted)])
        topics = {step.value("topic") for sink in plan.sinks for step in sink.root.walk() if step.kind == "scan"}
        monitor.lags(plan.name, {(topic, 0): Lag(480_000, 95.0, 480_000) for topic in sorted(topics)})
    return monitor


def yesterday(monitor: Monitor, query: str, chance: random.Random) -> None:
    """Give a query a day of history, with more rows at noon, a deploy that paused it, and a lag after that."""
    history = monitor._queries[query].activity.history
    now = time.time()
    for ago in [*range(86_400, 3_600, -300), *range(3_600, 10, -10)]:
        at, seconds = now - ago, 300 if ago > 3_600 else 10
        if 30_000 < ago < 32_000:
            continue
        load = 3_000 * (1 + 0.6 * math.sin(ago / 13_750)) * chance.uniform(0.9, 1.1)
        lag = max(0.0, 250_000 - (31_000 - ago) * 60) if ago < 31_000 else load * 0.4
        history.add("read", load * seconds, at)
        history.add("written", load * seconds * 0.6, at)
        history.add("busy", 2 * seconds * min(0.95, load / 6_000), at)
        history.raise_to("lag_rows", lag + load * 0.4, at)
        history.raise_to("lag_seconds", lag / load + chance.uniform(0.5, 1.5), at)
        history.raise_to("state_rows", 900_000 - ago * 8, at)
        history.raise_to("state_bytes", (900_000 - ago * 8) * 61, at)
        for _ in range(20):
            history.observe(chance.expovariate(2) + 0.3 + lag / load, 1, at)


def _sample(sinks: Sequence[PhysicalSink], number: int) -> WrittenSample:
    """Return invented last changes of each sink, and a dead letter."""
    rows: dict[str, SampledRows] = {}
    for sink in sinks:
        kinds = [RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE]
        made = [generated(sink.value, number * len(kinds) + at) for at in range(len(kinds))]
        columns = {
            field.name: pa.array([row[field.name] for row in made], field.type.arrow) for field in sink.value.fields
        }
        rows[sink.name] = list(zip(map(int, kinds), encode(sink.value, columns).to_pylist(), strict=True))
    reason = "column amount: 'twelve' is not a DECIMAL(10, 2)"
    letter = DeadLetter("orders", "value", "ValueProblem", reason, "orders", 1, 4_711 + number)
    return WrittenSample(rows, [letter] if number < 3 else [])


def generated(record: Record, number: int) -> dict[str, Any]:
    """Return a row with invented values."""
    return {field.name: _value(field.type.sql, number) for field in record.fields}


def _value(sql: str, number: int) -> Any:
    match sql.partition("(")[0]:
        case "STRING":
            return ("Ada", "Grace", "Zoë", "Linus", "a customer with a rather long name")[number % 5]
        case "TINYINT" | "SMALLINT" | "INT" | "BIGINT":
            return number
        case "FLOAT" | "DOUBLE":
            return number / 4
        case "DECIMAL":
            return Decimal(number)
        case "BOOLEAN":
            return number % 2 == 0
        case "TIMESTAMP" | "TIMESTAMP_NTZ":
            return datetime(2026, 1, 1, 12, tzinfo=UTC) + timedelta(seconds=number)
        case "DATE":
            return date(2026, 1, 1)
        case _:
            return None


def many(queries: int) -> Monitor:
    """Return the monitor of a job with this many queries, which differ only in their names."""
    of = job()
    monitor = Monitor("many", "0.1.0", "4.3.0", "17.0.15")
    chance = random.Random(7)
    (plan,) = plans(of)
    (query,) = planned(of).values()
    records = {sink.name: sink.value for sink in query.sinks}
    for place in range(queries):
        name = f"query-{place:02}"
        monitor.add(name, replace(plan, name=name), None, tasks=2, records=records)
        yesterday(monitor, name, chance)
        for number in range(10):
            monitor.progress(name, progress(number, chance.randint(180, 900)))
            counted = Counted(
                _carried(plan, number, chance, frozenset()), _written(plan, chance), [_sample(query.sinks, number)]
            )
            monitor.collect(name, [Report(BatchPartition("c", number, 0), counted)])
        monitor.lags(name, {("orders", 0): Lag(place * 1_000, place * 2.0, 480_000)})
    return monitor


def troubled(of: Job) -> Monitor:
    """Return the same monitor with a failed query, after an outage and dead letters."""
    monitor = lively(of)
    name = plans(of)[0].name
    now = time.time()
    line = monitor._timeline
    line.begin("outage", "", "Kafka does not answer", now - 52_000)
    line.end("outage", "", now - 50_900)
    monitor.outage()
    monitor.outage_ended()
    line.begin("restart", name, "the machine was too busy to start a worker in time", now - 30_000)
    line.end("restart", name, now - 29_400)
    line.mark("rebuild", name, "topic order-payments has lost records", now - 12_000)
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
    counters: dict[str, float] = {sample("rowkind_read_seconds_total", stage="decode"): 0.12}
    for source, target in edges(plan):
        counters[sample("rowkind_edge_rows_total", source=source, target=target)] = chance.randint(ROWS // 3, ROWS)
    for sink in plan.sinks:
        for step in sink.root.walk():
            if step.kind == "scan":
                table = step.value("table")
                counters[sample("rowkind_rows_in_total", table=table, kind="+I")] = chance.randint(ROWS, 2 * ROWS)
                counters[sample("rowkind_watermark_timestamp_seconds", table=table)] = 1_767_225_600 + batch
                counters[sample("rowkind_watermark_lag_seconds", table=table)] = 6.5
                counters[sample("rowkind_latency_seconds", table=table, made=int(time.time() * 1000) - 900)] = 40
                if batch == 3:
                    counters[sample("rowkind_dead_letters_total", table=table, reason="value")] = 17
            elif step.kind not in ("sink", "union") and step.same_as is None:
                labels = {"sink": sink.root.name, "operator": step.name}
                counters[sample("rowkind_operator_rows_in_total", **labels, kind="+I")] = 2 * ROWS
                counters[sample("rowkind_operator_rows_out_total", **labels, kind="+U")] = ROWS
                seconds = chance.choice((0.01, 0.05, 0.2))
                counters[sample("rowkind_operator_seconds_total", **labels, stage="operator")] = seconds
                counters[sample("rowkind_late_rows_total", **labels)] = float(batch == 5 and sink.root.name not in calm)
                for shard in range(SHARDS):
                    rows = ROWS * (batch + 1) * (5 if shard == HOT and sink.root.name not in calm else 1)
                    counters[sample("rowkind_state_rows", **labels, shard=shard)] = rows
                    counters[sample("rowkind_state_bytes", **labels, shard=shard)] = rows * 61
    return counters


def _written(plan: QueryDescription, chance: random.Random) -> Mapping[str, float]:
    names = (sink.root.name for sink in plan.sinks)
    written = {
        sample("rowkind_rows_out_total", sink=name, kind="+I"): chance.randint(ROWS // 2, ROWS) for name in names
    }
    return written | {sample("rowkind_write_seconds_total", stage="send"): 0.06}
