"""A job with watermarks on a real broker: partition watermarks, final windows and rows that expire by the clock.

One long test, since each start takes a while.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from rowkind.service.dev.broker import Broker
from tests.run.process import Rowkind, get, until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SLOW = 200
START = datetime(2026, 1, 1, tzinfo=UTC)
IDLE = 4.0
"""Seconds without rows after which a partition no longer delays the watermark.

A batch may take a few seconds, so this must be longer.
"""

WINDOWS = (
    "SELECT k, window_start, COUNT(*) AS n, SUM(v) AS s "
    "FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY k, window_start, window_end"
)
PLAIN = {"plain": {"mode": "append", "sql": "SELECT id FROM events"}}
TIMED = {
    "final": {"mode": "append", "emit": "final", "sql": WINDOWS},
    "changes": {"mode": "upsert", "key": ["k", "window_start"], "sql": WINDOWS},
    "ordered": {"mode": "append", "sql": "SELECT id, ts FROM events WHERE ts IS NOT NULL ORDER BY ts"},
    "recent": {"mode": "retract", "sql": "SELECT id FROM events WHERE seen > NOW() - INTERVAL '4' SECOND"},
}

Row = tuple[Any, ...]


class Topics:
    """The topic of events with three partitions, the result topics, and the results that the job must produce."""

    def __init__(self, servers: str, folder: Path) -> None:
        self.servers, self.folder, self.name = servers, folder, f"time-{os.getpid()}"
        self.admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        self.admin.create_topics([NewTopic(self.topic("events"), 3)])[self.topic("events")].result()
        self.producer = Producer({"bootstrap.servers": servers, "log_level": 0})
        self.sent = 0
        self.accepted: list[tuple[int, int, int]] = []
        self.on_time: dict[int, float] = {}
        self._found: dict[str, list[Message]] = defaultdict(list)
        self._next: Counter[tuple[str, int]] = Counter()
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "results",
                "log_level": 0,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 5,
            }
        )

    def topic(self, name: str) -> str:
        """Return the name of one of the topics."""
        return f"{self.name}-{name}"

    def job(self, sinks: Mapping[str, Any], **settings: Any) -> Path:
        """Write the job file."""
        columns = {"id": "BIGINT NOT NULL", "k": "INT NOT NULL", "v": "BIGINT", "ts": "TIMESTAMP", "seen": "TIMESTAMP"}
        job = {
            "job": self.name,
            "kafka": {"bootstrap.servers": self.servers},
            "checkpoint": str(self.folder / "checkpoint"),
            "dead_letters": {"topic": self.topic("letters")},
            "shards": 4,
            "tables": {
                "events": {
                    "topic": self.topic("events"),
                    "format": "json",
                    "mode": "append",
                    "columns": columns,
                    "watermark": {"column": "ts", "delay": "2s", "idle": f"{IDLE:.0f}s", "late": "dead_letter"},
                }
            },
            "sinks": {name: {"topic": self.topic(name), "format": "json", **sink} for name, sink in sinks.items()},
            **settings,
        }
        (self.folder / "job.yaml").write_text(json.dumps(job))
        return self.folder / "job.yaml"

    def send(self, partition: int, *seconds: float, seen: datetime | None = None, late: bool = False) -> None:
        """Send rows with these times, in seconds from the start, alternating between two keys."""
        for second in seconds:
            self.sent += 1
            k, v, ts = self.sent % 2, self.sent % 7, START + timedelta(seconds=second)
            row = {"id": self.sent, "k": k, "v": v, "ts": ts.isoformat(), "seen": seen and seen.isoformat()}
            self.producer.produce(self.topic("events"), json.dumps(row).encode(), partition=partition)
            if not late:
                self.accepted.append((k, v, int(second) // 10 * 10 + 10))
                self.on_time[self.sent] = second
        assert self.producer.flush(30) == 0

    def windows(self, until_second: float = float("inf")) -> Counter[Row]:
        """Return the expected rows of all windows that end by then."""
        count: Counter[tuple[int, int]] = Counter()
        sums: Counter[tuple[int, int]] = Counter()
        for k, v, end in self.accepted:
            count[k, end] += 1
            sums[k, end] += v
        return Counter((k, end, n, sums[k, end]) for (k, end), n in count.items() if end <= until_second)

    def messages(self, name: str) -> list[Message]:
        """Return all committed records of a topic."""
        topic = self.topic(name)
        partitions = self._consumer.list_topics(topic, timeout=10).topics[topic].partitions
        for partition in sorted(partitions):
            self._consumer.assign([TopicPartition(topic, partition, self._next[topic, partition])])
            while True:
                message = self._consumer.poll(20)
                assert message is not None, f"nothing came from {topic}"
                if message.error():
                    assert message.error().code() in (
                        KafkaError._PARTITION_EOF,
                        KafkaError.UNKNOWN_TOPIC_OR_PART,
                    ), message.error()
                    break
                self._found[name].append(message)
                self._next[topic, partition] = message.offset() + 1
        return self._found[name]

    def final(self) -> Counter[Row]:
        """Return the final rows that were written."""
        return Counter(window(json.loads(each.value())) for each in self.messages("final"))

    def in_order(self) -> list[int]:
        """Return the ids of the rows written in the order of their time. Fails if a row is out of order."""
        found, last = [], dict[int, datetime]()
        for each in self.messages("ordered"):
            row, partition = json.loads(each.value()), each.partition()
            ts = datetime.fromisoformat(row["ts"])
            assert last.get(partition, ts) <= ts, f"{row} comes behind {last[partition]}"
            last[partition] = ts
            found.append(row["id"])
        return sorted(found)

    def changed(self) -> Counter[Row]:
        """Return the rows that the upsert topic stands for."""
        last = {each.key(): each.value() for each in self.messages("changes")}
        return Counter(window(json.loads(value)) for value in last.values() if value is not None)

    def recent(self) -> dict[int, list[str]]:
        """Return the row kinds of the changes of each row in `recent`."""
        kinds = defaultdict(list)
        for each in sorted(self.messages("recent"), key=lambda message: message.timestamp()[1]):
            kinds[json.loads(each.value())["id"]].append(dict(each.headers())["op"].decode())
        return dict(kinds)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def window(row: Mapping[str, Any]) -> Row:
    """Return a result row, with the end of its window in seconds from the start."""
    begin = datetime.fromisoformat(row["window_start"]) - START
    return row["k"], round(begin.total_seconds()) + 10, row["n"], row["s"]


@pytest.fixture
def topics(broker: Broker, tmp_path: Path) -> Iterator[Topics]:
    """Topics without any events yet."""
    made = Topics(broker.bootstrap_servers, tmp_path)
    yield made
    made.close()


def run(topics: Topics, job: Path, *arguments: str) -> Rowkind:
    """Run the job on any free port."""
    return Rowkind(topics.folder / "output", "run", str(job), "--port", "0", *arguments)


def metric(job: Rowkind, name: str) -> float | None:
    """Return the sum of the samples of a metric; None if it has no sample yet."""
    page = get(job.port, "/metrics")[1]
    found = [float(value) for value in re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", page, re.MULTILINE)]
    return sum(found) if found else None


def has(job: Rowkind, done: Any, wanted: Any, what: str) -> None:
    """Wait until `done()` equals `wanted`."""

    def there() -> bool:
        assert job.running, job.error
        return bool(done() == wanted)

    until(there, what, lambda: f"{done()}\ninstead of\n{wanted}\n{job.error}", SLOW)


def watermark(job: Rowkind) -> float | None:
    """Return the watermark, in seconds from the start."""
    found = metric(job, "rowkind_watermark_timestamp_seconds")
    return None if found is None else found - START.timestamp()


def stop(job: Rowkind) -> None:
    """Stop the job, which must end with exit code 0 whatever it is waiting for."""
    began = time.monotonic()
    job.terminate()
    assert job.ended(SLOW).code == 0, job.error
    print(f"stopped in {time.monotonic() - began:.1f} s")


def test_time_passes(topics: Topics) -> None:
    """Final rows are written exactly once, whatever happens to the job; the steps below say more."""
    began = time.monotonic()

    def lap(what: str) -> None:
        print(f"{time.monotonic() - began:6.1f} {what}")

    # A job without any operator that depends on time.
    topics.send(0, 1, 2)
    with run(topics, topics.job(PLAIN)) as job:
        has(job, lambda: len(topics.messages("plain")), 2, "the first rows")
        assert metric(job, "rowkind_watermark_timestamp_seconds") is None
        stop(job)
    lap("plain")
    # The job gets sinks that depend on time. No row is sent that would be late for ORDER BY if the row before it were
    # in a separate batch: ORDER BY would drop it before all else.
    with run(topics, topics.job(PLAIN | TIMED), "--upgrade") as job:
        has(job, topics.changed, topics.windows(), "the first window")
        lap("changes are there")
        for step in (_an_idle_partition, _the_slowest_partition, _a_late_row, _rows_that_leave, _nothing_to_do):
            step(topics, job)
            lap(step.__name__)
        # The job is killed while rows are being processed.
        topics.send(0, 61, 62, 63)
        topics.send(1, 62, 71, seen=datetime.now(UTC))
        time.sleep(0.3)
        job.kill()
    lap("killed")
    # Meanwhile its parallelism has changed, so its state moves to other partitions, and its watermarks with it.
    topics.send(0, 64, 82)
    with run(topics, topics.job(PLAIN | TIMED, parallelism=4), "--upgrade") as job:
        has(job, topics.changed, topics.windows(), "all windows")
        has(job, topics.final, topics.windows(80), "what all have passed")
        lap("after the kill, and wider")
        topics.send(1, 75, late=True)
        has(job, lambda: metric(job, "rowkind_late_rows_total"), 2, "a late row")
        _a_new_partition(topics, job)
        lap("new partition")
        stop(job)
    lap("end")
    assert set(map(tuple, topics.recent().values())) <= {("+I",), ("+I", "-D")}
    assert len(topics.messages("letters")) == 4
    assert len(topics.messages("plain")) == topics.sent


def _an_idle_partition(topics: Topics, job: Rowkind) -> None:
    """Partition 2 delays results that the others have passed until it is idle; no row is needed for that."""
    now = time.time()
    topics.send(0, 22, 23)
    topics.send(1, 24)
    topics.send(2, 21)
    has(job, topics.changed, topics.windows(), "the next window")
    topics.send(0, 45)
    topics.send(1, 43)
    has(job, topics.final, topics.windows(43), "what all have passed")
    for each in topics.messages("final"):
        assert window(json.loads(each.value()))[1] < 30 or each.timestamp()[1] >= (now + IDLE) * 1000


def _the_slowest_partition(topics: Topics, job: Rowkind) -> None:
    """If all partitions have rows, a window is final once the slowest partition has passed it."""
    topics.send(0, 52)
    topics.send(1, 52)
    topics.send(2, 52)
    has(job, topics.final, topics.windows(50), "what the slowest has passed")


def _a_late_row(topics: Topics, job: Rowkind) -> None:
    """A row is late if the watermark has passed it, both for windows and for ORDER BY."""
    topics.send(1, 19, late=True)
    has(job, lambda: metric(job, "rowkind_late_rows_total"), 2, "a late row")
    has(job, lambda: len(topics.messages("letters")), 2, "dead letters")
    letters = [json.loads(each.value()) for each in topics.messages("letters")]
    assert [each["window_start"] for each in letters if "window_start" in each] == ["2026-01-01T00:00:10Z"]


def _rows_that_leave(topics: Topics, job: Rowkind) -> None:
    """Rows are retracted when the clock has passed them."""
    topics.send(2, 53, 54, seen=datetime.now(UTC))
    came = topics.sent - 1, topics.sent
    has(job, topics.recent, {each: ["+I", "-D"] for each in came}, "rows that come and go")


def _nothing_to_do(topics: Topics, job: Rowkind) -> None:
    """A row that stays for an hour causes no batches while there is nothing else to do."""
    topics.send(2, 55, seen=datetime.now(UTC) + timedelta(hours=1))
    stays = topics.sent
    has(job, lambda: topics.recent().get(stays), ["+I"], "a row that stays")
    until(lambda: watermark(job) == 53, "the watermark at rest", seconds=SLOW)
    time.sleep(1.5)
    batch = metric(job, "rowkind_batch_id")
    time.sleep(2.5)
    assert metric(job, "rowkind_batch_id") == batch, "there was a batch though nothing was to be done"
    assert "2026-01-01 00:00:53 UTC" in get(job.port, "/")[1]
    assert (metric(job, "rowkind_watermark_lag_seconds") or 0) > 1000


def _a_new_partition(topics: Topics, job: Rowkind) -> None:
    """A new partition delays results until its rows have passed them or it is idle."""
    events = topics.topic("events")
    topics.admin.create_partitions([NewPartitions(events, 4)])[events].result()
    until(lambda: len(topics.admin.list_topics(timeout=10).topics[events].partitions) == 4, "a new partition")
    topics.producer = Producer({"bootstrap.servers": topics.servers, "log_level": 0})
    topics.send(3, 85)
    has(job, topics.changed, topics.windows(), "the new partition's row")
    topics.send(0, 99)
    topics.send(3, 98)
    has(job, topics.final, topics.windows(97), "what all have come to")
    come = sorted(id_ for id_, second in topics.on_time.items() if second < 96)
    has(job, topics.in_order, come, "all that has been passed, in its order")
