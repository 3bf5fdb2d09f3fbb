"""A job in the test's own Spark session that can be set back to an older checkpoint, and what its topics must hold.

The queries of the job depend on how rows are cut into batches, and on the times of the batches. The expected result is
computed in memory from the recorded batches, each at its time. Whatever was restarted in between, the result topics
must fold to it, and no change may retract a row that does not exist.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # exported, but not by `__all__`
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from pyspark.sql import SparkSession

from rowkind.service.checkpoint.savepoint import restore, saved
from rowkind.service.job.load import load
from rowkind.service.kafka.offsets import Offset
from rowkind.service.kafka.progress import recorded
from rowkind.service.kafka.topics import progress_name
from rowkind.service.library.job import LoadedJob
from rowkind.service.library.running_job import StartedJob
from rowkind.service.monitoring.progress import Works
from tests.kafka.sinks import committed
from tests.run.process import until

SLOW = 600.0
START = datetime(2026, 1, 1, tzinfo=UTC)
LOOKED_UP = "SELECT o.id, r.v FROM o LEFT JOIN r FOR SYSTEM_TIME AS OF PROCTIME() ON o.k = r.k"
NEWEST = (
    "SELECT id, k, note FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY PROCTIME() DESC) AS rn FROM notes) "
    "WHERE rn = 1"
)
SINKS: Mapping[str, Mapping[str, Any]] = {
    "total": {
        "mode": "retract",
        "sql": "SELECT SUM(c) AS total FROM (SELECT COUNT(*) AS c FROM events GROUP BY window(ts, '1 minute'))",
    },
    "looked": {"mode": "retract", "sql": LOOKED_UP},
    "windows": {
        "mode": "upsert",
        "key": "window_start",
        "sql": "SELECT window_start, COUNT(*) AS n FROM "
        "TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(PROCTIME()), INTERVAL '1' SECOND)) GROUP BY window_start, window_end",
    },
    "newest": {"mode": "retract", "sql": NEWEST},
    "last": {"mode": "upsert", "key": "k", "delivery": "at_least_once", "sql": NEWEST},
}
TABLES: Mapping[str, Mapping[str, Any]] = {
    "events": {
        "mode": "append",
        "columns": {"id": "BIGINT NOT NULL", "ts": "TIMESTAMP NOT NULL"},
        "watermark": {"column": "ts", "delay": "0s"},
    },
    "o": {"mode": "retract", "columns": {"id": "BIGINT NOT NULL", "k": "BIGINT"}},
    "r": {"mode": "upsert", "primary_key": "k", "columns": {"k": "BIGINT NOT NULL", "v": "STRING"}},
    "clicks": {"mode": "append", "columns": {"id": "BIGINT NOT NULL"}},
    "notes": {
        "mode": "upsert",
        "primary_key": "id",
        "columns": {"id": "BIGINT NOT NULL", "k": "BIGINT NOT NULL", "note": "STRING"},
    },
}


@dataclass
class Rewound:
    """The job, its topics, and all rows that were sent, by table."""

    spark: SparkSession
    servers: str
    folder: Path
    name: str
    sinks: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: SINKS)
    rows_per_batch: int = 100
    sent: dict[str, list[tuple[str, dict[str, Any]]]] = field(default_factory=lambda: defaultdict(list))
    settings: dict[str, Any] = field(default_factory=dict)
    times_set_back: int = 0

    def __post_init__(self) -> None:
        """Create the topics of the job's tables, and write the job file."""
        self.kafka = {"bootstrap.servers": self.servers}
        admin = AdminClient(self.kafka | {"log_level": 0})
        for made in admin.create_topics([NewTopic(self.topic(table), 1) for table in TABLES]).values():
            made.result()
        self.producer = Producer(self.kafka | {"log_level": 0})
        self.write_job()

    def topic(self, name: str) -> str:
        """Return the name of one of the job's topics."""
        return f"{self.name}-{name}"

    @property
    def checkpoint(self) -> Path:
        """The folder of the checkpoint.

        It is new after each reset, because tasks of a run that has ended may still write to the old one.
        """
        return self.folder / f"checkpoint-{self.times_set_back}"

    def write_job(self, **settings: Any) -> None:
        """Write the job file; the given settings apply from the next start on."""
        self.settings |= settings
        job = {
            "job": self.name,
            "kafka": self.kafka,
            "checkpoint": str(self.checkpoint),
            "shards": 4,
            "batch": {"max_rows": self.rows_per_batch},
            "tables": {name: {"topic": self.topic(name), "format": "json", **each} for name, each in TABLES.items()},
            "sinks": {name: {"topic": self.topic(name), "format": "json", **each} for name, each in self.sinks.items()},
            **self.settings,
        }
        self.file = self.folder / "job.yaml"
        self.file.write_text(json.dumps(job))

    def send(self, table: str, op: str, **row: Any) -> None:
        """Send a change of a table."""
        key = TABLES[table].get("primary_key")
        value = None if key and op == "-D" else json.dumps(row)
        headers = [("op", op)] if TABLES[table]["mode"] == "retract" else None
        self.producer.produce(
            self.topic(table), value, json.dumps({key: row[key]}) if key else None, 0, headers=headers
        )
        self.sent[table].append((op, row))

    def event(self, second: float) -> None:
        """Send a row of `events` with a time of `second` seconds after the start."""
        self.send("events", "+I", id=len(self.sent["events"]), ts=(START + timedelta(seconds=second)).isoformat())

    @contextmanager
    def running(self, **options: Any) -> Iterator[StartedJob]:
        """Run the job. At the end, wait until the current batch has ended."""
        with LoadedJob(self.file).start(self.spark, **options) as job:
            yield job

    def batch(self, job: StartedJob) -> None:
        """Wait until all rows that were sent are read and their batch has ended."""
        assert self.producer.flush(30) == 0
        wanted = {self.topic(table): len(rows) for table, rows in self.sent.items()}
        deadline = time.monotonic() + SLOW
        while not wanted.items() <= (at := _committed(job)).items():
            assert time.monotonic() < deadline, f"{at} instead of {wanted}"
            job.wait(0.05)

    def end_suddenly(self, job: StartedJob) -> None:
        """End the job at once, with its batch unfinished, as a second signal does."""
        job._asked.count += 2
        job.wait()
        # Its tasks may still be ending.
        tracker = self.spark.sparkContext.statusTracker()
        until(lambda: not tracker.getActiveStageIds(), "the end of all tasks")

    def save(self, name: str) -> None:
        """Write a savepoint."""
        saved(self.spark, load(self.file, {}), str(self.folder / name))

    def set_back(self, name: str) -> None:
        """Lose the checkpoint, and start from a savepoint."""
        self.times_set_back += 1
        self.write_job()
        restore(self.spark, load(self.file, {}), str(self.folder / name), Works())

    def put_back(self, name: str) -> None:
        """Restore the checkpoint from an earlier copy (`copy`)."""
        self.times_set_back += 1
        self.write_job()
        shutil.copytree(self.folder / name, self.checkpoint)

    def copy(self, name: str) -> None:
        """Copy the checkpoint of a job that is not running."""
        shutil.copytree(self.checkpoint, self.folder / name, copy_function=_copy_what_is_there)

    def records(self, sink: str = "") -> list[Offset]:
        """Return the recorded batches of the query that writes a sink; of the first query if no sink is named."""
        for query in ("main", sink):
            topic = progress_name(self.name, query)
            found = [each for each in recorded(self.kafka, topic) if each.extent] if query else []
            if found and (not sink or sink in found[-1].sinks):
                own = {each.batch: each.extent for each in found if each.checkpoint == found[-1].checkpoint}
                return [Offset.from_json(json.loads(own[number])) for number in sorted(own)]
        return []

    def forget_batches(self) -> None:
        """Delete all recorded batches except the last one."""
        topic = progress_name(self.name, "main")
        consumer = Consumer(self.kafka | {"group.id": "ends", "log_level": 0})
        end = consumer.get_watermark_offsets(TopicPartition(topic, 0), 10)[1]
        consumer.close()
        admin = AdminClient(self.kafka | {"log_level": 0})
        # Records of a topic that is only compacted cannot be deleted.
        policy = ConfigEntry("cleanup.policy", "compact,delete", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[policy])
        admin.incremental_alter_configs([resource])[resource].result()
        self._delete(TopicPartition(topic, 0, end - 2))

    def forget_rows(self, table: str, count: int) -> None:
        """Delete the first `count` rows of a table's topic."""
        self._delete(TopicPartition(self.topic(table), 0, count))

    def _delete(self, at: TopicPartition) -> None:
        # Without a variable, the client would be destroyed before the answer arrives.
        admin = AdminClient(self.kafka | {"log_level": 0})
        admin.delete_records([at])[at].result()

    def written(self, sink: str) -> list[tuple[tuple[int, int], str, bytes | None, bytes | None]]:
        """Return the changes in a result topic: partition and offset, row kind, key and value."""
        return [
            (
                (each.partition(), each.offset()),
                dict(each.headers() or ()).get("op", b"").decode(),
                each.key(),
                each.value(),
            )
            for each in committed(self.kafka, self.topic(sink))
        ]

    def rows(self, sink: str) -> Counter[str]:
        """Return the rows that a result topic folds to. Fails if a change retracts a row that does not exist."""
        if self.sinks[sink]["mode"] == "upsert":
            last = {key: value for _, _, key, value in self.written(sink)}
            return Counter(_text(value) for value in last.values() if value is not None)
        found: Counter[str] = Counter()
        for _, op, _, value in self.written(sink):
            assert value is not None
            row = _text(value)
            found[row] += -1 if op in {"-U", "-D"} else 1
            assert found[row] >= 0, f"{sink}: {op} {row} retracts a row that is not there"
        return +found

    def right(self, sink: str) -> Counter[str]:
        """Return the rows that the topic must fold to, computed from the recorded batches."""
        lines: list[dict[str, Any]] = []
        for batch in self.records(sink):
            lines.append({"clock": datetime.fromtimestamp(batch.now / 1000, UTC).isoformat()})
            for (topic, _), end in batch.at.items():
                table = topic.removeprefix(f"{self.name}-")
                changes = self.sent[table][batch.begin[topic, 0] : end]
                lines += [{"table": table, "op": op, "row": row} for op, row in changes]
        rows = LoadedJob(self.file).try_(lines, sink, open_=True, batch_rows=len(lines)).fold().to_arrow().to_pylist()
        return Counter(_text(json.dumps(row, default=_spelled)) for row in rows)

    def check(self) -> None:
        """Compare every result topic with the rows that it must fold to."""
        for sink in self.sinks:
            found, right = self.rows(sink), self.right(sink)
            assert found == right, f"{sink}: missing {list(right - found)[:5]}, too many {list(found - right)[:5]}"


