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
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Literal

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from rowkind.operators.columns.changes import Indices
from rowkind.service.kafka.client_columns import reader
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
from rowkind.service.kafka.received import PartitionEvent, Received
from rowkind.service.kafka.record import Records

_POLL_SECONDS = 0.05
_STALL_SECONDS = 60.0
_MOST_ROWS = 50_000
_CHUNK_BYTES = 8 << 20

_TRUNCATION = re.compile(r"log truncation detected.*broker end offset is (-?\d+)")

OnLost = Mapping[str, Literal["fail", "earliest", "latest"]]
"""By topic, what to do if retention deletes records of a range while the range is being read."""


class Fetcher:
    """Reads ranges in chunks of about 8 MB, for one task at a time, and one chunk ahead of the task.

    `whole`: fetch complete records. Otherwise only records without a value have their keys.
    """

    def __init__(
        self, kafka: KafkaSettings, clock: Callable[[], float] = time.monotonic, *, whole: bool = False
    ) -> None:
        self._kafka = kafka
        self._clock = clock
        self._whole = whole
        self._complaint: KafkaError | None
        self._away: KafkaError | None
        self._abandoned = False
        self._connect()

    def _connect(self) -> None:
        """Make a new consumer. After an outage, the old consumer's broker metadata may be outdated."""
        self._complaint = self._away = None
        self._consumer = Consumer({**consumer_settings(self._kafka), "error_cb": self._complain})
        self._reader = reader(self._consumer, whole=self._whole)

    def close(self) -> None:
        """Close the connection to the brokers."""
        self._reader.close()
        self._consumer.close()

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        """Return a partition's earliest offset and its end. Raises KafkaException."""
        at = TopicPartition(topic, partition)
        try:
            low, high = patiently(lambda: self._consumer.get_watermark_offsets(at, ANSWER_SECONDS, cached=False))
        except KafkaException:
            self._connect()
            raise
        return int(low), int(high)

    def fetch(self, ranges: Sequence[Range], on_lost: OnLost) -> Generator[list[Records], None, None]:
        """Yield all records of the ranges in chunks, each grouped by topic. Raises ChangelogError.

        While the caller uses a chunk, a thread reads the next one. librdkafka's own queue is too short for that: its
        records are discarded at the end of a range. Until `fetch` ends, no other method may be called.
        """
        positions = Positions(ranges)
        self._abandoned = False
        with closing(self._chunks(positions, on_lost)) as chunks:
            if positions.left <= _MOST_ROWS:
                yield from chunks
                return
            with ThreadPoolExecutor(1, "fetch") as thread:
                try:
                    found = [next(chunks, [])]
                    while found[0]:
                        ahead: Future[list[Records]] = thread.submit(next, chunks, [])
                        # This generator must not retain the memory of a chunk while it is suspended.
                        yield found.pop()
                        found.append(ahead.result())
                finally:
                    self._abandoned = True

    def _chunks(self, positions: Positions, on_lost: OnLost) -> Generator[list[Records], None, None]:
        chunk: list[Records] = []
        rows = size = 0
        with closing(self._pieces(positions, on_lost)) as pieces:
            for piece in pieces:
                chunk.append(piece)
                rows, size = rows + len(piece), size + piece.value.nbytes
                if rows >= _MOST_ROWS or size >= _CHUNK_BYTES:
                    rows = size = 0
                    yield _by_topic(chunk)
        if chunk:
            yield _by_topic(chunk)

    def _pieces(self, positions: Positions, on_lost: OnLost) -> Generator[Records, None, None]:
        """Yield all records in the order in which they arrive."""
        partitions = [(part.topic, part.partition) for part in positions.ranges]
        self._reader.begin(positions.topics, partitions)
        self._consumer.assign(list(map(_beginning, positions.ranges)))
        heard = self._clock()
        try:
            while (left := positions.left) and not self._abandoned:
                before = positions.open
                arrived = self._reader.read(min(_MOST_ROWS, left), _CHUNK_BYTES, _POLL_SECONDS)
                records = list(_inside(arrived, positions)) if len(arrived.records) else []
                for event in arrived.events:
                    self._heed(event, positions, on_lost)
                self._release(positions, before)
                if positions.left < left:
                    heard, self._away = self._clock(), None
                elif self._clock() - heard > (_STALL_SECONDS if self._away is None else ANSWER_SECONDS):
                    raise self._stalled(positions)
                del arrived
                yield from records
        except ChangelogError:
            self._connect()
            raise
        finally:
            self._consumer.unassign()
            self._reader.end()

    def _heed(self, event: PartitionEvent, positions: Positions, on_lost: OnLost) -> None:
        """Handle an event that is not a record. Raises ChangelogError if the rest of the range cannot be read."""
        number = int(positions.find(np.array([event.topic]), np.array([event.partition]))[0])
        if number < 0 or number not in positions.open:
            return
        part, error, offset = positions.ranges[number], event.error, event.offset
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


def _inside(arrived: Received, positions: Positions) -> Iterator[Records]:
    """Yield the records inside the ranges, grouped by topic, and advance the positions."""
    records, ranges = arrived.records, positions.find(arrived.topic, arrived.records.partition)
    inside = positions.advance(ranges, records.offset)
    if not inside.all():
        records, ranges = records.take(np.flatnonzero(inside)), ranges[inside]
    for topic, members in positions.by_topic(ranges):
        yield replace(records if members is None else records.take(members), topic=topic)


def _by_topic(chunk: list[Records]) -> list[Records]:
    """Merge a chunk's records by topic. Clear the chunk, so that a suspended generator does not retain the memory."""
    topics = sorted({part.topic for part in chunk})
    records = [Records.concat([part for part in chunk if part.topic == topic]) for topic in topics]
    chunk.clear()
    return records
