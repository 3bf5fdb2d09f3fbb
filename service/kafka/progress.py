"""The progress topic: which batches a query's partition has written, kept in the same Kafka transactions as the rows.

Each query has its own compacted progress topic with one partition per task partition. Only the task partition's own
transactional id writes to its partition. Reading the partition is therefore safe: once `init_transactions` has
returned, the partition has no open transaction, so no record is hidden beyond its last stable offset. In a shared
partition, another writer's open transaction could hide the query's own last record. The partition's last record is the
progress.

Partition 0 has a record of each of the last `KEPT` batches, including batches without results. A query's output depends
on how its records are divided into batches and on the batch times. So a start from an older checkpoint replays the
recorded batches (`service.checkpoint.replay`). The record keys repeat after `KEPT` batches, so compaction removes older
records.

A progress record also names the run (one start of the job's process) that wrote it. Run names begin with a counter, so
a later run has a greater name. A run that reads a later run's progress has been replaced and must stop. Otherwise, two
runs with different checkpoints would fence each other repeatedly, and each run would write every row.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Self

from confluent_kafka import KafkaException

from rowkind.service.kafka.clients import KafkaSettings, servers
from rowkind.service.kafka.errors import ChangelogError, MissingTopicError, UnfitTopicError, translate
from rowkind.service.kafka.fetch import Fetcher
from rowkind.service.kafka.offsets import Offset, Range
from rowkind.service.kafka.spec import WriterSpec

_FIRST_STEP = 8
_STRANGE = (ValueError, TypeError, AttributeError)
"""The errors that may be raised when another program's record is parsed as a progress record."""

KEPT = 10_000
"""How many batches are kept on record. If a checkpoint is more batches behind, the job cannot replay them."""


@dataclass(frozen=True)
class BatchPartition:
    """A batch's part in one task partition. A retried task has an equal value.

    - `checkpoint`: the query's id, stored in its checkpoint. Restarts keep this id; a new checkpoint has a new one.
    - `now`: the time of the batch, Unix time in ms.
    - `extent`: the end of the batch, an `Offset` as JSON.
    """

    checkpoint: str
    batch: int
    partition: int
    now: int = 0
    extent: str = ""


