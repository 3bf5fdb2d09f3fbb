"""The status that a job derives from Spark's progress."""

from __future__ import annotations

import json
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rowkind.service.kafka.errors import UnreachableError
from rowkind.service.kafka.lag import Lag
from rowkind.service.kafka.progress import BatchPartition
from rowkind.service.kafka.sink import Counted
from rowkind.service.monitoring.activity import Activity
from rowkind.service.monitoring.incidents import incident
from rowkind.service.monitoring.monitor import Monitor
from rowkind.service.monitoring.status import JobStatus, Shard, TableStatus
from rowkind.service.plan.explain.description import Description, QueryDescription, Step
from rowkind.service.plan.explain.values import ScanValues, SinkValues
from rowkind.service.query.errors import QueryFailedError
from rowkind.service.query.spark_sink import Report

PROGRESS = {
    "batchId": 55,
    "timestamp": "2026-01-01T00:00:10.000Z",
    "durationMs": {
        "addBatch": 245,
        "commitOffsets": 8,
        "getBatch": 1,
        "latestOffset": 6,
        "queryPlanning": 33,
        "triggerExecution": 303,
        "walCommit": 7,
    },
    "stateOperators": [{"commitTimeMs": 3}, {"commitTimeMs": 2}],
    "sources": [{"endOffset": "null"}],
}
"""The progress of a batch of a join, with two levels."""


READ = 'rowkind_rows_in_total{table="orders",kind="+I"}'
KEPT = 'rowkind_state_rows{sink="s",operator="j",shard="0"}'
ORDERS = ScanValues("orders", "orders-topic", "o", "append", (), exact=False)
SCAN = Step("scan_o", "scan", "table orders", (ORDERS,))
JOIN = Step("j", "join", "INNER JOIN", (), inputs=(SCAN,))
SINK = Step("s", "sink", "append", (SinkValues("s-topic", "append", (), "exactly_once", ()),), inputs=(JOIN,))
PLAN = QueryDescription("main", (Description(SINK, ()),), 1, ("orders",))
WRITTEN = 'rowkind_rows_out_total{sink="s",kind="+I"}'


def test_the_stages_of_a_batch_are_all_of_it() -> None:
    """The stages of a batch, with the remainder, add up to its duration; commits are reported separately."""
    monitor = watched()
    monitor.progress("main", PROGRESS)
    found = samples(monitor)
    stages = {each.labels["stage"]: each.value for each in found if each.name == "rowkind_batch_seconds_total"}
    assert stages == {"source": 0.006, "planning": 0.034, "log": 0.015, "tasks": 0.245, "other": 0.003, "commit": 0.005}
    (duration,) = (each.value for each in found if each.name == "rowkind_batch_duration_seconds_sum")
    assert sum(stages.values()) - stages["commit"] == duration


def test_counters_of_tasks_are_added_and_gauges_kept() -> None:
    """Counters of tasks are added and gauges are kept, once the progress of their batch is known."""
    monitor = watched()
    monitor.progress("main", PROGRESS)
    reports = [report(0, {READ: 5, KEPT: 9}, {WRITTEN: 2}), report(1, {READ: 2}, {WRITTEN: 1}), report(0, {}, {}, 56)]
    monitor.collect("main", reports)
    found = {each.name: each.value for each in samples(monitor)}
    assert found["rowkind_rows_in_total"] == 7
    assert found["rowkind_state_rows"] == 9
    assert found["rowkind_rows_out_total"] == 3


def test_how_far_time_has_come_is_told_to_people() -> None:
    """The watermark of a table and its lag are reported once a query uses it."""
    monitor = watched()
    monitor.progress("main", PROGRESS)
    assert table(monitor).watermark is None
    times = {
        'rowkind_watermark_timestamp_seconds{table="orders"}': 1_767_225_600.25,
        'rowkind_watermark_lag_seconds{table="orders"}': 5_000.5,
    }
    monitor.collect("main", [report(0, times, {})])
    assert table(monitor).watermark == 1_767_225_600.25
    assert table(monitor).watermark_lag == 5_000.5
    assert {each.value for each in samples(monitor) if "watermark" in each.name} == set(times.values())


