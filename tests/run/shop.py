"""A shop with its own topics on the embedded broker: events are sent to the topics, and a job reads them.

Rows are written with fastavro, framed by hand and sent with a plain producer, so that the product's own writing is not
used to test its reading.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from fastavro import parse_schema, schemaless_writer

from rowkind.avro.registry import FolderRegistry
from rowkind.avro.schema import Record
from rowkind.service.dev.demo.data import Event

COLUMNS: Mapping[str, Mapping[str, str]] = {
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
    "ratings": {"rating_id": "BIGINT NOT NULL", "stars": "INT"},
    "stock": {"item": "STRING NOT NULL", "pieces": "BIGINT"},
}
KEYS: Mapping[str, str] = {"orders": "order_id", "payments": "payment_id", "stock": "item"}
MODES: Mapping[str, str] = {"orders": "retract", "payments": "retract", "ratings": "append", "stock": "upsert"}

Headers = list[tuple[str, bytes | None]]


@dataclass
class Told:
    """A record that was sent; its partition and offset are known once the broker has it."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    topic: str
    partition: int = -1
    offset: int = -1

    def deliver(self, error: KafkaError | None, message: Message) -> None:
        """Set the record's place; the producer calls this."""
        assert error is None, error
        self.partition, self.offset = message.partition(), message.offset()


class Shop:
    """The topics `<name>-<table>` with their schemas, and the folder of the job file."""

    def __init__(
        self,
        servers: str,
        folder: Path,
        name: str,
        partitions: int = 2,
        *,
        opened: bool = False,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create the topics with the settings in `config`, unless an earlier run has done so (`opened`)."""
        self.servers = servers
        self.folder = folder
        self.name = name
        self.registry = FolderRegistry(folder / "schemas")
        self.events: list[Event] = []
        self.has_lost_records = False
        records = {table: Record.of(columns, name=table) for table, columns in COLUMNS.items()}
        self._schemas = {table: parse_schema(json.loads(record.to_json())) for table, record in records.items()}
        self._ids = {
            table: self.registry.register(f"{self.topic(table)}-value", record) for table, record in records.items()
        }
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        wanted = (
            [] if opened else [NewTopic(self.topic(table), partitions, config=dict(config or {})) for table in COLUMNS]
        )
        for made in admin.create_topics(wanted).values() if wanted else ():
            made.result()
        self._producer = self._connect()

    def _connect(self) -> Producer:
        settings: dict[str, Any] = {"bootstrap.servers": self.servers, "enable.idempotence": True, "log_level": 0}
        return Producer({**settings, "message.max.bytes": 20_000_000})

    def topic(self, name: str) -> str:
        """Return the name of one of the shop's topics."""
        return f"{self.name}-{name}"

    def job(self, sinks: Mapping[str, Mapping[str, Any]], **changed: Any) -> Path:
        """Write a job file in JSON, which is also YAML. Its tables are the shop's unless `changed` replaces them.

        The topics of the tables and of the `sinks` belong to the shop. A sink with `to` has no topic.
        """
        job = {
            "job": self.name,
            "kafka": {"bootstrap.servers": self.servers},
            "registry": {"folder": "schemas"},
            "checkpoint": str(self.checkpoint),
            "dead_letters": {"topic": self.topic("dead-letters")},
            "tables": {name: self.table(name) for name in COLUMNS},
            "sinks": {
                name: sink if "to" in sink else {"topic": self.topic(name), **sink} for name, sink in sinks.items()
            },
        }
        path = self.folder / "job.yaml"
        path.write_text(json.dumps(job | changed, indent=1))
        return path

    def table(self, name: str, **changed: Any) -> dict[str, Any]:
        """Return a table of the job over the shop's topic of the same name."""
        key = {"primary_key": KEYS[name]} if name in KEYS else {}
        return {"topic": self.topic(name), "mode": MODES[name], "columns": COLUMNS[name], **key, **changed}

    @property
    def checkpoint(self) -> Path:
        """The folder in which the job keeps offsets and state."""
        return self.folder / "checkpoint"

    def happens(self, events: Iterable[Event]) -> None:
        """Send events to the topics and remember them; return when the broker has all of them."""
        new = list(events)
        self.events += new
        self.say(new)

    def say(self, events: Iterable[Event]) -> None:
        """Send events to the topics, possibly once more, without remembering them."""
        for event in events:
            self.row(event.table, event.kind.symbol, **event.row)
        self.flush()

    def tell(self, table: str, key: bytes | None, value: bytes | None, headers: Headers | None = None) -> Told:
        """Send any record to the topic of a table."""
        told = Told(key, value, headers or [], self.topic(table))
        while True:
            try:
                self._producer.produce(told.topic, value, key, headers=headers, on_delivery=told.deliver)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return told

    def row(self, table: str, kind: str | None = None, **row: Any) -> Told:
        """Send a row of a table, with its row kind if given. Rows with the same key keep their order."""
        key = str(row[KEYS[table]]).encode() if table in KEYS else None
        return self.tell(table, key, self.value(table, row), [("op", kind.encode())] if kind else None)

    def more_partitions(self, table: str) -> None:
        """Add a partition to the topic of a table; later events may go to it."""
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        topic = self.topic(table)
        wanted = len(admin.list_topics(topic, timeout=30).topics[topic].partitions) + 1
        admin.create_partitions([NewPartitions(topic, wanted)])[topic].result()
        # The old producer may not know the new partition yet.
        self._producer = self._connect()
        deadline = time.monotonic() + 30
        while len(self._producer.list_topics(topic, timeout=30).topics[topic].partitions) < wanted:
            assert time.monotonic() < deadline, "the brokers know nothing of a new partition"

    def forget(self, table: str) -> None:
        """Delete all records in the topic of a table, as retention does if it is too short."""
        self.has_lost_records = True
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        topic = self.topic(table)
        # Offset -1 means the end.
        ends = [
            TopicPartition(topic, each, -1) for each in admin.list_topics(topic, timeout=30).topics[topic].partitions
        ]
        for deleted in admin.delete_records(ends).values():
            deleted.result()

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone."""
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        admin.delete_topics([topic])[topic].result()
        deadline = time.monotonic() + 30
        while topic in admin.list_topics(timeout=30).topics:
            assert time.monotonic() < deadline, f"topic {topic} is still there"

    def remake(self, table: str) -> None:
        """Delete the topic of a table and create it again, empty."""
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        topic = self.topic(table)
        partitions = len(admin.list_topics(topic, timeout=30).topics[topic].partitions)
        self.delete(topic)
        admin.create_topics([NewTopic(topic, partitions)])[topic].result()
        # The old producer knows the deleted topic.
        self._producer = self._connect()

    def flush(self) -> None:
        """Wait until the broker has all records."""
        assert self._producer.flush(60) == 0, "the broker did not take everything"

    def value(self, table: str, row: Mapping[str, Any]) -> bytes:
        """Encode a row as a record's value."""
        packed = io.BytesIO()
        packed.write(b"\0" + self._ids[table].to_bytes(4, "big"))
        schemaless_writer(packed, self._schemas[table], dict(row))
        return packed.getvalue()