@dataclass(frozen=True)
class Progress:
    """The last batch that a query's partition has committed, with the data needed to repeat it on the state before.

    - `job`, `query`: the names of the job and query that wrote the batch.
    - `run`: the name of the run that wrote the batch.
    - `tasks`: the number of task partitions, 0 if it was not recorded.
    - `sinks`, `topics`: the query's sinks, and the topics of those that have one.

    The other fields are those of `BatchPartition`.
    """

    job: str
    query: str
    partition: int
    checkpoint: str
    batch: int
    run: str = ""
    now: int = 0
    extent: str = ""
    tasks: int = 0
    sinks: Sequence[str] = ()
    topics: Sequence[str] = ()

    @classmethod
    def of(cls, spec: WriterSpec, batch_partition: BatchPartition) -> Self:
        """Return the progress for the time after `batch_partition` is committed."""
        sinks = sorted([each.sink for each in spec.sinks.values()] + [each.sink for each in spec.topicless.values()])
        return cls(
            job=spec.job,
            query=spec.query,
            run=spec.run,
            tasks=spec.tasks,
            sinks=sinks,
            topics=sorted(spec.claims),
            **asdict(batch_partition),
        )

    def signed(self, spec: WriterSpec) -> Self:
        """Return the same progress under the run name of `spec` and with its claims."""
        return replace(self, run=spec.run, topics=sorted(spec.claims))

    def covers(self, batch_partition: BatchPartition) -> bool:
        """Return whether `batch_partition` is already written. A batch of another checkpoint is a different batch."""
        return self.checkpoint == batch_partition.checkpoint and self.batch >= batch_partition.batch

    def contradicts(self, batch_partition: BatchPartition) -> bool:
        """Return whether the written batch with this number has other records, so that its changes differ."""
        if self.batch != batch_partition.batch or not (self.extent and batch_partition.extent):
            return False
        return not _end(self.extent).is_cut_as(_end(batch_partition.extent))

    @property
    def key(self) -> bytes:
        """The record's key. Compaction keeps the newest record of each key."""
        key = f"{self.job}/{self.query}/{self.partition}"
        return (key if self.partition else f"{key}/{self.batch % KEPT}").encode()

    def to_bytes(self) -> bytes:
        """Return the record's value."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> Self:
        """Restore the progress that `to_bytes` encoded. Fields added by a later release are ignored."""
        known = {each.name for each in fields(cls)}
        return cls(**{name: of for name, of in json.loads(value).items() if name in known})


def read(kafka: KafkaSettings, topic: str, partition: int) -> Progress | None:
    """Return the last progress in a partition of a progress topic, or None if there is none yet.

    Call this function only after `init_transactions` of the partition's only producer.
    """
    fetcher = _fetcher(tuple(sorted(kafka.items())))
    try:
        earliest, end = fetcher.watermarks(topic, partition)
    except KafkaException:
        # The consumer may have cached the topic's metadata before this partition was added.
        _fetcher.cache_clear()
        fetcher = _fetcher(tuple(sorted(kafka.items())))
        try:
            earliest, end = fetcher.watermarks(topic, partition)
        except KafkaException as error:
            raise _unfit(topic, partition, error, kafka) from None
    step = _FIRST_STEP
    while True:
        start = max(earliest, end - step)
        last: bytes | None = None
        for chunk in fetcher.fetch([Range(topic, partition, start, end)], {topic: "earliest"}) if end > start else ():
            last = chunk[-1].value[-1].as_py()
        if last is not None:
            return Progress.from_bytes(last)
        if start == earliest:
            return None
        step *= 16


def latest(kafka: KafkaSettings, topics: Iterable[str]) -> dict[str, Progress]:
    """Return the last progress in partition 0 of each topic. Topics that have none or are unreadable are left out."""
    fetcher, ranges = _fetcher(tuple(sorted(kafka.items()))), list[Range]()
    for topic in topics:
        # A topic that is being deleted, or that this user is not allowed to read, is skipped.
        with suppress(KafkaException):
            earliest, end = fetcher.watermarks(topic, 0)
            ranges += [Range(topic, 0, max(earliest, end - _FIRST_STEP), end)] if end > earliest else []
    values: dict[str, bytes | None] = {}
    with suppress(ChangelogError):
        for chunk in fetcher.fetch(ranges, {each.topic: "earliest" for each in ranges}) if ranges else ():
            values |= {records.topic: records.value[-1].as_py() for records in chunk}
    found = {topic: _ours(value) for topic, value in values.items()}
    for topic in {each.topic for each in ranges} - values.keys():
        # Another program's topic may have a name that ends like a progress topic's.
        with suppress(ChangelogError, *_STRANGE):
            found[topic] = read(kafka, topic, 0)
    return {topic: last for topic, last in found.items() if last is not None}


def _ours(value: bytes | None) -> Progress | None:
    """Return the parsed progress record, or None if another program wrote the record."""
    try:
        return None if value is None else Progress.from_bytes(value)
    except _STRANGE:
        return None


def recorded(kafka: KafkaSettings, topic: str) -> Iterator[Progress]:
    """Yield the recorded batches in the order they were written, some repeatedly. Raises ChangelogError."""
    fetcher = _fetcher(tuple(sorted(kafka.items())))
    try:
        earliest, end = fetcher.watermarks(topic, 0)
    except KafkaException as error:
        raise _unfit(topic, 0, error, kafka) from None
    for chunk in fetcher.fetch([Range(topic, 0, earliest, end)], {topic: "earliest"}) if end > earliest else ():
        yield from (Progress.from_bytes(value) for records in chunk for value in records.value.to_pylist())


def next_run(*before: str) -> str:
    """Return a run name greater than all given names. A random suffix orders runs that begin at the same moment."""
    last = max((int(name.partition("-")[0]) for name in before if name), default=0)
    return f"{last + 1:08}-{secrets.token_hex(4)}"


def _unfit(topic: str, partition: int, error: KafkaException, kafka: KafkaSettings) -> Exception:
    meant = translate(error, servers(kafka), f"reading partition {partition} of the progress topic {topic}")
    if isinstance(meant, MissingTopicError):
        return UnfitTopicError(
            f"The progress topic {topic} does not exist, or has no partition {partition}. It needs one partition for "
            f"every task of the query. Create it with `rowkind topics create`."
        )
    return meant


def _end(extent: str) -> Offset:
    return Offset.from_json(json.loads(extent))


@lru_cache(maxsize=4)
def _fetcher(kafka: tuple[tuple[str, str], ...]) -> Fetcher:
    return Fetcher(dict(kafka))
