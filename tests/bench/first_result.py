"""Seconds, CPU seconds and memory from `rowkind run` to the example's first rows, compared with bare Spark.

Usage: `python -m tests.bench.first_result --runs 3`.

The job is `examples/orders-payments`, whose topics have a thousand changes; bare Spark is `tests.bench.floor`. They run
in turn, on an embedded broker that is already running. A run ends with the first committed row in every result topic.
Memory is the proportional set size of every process, measured while idle for more than a minute, after which Spark ends
workers that it does not need.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from confluent_kafka import Consumer, TopicPartition

from rowkind.avro.registry import FolderRegistry
from rowkind.service.dev.broker import Broker
from rowkind.service.dev.demo.data import order_book
from rowkind.service.dev.demo.shop import Shop
from rowkind.service.job.load import load
from tests.bench.compare.page import Table, machine, write
from tests.bench.compare.process import by_kind, cpu_seconds

JOB = Path(__file__).parents[2] / "examples/orders-payments/job.yaml"
CHANGES = 1_000
_PATIENCE_SECONDS = 300.0


@dataclass(frozen=True)
class Figures:
    """One run: seconds and CPU seconds to the first rows; idle memory in bytes and process counts, by kind."""

    seconds: float
    cpu: float
    memory: Mapping[str, int]
    processes: Mapping[str, int]


def measure(command: list[str], environment: Mapping[str, str], ready: Callable[[], bool], rest: float) -> Figures:
    """Start a command, wait until `ready` and `rest` seconds more, and end it."""
    began = time.monotonic()
    process = subprocess.Popen(command, env=os.environ | environment, stdout=subprocess.DEVNULL)
    try:
        while not ready():
            assert process.poll() is None, f"{command} ended with {process.returncode}"
            assert time.monotonic() - began < _PATIENCE_SECONDS, f"{command} gave nothing"
            time.sleep(0.02)
        seconds, cpu = time.monotonic() - began, cpu_seconds(process.pid)
        time.sleep(rest)
        memory: dict[str, int] = defaultdict(int)
        processes: dict[str, int] = defaultdict(int)
        for kind, size in by_kind(process.pid):
            memory[kind] += size
            processes[kind] += 1
        return Figures(seconds, cpu, memory, processes)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


@contextmanager
def shop(folder: Path) -> Iterator[dict[str, str]]:
    """Start a broker with the topics of the example; yield the settings of the job."""
    with Broker() as broker:
        settings = {"KAFKA": broker.bootstrap_servers, "SCHEMAS": str(folder / "schemas")}
        Shop(load(JOB, os.environ | settings), FolderRegistry(folder / "schemas")).produce(
            order_book(CHANGES, seed=1), per_second=1e9
        )
        yield settings


def first_rows(job: Path, number: int, settings: Mapping[str, str], folder: Path, rest: float) -> Figures:
    """Return the figures of a run of the job with its own topics and checkpoint."""
    text = job.read_text().replace("topic: order-payments", f"topic: order-payments-{number}")
    text = text.replace("topic: paid-orders", f"topic: paid-orders-{number}")
    text = text.replace("job: orders-payments", f"job: orders-payments-{number}")
    path = folder / f"job-{number}.yaml"
    path.write_text(text)
    consumer = Consumer({"bootstrap.servers": settings["KAFKA"], "group.id": f"first-{number}", "log_level": 0})
    missing = {f"order-payments-{number}", f"paid-orders-{number}"}

    def ready() -> bool:
        known = consumer.list_topics(timeout=10).topics
        if missing <= set(known) and not consumer.assignment():
            parts = [TopicPartition(topic, part, 0) for topic in missing for part in known[topic].partitions]
            consumer.assign(parts)
        for message in consumer.consume(100, timeout=0.02) if consumer.assignment() else []:
            if message.error() is None:
                missing.discard(str(message.topic()))
        return not missing

    command = [sys.executable, "-m", "rowkind", "run", str(path), "--port", "0"]
    try:
        return measure(command, {**settings, "CHECKPOINT": str(folder / f"checkpoint-{number}")}, ready, rest)
    finally:
        consumer.close()


def floor(folder: Path, number: int, rest: float) -> Figures:
    """Return the figures of a run of bare Spark."""
    said = folder / f"floor-{number}"
    program = "import os, sys; os.dup2(os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY), 1)\n"
    program += "from tests.bench.floor import main; main()"
    command = [sys.executable, "-c", program, str(said)]
    return measure(command, {}, lambda: said.exists() and "first rows" in said.read_text(), rest)


def main() -> None:
    """Run both in turn and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--without-floor", action="store_true", help="only the job")
    parser.add_argument("--rest", type=float, default=75.0, help="seconds from the first rows until memory is measured")
    parser.add_argument("--write", action="store_true", help="put the tables into README.md")
    chosen = parser.parse_args()
    found: dict[str, list[Figures]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="rowkind-bench-") as name, shop(Path(name)) as settings:
        for number in range(chosen.runs):
            if not chosen.without_floor:
                found["bare Spark"].append(floor(Path(name), number, chosen.rest))
            found["Rowkind"].append(first_rows(JOB, number, settings, Path(name), chosen.rest))
            for who, figures in found.items():
                last = figures[-1]
                print(f"{who}: {last.seconds:.1f} s, {last.cpu:.1f} CPU s, {sum(last.memory.values()) / 2**20:.0f} MB")
    tables = [_start(found), _memory(found, chosen.rest)]
    for table in tables:
        print(f"\n{table.text()}")
    if chosen.write:
        write("first result", tables)


def _start(found: Mapping[str, list[Figures]]) -> Table:
    rows = [
        (who, f"{median(each.seconds for each in runs):.1f}", f"{median(each.cpu for each in runs):.1f}")
        for who, runs in found.items()
    ]
    note = f"Until the first committed rows; median of {len(found['Rowkind'])} runs, in turn. {machine()}."
    return Table("First result", ("", "s", "CPU s"), rows, note)


def _memory(found: Mapping[str, list[Figures]], rest: float) -> Table:
    last = {who: runs[-1] for who, runs in found.items()}
    kinds = sorted({kind for figures in last.values() for kind in figures.memory})
    rows = [(kind, *(_cell(figures, [kind]) for figures in last.values())) for kind in kinds]
    rows.append(("all", *(_cell(figures, kinds) for figures in last.values())))
    return Table("Memory at rest", ("processes", *last), rows, f"MB (processes), {rest:.0f} s after the first rows.")


def _cell(figures: Figures, kinds: list[str]) -> str:
    size, count = (sum(part.get(kind, 0) for kind in kinds) for part in (figures.memory, figures.processes))
    return f"{size / 2**20:.0f} ({count})"


if __name__ == "__main__":
    main()
