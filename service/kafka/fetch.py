# ruff: noqa: SLF001 - the client's own error codes begin with an underscore
"""Fetch the records of given offset ranges with a consumer that the worker keeps between tasks.

Transaction markers and compaction leave gaps in the offsets, so a count of records does not show whether a range is
complete. A range is complete when a record at or after its end has been seen, or when the consumer reports that the
partition ends there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from rowkind.operators.columns.changes import Indices, Int64s
from rowkind.service.kafka.clients import ANSWER_SECONDS, KafkaSettings, consumer_settings, patiently, servers
from rowkind.service.kafka.errors import (
    ChangelogError,
    LostOffsetsError,
    StalledReadError,
    TruncatedTopicError,
    translate,
)
from rowkind.service.kafka.offsets import Range
from rowkind.service.kafka.read_positions import Positions
from rowkind.service.kafka.record import MADE_STRIDE, Made, Records

_POLL_SECONDS = 0.05
_STALL_SECONDS = 60.0
_MOST_ROWS = 50_000
_CHUNK_BYTES = 8 << 20

_PIECE_ROWS = 1_000
"""How many messages to consume at a time.

A small piece is processed before the next piece is consumed, so the next piece reuses memory that is still in the
processor's cache. A record then costs a third less than with pieces of 50,000 messages.
"""

_PIECE_BYTES = 1 << 20

_TRUNCATION = re.compile(r"log truncation detected.*broker end offset is (-?\d+)")

OnLost = Mapping[str, Literal["fail", "earliest", "latest"]]
"""By topic, what to do if retention deletes records of a range while the range is being read."""


class Fetcher:
    """Reads ranges in chunks of about 8 MB, for one task at a time.

    `whole`: fetch complete records. Otherwise timestamps are omitted, and so are keys unless a value is null.
    """

    def __init__(
        self, kafka: KafkaSettings, clock: Callable[[], float] = time.monotonic, *, whole: bool = False
    ) -> None:
        self._kafka = kafka
        self._clock = clock
        self._whole = whole
        self._complaint: KafkaError | None
        self._away: KafkaError | None
        self._consumer = self._connect()
        self._rows = _PIECE_ROWS

    def _connect(self) -> Consumer:
        """Return a new consumer. After an outage, the old consumer's broker metadata may be outdated."""
        self._complaint = self._away = None
        return Consumer({**consumer_settings(self._kafka), "error_cb": self._complain})

    def close(self) -> None:
        """Close the connection to the brokers."""
        self._consumer.close()

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        """Return a partition's earliest offset and its end. Raises KafkaException."""
        at = TopicPartition(topic, partition)
        try:
            low, high = patiently(lambda: self._consumer.get_watermark_offsets(at, ANSWER_SECONDS, cached=False))
        except KafkaException:
            self._consumer = self._connect()
            raise
        return int(low), int(high)

    def fetch(self, ranges: Sequence[Range], on_lost: OnLost) -> Generator[list[Records], None, None]:
        """Yield all records of the ranges in chunks, each grouped by topic. Raises ChangelogError."""
        chunk: list[Records] = []
        rows = size = 0
        with closing(self._pieces(Positions(ranges), on_lost)) as pieces:
            for piece in pieces:
                chunk.append(piece)
                rows, size = rows + len(piece), size + piece.value.nbytes
                if rows >= _MOST_ROWS or size >= _CHUNK_BYTES:
                    rows = size = 0
                    yield _by_topic(chunk)
        if chunk:
            yield _by_topic(chunk)

    def _pieces(self, positions: Positions, on_lost: OnLost) -> Generator[Records, None, None]:
        """Yield all records in small pieces, which are processed faster than large pieces."""
        self._consumer.assign(list(map(_beginning, positions.ranges)))
        heard = self._clock()
        try:
            while left := positions.left:
                before = positions.open
                # Take the messages that are already available, without waiting for a full piece.
                events = self._consumer.consume(min(self._rows, left), 0) or self._consumer.consume(1, _POLL_SECONDS)
                failed: list[Message] = []
                if any(map(Message.error, events)):
                    failed = [event for event in events if event.error() is not None]
                    events = [event for event in events if event.error() is None]
                records = list(self._lift(events, positions)) if events else []
                del events
                for event in failed:
                    self._heed(event, positions, on_lost)
                self._release(positions, before)
                if positions.left < left:
                    heard, self._away = self._clock(), None
                elif self._clock() - heard > (_STALL_SECONDS if self._away is None else ANSWER_SECONDS):
                    raise self._stalled(positions)
                yield from records
        except ChangelogError:
            self._consumer = self._connect()
            raise
        finally:
            self._consumer.unassign()

    def _lift(self, messages: list[Message], positions: Positions) -> Iterator[Records]:
        """Yield the messages inside the ranges as records, grouped by topic."""
        ranges = positions.find(messages)
        offset = np.fromiter(map(Message.offset, messages), np.int64, len(messages))
        inside = positions.advance(ranges, offset)
        if not inside.all():
            messages, ranges, offset = _some(messages, np.flatnonzero(inside)), ranges[inside], offset[inside]
        for topic, members in positions.by_topic(ranges):
            if members is None:
                records = self._columns(topic, positions.partition[ranges], offset, messages)
            else:
                partition = positions.partition[ranges[members]]
                records = self._columns(topic, partition, offset[members], _some(messages, members))
            self._rows = int(min(_PIECE_ROWS, max(16, _PIECE_BYTES * len(records) / (records.value.nbytes + 1))))
            yield records

    def _columns(self, topic: str, partition: Int64s, offset: Int64s, messages: list[Message]) -> Records:
        value = pa.array(list(map(Message.value, messages)), pa.binary())
        key = pa.nulls(len(messages), pa.binary())
        if value.null_count or self._whole:
            key = pa.array(list(map(Message.key, messages)), pa.binary())
        headers: list[Any] = list(map(Message.headers, messages))
        timestamp = None
        if self._whole:
            timestamp = np.array([ms if kind else -1 for kind, ms in map(Message.timestamp, messages)], np.int64)
        made = _made(messages)
        return Records(topic, partition, offset, value, key, headers if any(headers) else None, timestamp, made)

    def _heed(self, event: Message, positions: Positions, on_lost: OnLost) -> None:
        """Handle an event that is not a record. Raises ChangelogError if the rest of the range cannot be read."""
        number = int(positions.find([event])[0])
        if number < 0 or number not in positions.open:
            return
        part = positions.ranges[number]
        error, offset = event.error(), event.offset()
        assert error is not None, "an event that is not a record has an error"
        if error.code() == KafkaError._PARTITION_EOF:
            if offset is not None and offset >= part.end:
                positions.finish(number)
        elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return  # librdkafka requires a group name and looks up the group, but this module does not use the group.
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            earliest, end = self.watermarks(part.topic, part.partition)
            wanted = int(positions.position[number])
            if (truncation := _TRUNCATION.search(error.str())) is not None or wanted > end:
                end = end if truncation is None else int(truncation[1])
                raise TruncatedTopicError(part.topic, part.partition, wanted, end)
            if on_lost[part.topic] == "fail":
                raise LostOffsetsError(part.topic, part.partition, wanted, earliest)
            positions.position[number] = earliest
            if earliest < part.end:
                self._consumer.incremental_unassign([TopicPartition(part.topic, part.partition)])
                self._consumer.incremental_assign([TopicPartition(part.topic, part.partition, earliest)])
        else:
            doing = f"reading topic {part.topic}, partition {part.partition}"
            raise translate(KafkaException(error), servers(self._kafka), doing)

    def _release(self, positions: Positions, before: Indices) -> None:
        """Unassign the partitions that were open `before` and are now complete, if others are still open."""
        still = positions.open
        if 0 < len(still) < len(before):
            done = [positions.ranges[number] for number in np.setdiff1d(before, still)]
            self._consumer.incremental_unassign([TopicPartition(part.topic, part.partition) for part in done])

    def _stalled(self, positions: Positions) -> ChangelogError:
        number = int(positions.open[0])
        part = positions.ranges[number]
        if self._away is not None:
            doing = f"reading topic {part.topic}, partition {part.partition}"
            return translate(KafkaException(self._away), servers(self._kafka), doing)
        said = (
            "The brokers have reported no error."
            if self._complaint is None
            else f"Last error: {self._complaint.str()}."
        )
        return StalledReadError(
            f"Topic {part.topic}, partition {part.partition}: no record arrived for {_STALL_SECONDS:.0f} s at offset "
            f"{positions.position[number]}, although the broker announced records up to offset {part.end}. {said}"
        )

    def _complain(self, error: KafkaError) -> None:
        self._complaint = error
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._away = error


def _beginning(part: Range) -> TopicPartition:
    """Return a range's start. By its leader epoch, the broker checks that the preceding records still exist."""
    if part.epoch < 0:
        return TopicPartition(part.topic, part.partition, part.start)
    return TopicPartition(part.topic, part.partition, part.start, leader_epoch=part.epoch)


def _some(messages: Sequence[Message], rows: Indices) -> list[Message]:
    return [messages[row] for row in rows.tolist()]


def _by_topic(chunk: list[Records]) -> list[Records]:
    """Merge a chunk's records by topic. Clear the chunk, so that a suspended generator does not retain the memory."""
    topics = sorted({part.topic for part in chunk})
    records = [Records.concat([part for part in chunk if part.topic == topic]) for topic in topics]
    chunk.clear()
    return records


def _made(messages: list[Message]) -> Made:
    """Return the known timestamps of every `MADE_STRIDE`th message."""
    times = [message.timestamp() for message in messages[::MADE_STRIDE]]
    made = Made.sampled(np.array([ms for _, ms in times], np.int64), len(messages))
    known = np.array([bool(kind) for kind, _ in times], np.bool_)
    return Made(made.at[known], made.records[known])