def test_what_rode_along_in_a_batch_that_is_done_again_counts_once() -> None:
    """Rows out are counted at once; the other counters of a repeated batch are counted from its last attempt."""
    monitor = watched()
    monitor.collect("main", [report(0, {READ: 5}, {WRITTEN: 2})])
    before = {each.name: each.value for each in samples(monitor)}
    assert before["rowkind_rows_out_total"] == 2
    assert "rowkind_rows_in_total" not in before
    monitor.progress("main", PROGRESS)
    monitor.collect("main", [report(0, {READ: 5}, {})])
    found = {each.name: each.value for each in samples(monitor)}
    assert found["rowkind_rows_out_total"] == 2
    assert found["rowkind_rows_in_total"] == 5


def test_a_query_is_ready_once_it_writes_where_it_belongs() -> None:
    """A query is not ready, with a reason, while it fills its state or waits to be restarted."""
    monitor = watched()
    assert not monitor.ready()
    monitor.fills("main", filling=True)
    monitor.progress("main", PROGRESS)
    assert not monitor.ready()
    assert monitor.reason() == "query main is filling its state before it writes"
    (shown,) = monitor.status().queries
    assert shown.state == "filling"
    monitor.fills("main", filling=False)
    assert monitor.ready()
    monitor.all_wait("Spark was lost")
    assert not monitor.ready()
    assert monitor.reason() == "query main is waiting: Spark was lost"


def test_lag_is_told_of_every_partition_and_for_people() -> None:
    """Lag is reported per partition, also before the first batch; the status page shows the sum and the oldest row."""
    monitor = watched()
    assert monitor.position("main") is None
    monitor.lags("main", {("orders", 0): Lag(3, 12.4, 3), ("orders", 1): Lag(2, 70.0, 2)})
    found = {(each.name, each.labels["partition"]): each.value for each in samples(monitor) if "_lag_" in each.name}
    assert found == {
        ("rowkind_lag_rows", "0"): 3,
        ("rowkind_lag_rows", "1"): 2,
        ("rowkind_lag_seconds", "0"): 12.4,
        ("rowkind_lag_seconds", "1"): 70,
    }
    (shown,) = monitor.status().queries
    assert (shown.lag_rows, shown.lag_seconds) == (5, 70)


def test_what_a_batch_has_read_is_not_left_to_be_read() -> None:
    """The end of a batch reduces the lag, even if the lag was measured before."""
    monitor = watched()
    before = {("orders", 0): Lag(3, 415.4, 10), ("orders", 1): Lag(4, 70.0, 4)}
    monitor.lags("main", before)
    end = {"orders": {"id": "x", "at": {"0": 10, "1": 1}}}
    monitor.progress("main", PROGRESS | {"sources": [{"endOffset": json.dumps(end)}]})
    (shown,) = monitor.status().queries
    assert (shown.lag_rows, shown.lag_seconds) == (3, 70)
    monitor.lags("main", before)
    (shown,) = monitor.status().queries
    assert (shown.lag_rows, shown.lag_seconds) == (3, 70)
    assert {each.value for each in samples(monitor) if each.name == "rowkind_lag_rows"} == {0, 3}


def test_a_shard_is_hot_only_where_it_keeps_something() -> None:
    """A shard with twice the mean is hot only if it has many rows."""
    assert not Shard(0, 2, 2.0).hot
    assert not Shard(0, 2, 2.0).tells
    assert Shard(0, 2_000, 2.0).hot
    assert not Shard(0, 2_000, 1.9).hot


