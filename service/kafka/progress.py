"""What a query's partition has already written, kept in Kafka inside the same transactions as the rows.

Each query has a compacted progress topic of its own with one partition for every task partition, into which only that
partition's transactional id writes. That makes it safe: once `init_transactions` has returned, no transaction is open
on the partition, so that its last stable offset hides nothing. In a partition shared with others, another's open
transaction would hide our own last record. The last record of the partition is the progress.

Partition 0 has a record of every batch, even of one without results, and keeps those of the last `KEPT`. What a query
computes depends on how its records are cut into batches and on the times of these. So a start from an older checkpoint
replays the recorded batches (`service.checkpoint.replay`). Keys repeat after `KEPT` batches, so that compaction removes
older records.

It also says which run of the job wrote it. Runs are named so that a later one has the greater name, by counting on from
the last one that left a trace. A run that meets the trace of a later one has been replaced, and must not go on: two
runs with checkpoints of their own would take turns at fencing each other, and both write everything.
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
"""What a record raises that is no progress."""

KEPT = 10_000
"""How many batches are on record. A checkpoint that is further behind cannot be brought forward."""


@dataclass(frozen=True)
class BatchPartition:
    """A task partition of a batch of a checkpoint; a retry of the task is the same again.

    - `checkpoint`: the query's id in its checkpoint: it survives restarts, and a new checkpoint has another one.
    - `now`: the time of the batch, Unix time in ms. `extent`: its end, an `Offset` as JSON.
    """

    checkpoint: str
    batch: int
    partition: int
    now: int = 0
    extent: str = ""


@dataclass(frozen=True)
class Progress:
    """The last batch that a query's partition has committed: enough to do the very same again on the state before it.

    `job` and `query` say whose it is, `tasks` how many such partitions there are, 0 if that was not noted, and `sinks`
    which sinks the query wrote, to which `topics`. The rest is what a `BatchPartition` has, and the name of the `run`.
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
        """The progress once `batch_partition` is committed."""
        sinks = sorted(each.sink for each in spec.sinks.values())
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
        """The same under the name of the run of `spec`, and with its claims."""
        return replace(self, run=spec.run, topics=sorted(spec.claims))

    def covers(self, batch_partition: BatchPartition) -> bool:
        """Whether `batch_partition` is written already. Batches of another checkpoint are other batches."""
        return self.checkpoint == batch_partition.checkpoint and self.batch >= batch_partition.batch

    def contradicts(self, batch_partition: BatchPartition) -> bool:
        """Whether the batch with this number was cut otherwise, so that it had other changes."""
        if self.batch != batch_partition.batch or not (self.extent and batch_partition.extent):
            return False
        return not _end(self.extent).is_cut_as(_end(batch_partition.extent))

    @property
    def key(self) -> bytes:
        """The record's key, by which compaction keeps the newest."""
        key = f"{self.job}/{self.query}/{self.partition}"
        return (key if self.partition else f"{key}/{self.batch % KEPT}").encode()

    def to_bytes(self) -> bytes:
        """The record's value."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> Self:
        """The progress that `to_bytes` wrote, maybe that of a later release, which knows more."""
        known = {each.name for each in fields(cls)}
        return cls(**{name: of for name, of in json.loads(value).items() if name in known})


def read(kafka: KafkaSettings, topic: str, partition: int) -> Progress | None:
    """The last progress in a partition of a progress topic, None if there is none yet.

    Must be called after `init_transactions` of the one producer that writes there.
    """
    fetcher = _fetcher(tuple(sorted(kafka.items())))
    try:
        earliest, end = fetcher.watermarks(topic, partition)
    except KafkaException:
        # It may have looked at the topic before that got this partition.
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
    """The last progress in partition 0 of each of these progress topics, of those that have one and may be read."""
    fetcher, ranges = _fetcher(tuple(sorted(kafka.items()))), list[Range]()
    for topic in topics:
        # One that is on its way out, or that this user may not read, tells nothing.
        with suppress(KafkaException):
            earliest, end = fetcher.watermarks(topic, 0)
            ranges += [Range(topic, 0, max(earliest, end - _FIRST_STEP), end)] if end > earliest else []
    values: dict[str, bytes | None] = {}
    with suppress(ChangelogError):
        for chunk in fetcher.fetch(ranges, {each.topic: "earliest" for each in ranges}) if ranges else ():
            values |= {records.topic: records.value[-1].as_py() for records in chunk}
    found = {topic: _ours(value) for topic, value in values.items()}
    for topic in {each.topic for each in ranges} - values.keys():
        # A topic of another program may have such a name.
        with suppress(ChangelogError, *_STRANGE):
            found[topic] = read(kafka, topic, 0)
    return {topic: last for topic, last in found.items() if last is not None}


def _ours(value: bytes | None) -> Progress | None:
    """A progress, None if it is the record of another program."""
    try:
        return None if value is None else Progress.from_bytes(value)
    except _STRANGE:
        return None


def recorded(kafka: KafkaSettings, topic: str) -> Iterator[Progress]:
    """The batches on record in the order in which they were written, some more than once. Raises a ChangelogError."""
    fetcher = _fetcher(tuple(sorted(kafka.items())))
    try:
        earliest, end = fetcher.watermarks(topic, 0)
    except KafkaException as error:
        raise _unfit(topic, 0, error, kafka) from None
    for chunk in fetcher.fetch([Range(topic, 0, earliest, end)], {topic: "earliest"}) if end > earliest else ():
        yield from (Progress.from_bytes(value) for records in chunk for value in records.value.to_pylist())


def next_run(*before: str) -> str:
    """A name for a run that comes after all of these. Of runs that begin at the same moment, chance picks the later."""
    last = max((int(name.partition("-")[0]) for name in before if name), default=0)
    return f"{last + 1:08}-{secrets.token_hex(4)}"


def _unfit(topic: str, partition: int, error: KafkaException, kafka: KafkaSettings) -> Exception:
    meant = translate(error, servers(kafka), f"reading partition {partition} of the progress topic {topic}")
    if isinstance(meant, MissingTopicError):
        return UnfitTopicError(
            f"The progress topic {topic} is not there or has no partition {partition}; it needs one for every task of "
            f"the query. `rowkind topics create` makes it."
        )
    return meant


def _end(extent: str) -> Offset:
    return Offset.from_json(json.loads(extent))


@lru_cache(maxsize=4)
def _fetcher(kafka: tuple[tuple[str, str], ...]) -> Fetcher:
    return Fetcher(dict(kafka))
