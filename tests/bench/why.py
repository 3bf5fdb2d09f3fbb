"""`python -m tests.bench.why`: time and memory of `rowkind why` over topics with many rows.

Each of two tables has the given number of rows. The key names a row of one of them, which joins one row of the other.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rowkind.service.dev.broker import Broker

_SQL = "SELECT p.payment_id, o.amount FROM orders o JOIN payments p ON o.order_id = p.order_id"


def main() -> None:
    """Print the seconds and the largest resident memory of one command."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.why")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of each table")
    given = parser.parse_args()
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        servers = broker.bootstrap_servers
        tables = {
            name: {"topic": name, "mode": "append", "format": "json", "columns": columns}
            for name, columns in (
                ("orders", {"order_id": "BIGINT NOT NULL", "amount": "BIGINT"}),
                ("payments", {"payment_id": "BIGINT NOT NULL", "order_id": "BIGINT"}),
            )
        }
        sinks = {"paid": {"topic": "paid", "mode": "retract", "format": "json", "sql": _SQL}}
        job = Path(folder) / "job.yaml"
        kafka: dict[str, str | int | float | bool] = {"bootstrap.servers": servers}
        job.write_text(json.dumps({"job": "why", "kafka": kafka, "tables": tables, "sinks": sinks}))
        admin = AdminClient(kafka)
        for made in admin.create_topics([NewTopic(name, 1) for name in tables]).values():
            made.result()
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
        for number in range(given.rows):
            producer.produce("orders", b'{"order_id":%d,"amount":5}' % number)
            producer.produce("payments", b'{"payment_id":%d,"order_id":%d}' % (number, number))
            if number % 10_000 == 0:
                producer.flush()
        producer.flush()
        began = time.monotonic()
        command = [sys.executable, "-m", "rowkind", "why", str(job), "paid", f"payment_id={given.rows // 2}"]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        seconds = time.monotonic() - began
    assert json.loads(found)["present"], found
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3
    print(f"{given.rows:,} rows in each table: {seconds:.1f} s, largest child process {peak:,.0f} MB")


if __name__ == "__main__":
    main()