def test_a_query_that_begins_anew_counts_anew() -> None:
    """A query that starts again without a checkpoint is counted from the start; a restarted one keeps its counters."""
    monitor = watched()
    end = {"orders": {"id": "x", "at": {"0": 7}}}
    monitor.progress("main", PROGRESS | {"sources": [{"endOffset": json.dumps(end)}]})
    monitor.add("main", PLAN, {("orders", 0): 7})
    assert monitor.position("main") == {("orders", 0): 7}
    monitor.progress("main", PROGRESS | {"batchId": 0})
    assert next(each.value for each in samples(monitor) if each.name == "rowkind_batch_id") == 55
    monitor.add("main", PLAN, None)
    monitor.progress("main", PROGRESS | {"batchId": 0})
    assert next(each.value for each in samples(monitor) if each.name == "rowkind_batch_id") == 0


def test_the_steps_of_the_plan_have_what_was_counted_for_them() -> None:
    """Tables, operators and sinks of the status have their own counters, and each batch has those of its tasks."""
    monitor = watched()
    monitor.progress("main", PROGRESS)
    kept = {
        f'rowkind_state_rows{{sink="s",operator="j",shard="{shard}"}}': rows for shard, rows in enumerate((1, 7, 1))
    }
    late = {'rowkind_late_rows_total{sink="s",operator="j"}': 3}
    monitor.collect("main", [report(0, {READ: 6} | kept | late, {WRITTEN: 2}), report(0, {READ: 1}, {WRITTEN: 1}, 56)])
    monitor.lags("main", {("orders-topic", 0): Lag(5, 2.5, 5), ("orders-topic", 1): Lag(4, 1.5, 4)})
    (query,) = monitor.status().queries
    (orders,), (join,), (sink,) = query.tables, query.operators, query.sinks
    assert (orders.read.rows, orders.lag_rows, orders.lag_seconds) == (6, 9, 2.5)
    assert (join.kind, join.state_rows, join.hottest, join.late) == ("join", 9, Shard(1, 7, 7 / 3), 3)
    assert sink.written.rows == 3
    (ratio,) = (each for each in samples(monitor) if each.name == "rowkind_state_hottest_shard_ratio")
    assert ratio.value == 7 / 3
    assert ratio.labels == {"name": "job", "sink": "s", "operator": "j"}
    assert [(batch.number, batch.rows_in, batch.rows_out) for batch in query.batches] == [(55, 6, 2)]
    assert query.left == pytest.approx(9 / query.read.rate)


def test_a_failed_query_says_why_and_what_to_do() -> None:
    """A failed query has a reason and a remedy on the page and in the probes, and repeated incidents are counted."""
    monitor = watched()
    monitor.waits("main", "Kafka does not answer")
    monitor.waits("main", "Kafka does not answer")
    failure = QueryFailedError("main", "no broker answers", UnreachableError)
    monitor.failed("main", str(failure), incident(0, "main", failure))
    status = monitor.status()
    (query,) = status.queries
    assert query.state == "failed"
    assert "no broker answers" in query.reason
    assert "no broker answers" in monitor.reason()
    newest, before = status.incidents
    assert newest.what == "no broker answers"
    assert newest.remedy.startswith("Check that Kafka is running, its address, and the network. Its batch was not")
    assert (before.what, before.times) == ("Kafka does not answer", 2)


def test_work_that_takes_long_is_told_while_it_does() -> None:
    """Long work is shown while it runs, with the estimated remaining time once the total is known."""
    monitor = watched()
    with monitor.works.work("copies a savepoint", "files") as told:
        told(5, None)
        (work,) = monitor.status().work
        assert work.left(work.since + 10) is None
        told(5, 20)
        (work,) = monitor.status().work
        assert work.left(work.since + 10) == 30
    assert not monitor.status().work


