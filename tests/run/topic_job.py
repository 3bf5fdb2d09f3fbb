"""A small job in the test's own Spark session, whose topics can be damaged, and the rows that they must hold."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql import SparkSession

from rowkind.service.kafka.topics import progress_name
from rowkind.service.library.job import LoadedJob
from rowkind.service.library.running_job import StartedJob
from tests.kafka.sinks import committed
from tests.run.process import until

SLOW = 300.0
COUNTS: Mapping[str, Any] = {
    "mode": "retract",
    "partitions": 1,
    "sql": "SELECT k, COUNT(*) AS n FROM t GROUP BY k",
}
LATEST: Mapping[str, Any] = {**COUNTS, "mode": "upsert", "key": "k"}
ROWS: Mapping[str, Any] = {"mode": "append", "partitions": 1, "sql": "SELECT id, k FROM t"}


class TopicJob:
    """An append table `t(id, k)`, and sinks over it."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path, name: str, **sinks: Mapping[str, Any]) -> None:
        """Create the topic of the table, and write the job file."""
        self.spark, self.folder, self.name = spark, folder, name
        self.kafka = {"bootstrap.servers": servers}
        self.admin = AdminClient({**self.kafka, "log_level": 0})
        self.source = f"{name}-t"
        self.sent: list[dict[str, int]] = []
        self.upserts = 0
        self.sinks = dict(sinks)
        self.table: dict[str, Any] = {"topic": self.source, "format": "json", "mode": "append"}
        self.table["columns"] = {"id": "BIGINT NOT NULL", "k": "BIGINT NOT NULL"}
        self.make(self.source)
        self.write()

    def write(self, job: str = "", **settings: Any) -> Path:
        """Write the job file with these settings, for this job or another name; return its path."""
        said = {
            "job": job or self.name,
            "kafka": self.kafka,
            "checkpoint": str(self.folder / "checkpoint"),
            "tables": {"t": self.table},
            "sinks": {name: {"topic": self.topic(name), "format": "json", **each} for name, each in self.sinks.items()},
            **settings,
        }
        file = self.folder / f"{job or self.name}.yaml"
        file.write_text(json.dumps(said))
        return file

    def topic(self, sink: str) -> str:
        """Return the topic of a sink."""
        return f"{self.name}-{sink}"

    @property
    def progress(self) -> str:
        """The progress topic."""
        return progress_name(self.name, "main")

    def send(self, count: int, keys: int = 5) -> None:
        """Send this number of further rows."""
        producer = Producer({**self.kafka, "log_level": 0})
        for number in range(len(self.sent), len(self.sent) + count):
            self.sent.append({"id": number, "k": number % keys})
            producer.produce(self.source, json.dumps(self.sent[-1]), partition=0)
        assert producer.flush(30) == 0

    def upsert(self, ids: Iterable[int], *, gone: bool = False) -> None:
        """Send rows with these ids, or their tombstones if `gone`."""
        producer = Producer({**self.kafka, "log_level": 0})
        for each in ids:
            value = None if gone else json.dumps({"id": each, "k": 0})
            producer.produce(self.source, value, json.dumps({"id": each}), 0)
            self.upserts += 1
        assert producer.flush(30) == 0

    @contextmanager
    def running(self, job: str = "", **options: Any) -> Iterator[StartedJob]:
        """Run the job. At the end, wait until the current batch has ended."""
        with LoadedJob(self.folder / f"{job or self.name}.yaml").start(self.spark, **options) as running:
            yield running

    def runs(self, rows: int | None = None, **options: Any) -> None:
        """Run the job until it has read this number of rows; all rows if None."""
        with self.running(**options) as running:
            self.reads(running, rows)

    def reads(self, running: StartedJob, rows: int | None = None) -> None:
        """Wait until the job is ready and has read this number of rows; all rows if None."""
        wanted = len(self.sent) if rows is None else rows

        def read() -> bool:
            running.wait(0.1)
            found = re.findall(r"^rowkind_committed_offset\{.*\} (\S+)$", running.metrics(), re.MULTILINE)
            return running.ready and any(float(each) >= wanted for each in found)

        until(read, f"a job that has read {wanted} rows", running.metrics, SLOW)

    def make(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Create a topic."""
        self.admin.create_topics([NewTopic(topic, partitions, config=config)])[topic].result()
        until(lambda: topic in self.admin.list_topics(timeout=10).topics, f"topic {topic}")

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self.admin.delete_topics([topic])[topic].result()
        until(lambda: topic not in self.admin.list_topics(timeout=10).topics, f"the end of topic {topic}")

    def make_anew(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Replace a topic by a new one with the same name."""
        self.delete(topic)
        self.make(topic, partitions, **config)

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic."""
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()
        until(
            lambda: len(self.admin.list_topics(topic, timeout=10).topics[topic].partitions) == partitions,
            f"{partitions} partitions of topic {topic}",
        )

    def shorten(self, topic: str, offset: int) -> None:
        """Delete the first records of a topic, as retention does."""
        at = TopicPartition(topic, 0, offset)
        self.admin.delete_records([at])[at].result()

    def rows(self, sink: str) -> Counter[str]:
        """Return the rows that a result topic folds to in the order of time, by key for an upsert topic."""
        records = sorted(committed(self.kafka, self.topic(sink)), key=lambda each: each.timestamp()[1])
        if self.sinks[sink]["mode"] == "upsert":
            last = {each.key(): each.value() for each in records}
            return Counter(value.decode() for value in last.values() if value is not None)
        found: Counter[str] = Counter()
        for each in records:
            op = dict(each.headers() or ()).get("op", b"+I")
            found[(each.value() or b"").decode()] += -1 if op in {b"-U", b"-D"} else 1
        return Counter({row: count for row, count in found.items() if count})

    def right(self, sink: str) -> Counter[str]:
        """Return the rows that the result topic must fold to."""
        if self.sinks[sink]["mode"] == "append":
            return Counter(json.dumps(row, separators=(",", ":")) for row in self.sent)
        keys = Counter(row["k"] for row in self.sent)
        return Counter(json.dumps({"k": k, "n": n}, separators=(",", ":")) for k, n in keys.items())
