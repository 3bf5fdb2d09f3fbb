"""Time and memory of `rowkind verify`: `python -m tests.bench.verify`.

The job joins orders with customers and sums up the orders of each customer. It does not run: the sources and the result
topics are written as a job would leave them, with the progress of one batch, so that all time goes into the audit. Each
tenth row of `orders` is an update. The limit of DuckDB's memory is a parameter, because more is spilled to the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rowkind.service.dev.broker import Broker
from rowkind.service.kafka.cluster import Cluster
from rowkind.service.kafka.offsets import Offset
from rowkind.service.kafka.progress import Progress
from tests.bench.compare import page
from tests.bench.compare.page import Table

_MB = 1 << 20
_KEYS = {"orders": "id", "customers": "customer"}
_TABLES: dict[str, dict[str, str]] = {
    "orders": {"id": "BIGINT NOT NULL", "customer": "BIGINT", "amount": "BIGINT"},
    "customers": {"customer": "BIGINT NOT NULL", "name": "STRING"},
}
_SINKS = {
    "named": ("id", "SELECT o.id, c.name, o.amount FROM orders o JOIN customers c ON o.customer = c.customer"),
    "totals": (
        "customer",
        "SELECT customer, COUNT(*) AS n, SUM(amount) AS total FROM orders WHERE customer IS NOT NULL GROUP BY customer",
    ),
}
_UPDATED = 10


@dataclass(frozen=True)
class _Audit:
    """One audit: wall seconds, the peak of resident memory and of the temporary folder in bytes, and the outcome."""

    wall: float
    peak: int
    spilled: int
    sinks: list[dict[str, Any]]


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.verify", description="rowkind verify of large topics.")
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--memory", nargs="+", default=["1GB", "256MB"], help="limits of DuckDB's memory")
    parser.add_argument("--most", type=int, default=2_000, help="fail if a process has more megabytes at its peak")
    parser.add_argument("--write", action="store_true", help="put the table into tests/bench/README.md")
    given, lines = parser.parse_args(), []
    for rows in given.rows:
        with tempfile.TemporaryDirectory(prefix="rowkind-verify-") as folder, Broker() as broker:
            job = _fill(Path(folder), broker.bootstrap_servers, rows)
            for memory in given.memory:
                found = _audit(job, memory)
                assert all(each["verdict"] == "ok" for each in found.sinks), found.sinks
                compared = sum(each["rows"] for each in found.sinks)
                numbers = (found.wall, found.peak / _MB, found.spilled / _MB)
                lines.append([f"{rows:,} rows, {memory}", f"{compared:,}", *(f"{each:,.1f}" for each in numbers)])
                print(lines[-1], flush=True)
                assert found.peak < given.most * _MB, f"{found.peak / _MB:,.0f} MB: memory is not bounded"
    note = f"`rowkind verify job.yaml --memory …`, from start to exit: a join and an aggregate. {page.machine()}."
    table = Table("Topics audited by `rowkind verify`", ["", "rows compared", "s", "peak MB", "disk MB"], lines, note)
    print(table.text())
    if given.write:
        page.write("verify", [table])
    return 0


def _customers(rows: int) -> int:
    return max(1, rows // 10)


def _source(table: str, rows: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the key and row of each record."""
    if table == "customers":
        for number in range(_customers(rows)):
            yield number, {"customer": number, "name": f"customer {number}"}
        return
    for number in range(rows):
        yield number, {"id": number, "customer": number % _customers(rows), "amount": number % 1_000}
    for number in range(0, rows, _UPDATED):
        yield number, {"id": number, "customer": number % _customers(rows), "amount": 5}


def _result(sink: str, rows: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the key and row of each record of a result."""
    amounts = (5 if number % _UPDATED == 0 else number % 1_000 for number in range(rows))
    if sink == "named":
        for number, amount in enumerate(amounts):
            yield number, {"id": number, "name": f"customer {number % _customers(rows)}", "amount": amount}
        return
    totals = [[0, 0] for _ in range(_customers(rows))]
    for number, amount in enumerate(amounts):
        of = totals[number % len(totals)]
        of[0], of[1] = of[0] + 1, of[1] + amount
    for number, (n, total) in enumerate(totals):
        yield number, {"customer": number, "n": n, "total": total}


def _fill(folder: Path, servers: str, rows: int) -> Path:
    kafka: dict[str, str | int | float | bool] = {"bootstrap.servers": servers}
    progress = "verify.main.progress"
    admin = AdminClient(kafka)
    for made in admin.create_topics([NewTopic(name, 1) for name in (*_TABLES, *_SINKS, progress)]).values():
        made.result()
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for topic in (*_TABLES, *_SINKS):
        records = _source(topic, rows) if topic in _TABLES else _result(topic, rows)
        key = _KEYS.get(topic) or _SINKS[topic][0]
        for count, (number, row) in enumerate(records):
            producer.produce(topic, json.dumps(row), json.dumps({key: number}))
            if count % 100_000 == 0:
                producer.flush()
    cluster = Cluster(kafka)
    producer.flush()
    ends = cluster.ends(cluster.topics(_TABLES).partitions)
    extent = json.dumps(Offset(ends, dict.fromkeys(_TABLES, "x"), dict.fromkeys(ends, 0), 0, 1).to_json())
    last = Progress("verify", "main", 0, "c", 0, "1-a", 1, extent, 1, list(_SINKS), list(_SINKS))
    producer.produce(progress, last.to_bytes(), last.key, 0)
    producer.flush()
    tables = {
        name: {"topic": name, "mode": "upsert", "format": "json", "primary_key": _KEYS[name], "columns": columns}
        for name, columns in _TABLES.items()
    }
    sinks = {
        name: {"topic": name, "mode": "upsert", "format": "json", "key": key, "sql": sql}
        for name, (key, sql) in _SINKS.items()
    }
    job = folder / "job.yaml"
    job.write_text(json.dumps({"job": "verify", "kafka": kafka, "tables": tables, "sinks": sinks}))
    return job


def _audit(job: Path, memory: str) -> _Audit:
    scratch = job.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "rowkind", "verify", str(job), "--memory", memory, "-o", "json"]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(scratch)})
    assert process.stdout is not None
    largest, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            # DuckDB removes files meanwhile.
            with suppress(FileNotFoundError):
                largest[0] = max(largest[0], sum(each.stat().st_blocks * 512 for each in scratch.rglob("*")))

    watcher = threading.Thread(target=watch)
    watcher.start()
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    ended.set()
    watcher.join()
    process.stdout.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, said
    wall = time.perf_counter() - began
    return _Audit(wall, used.ru_maxrss * 1024, largest[0], [json.loads(line) for line in said.splitlines()])


if __name__ == "__main__":
    sys.exit(main())
