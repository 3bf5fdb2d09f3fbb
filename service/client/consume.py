"""Read the changes in a job's topic, or the rows that result from them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.python_values import to_python
from rowkind.avro.same_rows import SameRows
from rowkind.avro.schema import Record
from rowkind.operators.changelog import SYMBOLS
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import WEIGHTS, Int64s, Rows
from rowkind.service.client.external_table import JobFile, opened, readable_topic
from rowkind.service.job.model import Job
from rowkind.service.job.registry import open_registry
from rowkind.service.kafka.cluster import Cluster
from rowkind.service.kafka.dead_letter import DeadLetter
from rowkind.service.kafka.decode import Decoder
from rowkind.service.kafka.fetch import Fetcher
from rowkind.service.kafka.new_partitions import until_growth
from rowkind.service.kafka.offsets import At, Range
from rowkind.service.kafka.record import Records
from rowkind.service.physical.calc import Calc
from rowkind.service.physical.keys import Key
from rowkind.service.physical.node import PhysicalScan
from rowkind.service.physical.source_table import SourceTable

_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a row: `kind` is +I, -U, +U or -D; `row` has Python values.

    A date or time outside the years 1 to 9999, which Python cannot represent, is a `numpy.datetime64` in UTC. A -D of
    an upsert topic has only its key columns; the others are None.
    """

    kind: str
    row: dict[str, Any]
    partition: int
    offset: int


@dataclass(frozen=True)
class TopicChanges:
    """The committed changes of a topic, in order within each partition. Each iteration begins at the topic's start.

    `for` blocks while it waits for Kafka. `async for` waits in a thread of its own, and a task that iterates can be
    cancelled. Both raise ChangelogError, and UndecodableRowError for a record that cannot be decoded.
    """

    job: Job
    of: SourceTable
    follow: bool

    def __iter__(self) -> Iterator[Change]:
        for some in self._chunks(threading.Event()):
            yield from some

    async def __aiter__(self) -> AsyncIterator[Change]:
        stop = threading.Event()
        chunks, loop = self._chunks(stop), asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, "rowkind-changes")
        try:
            while (some := await loop.run_in_executor(thread, next, chunks, None)) is not None:
                for change in some:
                    yield change
        finally:
            # The thread may be waiting for changes. It closes the connection after that.
            stop.set()
            thread.submit(chunks.close)
            thread.shutdown(wait=False)

    def _chunks(self, stop: threading.Event) -> Generator[list[Change], None, None]:
        record = self.of.declared
        for chunk in read(self.job, self.of, follow=self.follow, tolerate=False, stop=stop):
            decoded = codec.read(record, chunk.rows.payload)
            columns = [to_python(decoded.column(name)) for name in record.names]
            found = []
            for kind, seq, *row in zip(chunk.rows.kind.tolist(), chunk.rows.seq.tolist(), *columns, strict=True):
                place = ArrivalNumber.of(seq)
                row_ = dict(zip(record.names, row, strict=True))
                found.append(Change(SYMBOLS[kind], row_, place.partition, place.offset))
            yield found


def changes(job: JobFile, name: str, *, follow: bool = False) -> TopicChanges:
    """Return the committed changes of a sink or a table, for `for` and for `async for`.

    If `follow` is set, they never end. Raises OutsideError, JobError, PlanError or RegistryError.
    """
    job = opened(job)
    return TopicChanges(job, readable_topic(job, name), follow)


def table(job: JobFile, name: str) -> pa.Table:
    """Return the rows that the topic of a sink or a table represents now.

    Raises the errors of `changes` and of its iteration.
    """
    job = opened(job)
    of = readable_topic(job, name)
    fold = TopicFold(of)
    for chunk in read(job, of, tolerate=False):
        fold.add(chunk.rows)
    return codec.table(of.declared, fold.payload)


@dataclass(frozen=True)
class Chunk:
    """Consecutive changes of a topic, and dead letters for the records that could not be decoded.

    - `timestamp`: the time of each row's record, in ms since the epoch, or -1 if the record has none.
    - `truncation`: the arrival number of the last record that truncates the table, or None if no record does.
    """

    rows: Rows
    letters: Sequence[DeadLetter]
    timestamp: Int64s
    truncation: int | None = None


