"""The reader and the writer in real Spark queries."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from rowkind.avro.registry import FolderRegistry
from rowkind.operators.columns.block import Block
from rowkind.service.dev.broker import Broker
from rowkind.service.execute.metrics import parse
from rowkind.service.kafka.offsets import Offset
from rowkind.service.kafka.spec import OPTION, to_option
from rowkind.service.query.source import SOURCE, KafkaSource
from rowkind.service.query.spark_sink import Reports, TaskWriter
from tests.kafka.sinks import MakeSink, committed, fresh_sink
from tests.kafka.tables import ORDER_KEY, ORDERS, Topic, order, pass_on, scan
from tests.spark.distinct import Distinct, batch_of
from tests.spark.running import Query, alone

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_a_query_copies_a_topic_exactly_once_over_two_runs(
    spark: SparkSession,
    broker: Broker,
    new_topic: Callable[..., str],
    schemas: FolderRegistry,
    tmp_path: Path,
) -> None:
    """Offsets, counters and rows pass through Spark, and a second run continues where the first one stopped."""
    source = Topic(new_topic(2), broker, schemas)
    sink = fresh_sink(broker, new_topic, schemas, partitions=2)
    calc = pass_on(ORDERS)
    calc = replace(calc, key=replace(calc.key, record=ORDER_KEY))
    spec = source.spec(scan(source.name, calc=calc), rows_per_batch=40, rows_per_task=1, labels=(0, 1))
    spark.dataSource.register(KafkaSource)
    reports = Reports(spark)

    def run() -> list[Any]:
        query = (
            TaskWriter(sink.spec, reports)
            .after(spark.readStream.format(SOURCE).option(OPTION, to_option(spec)).load())
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()
        assert query.exception() is None
        return [progress for progress in query.recentProgress if progress["numInputRows"]]

    for partition in (0, 1):
        source.send(*((b"+I", order(2 * i + partition)) for i in range(40)), partition=partition)
    progress = run()
    assert len(progress) == 2
    read = Offset.from_json(json.loads(progress[0]["sources"][0]["endOffset"]))
    assert sum(read.at.values()) == 40
    source.send((b"-D", order(0)), (b"+I", order(80)))
    run()
    kinds = [(kind, row["id"]) for kind, row in sink.ops()]
    assert sorted(kinds) == sorted([("+I", i) for i in range(81)] + [("-D", 0)])
    told = reports.take()
    assert sorted({report.of.batch for report in told}) == [0, 1, 2]
    written = f'rowkind_rows_out_total{{sink="{sink.of.sink}",kind="+I"}}'
    assert sum(report.counted.written.get(written, 0) for report in told) == 81
    read = 'rowkind_rows_in_total{table="orders",kind="+I"}'
    assert sum(report.counted.carried.get(read, 0) for report in told) == 81
    assert reports.take() == []


def test_a_task_that_fails_after_its_transaction_is_done_again_and_writes_nothing_twice(
    spark: SparkSession, make_sink: MakeSink, tmp_path: Path
) -> None:
    """The task fails between its transaction and the commit of its state, so the retry starts from the old state."""
    sink = make_sink(keyed=False)
    reports = Reports(spark)
    spec = replace(sink.spec, sinks={1: sink.of})
    level = alone(
        "distinct", Distinct(), labels=(0, 1), write=_FailsOnce(TaskWriter(spec, reports), tmp_path / "failed")
    )
    query = Query(spark, tmp_path, level, shards=2)
    query.add({0: [Block(batch_of(("+I", "a"), ("+I", "b")))]}, {0: [Block(batch_of(("-D", "a"), start=2))]})
    query.run()
    assert (tmp_path / "failed").exists()
    written = Counter((message.headers()[0][1], message.value()[-1:]) for message in committed(spec.kafka, sink.topic))
    assert written == {(b"+I", b"a"): 1, (b"+I", b"b"): 1, (b"-D", b"a"): 1}
    outcomes: Counter[str] = Counter()
    for report in reports.take():
        for counter, count in report.counted.written.items():
            name, labels = parse(counter)
            if name == "rowkind_transactions_total":
                outcomes[labels["outcome"]] += int(count)
    assert outcomes == {"skipped": 1, "committed": 1}


@dataclass(frozen=True)
class _FailsOnce:
    """Writes, then fails the first time and leaves a marker file."""

    write: TaskWriter
    mark: Path

    def __call__(self, blocks: Sequence[pa.Buffer], now: int) -> None:
        self.write(blocks, now)
        if not self.mark.exists():
            self.mark.touch()
            raise RuntimeError("the task ends here")


def test_a_query_that_speaks_of_empty_topics_has_one_batch_of_them(
    spark: SparkSession,
    broker: Broker,
    new_topic: Callable[..., str],
    schemas: FolderRegistry,
    tmp_path: Path,
) -> None:
    """A block without changes passes through Spark once, and not again in a second run."""
    spec = Topic(new_topic(2), broker, schemas).spec(opens=((0, 1),))
    spark.dataSource.register(KafkaSource)
    batches: list[list[int]] = []

    def collect(frame: DataFrame, number: int) -> None:
        assert number == len(batches)
        blocks = (Block.from_bytes(bytes(row["block"])) for row in frame.collect())
        batches.append([len(block.changes) for block in blocks if not block.extent])

    for _ in range(2):
        source = spark.readStream.format(SOURCE).option(OPTION, to_option(spec)).load()
        writer = source.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()
    assert batches == [[0]]
