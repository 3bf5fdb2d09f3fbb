"""The demo's shop: a producer of orders and payments. It uses Kafka and Avro, and sets Rowkind's row kind header."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Iterable
from typing import Any
from zlib import crc32

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined] # it is public all the same
from fastavro import parse_schema, schemaless_writer

from rowkind.avro.registry import Registry
from rowkind.avro.schema import Record
from rowkind.operators.changelog import RowKind
from rowkind.service.dev.demo.data import Event
from rowkind.service.job.model import Job

_PARTITIONS = 4


class Shop:
    """Produces events to the topics of a job's tables `orders` and `payments`, which it creates if they are missing.

    `sent` counts the events produced so far. `closed` is set when the last event has reached the broker. A shop that
    opens again continues where it stopped: it skips as many events per partition as the partition already has.
    """

    def __init__(self, job: Job, registry: Registry) -> None:
        self.sent = 0
        self.closed = threading.Event()
        self._topics = {name: job.tables[name].topic for name in ("orders", "payments")}
        self._schemas: dict[str, tuple[bytes, Any, tuple[str, ...]]] = {}
        for name, topic in self._topics.items():
            table = job.tables[name]
            assert table.columns is not None, "the demo's tables declare their columns"
            record = Record.of(table.columns, name=name)
            prefix = b"\0" + registry.register(f"{topic}-value", record).to_bytes(4, "big")
            self._schemas[name] = prefix, parse_schema(json.loads(record.to_json())), table.primary_key
        settings: dict[str, str | int | float | bool] = {**job.brokers, "log_level": 0}
        admin = AdminClient(settings)
        self._there = self._open(admin)
        self._producer = Producer({**settings, "linger.ms": 5, "enable.idempotence": True})

    def produce(self, events: Iterable[Event], per_second: float) -> None:
        """Send the events that are not in the topics yet at this rate, then wait until they have arrived."""
        started = time.monotonic()
        for event in events:
            key = "/".join(str(event.row[column]) for column in self._schemas[event.table][2])
            there = self._there[self._topics[event.table]]
            at = TopicPartition(self._topics[event.table], crc32(key.encode()) % len(there))
            if there[at.partition]:
                there[at.partition] -= 1
                continue
            ahead = self.sent / per_second - (time.monotonic() - started)
            self._producer.poll(max(0.0, ahead) if ahead > 0.05 else 0)
            self._send(event, at, key)
            self.sent += 1
        self._producer.flush()
        self.closed.set()

    def _open(self, admin: AdminClient) -> dict[str, list[int]]:
        """Create missing topics, and return how many records each partition has ever received."""
        there = {topic: [0] * _PARTITIONS for topic in self._topics.values()}
        for topic, made in admin.create_topics([NewTopic(topic, _PARTITIONS) for topic in there]).items():
            try:
                made.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                there[topic] = _ends(admin, topic)
        return there

    def _send(self, event: Event, at: TopicPartition, key: str) -> None:
        prefix, schema, _ = self._schemas[event.table]
        value = io.BytesIO()
        value.write(prefix)
        schemaless_writer(value, schema, event.row)
        headers: list[tuple[str, str | bytes | None]] = [("op", RowKind(event.kind).symbol.encode())]
        self._producer.produce(at.topic, value.getvalue(), key, at.partition, headers=headers)


def _ends(admin: AdminClient, topic: str) -> list[int]:
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call] # it has no types
    partitions = admin.list_topics(topic).topics[topic].partitions
    found = admin.list_offsets({TopicPartition(topic, partition): latest for partition in sorted(partitions)})
    return [end.result().offset for end in found.values()]
