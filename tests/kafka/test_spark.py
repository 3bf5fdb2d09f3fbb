"""The reader and the writer under Spark's real data source API."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from rowkind.avro.registry import FolderRegistry
from rowkind.operators.columns.changes import Block
from rowkind.service.dev.broker import Broker
from rowkind.service.kafka.offsets import lag
from rowkind.service.kafka.spec import OPTION, to_option
from rowkind.service.run.data_sources import SINK, SOURCE, KafkaSink, KafkaSource
from tests.kafka.sinks import fresh_sink
from tests.kafka.tables import ORDER_KEY, ORDERS, Topic, order, pass_on, scan

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_a_query_copies_a_topic_exactly_once_over_two_runs(
    spark: SparkSession,
    broker: Broker,
    new_topic: Callable[..., str],
    schemas: FolderRegistry,
    tmp_path: Path,
) -> None:
    """Offsets, lag, counters and rows come through Spark; a second run goes on where the first one stopped."""
    source = Topic(new_topic(2), broker, schemas)
    sink = fresh_sink(broker, new_topic, schemas, tmp_path, partitions=2)
    calc = pass_on(ORDERS)
    calc = replace(calc, key=replace(calc.key, record=ORDER_KEY))
    spec = source.spec(scan(source.name, calc=calc), rows_per_batch=40, rows_per_task=1, labels=(0, 1))
    spark.dataSource.register(KafkaSource)
    spark.dataSource.register(KafkaSink)

    def run() -> list[Any]:
        query = (
            spark.readStream.format(SOURCE)
            .option(OPTION, to_option(spec))
            .load()
            .writeStream.format(SINK)
            .option(OPTION, to_option(sink.spec))
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
    last = progress[-1]["sources"][0]
    assert lag(json.loads(progress[0]["sources"][0]["endOffset"]), json.loads(last["latestOffset"])) == {
        (source.name, 0): 20,
        (source.name, 1): 20,
    }
    source.send((b"-D", order(0)), (b"+I", order(80)))
    run()
    kinds = [(kind, row["id"]) for kind, row in sink.ops()]
    assert sorted(kinds) == sorted([("+I", i) for i in range(81)] + [("-D", 0)])
    reports = [json.loads(path.read_text()) for path in sorted((tmp_path / "reports").glob("*.json"))]
    assert [report["batch"] for report in reports] == [0, 1, 2]
    written = f'rowkind_rows_out_total{{sink="{sink.of.sink}",kind="+I"}}'
    assert sum(report["counters"][written] for report in reports) == 81
    assert sum(report["counters"]['rowkind_rows_in_total{table="orders",kind="+I"}'] for report in reports) == 81


def test_a_query_that_speaks_of_empty_topics_has_one_batch_of_them(
    spark: SparkSession,
    broker: Broker,
    new_topic: Callable[..., str],
    schemas: FolderRegistry,
    tmp_path: Path,
) -> None:
    """A block without changes comes through Spark once, and not again in a second run."""
    spec = Topic(new_topic(2), broker, schemas).spec(opens=((0, 1),))
    spark.dataSource.register(KafkaSource)
    batches: list[list[int]] = []

    def collect(frame: DataFrame, number: int) -> None:
        assert number == len(batches)
        batches.append([len(Block.from_bytes(bytes(row["block"])).changes) for row in frame.collect()])

    for _ in range(2):
        source = spark.readStream.format(SOURCE).option(OPTION, to_option(spec)).load()
        writer = source.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()
    assert batches == [[0]]
