"""The join, Kafka to Kafka, exactly once, state on RocksDB: `python -m tests.bench.kafka_join [--rows N] [--batch N]`.

N orders and N payments (append topics of four partitions, plain rows of five and four columns) are joined on the order
by a job run as users run it, on an embedded broker, into an upsert topic keyed by payment. Printed: rows/s over the
whole run and without its first two batches (JIT warm-up), CPU seconds per million rows of the job's processes, the
seconds of its tasks by stage, and whether the result topic is right: a row for every payment, once.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from avro.codec import encode
from avro.framing import frame
from avro.registry import FolderRegistry
from avro.schema import Record
from service.dev.broker import Broker

ORDERS = {
    "order_id": "BIGINT NOT NULL",
    "customer_id": "BIGINT NOT NULL",
    "amount": "DOUBLE",
    "status": "STRING",
    "ts": "TIMESTAMP NOT NULL",
}
PAYMENTS = {
    "payment_id": "BIGINT NOT NULL",
    "order_id": "BIGINT NOT NULL",
    "paid": "DOUBLE",
    "method": "STRING",
}
JOB = """
job: bench
kafka: {{bootstrap.servers: "{servers}"}}
registry: {{folder: {folder}/schemas}}
checkpoint: {folder}/checkpoint
parallelism: {parallelism}
batch: {{max_rows: {batch}}}
tables:
  orders: {{mode: append, row_kind: {{missing: insert}}, primary_key: [order_id], columns: {{{orders}}}}}
  payments: {{mode: append, row_kind: {{missing: insert}}, primary_key: [payment_id], columns: {{{payments}}}}}
sinks:
  joined:
    mode: upsert
    key: [payment_id]
    partitions: 4
    sql: >-
      SELECT p.payment_id, o.order_id, o.customer_id, o.amount, p.paid, p.method
      FROM payments p JOIN orders o ON p.order_id = o.order_id
"""


def main() -> None:
    """Run it once and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000, help="orders, and as many payments")
    parser.add_argument("--batch", type=int, default=200_000)
    parser.add_argument("--parallelism", type=int, default=2)
    given = parser.parse_args()
    with Broker() as broker, tempfile.TemporaryDirectory(prefix="rowkind-bench-") as name:
        folder = Path(name)
        produce(broker.bootstrap_servers, folder, given.rows)
        settings = {"servers": broker.bootstrap_servers, "folder": name, "orders": _columns(ORDERS)}
        job = JOB.format(batch=given.batch, parallelism=given.parallelism, payments=_columns(PAYMENTS), **settings)
        (folder / "job.yaml").write_text(job)
        with _job(folder / "job.yaml") as (process, port):
            points = _until(process, port, 2 * given.rows)
        _print(points, given.parallelism)
        _check(broker.bootstrap_servers, given.rows)