def _copy_what_is_there(source: str, to: str) -> None:
    """Copy a file unless it is gone.

    Spark's maintenance deletes files that no start needs any more, even while they are copied.
    """
    with suppress(FileNotFoundError):
        shutil.copy2(source, to)


def _committed(job: StartedJob) -> dict[str, int]:
    """Return the next offset of each topic."""
    found = re.findall(r'^rowkind_committed_offset\{.*topic="([^"]+)".*\} (\S+)$', job.metrics(), re.MULTILINE)
    # One of several queries may have read a topic that it no longer reads.
    return {topic: max(int(float(offset)) for name, offset in found if name == topic) for topic, _ in found}


def _text(value: bytes | str) -> str:
    """Return a row as text that does not depend on how times are spelled."""
    row = json.loads(value)
    return json.dumps([row[name] for name in sorted(row)])


def _spelled(value: Any) -> str:
    assert isinstance(value, datetime)
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def state_rows(job: StartedJob) -> dict[str, int]:
    """Return the number of rows that the operators of each sink keep, from the job's metrics."""
    found: Counter[str] = Counter()
    for sink, rows in re.findall(r'^rowkind_state_rows\{.*sink="([^"]+)".*\} (\S+)$', job.metrics(), re.MULTILINE):
        found[sink] += int(float(rows))
    return dict(found)
