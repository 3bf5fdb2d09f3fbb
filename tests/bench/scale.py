"""`python -m tests.bench.scale`: the cost of a batch as one dimension grows and the others stay the same.

The job counts the payments of each order and gets a steady trickle of them, so that a batch costs little more than its
fixed part. The dimensions are the tasks of a stage, the shards of state, the sinks of the job, the partitions of its
source topic, and the rows in state. A machine's speed may double within a minute. The smallest job is therefore
measured again next to each larger one. The last column shows costs that grow more than proportionally.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from confluent_kafka import Producer

from rowkind.avro.codec import encode
from rowkind.avro.framing import frame
from rowkind.avro.registry import FolderRegistry
from rowkind.avro.schema import Record
from rowkind.service.dev.broker import Broker
from tests.bench.compare import page
from tests.bench.compare.engine import Progress
from tests.bench.compare.page import Table
from tests.bench.compare.process import cpu_seconds, memory_bytes
from tests.bench.compare.rowkind_engine import RunningRowkind
from tests.bench.compare.workload import Ids, create_topic
from tests.bench.plot import Panel, chart

_PAGE = Path("docs/explanation/scaling.md")
_COLUMNS = {"payment_id": "BIGINT NOT NULL", "order_id": "BIGINT NOT NULL", "paid": "DOUBLE"}
_PHASES = ("source", "planning", "tasks", "log", "commit")
_RATE = 500
_TICK_SECONDS = 0.02
_JOB = """
job: "{name}"
kafka: {{bootstrap.servers: "{servers}"}}
registry: {{folder: {schemas}}}
checkpoint: {folder}/checkpoint
parallelism: {tasks}
shards: {shards}
tables:
  payments:
    topic: {topic}
    mode: append
    row_kind: {{missing: insert}}
    primary_key: [payment_id]
    columns: {{{columns}}}
sinks:
{sinks}
"""
_SINK = """
  s{number}:
    topic: {name}-{number}
    mode: upsert
    key: [order_id]
    partitions: 2
    sql: SELECT order_id, COUNT(*) AS n, SUM(paid + {number}) AS paid FROM payments GROUP BY order_id
"""


@dataclass(frozen=True)
class Size:
    """The size of a job: tasks of a stage, shards, sinks, partitions of its topic, and rows that it reads first.

    There must be some rows to read first: until then Java has compiled little of its code.
    """

    tasks: int = 2
    shards: int = 8
    sinks: int = 1
    partitions: int = 4
    rows: int = 100_000


GROWN: Mapping[str, tuple[Size, ...]] = {
    "tasks": tuple(Size(tasks=count, shards=64) for count in (2, 4, 8, 16, 32, 64)),
    "shards": tuple(Size(shards=count) for count in (2, 8, 32, 128)),
    "sinks": tuple(Size(sinks=count) for count in (1, 4, 16)),
    "partitions": tuple(Size(partitions=count) for count in (4, 32, 250, 1000)),
    "rows": tuple(Size(rows=count) for count in (100_000, 1_000_000, 10_000_000, 100_000_000)),
}


@dataclass(frozen=True)
class Cost:
    """Mean cost of a batch: ms by phase and of CPU; bytes of memory and of Spark's log entry."""

    phases: Mapping[str, float]
    batch: float
    cpu: float
    memory: int
    log: int


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scale", description="What a batch costs.")
    parser.add_argument("--only", nargs="+", choices=GROWN, default=list(GROWN), help="what grows")
    parser.add_argument("--seconds", type=float, default=30.0, help="for which a batch is measured")
    parser.add_argument("--most", type=int, default=sys.maxsize, help="the largest size of what grows")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {_PAGE}")
    given = parser.parse_args()
    for what in given.only:
        sizes = [size for size in GROWN[what] if getattr(size, what) <= given.most]
        costs, beside = [], []
        for place, size in enumerate(sizes):
            if place:
                beside.append(cost(sizes[0], given.seconds))
            costs.append(cost(size, given.seconds))
            print(what, getattr(size, what), costs[-1], beside[-1:], file=sys.stderr, flush=True)
        found = table(what, sizes, costs, beside)
        print(found.text())
        if given.write:
            page.write(what, [found], _PAGE)
            (_PAGE.parent / f"scaling-{what}.svg").write_text(drawn(what, sizes, costs))
    return 0


def cost(size: Size, seconds: float) -> Cost:
    """Return the cost of a batch of a job of this size."""
    with Broker(busy=True) as broker, tempfile.TemporaryDirectory(prefix="rowkind-scale-") as name:
        folder = Path(name)
        topic = _Topic(broker.bootstrap_servers, folder / "schemas", size.partitions)
        topic.fill(size.rows)
        with _running(broker.bootstrap_servers, folder, topic.name, size) as running:
            while running.progress().rows < size.rows:
                time.sleep(0.5)
            # Warm up.
            topic.trickle(seconds / 2)
            before, cpu = running.progress(), cpu_seconds(running.pid)
            topic.trickle(seconds)
            after, cpu = running.progress(), cpu_seconds(running.pid) - cpu
            logs = (each for each in folder.glob("checkpoint/*/main/offsets/*") if each.name.isdigit())
            last = max(logs, key=lambda each: int(each.name))
            return _mean(before, after, cpu, memory_bytes(running.pid), last.stat().st_size)