def produce(servers: str, folder: Path, rows: int, seed: int = 42) -> None:
    """Fill both topics; every payment belongs to an order, orders come in random order."""
    rng = np.random.default_rng(seed)
    registry = FolderRegistry(folder / "schemas")
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(topic, 4, 1) for topic in ("orders", "payments")]).values():
        future.result()
    columns = {
        "orders": {
            "order_id": pa.array(rng.permutation(rows)),
            "customer_id": pa.array(rng.integers(0, max(1, rows // 10), rows)),
            "amount": pa.array(np.round(rng.random(rows) * 1000, 2)),
            "status": pa.array(np.array(["new", "paid", "shipped", "done", "cancelled"])[rng.integers(0, 5, rows)]),
            "ts": pa.array(1_700_000_000_000_000 + 1000 * np.arange(rows)).cast(pa.timestamp("us", "UTC")),
        },
        "payments": {
            "payment_id": pa.array(np.arange(rows)),
            "order_id": pa.array(rng.integers(0, rows, rows)),
            "paid": pa.array(rng.random(rows) * 500),
            "method": pa.array(np.array(["card", "cash", "transfer", "voucher"])[rng.integers(0, 4, rows)]),
        },
    }
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for topic, declared in (("orders", ORDERS), ("payments", PAYMENTS)):
        record = Record.of(declared, name=topic)
        values = frame(registry.register(f"{topic}-value", record), encode(record, columns[topic])).to_pylist()
        keys = columns[topic][record.names[0]].to_pylist()
        for number, (key, value) in enumerate(zip(keys, values, strict=True)):
            producer.produce(topic, value, str(key))
            if number % 10_000 == 0:
                producer.poll(0)
        producer.flush()


@dataclass(frozen=True)
class _Point:
    """The job's metrics and CPU seconds at a time; all times in seconds."""

    at: float
    rows: float
    cpu: float
    batches: float
    stages: dict[str, float]


@contextmanager
def _job(path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`rowkind run`, and the port of its metrics."""
    command = [sys.executable, "-m", "service.cli", "run", str(path), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        log = []
        for line in process.stderr:
            log.append(line)
            if "metrics and health on port" in line:
                break
        else:
            raise SystemExit("the job did not start:\n" + "".join(log))
        yield process, int(line.split()[-1])
    finally:
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        process.wait()


def _until(process: subprocess.Popen[str], port: int, rows: int) -> list[_Point]:
    """A point for each batch, from the start of the first one until all rows have been read."""
    points: list[_Point] = []
    while not points or points[-1].rows < rows:
        assert process.poll() is None, "the job has ended"
        point = _point(process.pid, port)
        if not points or point.rows > points[-1].rows:
            points.append(point)
        time.sleep(0.05)
    return points


def _point(pid: int, port: int) -> _Point:
    with urllib.request.urlopen(f"http://localhost:{port}/metrics") as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    rows, batches, stages = 0.0, 0.0, defaultdict[str, float](float)
    for sample in (sample for family in families for sample in family.samples):
        if sample.name == "rowkind_batch_duration_seconds_sum":
            batches += sample.value
        if sample.name == "rowkind_rows_in_total":
            rows += sample.value
        if sample.name.endswith("_seconds_total"):
            stages[f"{sample.name.split('_')[1]} {sample.labels['stage']}"] += sample.value
    return _Point(time.monotonic(), rows, _cpu_seconds(pid), batches, stages)


def _cpu_seconds(root: int) -> float:
    """CPU seconds of a process, its descendants and those of them that have ended."""
    times: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            times[int(entry.name)] = (int(fields[1]), sum(int(field) for field in fields[11:15]))
    total, family = 0, {root}
    while True:
        more = {pid for pid, (parent, _) in times.items() if parent in family} - family
        if not more:
            break
        family |= more
    total = sum(times[pid][1] for pid in family if pid in times)
    return total / os.sysconf("SC_CLK_TCK")


def _print(points: list[_Point], parallelism: int) -> None:
    def line(name: str, first: _Point, last: _Point) -> None:
        rows, seconds = last.rows - first.rows, last.at - first.at
        cpu = (last.cpu - first.cpu) / rows * 1e6
        print(
            f"{name:<28}{rows:>11,.0f} rows {seconds:>7.2f} s {rows / seconds:>10,.0f} rows/s {cpu:>6.1f} CPU s/M rows"
        )

    line("from the job's start", points[0], points[-1])
    if len(points) > 4:
        line("without the first two batches", points[2], points[-1])
    first, last = points[2] if len(points) > 4 else points[0], points[-1]
    rows, tasks = last.rows - first.rows, 0.0
    for stage in sorted(last.stages):
        seconds = last.stages[stage] - first.stages.get(stage, 0)
        tasks += seconds
        print(f"  {stage:<26}{seconds:>8.2f} task seconds {seconds / rows * 1e6:>8.2f} µs/row")
    # What is in no task of ours: shuffle, planning, state and offset commits, waiting for the slower task.
    rest = parallelism * (last.batches - first.batches) - tasks
    print(f"  {'shuffle, commits, the rest':<26}{rest:>8.2f} task seconds {rest / rows * 1e6:>8.2f} µs/row")


def _check(servers: str, payments: int) -> None:
    """Read the result as any consumer would and count."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    partitions = range(len(consumer.list_topics("joined").topics["joined"].partitions))
    consumer.assign([TopicPartition("joined", partition, 0) for partition in partitions])
    keys: list[bytes | str | None] = []
    ended: set[int | None] = set()
    while len(ended) < len(partitions):
        for message in consumer.consume(10_000, 1.0):
            if message.error():
                ended.add(message.partition())
            else:
                keys.append(message.key())
    consumer.close()
    assert len(keys) == len(set(keys)) == payments, f"{len(keys)} rows, {len(set(keys))} keys, {payments} payments"
    print(f"result: a row for each of the {payments:,} payments, once")


def _columns(declared: dict[str, str]) -> str:
    return ", ".join(f"{name}: {sql}" for name, sql in declared.items())


if __name__ == "__main__":
    main()
