"""Read the changes that can matter from Kafka. Only these are kept in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import Int64s, Mask, Rows
from rowkind.service.job.model import Job
from rowkind.service.job.registry import open_registry
from rowkind.service.kafka.cluster import Cluster
from rowkind.service.kafka.decode import Decoder
from rowkind.service.kafka.fetch import Fetcher
from rowkind.service.kafka.offsets import At, Range
from rowkind.service.kafka.record import Records
from rowkind.service.physical.calc import Calc
from rowkind.service.physical.keys import Key
from rowkind.service.physical.node import PhysicalScan, PhysicalSink
from rowkind.service.physical.source_table import SourceTable, Watermark
from rowkind.service.physical.tree import walk
from rowkind.service.why.atoms import Atoms, matching
from rowkind.service.why.sources import SourceChanges
from rowkind.service.why.wanted import WantedError
from rowkind.service.why.watermark_rows import WatermarkRows, slot_ms

_Choose = Callable[[SourceChanges], Mask]
_See = Callable[[SourceChanges], None]
NO_ENDS: Mapping[At, int] = MappingProxyType({})


def check_topics(sink: PhysicalSink) -> None:
    """Raise WantedError if a table of the sink's query has no topic."""
    for node in walk(sink):
        if isinstance(node, PhysicalScan) and node.source.generation is not None:
            raise WantedError(
                f"rowkind why cannot explain sink {sink.name}: the job generates the rows of table "
                f"{node.source.table}, and does not store them in a topic. Choose a sink whose tables all have topics, "
                "or run the query on a file of changes with `rowkind try`"
            )


@dataclass(frozen=True)
class _Extent:
    """The records of a topic that count, and how many offsets are after them."""

    ranges: tuple[Range, ...]
    later: int


class TablesInKafka:
    """Reads tables from their topics. `told` is called with the number of records that have been read of a table.

    `ends`: the offset after the last record to read, by topic and partition. A topic that it does not name is always
    read up to the same offsets: the ends of its partitions when the topic is first read.
    """

    def __init__(
        self,
        job: Job,
        told: Callable[[str, int], None] = lambda _table, _records: None,
        ends: Mapping[At, int] = NO_ENDS,
    ) -> None:
        self._job = job
        self._told = told
        self._ends = ends
        self._cluster = Cluster(job.brokers)
        self._extents: dict[str, _Extent] = {}

    def exists(self, topic: str) -> bool:
        """Return whether the brokers have a topic."""
        return bool(self._cluster.present([topic]).partitions)

    def read(self, source: SourceTable, atoms: Atoms, *, timed: bool = False) -> SourceChanges:
        """Return all changes of the rows that ever satisfy the conditions. Raises ChangelogError.

        `timed`: also return rows that move the table's watermark as all of its rows do.

        A change that replaces a row does not name the row's values. If a condition is on other columns than the key,
        the topic is therefore read twice: once to find the keys, and once to find all changes of these keys.
        """
        if timed and source.truncates:
            # Which of the rows remain is only known at the end.
            return self._matching(source, ())
        if timed and source.watermark is not None:
            marks = WatermarkRows(self._none(source), source.watermark, self._slot_ms(source.topic, source.watermark))
            found = self._matching(source, atoms, marks.add)
            return replace(found.merged(marks.found), read=found.read)
        return self._matching(source, atoms)

    def _matching(self, source: SourceTable, atoms: Atoms, see: _See | None = None) -> SourceChanges:
        """Return the changes that satisfy the conditions. `see` is called once with all changes of the table."""
        if not all(len(each.values) for each in atoms) and see is None:
            return self._none(source)
        named = {name for each in atoms for name in each.expression.columns}
        if not source.replaces or named <= set(source.primary_key):
            return self._read(source, lambda changes: matching(atoms, source.declared, changes.rows), see)
        parts: list[pa.BinaryArray] = []

        def keys_only(changes: SourceChanges) -> Mask:
            found = matching(atoms, source.declared, changes.rows)
            if found.any():
                parts.append(changes.filter(found).keys.unique())
            return np.zeros(len(found), np.bool_)

        first = self._read(source, keys_only, see)
        if not parts:
            return first
        keys = pa.concat_arrays(parts).unique()

        def of_keys(changes: SourceChanges) -> Mask:
            mask: Mask = pc.is_in(changes.keys, value_set=keys).to_numpy(zero_copy_only=False)
            return mask

        return self._read(source, of_keys)

    def _none(self, source: SourceTable) -> SourceChanges:
        """Return no changes of a table."""
        extent = self._extent_of(source.topic)
        ends = {each.partition: each.end for each in extent.ranges}
        return SourceChanges(source, Rows.empty(), np.empty(0, np.int64), ends, 0, 0, extent.later)

    def _slot_ms(self, topic: str, watermark: Watermark) -> int:
        extent, now = self._extent_of(topic), time.time_ns() // 1_000_000
        first = self._cluster.first_times([(each.topic, each.partition) for each in extent.ranges])
        return slot_ms(watermark, min(first.values(), default=now), now)

    def _read(self, source: SourceTable, choose: _Choose, see: _See | None = None) -> SourceChanges:
        scan = PhysicalScan(source.table, source, Calc(source.declared, source.declared, (), Key()))
        decoder = Decoder(scan, open_registry(self._job), tolerate=True)
        extent = self._extent_of(source.topic)
        ranges, ends = extent.ranges, {each.partition: each.end for each in extent.ranges}
        rows, times, read, bad, truncated = [Rows.empty()], [np.empty(0, np.int64)], 0, 0, -1
        for records in self._records([each for each in ranges if len(each)], source.topic):
            decoded = decoder.decode(records)
            read, bad = read + len(records), bad + len(decoded.letters)
            changes = SourceChanges(source, decoded.rows, _times(records, decoded.rows), ends, read)
            if see is not None:
                see(changes)
            kept = changes.filter(choose(changes))
            rows.append(kept.rows)
            times.append(kept.times)
            if source.truncates and decoded.truncation is not None:
                truncated = max(truncated, decoded.truncation)
            self._told(source.table, read)
        found = SourceChanges(source, Rows.concat(rows), np.concatenate(times), ends, read, bad, extent.later)
        return found if truncated < 0 else found.filter(found.rows.seq > truncated)

    def _records(self, ranges: list[Range], topic: str) -> Iterator[Records]:
        with closing(Fetcher(self._job.brokers, whole=True)) as fetcher:
            for chunk in fetcher.fetch(ranges, {topic: "earliest"}):
                yield from chunk

    def _extent_of(self, topic: str) -> _Extent:
        if topic not in self._extents:
            partitions = self._cluster.topics([topic]).partitions
            first, last = self._cluster.earliest(partitions), self._cluster.ends(partitions)
            ends = last
            if any(at in self._ends for at in last):
                # A new partition, of which the job has not read anything yet, is not among its offsets.
                ends = {at: min(end, self._ends.get(at, 0)) for at, end in last.items()}
            ranges = tuple(Range(*at, min(first[at], ends[at]), ends[at]) for at in sorted(ends))
            later = sum(last[at] - max(ends[at], first[at]) for at in last)
            self._extents[topic] = _Extent(ranges, later)
        return self._extents[topic]


def _times(records: Records, rows: Rows) -> Int64s:
    """Return the time of the record of each row."""
    assert records.timestamp is not None, "the records were fetched whole"
    numbers = ArrivalNumber.pack(records.offset, records.partition)
    order = np.argsort(numbers, kind="stable")
    found: Int64s = records.timestamp[order[np.searchsorted(numbers[order], rows.seq)]]
    return found
