"""A job without a schema registry: its tables are JSON and Debezium JSON, and its results are JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from rowkind.service.dev.broker import Broker
from tests.kafka.sinks import committed
from tests.run.process import Rowkind, until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SLOW = 200
SQL = "SELECT o.id, o.customer, p.paid FROM orders o LEFT JOIN payments p ON o.id = p.order_id"
PAID, LESS = "BOI=", "Arw="
"""The decimals 12.50 and 7.00 in Kafka Connect's encoding."""


class Topics:
    """The topics of the job, and the job file."""

    def __init__(self, servers: str, folder: Path) -> None:
        self.servers, self.folder, self.name = servers, folder, f"formats-{os.getpid()}"
        self.admin = AdminClient({"bootstrap.servers": servers})
        wanted = {f"{self.name}-orders": "compact", f"{self.name}-payments": "delete"}
        topics = [NewTopic(name, 1, config={"cleanup.policy": policy}) for name, policy in wanted.items()]
        for made in self.admin.create_topics(topics).values():
            made.result()
        self.producer = Producer({"bootstrap.servers": servers})

    def job(self) -> Path:
        """Write the job file."""
        table = {"format": "json"}
        sink = {"format": "json", "sql": SQL}
        job = {
            "job": self.name,
            "kafka": {"bootstrap.servers": self.servers},
            "checkpoint": str(self.folder / "checkpoint"),
            "tables": {
                "orders": table
                | {
                    "topic": f"{self.name}-orders",
                    "mode": "debezium",
                    "columns": {"id": "BIGINT", "customer": "STRING"},
                    "primary_key": "id",
                    "on_truncate": "empty",
                },
                "payments": table
                | {
                    "topic": f"{self.name}-payments",
                    "mode": "append",
                    "columns": {"order_id": "BIGINT", "paid": "DECIMAL(10,2)"},
                },
            },
            "sinks": {
                "log": sink | {"topic": f"{self.name}-log", "mode": "retract"},
                "last": sink
                | {
                    "topic": f"{self.name}-last",
                    "mode": "upsert",
                    "key": "id",
                    "connect_schema": True,
                    "sql": f"SELECT id, COUNT(paid) AS payments, SUM(paid) AS paid FROM ({SQL}) GROUP BY id",
                },
            },
        }
        (self.folder / "job.yaml").write_text(json.dumps(job))
        return self.folder / "job.yaml"

    def order(self, op: str, number: int, before: Any, after: Any, partition: int = 0) -> None:
        """Send an envelope as Debezium writes it without schemas, and a tombstone after a delete."""
        key = json.dumps({"id": number})
        rows = {
            name: None if row is None else {"id": number, "customer": row}
            for name, row in (("before", before), ("after", after))
        }
        value = json.dumps({**rows, "op": op, "source": {"lsn": 1}, "ts_ms": 5})
        self.producer.produce(f"{self.name}-orders", value, key, partition)
        if op == "d":
            self.producer.produce(f"{self.name}-orders", None, key, partition)
        self.producer.flush()

    def widen(self, table: str, partitions: int) -> None:
        """Add partitions to a topic, and wait until a producer knows them."""
        name = f"{self.name}-{table}"
        self.admin.create_partitions([NewPartitions(name, partitions)])[name].result()
        self.producer = Producer({"bootstrap.servers": self.servers})
        until(lambda: len(self.producer.list_topics(name, 10).topics[name].partitions) == partitions, "partitions")

    def payment(self, value: str) -> None:
        """Send a record with this value."""
        self.producer.produce(f"{self.name}-payments", value)
        self.producer.flush()

    def rows(self, sink: str) -> Iterable[Any]:
        """Return the records of a sink."""
        return committed({"bootstrap.servers": self.servers}, f"{self.name}-{sink}")

    def folded(self) -> dict[int, Any]:
        """Return the rows that the upsert topic stands for, by id."""
        rows: dict[int, Any] = {}
        for record in self.rows("last"):
            number = json.loads(record.key())["payload"]["id"]
            if record.value() is None:
                rows.pop(number, None)
            else:
                rows[number] = json.loads(record.value())["payload"]
        return rows


def test_a_job_needs_no_registry(broker: Broker, tmp_path: Path) -> None:
    """Rows may gain members and topics partitions while the job runs; an invalid row stops it with a reason."""
    at = Topics(broker.bootstrap_servers, tmp_path)
    job = str(at.job())
    with Rowkind(tmp_path / "output", "topics", "create", job) as made:
        assert made.ended(60).code == 0, made.error
    at.order("r", 1, None, "Ada")
    at.order("u", 1, None, "Ada L.")
    at.order("c", 2, None, "Blaise")
    at.payment('{"order_id": 1, "paid": 12.5}')
    with Rowkind(tmp_path / "output", "run", job, "--port", "0") as running:

        def reaches(wanted: dict[int, Any]) -> None:
            until(lambda: at.folded() == wanted, "the result", lambda: f"{at.folded()}{running.error}", SLOW)

        reaches({1: {"id": 1, "payments": 1, "paid": PAID}, 2: {"id": 2, "payments": 0, "paid": None}})
        at.widen("orders", 2)
        at.order("d", 2, {"id": 2}, None)
        at.order("c", 3, None, "Carl", partition=1)
        at.payment('{"order_id": 3, "paid": "7.00", "method": "card"}')
        reaches({1: {"id": 1, "payments": 1, "paid": PAID}, 3: {"id": 3, "payments": 1, "paid": LESS}})
        kinds = [(dict(each.headers())["op"], json.loads(each.value())) for each in at.rows("log")]
        assert (b"-D", {"id": 2, "customer": "Blaise", "paid": None}) in kinds
        at.order("t", 0, None, None)
        reaches({})
        at.order("c", 3, None, "Carl", partition=1)
        reaches({3: {"id": 3, "payments": 1, "paid": LESS}})
        at.payment('{"order_id": "three"}')
        ended = running.ended(SLOW)
    assert ended.code == 1, ended.error
    assert 'order_id: "three" is not BIGINT' in ended.error
    assert "Traceback" not in ended.error
