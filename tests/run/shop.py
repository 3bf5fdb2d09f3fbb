"""A shop with topics of its own on the embedded broker: what happens in it is told there, and a job reads it.

Rows are written with fastavro, framed by hand and sent with a plain producer, so that nothing of the product's own
writing is used to test its reading.
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
    """A record that was sent; its place is known once the broker has it."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    topic: str
    partition: int = -1
    offset: int = -1

    def deliver(self, error: KafkaError | None, message: Message) -> None:
        """What the producer calls."""
        assert error is None, error
        self.partition, self.offset = message.partition(), message.offset()


class Shop:
    """The topics `<name>-<table>` with their schemas, and the folder that holds the job."""

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
        """Make the topics, set so, unless it has been `opened` before."""
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

    def table(self, name: str, **changed: Any) -> dict[str, Any]:
        """A table of the job over the shop's topic of that name."""
        key = {"primary_key": KEYS[name]} if name in KEYS else {}
        return {"topic": self.topic(name), "mode": MODES[name], "columns": COLUMNS[name], **key, **changed}

    @property
    def checkpoint(self) -> Path:
        """Where the job keeps offsets and state."""
        return self.folder / "checkpoint"

    def happens(self, events: Iterable[Event]) -> None:
        """Tell the topics what happens, and remember it; returns when the broker has it all."""
        new = list(events)
        self.events += new
        self.say(new)

    def say(self, events: Iterable[Event]) -> None:
        """Tell the topics, maybe once more, and remember nothing."""
        for event in events:
            self.row(event.table, event.kind.symbol, **event.row)
        self.flush()

    def tell(self, table: str, key: bytes | None, value: bytes | None, headers: Headers | None = None) -> Told:
        """Send any record at all to the topic of a table."""
        told = Told(key, value, headers or [], self.topic(table))
        while True:
            try:
                self._producer.produce(told.topic, value, key, headers=headers, on_delivery=told.deliver)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return told

    def row(self, table: str, kind: str | None = None, **row: Any) -> Told:
        """Send a row of a table, with the row kind if one is given, so that rows of one key keep their order."""
        key = str(row[KEYS[table]]).encode() if table in KEYS else None
        return self.tell(table, key, self.value(table, row), [("op", kind.encode())] if kind else None)

    def more_partitions(self, table: str) -> None:
        """The topic of a table gets another partition, and what happens from now on may be in it."""
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        topic = self.topic(table)
        wanted = len(admin.list_topics(topic, timeout=30).topics[topic].partitions) + 1
        admin.create_partitions([NewPartitions(topic, wanted)])[topic].result()
        # The old one may not have heard of it.
        self._producer = self._connect()
        deadline = time.monotonic() + 30
        while len(self._producer.list_topics(topic, timeout=30).topics[topic].partitions) < wanted:
            assert time.monotonic() < deadline, "the brokers know nothing of a new partition"

    def forget(self, table: str) -> None:
        """All records of the topic of a table are gone, as when retention was too short."""
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        topic = self.topic(table)
        # -1 is the end.
        ends = [
            TopicPartition(topic, each, -1) for each in admin.list_topics(topic, timeout=30).topics[topic].partitions
        ]
        for deleted in admin.delete_records(ends).values():
            deleted.result()

    def delete(self, topic: str) -> None:
        """A topic is gone."""
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        admin.delete_topics([topic])[topic].result()
        deadline = time.monotonic() + 30
        while topic in admin.list_topics(timeout=30).topics:
            assert time.monotonic() < deadline, f"topic {topic} is still there"

    def remake(self, table: str) -> None:
        """The topic of a table is deleted and made anew, with nothing in it."""
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        topic = self.topic(table)
        partitions = len(admin.list_topics(topic, timeout=30).topics[topic].partitions)
        self.delete(topic)
        admin.create_topics([NewTopic(topic, partitions)])[topic].result()
        # The old one knows the topic that is gone.
        self._producer = self._connect()

    def flush(self) -> None:
        """Wait for the broker."""
        assert self._producer.flush(60) == 0, "the broker did not take everything"

    def value(self, table: str, row: Mapping[str, Any]) -> bytes:
        """A row as the record's value."""
        packed = io.BytesIO()
        packed.write(b"\0" + self._ids[table].to_bytes(4, "big"))
        schemaless_writer(packed, self._schemas[table], dict(row))
        return packed.getvalue()