def _mean(before: Progress, after: Progress, cpu: float, memory: int, log: int) -> Cost:
    batches = after.batches - before.batches
    phases = {
        phase: 1000 * (after.stages[f"batch {phase}"] - before.stages[f"batch {phase}"]) / batches for phase in _PHASES
    }
    whole = 1000 * (after.batch_seconds - before.batch_seconds) / batches
    return Cost(phases, whole, 1000 * cpu / batches, memory, log)


@contextmanager
def _running(servers: str, folder: Path, topic: str, size: Size) -> Iterator[RunningRowkind]:
    sinks = "".join(_SINK.format(number=number, name=topic) for number in range(size.sinks))
    columns = ", ".join(f'{column}: "{sql}"' for column, sql in _COLUMNS.items())
    job = folder / "job.yaml"
    job.write_text(
        _JOB.format(
            name=f"{topic}-job",
            servers=servers,
            schemas=folder / "schemas",
            folder=folder,
            tasks=size.tasks,
            shards=size.shards,
            topic=topic,
            columns=columns,
            sinks=sinks,
        )
    )
    command = [sys.executable, "-m", "rowkind", "run", str(job), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield RunningRowkind(process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


class _Topic:
    """The topic of payments."""

    name = "payments"

    def __init__(self, servers: str, schemas: Path, partitions: int) -> None:
        create_topic(servers, self.name, partitions)
        self._partitions = partitions
        self._record = Record.of(_COLUMNS, name=self.name)
        self._schema = FolderRegistry(schemas).register(f"{self.name}-value", self._record)
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
        self._rng = np.random.default_rng(11)
        self._sent = 0

    def fill(self, rows: int) -> None:
        """Send so many payments, one per order."""
        for first in range(0, rows, 100_000):
            ids = np.arange(first, min(rows, first + 100_000))
            self._send(ids, ids)
        self._producer.flush()

    def trickle(self, seconds: float) -> None:
        """Send payments of random orders at a steady rate."""
        began, sent = time.monotonic(), 0
        while (now := time.monotonic() - began) < seconds:
            due = int(now * _RATE) - sent
            ids = np.arange(self._sent, self._sent + due)
            self._send(ids, self._rng.integers(0, self._sent, due))
            sent += due
            time.sleep(_TICK_SECONDS)
        self._producer.flush()

    def _send(self, ids: Ids, orders: Ids) -> None:
        columns = {"payment_id": pa.array(ids), "order_id": pa.array(orders), "paid": pa.array(ids * 0.5)}
        values = frame(self._schema, encode(self._record, columns)).to_pylist()
        for order, value in zip(orders.tolist(), values, strict=True):
            while True:
                try:
                    self._producer.produce(self.name, value, partition=order % self._partitions)
                except BufferError:
                    self._producer.poll(0.1)
                else:
                    break
        self._producer.poll(0)
        self._sent += len(ids)


def table(what: str, sizes: list[Size], costs: list[Cost], beside: list[Cost]) -> Table:
    """Return a row per size with its cost relative to the smallest, measured next to each larger one (`beside`)."""
    rows = []
    for place, (size, found) in enumerate(zip(sizes, costs, strict=True)):
        times = more = ""
        if place:
            first = beside[place - 1].batch
            times = f"{found.batch / first:.2f}"
            more = f"{1000 * (found.batch - first) / (getattr(size, what) - getattr(sizes[0], what)):,.1f}"
        phases = [f"{found.phases[phase]:,.0f}" for phase in _PHASES]
        figures = [f"{each:,.0f}" for each in (found.batch, found.cpu, found.memory / 1e6)]
        rows.append((f"{getattr(size, what):,}", *figures[:1], *phases, *figures[1:], f"{found.log:,}", times, more))
    head = (what, "batch ms", *_PHASES, "CPU ms", "memory MB", "log bytes", "vs. first", "µs per extra")
    rest = ", ".join(f"{name} {value:,}" for name, value in vars(replace(sizes[0])).items() if name != what)
    note = (
        f"{_RATE} changes a second; {rest}. The last two columns compare each size with the first one, "
        f"which was measured again at the same time. "
        f"{page.machine()}."
    )
    return Table(f"More {what}", head, rows, f"{note}\n\n![milliseconds of a batch](scaling-{what}.svg)")


def drawn(what: str, sizes: Sequence[Size], costs: Sequence[Cost]) -> str:
    """Return a chart of a batch's time by phase, as SVG."""
    along = [max(1, getattr(size, what)) for size in sizes]
    phases = [(phase, [(x, cost.phases[phase]) for x, cost in zip(along, costs, strict=True)]) for phase in _PHASES]
    whole = ("all", [(x, cost.batch) for x, cost in zip(along, costs, strict=True)])
    return chart([Panel("ms of a batch", [whole, *phases])], what, doubling=True)


if __name__ == "__main__":
    sys.exit(main())
