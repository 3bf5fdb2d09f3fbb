"""Measure a query's lag in rows and in seconds by querying the brokers. No batch needs to be running.

The query's committed offsets are also committed to a consumer group, so that Kafka monitoring tools can show the lag.
Rowkind never reads them back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from rowkind.service.kafka.clients import consumer_settings, servers
from rowkind.service.kafka.errors import ChangelogError, translate
from rowkind.service.kafka.offsets import At
from rowkind.service.kafka.planning import initial
from rowkind.service.kafka.source_cluster import SourceCluster
from rowkind.service.kafka.spec import SourceSpec

_RECORDS_SECONDS = 2.0
_POLL_SECONDS = 0.1

_ONE_RECORD = {"max.partition.fetch.bytes": 1024, "queued.min.messages": 1, "queued.max.messages.kbytes": 1024}
"""A broker always sends at least one whole record batch. These settings keep it from sending more."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of one partition.

    - `rows`: the number of offsets not yet read. `seconds`: the age of the first unread record.
    - `end`: the offset after the last record, including records of transactions that are still open.
    - `held`: for how many seconds an open transaction has blocked the records that follow it; 0 if no transaction is
      open.
    """

    rows: int
    seconds: float
    end: int
    held: float = 0.0

    def at(self, offset: int) -> Lag:
        """Return the lag that remains when all records before `offset` have been read. Its age is an upper bound."""
        rows = min(self.rows, max(0, self.end - offset))
        return Lag(rows, self.seconds if rows else 0.0, self.end, self.held if rows else 0.0)


class LagMeter:
    """Measures the lag of one query. `group`: the consumer group for its offsets; `clock`: Unix time in seconds."""

    def __init__(self, spec: SourceSpec, group: str, clock: Callable[[], float] = time.time) -> None:
        self._spec = spec
        self._clock = clock
        self._cluster = SourceCluster(spec)
        self._schedules = spec.schedules
        settings = {**consumer_settings(spec.kafka), **_ONE_RECORD, "group.id": group}
        self._consumer = Consumer({**settings, "isolation.level": "read_uncommitted"})
        self._initial: Mapping[At, int] | None = None
        self._left: dict[At, int] = {}
        self._ends: Mapping[At, int] = {}
        self._since: dict[At, tuple[int, float]] = {}
        self._held: dict[At, tuple[int, float]] = {}
        self._dated: set[At] = set()
        self._answered = clock()
        self._told: Mapping[At, int] = {}

    def close(self) -> None:
        """Close the connection to the brokers."""
        self._consumer.close()

    def look(self, at: Mapping[At, int] | None) -> dict[At, Lag]:
        """Return each partition's lag. `at`: the offsets up to which the query has read, None if it has not begun.

        While Kafka does not answer, the row counts of the last answer are returned. Rows may have arrived since that
        answer, so the age is measured from the time of that answer or earlier.
        """
        now = self._clock()
        try:
            self._ask(at, now)
        except ChangelogError:
            waiting = {each: min(since, self._answered) for each, (_, since) in self._since.items()}
            return {
                each: Lag(rows, now - waiting.get(each, self._answered), self._ends[each], self._held_for(each, now))
                for each, rows in self._left.items()
            }
        self._answered = now
        ages = {each: max(0.0, now - since) for each, (_, since) in self._since.items()}
        return {
            each: Lag(rows, ages[each] if rows else 0.0, self._ends[each], self._held_for(each, now))
            for each, rows in self._left.items()
        }

    def _held_for(self, at: At, now: float) -> float:
        return max(0.0, now - self._held[at][1]) if at in self._held else 0.0

    def tell(self, at: Mapping[At, int]) -> None:
        """Commit the given offsets to the consumer group if they have changed. Raises ChangelogError."""
        at = {each: offset for each, offset in at.items() if each[0] not in self._schedules}
        if at == self._told:
            return
        try:
            self._consumer.commit(
                offsets=[TopicPartition(*of, offset) for of, offset in at.items()], asynchronous=False
            )
        except KafkaException as error:
            raise translate(error, servers(self._spec.kafka), "committing offsets to a consumer group") from None
        self._told = at

    def _ask(self, at: Mapping[At, int] | None, now: float) -> None:
        if at is None:
            at = self._initial = self._initial or initial(self._cluster, self._spec.starts).at
        partitions = self._cluster.topics(self._spec.starts).partitions
        stable = self._cluster.ends(partitions)
        ends = self._cluster.written(partitions)
        begin = {**self._cluster.earliest(each for each in partitions if each not in at), **at}
        self._left, self._ends = {each: max(0, ends[each] - begin[each]) for each in partitions}, ends
        known = {each: since for each, since in self._since.items() if since[0] == begin.get(each)}
        asked = {each: begin[each] for each, rows in self._left.items() if rows and each not in known}
        made = self._made(asked)
        self._since = known | {each: (offset, made.get(each, now)) for each, offset in asked.items()}
        open_ = {
            each: offset for each, offset in stable.items() if offset < ends[each] and each[0] not in self._schedules
        }
        # If a transaction was already open at the same offset in the last measurement, request its start time.
        same = {each: offset for each, offset in open_.items() if self._held.get(each, (-1, 0.0))[0] == offset}
        unknown = {each: offset for each, offset in same.items() if each not in self._dated}
        self._held = {each: self._held[each] if each in same else (offset, now) for each, offset in open_.items()}
        self._held |= {each: (open_[each], time_) for each, time_ in self._made(unknown).items()} if unknown else {}
        self._dated = {*same}

    def _made(self, positions: Mapping[At, int]) -> dict[At, float]:
        """Return the known times, in Unix seconds, of the first record at or after each position."""
        generated = {each: offset for each, offset in positions.items() if each[0] in self._schedules}
        made = {each: self._schedules[each[0]].time_ms(offset) / 1000 for each, offset in generated.items()}
        positions = {each: offset for each, offset in positions.items() if each not in generated}
        left = set(positions)
        deadline = time.monotonic() + _RECORDS_SECONDS
        self._consumer.assign([TopicPartition(*at, offset) for at, offset in positions.items()])
        while left and time.monotonic() < deadline:
            for message in self._consumer.consume(len(left), _POLL_SECONDS):
                topic, partition = message.topic(), message.partition()
                if topic is None or partition is None or (topic, partition) not in left:
                    continue
                # Unassign the partition, so that other partitions get their turn. An error, such as an end of
                # partition, also finishes a partition.
                left.remove((topic, partition))
                self._consumer.incremental_unassign([TopicPartition(topic, partition)])
                kind, milliseconds = message.timestamp()
                if message.error() is None and kind:
                    made[topic, partition] = milliseconds / 1000
        self._consumer.unassign()
        return made
