"""What a consumer has received: records as columns, and events that are not records.

There are two readers of the same interface. `ColumnReader` (`service.kafka.columns`) needs the compiled library and
creates no Python object per record. `MessageReader` below works wherever confluent-kafka works.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message

from rowkind.operators.columns.changes import Int64s, binary
from rowkind.service.kafka.headers import Headers
from rowkind.service.kafka.record import Records

_PIECE_ROWS = 1_000
"""How many messages a `MessageReader` consumes at a time.

A small piece is processed before the next piece is consumed, so the next piece reuses memory that is still in the
processor's cache. A record then costs a third less than with pieces of 50,000 messages.
"""

_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class PartitionEvent:
    """An event of a partition that is not a record. `topic` is the topic's number, or -1 for an unknown topic."""

    topic: int
    partition: int
    offset: int | None
    error: KafkaError


@dataclass(frozen=True)
class Received:
    """Records in the order in which they arrived, and the events among them.

    `topic` has the number of each record's topic in the reader's list, or -1; the records' own `topic` is empty.
    """

    topic: Int64s
    records: Records
    events: Sequence[PartitionEvent] = ()


class RecordReader(Protocol):
    """Takes the records of a consumer's assigned partitions."""

    def begin(self, topics: Sequence[str], partitions: Sequence[tuple[str, int]]) -> None:
        """Number the topics. The given partitions are assigned to the consumer next."""

    def read(self, most_rows: int, most_bytes: int, seconds: float) -> Received:
        """Return records that have arrived, or wait for one record for some seconds. Both limits are approximate."""

    def end(self) -> None:
        """Forget the partitions."""

    def close(self) -> None:
        """Free what the reader holds, before the consumer is closed."""


class MessageReader:
    """Takes records as Python objects of confluent-kafka.

    `whole`: with all keys. Otherwise only records without a value have their keys.
    """

    def __init__(self, consumer: Consumer, *, whole: bool) -> None:
        self._consumer = consumer
        self._whole = whole
        self._rows = _PIECE_ROWS
        self._topics: dict[str | None, int] = {}

    def begin(self, topics: Sequence[str], partitions: Sequence[tuple[str, int]]) -> None:  # noqa: ARG002 - as the other
        """Number the topics."""
        self._topics = {topic: number for number, topic in enumerate(topics)}

    def read(self, most_rows: int, most_bytes: int, seconds: float) -> Received:  # noqa: ARG002 - pieces are smaller
        """Return the messages that have arrived, without waiting for a full piece, or wait for one."""
        rows = min(self._rows, most_rows)
        messages = self._consumer.consume(rows, 0) or self._consumer.consume(1, seconds)
        events: list[PartitionEvent] = []
        if any(map(Message.error, messages)):
            events = [self._event(message, error) for message in messages if (error := message.error()) is not None]
            messages = [message for message in messages if message.error() is None]
        arrived = self._columns(messages, events)
        if messages:
            self._rows = int(
                min(_PIECE_ROWS, max(16, _PIECE_BYTES * len(messages) / (arrived.records.value.nbytes + 1)))
            )
        return arrived

    def end(self) -> None:
        """Forget nothing: the consumer itself forgets the messages of partitions that are unassigned."""

    def close(self) -> None:
        """Free nothing."""

    def _event(self, message: Message, error: KafkaError) -> PartitionEvent:
        return PartitionEvent(self._topics.get(message.topic(), -1), message.partition() or 0, message.offset(), error)

    def _columns(self, messages: list[Message], events: Sequence[PartitionEvent]) -> Received:
        count = len(messages)
        topic = np.zeros(count, np.int64)
        if len(self._topics) > 1:
            topic = np.array([self._topics.get(each.topic(), -1) for each in messages], np.int64)
        value, key = binary(map(Message.value, messages)), pa.nulls(count, pa.binary())
        if value.null_count or self._whole:
            key = binary(each.key() if self._whole or each.value() is None else None for each in messages)
        headers: list[Any] = list(map(Message.headers, messages))
        times = [ms if kind else -1 for kind, ms in map(Message.timestamp, messages)]
        records = Records(
            "",
            np.fromiter(map(Message.partition, messages), np.int64, count),
            np.fromiter(map(Message.offset, messages), np.int64, count),
            value,
            key,
            Headers.of(headers) if any(headers) else None,
            np.array(times, np.int64),
        )
        return Received(topic, records, events)
