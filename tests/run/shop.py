"""A shop with topics of its own on the embedded broker: what happens in it is told there, and a job reads it.

Rows are written with fastavro, framed by hand and sent with a plain producer, so that nothing of the product's own
writing is used to test its reading.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from fastavro import parse_schema, schemaless_writer

from avro.registry import FolderRegistry
from avro.schema import Record
from service.dev.demo.data import Event, Table

COLUMNS: Mapping[Table, Mapping[str, str]] = {
    "orders": {
        "order_id": "BIGINT NOT NULL",
        "customer": "STRING",
        "amount": "DECIMAL(10,2)",
        "status": "STRING",
        "placed": "TIMESTAMP",
    },
    "payments": {
        "payment_id": "BIGINT NOT NULL",
        "order_id": "BIGINT",
        "paid": "DECIMAL(10,2)",
        "method": "STRING",
    },
}
KEYS: Mapping[Table, str] = {"orders": "order_id", "payments": "payment_id"}

Headers = list[tuple[str, bytes | None]]


class Shop:
    """The topics `<name>-orders` and `<name>-payments` with their schemas, and the folder that holds the job."""

    def __init__(self, servers: str, folder: Path, name: str, partitions: int = 2) -> None:
        self.servers = servers
        self.folder = folder
        self.name = name
        self.registry = FolderRegistry(folder / "schemas")
        self.events: list[Event] = []
        records = {table: Record.of(columns, name=table) for table, columns in COLUMNS.items()}
        self._schemas = {table: parse_schema(json.loads(record.to_json())) for table, record in records.items()}
        self._ids = {
            table: self.registry.register(f"{self.topic(table)}-value", record) for table, record in records.items()
        }
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        for made in admin.create_topics([NewTopic(self.topic(table), partitions, 1) for table in COLUMNS]).values():
            made.result()
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})

    def topic(self, name: str) -> str:
        """The name of one of the shop's topics."""
        return f"{self.name}-{name}"

    def job(self, sinks: Mapping[str, Mapping[str, Any]], **changed: Any) -> Path:
        """A job file, in JSON, which is YAML too; its tables are the shop's unless `changed` has others.

        The topics of the tables and of the `sinks` are the shop's own.
        """
        job = {
            "job": self.name,
            "kafka": {"bootstrap.servers": self.servers},
            "registry": {"folder": "schemas"},
            "checkpoint": str(self.checkpoint),
            "dead_letters": {"topic": self.topic("dead-letters")},
            "tables": {name: self.table(name) for name in COLUMNS},
            "sinks": {name: {"topic": self.topic(name), **sink} for name, sink in sinks.items()},
        }
        path = self.folder / "job.yaml"
        path.write_text(json.dumps(job | changed, indent=1))
        return path

    def table(self, name: Table, **changed: Any) -> dict[str, Any]:
        """A table of the job over the shop's topic of that name."""
        declared = {"topic": self.topic(name), "mode": "retract", "columns": COLUMNS[name], "primary_key": KEYS[name]}
        return declared | changed

    @property
    def checkpoint(self) -> Path:
        """Where the job keeps offsets and state."""
        return self.folder / "checkpoint"

    def happens(self, events: Iterable[Event]) -> None:
        """Tell the topics what happens, and remember it; returns when the broker has it all."""
        for event in events:
            self.events.append(event)
            key = str(event.row[KEYS[event.table]]).encode()
            self.tell(event.table, key, self.value(event.table, event.row), [("op", event.kind.symbol.encode())])
        self.flush()

    def tell(self, table: Table, key: bytes | None, value: bytes | None, headers: Headers | None = None) -> None:
        """Send any record at all to the topic of a table."""
        while True:
            try:
                self._producer.produce(self.topic(table), value, key, headers=headers)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def flush(self) -> None:
        """Wait for the broker."""
        assert self._producer.flush(60) == 0, "the broker did not take everything"

    def value(self, table: Table, row: Mapping[str, Any]) -> bytes:
        """A row as the record's value."""
        packed = io.BytesIO()
        packed.write(b"\0" + self._ids[table].to_bytes(4, "big"))
        schemaless_writer(packed, self._schemas[table], dict(row))
        return packed.getvalue()
