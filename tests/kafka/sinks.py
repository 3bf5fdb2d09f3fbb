"""Sinks for the tests of the writer: specs, changes, and the records that a read_committed consumer then finds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from rowkind.avro.framing import split
from rowkind.avro.registry import FolderRegistry
from rowkind.operators.changelog import SYMBOLS
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.block import Block, Counters
from rowkind.operators.columns.changes import Changes, binary, constant
from rowkind.operators.columns.hashing import hash64
from rowkind.service.dev.broker import Broker
from rowkind.service.kafka import topics
from rowkind.service.kafka.progress import BatchPartition
from rowkind.service.kafka.sink import Counted, write
from rowkind.service.kafka.spec import SinkSpec, WriterSpec
from tests.kafka.tables import ORDER_KEY, ORDERS, Row, packed, settings, unpacked

Change = tuple[str, Row]
_MARKED_SECONDS = 3.0


def changes(*given: Change, first_seq: int = 0) -> Changes:
    """Return changes of orders in arrival order, keyed by id as for a Kafka topic."""
    rows = [row for _, row in given]
    key = binary(packed(ORDER_KEY, [{"id": row["id"]} for row in rows]))
    return Changes(
        np.zeros(len(rows), np.int8),
        np.array([SYMBOLS.index(kind) for kind, _ in given], np.int8),
        hash64(key),
        key,
        constant(b"", len(rows)),
        np.arange(first_seq, first_seq + len(rows)),
        binary(packed(ORDERS, rows)),
    )


@dataclass(frozen=True)
class Message:
    """A record of a result topic."""

    partition: int
    offset: int
    key: int | None
    row: Row | None
    headers: list[tuple[str, bytes | None]] | None
    raw_key: bytes | None


@dataclass
class Sink:
    """A query with one sink, or with several (`beside`): its spec, its topic, and a writer for it."""

    spec: WriterSpec

    @property
    def of(self) -> SinkSpec:
        """The first sink of the query."""
        return next(iter(self.spec.sinks.values()))

    @property
    def topic(self) -> str:
        """The topic of the first sink."""
        return self.of.topic

    def beside(self, *others: Sink) -> Sink:
        """Return a query that writes all of these topics, numbered in order, with this sink's progress topic."""
        return Sink(replace(self.spec, sinks=dict(enumerate(each.of for each in (self, *others)))))

    def write(
        self,
        *parts: Changes | Batch,
        batch: int = 0,
        partition: int = 0,
        checkpoint: str = "c",
        counters: Counters | None = None,
    ) -> Counted:
        """Write as the task of `partition` in `batch` does."""
        blocks = [
            Block(part if isinstance(part, Batch) else Batch(part), (counters or {}) if number == 0 else {}).to_bytes()
            for number, part in enumerate(parts)
        ]
        return write(self.spec, BatchPartition(checkpoint, batch, partition), [pa.py_buffer(block) for block in blocks])

    def messages(self, topic: str | None = None) -> list[Message]:
        """Return the records that a read_committed consumer sees, partition by partition."""
        return [
            Message(
                message.partition(),
                message.offset(),
                None if message.key() is None else int(_row(ORDER_KEY, message.key())["id"]),
                None if message.value() is None else _row(ORDERS, message.value()),
                message.headers(),
                message.key(),
            )
            for message in committed(self.spec.kafka, topic or self.topic)
        ]

    def ops(self, topic: str | None = None) -> list[tuple[str, Row]]:
        """Return row kind header and row of each message."""
        return [(message.headers[0][1].decode(), message.row) for message in self.messages(topic)]


def _row(record: Any, value: bytes) -> Row:
    return unpacked(record, split(binary([value])).payload)[0]


def committed(kafka: Any, topic: str) -> list[Any]:
    """Return all committed records of a topic."""
    _settle(kafka, topic)
    consumer = Consumer(
        {
            **kafka,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 5,
        }
    )
    try:
        parts = sorted(consumer.list_topics(topic, 10).topics[topic].partitions)
        found: list[Any] = []
        for part in parts:
            consumer.assign([TopicPartition(topic, part, 0)])
            while True:
                message = consumer.poll(20)
                assert message is not None, "nothing came"
                if message.error() is None:
                    found.append(message)
                    continue
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                break
        return found
    finally:
        consumer.close()


def _settle(kafka: Any, topic: str) -> None:
    """Wait until no transaction is open: brokers mark partitions only after they have reported the commit.

    A transaction that a test leaves open stays open; the wait is limited.
    """
    admin, deadline = AdminClient(dict(kafka)), time.monotonic() + _MARKED_SECONDS
    parts = admin.list_topics(topic, 10).topics[topic].partitions
    asked = {TopicPartition(topic, part): OffsetSpec.latest() for part in parts}

    def ends(level: IsolationLevel) -> list[int]:
        return [answer.result().offset for answer in admin.list_offsets(asked, isolation_level=level).values()]

    def settled() -> bool:
        try:
            return ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED)
        except KafkaException as error:
            # A topic that has just been created may have no leader yet.
            if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:
                raise
            return False

    while not settled() and time.monotonic() < deadline:
        admin.poll(0.02)


MakeSink = Callable[..., Sink]
"""Makes a sink over a new topic; keyword arguments change its spec or the query's, and `partitions` the topic's."""


def fresh_sink(broker: Broker, new_topic: Callable[..., str], schemas: FolderRegistry, **changed: Any) -> Sink:
    """Return a query with one sink over a new topic, with its progress topic."""
    partitions = changed.pop("partitions", 1)
    topic = new_topic(partitions)
    form = changed.get("form", "retract")
    forms = topics.register(schemas, topic, ORDERS, ORDER_KEY)
    sink = SinkSpec(
        sink=topic,
        topic=topic,
        form=form,
        keyed=True,
        by_seq=False,
        value=forms.value,
        key=forms.key,
    )
    if form == "upsert":
        sink = replace(sink, row_kind=None)
    own = {each.name: changed.pop(each.name) for each in fields(SinkSpec) if each.name in changed}
    spec = WriterSpec(
        job="job",
        query=topic,
        sinks={0: replace(sink, **own)},
        kafka=settings(broker),
        progress_topic=topics.progress_name("job", topic),
    )
    topics.create(spec.kafka, [topics.progress_topic("job", topic, 4)])
    return Sink(replace(spec, **changed))


def symbols(messages: Iterable[Message]) -> list[bytes | None]:
    """Return the row kind headers."""
    return [message.headers[0][1] if message.headers else None for message in messages]
