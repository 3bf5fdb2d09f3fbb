"""Time and memory of `rowkind why`: `python -m tests.bench.why`.

Each of two tables, `orders` and `payments`, has the given number of rows, in a topic with one partition.

- `join`: the key names a payment, which joins one order. Both tables are read, and one row of each is kept.
- `window`: the key names a window and a customer. All rows move the watermark. A few of them are kept for that.
- `all rows`: the key names a row of the largest ten orders. It depends on all orders, so all of them are kept.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rowkind.service.dev.broker import Broker
from tests.bench.command import measured
from tests.bench.compare import page
from tests.bench.compare.page import Table

_MB = 1 << 20
_SQL = {
    "join": "SELECT p.payment_id, o.amount FROM orders o JOIN payments p ON o.order_id = p.order_id",
    "window": (
        "SELECT window_start, customer, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), "
        "INTERVAL '10' MINUTES)) GROUP BY window_start, window_end, customer"
    ),
    "all rows": (
        "SELECT order_id, n FROM (SELECT order_id, ROW_NUMBER() OVER (ORDER BY amount DESC, order_id) AS n "
        "FROM orders) WHERE n <= 10"
    ),
}
_CUSTOMERS = 1_000
_COLUMNS = {
    "orders": {"order_id": "BIGINT NOT NULL", "customer": "BIGINT", "amount": "BIGINT", "at": "TIMESTAMP NOT NULL"},
    "payments": {"payment_id": "BIGINT NOT NULL", "order_id": "BIGINT"},
}


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.why", description="rowkind why over large topics.")
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000], help="of each table")
    parser.add_argument("--only", choices=_SQL, nargs="+", default=[*_SQL])
    parser.add_argument("--write", action="store_true", help="put the table into tests/bench/README.md")
    given, lines = parser.parse_args(), []
    for rows in given.rows:
        with Broker() as broker, tempfile.TemporaryDirectory(prefix="rowkind-why-") as folder:
            kafka: dict[str, str | int | float | bool] = {"bootstrap.servers": broker.bootstrap_servers}
            _fill(kafka, rows)
            for name in given.only:
                lines.append([name, f"{rows:,}", *_measured(_job(Path(folder), kafka, name), name, rows)])
                print(lines[-1], flush=True)
    head = ["", "rows of each table", "seconds", "CPU s", "peak MB"]
    note = f"`rowkind why`, from start to exit. {page.machine()}."
    table = Table("Rows explained by `rowkind why`", head, lines, note)
    print(table.text())
    if given.write:
        page.write("why", [table])
    return 0


def _fill(kafka: Mapping[str, Any], rows: int) -> None:
    admin = AdminClient(dict(kafka))
    for made in admin.create_topics([NewTopic(name, 1) for name in _COLUMNS]).values():
        made.result()
    producer = Producer({**kafka, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for number in range(rows):
        # One second of event time for every hundred orders.
        order = b'{"order_id":%d,"customer":%d,"amount":%d,"at":%d}'
        second = 1_767_268_800_000 + number // 100 * 1_000
        producer.produce("orders", order % (number, number % _CUSTOMERS, number * 7 % 100_003, second))
        producer.produce("payments", b'{"payment_id":%d,"order_id":%d}' % (number, number))
        if number % 10_000 == 0:
            producer.flush()
    producer.flush()


def _job(folder: Path, kafka: Mapping[str, Any], name: str) -> Path:
    tables: dict[str, dict[str, Any]] = {
        table: {"topic": table, "mode": "append", "format": "json", "columns": columns}
        for table, columns in _COLUMNS.items()
    }
    tables["orders"]["watermark"] = {"column": "at", "delay": "5s"}
    sink = {"topic": "result", "mode": "retract", "format": "json", "sql": _SQL[name]}
    file = folder / "job.yaml"
    file.write_text(json.dumps({"job": "why", "kafka": kafka, "tables": tables, "sinks": {"result": sink}}))
    return file


def _measured(job: Path, name: str, rows: int) -> tuple[str, str, str]:
    """Return the wall and CPU seconds and the peak of resident memory in MB of one command."""
    key = {
        "join": [f"payment_id={rows // 2}"],
        "window": ["window_start=2026-01-01T12:00:00Z", "customer=7"],
        "all rows": ["n=10"],
    }
    command = [sys.executable, "-m", "rowkind", "why", str(job), "result", *key[name], "-o", "json"]
    found = measured(command)
    assert json.loads(found.output)["present"], found.output
    return (f"{found.wall:,.1f}", f"{found.cpu:,.1f}", f"{found.peak / _MB:,.0f}")


if __name__ == "__main__":
    sys.exit(main())