def test_the_graph_has_rates_and_shares_of_time() -> None:
    """Edges have the rows that passed on them, and operators, reading and writing their shares of the task time."""
    monitor = Monitor("job", "1", "4", "17")
    monitor.add("main", PLAN, None, tasks=4)
    monitor.progress("main", PROGRESS)
    sent = {
        'rowkind_edge_rows_total{source="orders",target="s.j"}': 4,
        'rowkind_edge_rows_total{source="s.j",target="s"}': 3,
    }
    spent = {
        'rowkind_operator_seconds_total{sink="s",operator="j",stage="state"}': 0.5,
        'rowkind_operator_seconds_total{sink="s",operator="j",stage="operator"}': 0.5,
        'rowkind_read_seconds_total{stage="decode"}': 0.4,
    }
    wrote = {'rowkind_write_seconds_total{query="main",stage="send"}': 40.0}
    monitor.collect("main", [report(0, sent | spent, wrote)])
    (query,) = monitor.status().queries
    assert [(each.source, each.target, each.sent.rows) for each in query.edges] == [
        ("s.j", "s", 3),
        ("orders", "s.j", 4),
    ]
    (join,) = query.operators
    # The query began less than a second ago, which counts as a second.
    assert (join.busy, query.reading, query.writing) == pytest.approx((0.25, 0.1, 1.0), rel=0.3)
    assert query.busy == 1


def test_a_long_batch_does_not_look_idle() -> None:
    """A batch's rows arrive at its end. If batches take minutes, rates are means over two of them."""
    activity = Activity(0, 1, {})
    for number, ended in enumerate((100.0, 200.0, 300.0)):
        activity.batch(number, 100.0, ended)
        activity.count(number, {READ: 1_000}, ended)
    assert activity.ranges(310)[0].series("read")[-20:-2] == pytest.approx([10] * 18, rel=0.1)
    for now in (301, 350, 395):
        assert activity.status("running", "", PLAN, {}, now).read.rate == 10


def test_the_history_outlives_a_restart() -> None:
    """A query that continues after a restart keeps its history, and one that begins again from scratch does not."""
    monitor = watched()
    monitor._queries["main"].activity.history.add("read", 50, monitor.status().at - 20)
    monitor.waits("main", "Kafka does not answer")
    monitor.add("main", PLAN, {("orders", 0): 7})
    assert 5 in monitor.history()["main"][0].series("read")
    monitor.add("main", PLAN, None)
    assert 5 not in monitor.history()["main"][0].series("read")


def test_incidents_are_on_a_time_line() -> None:
    """A restart lasts until the next progress, an outage until Kafka answers, and a warning until it is withdrawn."""
    monitor = watched()
    monitor.outage()
    monitor.waits("main", "Kafka does not answer")
    monitor.warns({"orders": "table orders: many dead letters"})
    assert {each.kind: each.ended is None for each in monitor.status().spans} == {
        "start": False,
        "outage": True,
        "restart": True,
        "warning": True,
    }
    monitor.outage_ended()
    monitor.progress("main", PROGRESS)
    monitor.warns({})
    assert all(each.ended is not None for each in monitor.status().spans)


def test_the_status_survives_json() -> None:
    """The status survives JSON."""
    monitor = watched()
    monitor.progress("main", PROGRESS)
    monitor.collect("main", [report(0, {READ: 6, KEPT: 9}, {WRITTEN: 2})])
    monitor.waits("main", "Kafka does not answer")
    with monitor.works.work("copies a savepoint", "files"):
        status = monitor.status()
    assert JobStatus.from_json(status.to_json()) == status


def watched() -> Monitor:
    """Return the monitor of a job with one query."""
    monitor = Monitor("job", "1", "4", "17")
    monitor.add("main", PLAN, None)
    return monitor


def report(partition: int, carried: dict[str, float], written: dict[str, float], batch: int = 55) -> Report:
    """Return the report of a task of the batch."""
    return Report(BatchPartition("c", batch, partition), Counted(carried, written))


def table(monitor: Monitor) -> TableStatus:
    """Return the status of the only table."""
    return monitor.status().queries[0].tables[0]


def samples(monitor: Monitor) -> list[Any]:
    """Return all samples that Prometheus would scrape."""
    families = text_string_to_metric_families(monitor.exposition().decode())
    return [sample for family in families for sample in family.samples]