@dataclass(frozen=True)
class Between:
    """The offsets between which topics are read. A partition that `end` does not name is not read.

    A partition that `begin` does not name is read from its earliest record. No partition is read beyond the changes
    that are committed.
    """

    end: Mapping[At, int]
    begin: Mapping[At, int] = field(default_factory=dict)


def read(
    job: Job,
    of: SourceTable,
    *,
    follow: bool = False,
    tolerate: bool,
    between: Between | None = None,
    stop: threading.Event | None = None,
) -> Iterator[Chunk]:
    """Yield the changes of a topic in chunks. If `follow` is set, wait for more changes until `stop` is set.

    If `tolerate` is set, records that cannot be decoded become dead letters. Otherwise the first one raises
    UndecodableRowError. `between`: the offsets to read; None for everything that is committed.
    """
    cluster, at = Cluster(job.brokers), dict[At, int](between.begin if between else {})
    ended = stop or threading.Event()
    decoder = Decoder(PhysicalScan(of.table, of, _as_it_is(of.declared)), open_registry(job), tolerate=tolerate)
    in_order = [of.topic] if of.mode == "upsert" else []
    with closing(Fetcher(job.brokers, whole=True)) as fetcher:
        while not ended.is_set():
            partitions = cluster.topics([of.topic]).partitions
            earliest = cluster.earliest(partitions)
            at = {each: max(first, at.get(each, 0)) for each, first in earliest.items()}
            all_, now_ms = cluster.ends(partitions), round(time.time() * 1000)
            if between is not None:
                all_ = {each: max(at[each], min(end, between.end.get(each, 0))) for each, end in all_.items()}
            ends = until_growth(cluster, in_order, at, all_, earliest=earliest, now_ms=now_ms)
            ranges = [Range(*each, at[each], end) for each, end in ends.items() if end > at[each]]
            for records in (each for chunk in fetcher.fetch(ranges, {of.topic: "earliest"}) for each in chunk):
                decoded = decoder.decode(records)
                times = _times(records, decoded.rows.seq)
                yield Chunk(decoded.rows, decoded.letters, times, decoded.truncation)
            at |= ends
            if ends != all_:
                continue
            if not follow:
                return
            if not ranges:
                ended.wait(_PAUSE_SECONDS)


def _times(records: Records, seq: Int64s) -> Int64s:
    """Return the timestamps of the records with the given arrival numbers."""
    assert records.timestamp is not None, "the records were fetched whole"
    numbers = ArrivalNumber.pack(records.offset, records.partition)
    if len(seq) == len(numbers):
        return records.timestamp
    order = np.argsort(numbers)
    times: Int64s = records.timestamp[order[np.searchsorted(numbers[order], seq)]]
    return times


class TopicFold:
    """The rows that result from a topic's changes: one per key for an upsert topic, otherwise a multiset."""

    def __init__(self, of: SourceTable) -> None:
        self._of = of
        self._by_key: dict[bytes, bytes] = {}
        self._rows: Counter[bytes] = Counter()
        self._sent: dict[bytes, bytes] = {}
        self._alike = SameRows(of.declared)

    def add(self, rows: Rows) -> None:
        """Add changes. The changes of a key must be in order."""
        payloads, comes = rows.payload.to_pylist(), (WEIGHTS[rows.kind] > 0).tolist()
        if self._of.mode != "upsert":
            for row, payload, more in zip(self._alike(rows.payload).to_pylist(), payloads, comes, strict=True):
                self._rows[row] += 1 if more else -1
                if more:
                    self._sent[row] = payload
            return
        keys = codec.read(self._of.declared, rows.payload).assemble(self._of.key, list(self._of.primary_key))
        for key, payload, more in zip(SameRows(self._of.key)(keys).to_pylist(), payloads, comes, strict=True):
            if more:
                self._by_key[key] = payload
            else:
                self._by_key.pop(key, None)

    @property
    def payload(self) -> pa.BinaryArray:
        """The rows in packed form. Duplicates are repeated."""
        return pa.array([*self._by_key.values(), *(self._sent[row] for row in self._rows.elements())], pa.binary())


def _as_it_is(record: Record) -> Calc:
    """Return a calc that reads all columns. It is never run: the decoder uses only its columns."""
    return Calc(record, record, (), Key((), ()))
