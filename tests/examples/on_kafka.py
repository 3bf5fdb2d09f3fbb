"""The example jobs on a broker: their changes are written to topics, and all their sinks run as one query."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from rowkind.avro import codec
from rowkind.avro.framing import frame
from rowkind.avro.registry import FolderRegistry
from rowkind.operators.changelog import SYMBOLS, RowKind
from rowkind.operators.columns.changes import Rows
from rowkind.service.job.columns import declared
from rowkind.service.job.load import load
from rowkind.service.job.model import BatchSettings, Job
from rowkind.service.physical.graph import graph
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.query.queries import MAIN, planned
from rowkind.service.query.spark_sink import Reports
from rowkind.service.query.streaming import Deployment, register, start
from rowkind.service.query.topics import connect, create
from rowkind.service.query.topics import register as register_schemas
from tests.examples.jobs import EXAMPLES, batches, stored_lines

_BY_KEY = -1
"""The partition number that lets the producer choose."""


class OnKafka:
    """One example with its own topics. A batch of a query reads at most `max_rows` changes."""

    def __init__(self, name: str, servers: str, folder: Path, max_rows: int) -> None:
        environment = {"KAFKA": servers, "SCHEMAS": str(folder / "schemas"), "CHECKPOINT": str(folder / "checkpoint")}
        job = load(EXAMPLES / name / "job.yaml", environment)
        self.job: Job = job.model_copy(update={"batch": BatchSettings(max_rows=max_rows)})
        self.servers = servers
        self.registry = FolderRegistry(folder / "schemas")
        queries = planned(self.job)
        self.sinks: dict[str, PhysicalSink] = {sink.name: sink for query in queries.values() for sink in query.sinks}
        self._folder = folder
        self._connection = connect(self.job)
        create(self.job, queries, self._connection, sources=True)
        self._tell(stored_lines(name))

    def topic(self, name: str) -> str:
        """Return the topic of a sink."""
        return self.job.sinks[name].topic

    def run(self, spark: SparkSession) -> None:
        """Run all sinks as one query until everything has been read."""
        register(spark)
        ids = {name: register_schemas(sink, self._connection) for name, sink in self.sinks.items()}
        drain = self._folder / "drain"
        at = Deployment(self.job, MAIN, self._connection, ids, Reports(spark), drain=drain, shards=4, tasks=2)
        query = start(spark, graph(list(self.sinks.values())), str(self._folder / "checkpoint"), at)
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    def _tell(self, lines: Sequence[str]) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True, "log_level": 0})
        (batch,) = batches(self.job, lines, len(lines))
        for table, rows in batch.items():
            self._send(producer, table, rows)
        assert producer.flush(60) == 0, "the broker did not take everything"

    def _send(self, producer: Producer, table: str, rows: Rows) -> None:
        """Send the rows of a table in order, by its key, or alternately to two partitions if it has no key."""
        of, record = self.job.tables[table], declared(self.job, table)
        values = frame(self.registry.register(f"{of.topic}-value", record), rows.payload)
        keys: pa.Array = pa.nulls(len(values), pa.binary())
        if of.primary_key:
            key = record.select(of.primary_key)
            packed = codec.read(record, rows.payload).assemble(key, key.names)
            keys = frame(self.registry.register(f"{of.topic}-key", key), packed)
        messages = zip(rows.kind.tolist(), keys.to_pylist(), values.to_pylist(), strict=True)
        for number, (kind, key_bytes, value) in enumerate(messages):
            gone = of.mode == "upsert" and kind == RowKind.DELETE
            partition = _BY_KEY if of.primary_key else number % 2
            headers: list[tuple[str, str | bytes | None]] = [("op", SYMBOLS[kind].encode())]
            producer.produce(of.topic, None if gone else value, key_bytes, partition, headers=headers)
