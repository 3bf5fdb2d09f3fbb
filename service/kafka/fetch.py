# ruff: noqa: SLF001 - the client's own codes are spelled with an underscore
"""Records of given offset ranges, fetched by a consumer that a worker keeps.

Offsets have gaps, where transactions left their markers or compaction took records out. So a range ends when a record
at or behind its end was seen, or when the partition's end was reported from there; never after so and so many records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from service.kafka.clients import ANSWER_SECONDS, Settings, consumer_settings, patiently, servers
from service.kafka.errors import LostOffsetsError, StalledReadError, translate
from service.kafka.offsets import At, Range
from service.kafka.record import Message, Records

_POLL_SECONDS = 0.05
_STALL_SECONDS = 60.0
_FIRST_ROWS = 1_000
_MOST_ROWS = 50_000
_CHUNK_BYTES = 8 << 20

OnLost = Mapping[str, Literal["fail", "earliest", "latest"]]
"""What to do, per topic, when retention overtakes a range while it is read."""


class Fetcher:
    """Reads ranges in chunks of about 8 MB, one task at a time."""

    def __init__(self, kafka: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._kafka = kafka
        self._clock = clock
        self._complaint = ""
        self._consumer = Consumer({**consumer_settings(kafka), "error_cb": self._complain})
        self._chunk = _FIRST_ROWS

    def close(self) -> None:
        """Let go of the brokers."""
        self._consumer.close()

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        """The earliest offset of a partition and its end. Raises KafkaException."""
        at = TopicPartition(topic, partition)
        low, high = patiently(lambda: self._consumer.get_watermark_offsets(at, ANSWER_SECONDS, cached=False))
        return int(low), int(high)

    def fetch(self, ranges: Sequence[Range], on_lost: OnLost) -> Generator[list[Records], None, None]:
        """All records of the ranges, by topic, chunk after chunk. Raises a ChangelogError."""
        left = {(part.topic, part.partition): part for part in ranges}
        position = {at: part.start for at, part in left.items()}
        self._consumer.assign([TopicPartition(*at, part.start) for at, part in left.items()])
        heard = self._clock()
        try:
            while left:
                rows = min(self._chunk, sum(part.end - position[at] for at, part in left.items()))
                events = self._consumer.consume(max(1, rows), _POLL_SECONDS)
                before = sum(position.values())
                chunk = self._sort(events, left, position, on_lost)
                if chunk:
                    yield _by_topic(chunk)
                    self._adapt(chunk)
                if sum(position.values()) > before:
                    heard = self._clock()
                elif self._clock() - heard > _STALL_SECONDS:
                    raise self._stalled(left, position)
        finally:
            self._consumer.unassign()

    def _sort(
        self, events: list[Any], left: dict[At, Range], position: dict[At, int], on_lost: OnLost
    ) -> dict[At, list[Message]]:
        """The records among the events that belong to what is left, by partition; takes out of `left` what is done."""
        failed = [event for event in events if event.error() is not None]
        chunk = _by_partition(events if not failed else [e for e in events if e.error() is None], list(position))
        for event in failed:
            at: At = (event.topic(), event.partition())
            if at in left and self._is_end(event, position, left[at], on_lost):
                position[at] = left[at].end
        for at in list(chunk):
            if at not in left:
                del chunk[at]
                continue
            end, messages = left[at].end, chunk[at]
            position[at] = max(position[at], messages[-1].offset() + 1)
            if position[at] > end:
                chunk[at] = [message for message in messages if message.offset() < end]
        done = [at for at, part in left.items() if position[at] >= part.end]
        for at in done:
            del left[at]
        if done and left:
            self._consumer.incremental_unassign([TopicPartition(*at) for at in done])
        return {at: messages for at, messages in chunk.items() if messages}

    def _is_end(self, event: Any, position: dict[At, int], part: Range, on_lost: OnLost) -> bool:
        """Whether the event ends the range; raises what it should not survive."""
        error: KafkaError = event.error()
        if error.code() == KafkaError._PARTITION_EOF:
            return bool(event.offset() >= part.end)
        at = (part.topic, part.partition)
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            earliest, _ = self.watermarks(*at)
            if on_lost[part.topic] == "fail":
                raise LostOffsetsError(*at, position[at], earliest)
            position[at] = earliest
            if earliest < part.end:
                self._consumer.incremental_unassign([TopicPartition(*at)])
                self._consumer.incremental_assign([TopicPartition(*at, earliest)])
            return earliest >= part.end
        doing = f"reading topic {part.topic}, partition {part.partition}"
        raise translate(KafkaException(error), servers(self._kafka), doing)

    def _adapt(self, chunk: Mapping[At, list[Message]]) -> None:
        """Choose the next chunk's rows so that it has about `_CHUNK_BYTES`, from a few of this one's records."""
        some = [len(message) for messages in chunk.values() for message in messages[:: 1 + len(messages) // 64]]
        mean = sum(some) / len(some) + 64
        self._chunk = int(min(_MOST_ROWS, max(16, _CHUNK_BYTES / mean)))

    def _stalled(self, left: Mapping[At, Range], position: Mapping[At, int]) -> StalledReadError:
        at, part = next(iter(left.items()))
        return StalledReadError(
            f"Topic {at[0]}, partition {at[1]}: nothing came for {_STALL_SECONDS:.0f} s at offset {position[at]}, "
            f"though records up to offset {part.end} were announced. {self._complaint or 'The brokers say nothing.'}"
        )

    def _complain(self, error: KafkaError) -> None:
        self._complaint = f"The last complaint was: {error.str()}."


def _by_partition(messages: list[Message], partitions: Sequence[At]) -> dict[At, list[Message]]:
    """The messages by partition, of which `partitions` are all that there can be; each method call counts here."""
    if len(partitions) == 1 or not messages:
        return {partitions[0]: messages} if messages else {}
    number = np.array([message.partition() for message in messages])
    names = sorted({topic for topic, _ in partitions})
    name = np.zeros(len(messages), np.int64)
    if len(names) > 1:
        index = {topic: i for i, topic in enumerate(names)}
        name = np.array([index[message.topic()] for message in messages])
    found: dict[At, list[Message]] = {}
    for topic, partition in partitions:
        members = np.flatnonzero((number == partition) & (name == names.index(topic)))
        if len(members):
            found[topic, partition] = [messages[i] for i in members.tolist()]
    return found


def _by_topic(chunk: Mapping[At, list[Message]]) -> list[Records]:
    topics = sorted({topic for topic, _ in chunk})
    records = []
    for topic in topics:
        parts = {at[1]: messages for at, messages in chunk.items() if at[0] == topic}
        partition = np.repeat(np.array(list(parts), np.int64), [len(messages) for messages in parts.values()])
        records.append(Records(topic, [message for messages in parts.values() for message in messages], partition))
    return records
