"""Read the changes that can matter from Kafka. Only these are kept in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

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
from rowkind.service.kafka.offsets import Range
from rowkind.service.kafka.record import Records
from rowkind.service.physical.calc import Calc
from rowkind.service.physical.keys import Key
from rowkind.service.physical.node import PhysicalScan, PhysicalSink
from rowkind.service.physical.source_table import SourceTable
from rowkind.service.physical.tree import walk
from rowkind.service.why.atoms import Atoms, matching
from rowkind.service.why.sources import SourceChanges
from rowkind.service.why.wanted import WantedError

_Choose = Callable[[SourceChanges], Mask]


def check_topics(sink: PhysicalSink) -> None:
    """Raise WantedError if a table of the sink's query has no topic."""
    for node in walk(sink):
        if isinstance(node, PhysicalScan) and node.source.generation is not None:
            raise WantedError(
                f"rowkind why cannot explain sink {sink.name}: the job generates the rows of table "
                f"{node.source.table}, and does not store them in a topic. Choose a sink whose tables all have topics, "
                "or run the query on a file of changes with `rowkind try`"
            )


class TablesInKafka:
    """Reads tables from their topics. `told` is called with the number of records that have been read of a table.

    A table is always read up to the same offsets: the ends of its partitions when it is first read.
    """

    def __init__(self, job: Job, told: Callable[[str, int], None] = lambda _table, _records: None) -> None:
        self._job = job
        self._told = told
        self._cluster = Cluster(job.brokers)
        self._ranges: dict[str, tuple[Range, ...]] = {}

    def exists(self, topic: str) -> bool:
        """Return whether the brokers have a topic."""
        return bool(self._cluster.present([topic]).partitions)

    def read(self, source: SourceTable, atoms: Atoms) -> SourceChanges:
        """Return all changes of the rows that ever satisfy the conditions. Raises ChangelogError.

        A change that replaces a row does not name the row's values. If a condition is on other columns than the key,
        the topic is therefore read twice: once to find the keys, and once to find all changes of these keys.
        """
        if not all(len(each.values) for each in atoms):
            return self._read(source, lambda changes: np.zeros(len(changes.rows), np.bool_), nothing=True)
        named = {name for each in atoms for name in each.expression.columns}
        if not source.replaces or named <= set(source.primary_key):
            return self._read(source, lambda changes: matching(atoms, source.declared, changes.rows))
        parts: list[pa.BinaryArray] = []

        def keys_only(changes: SourceChanges) -> Mask:
            found = matching(atoms, source.declared, changes.rows)
            if found.any():
                parts.append(changes.filter(found).keys.unique())
            return np.zeros(len(found), np.bool_)

        first = self._read(source, keys_only)
        if not parts:
            return first
        keys = pa.concat_arrays(parts).unique()

        def of_keys(changes: SourceChanges) -> Mask:
            mask: Mask = pc.is_in(changes.keys, value_set=keys).to_numpy(zero_copy_only=False)
            return mask

        return self._read(source, of_keys)

    def _read(self, source: SourceTable, choose: _Choose, *, nothing: bool = False) -> SourceChanges:
        scan = PhysicalScan(source.table, source, Calc(source.declared, source.declared, (), Key()))
        decoder = Decoder(scan, open_registry(self._job), tolerate=True)
        ranges = self._ranges_of(source.topic)
        ends = {each.partition: each.end for each in ranges}
        rows, times, read, bad, truncated = [Rows.empty()], [np.empty(0, np.int64)], 0, 0, -1
        for records in self._records([each for each in ranges if len(each) and not nothing], source.topic):
            decoded = decoder.decode(records)
            read, bad = read + len(records), bad + len(decoded.letters)
            changes = SourceChanges(source, decoded.rows, _times(records, decoded.rows), ends, read)
            kept = changes.filter(choose(changes))
            rows.append(kept.rows)
            times.append(kept.times)
            if source.truncates and decoded.truncation is not None:
                truncated = max(truncated, decoded.truncation)
            self._told(source.table, read)
        found = SourceChanges(source, Rows.concat(rows), np.concatenate(times), ends, read, bad)
        return found if truncated < 0 else found.filter(found.rows.seq > truncated)

    def _records(self, ranges: list[Range], topic: str) -> Iterator[Records]:
        with closing(Fetcher(self._job.brokers, whole=True)) as fetcher:
            for chunk in fetcher.fetch(ranges, {topic: "earliest"}):
                yield from chunk

    def _ranges_of(self, topic: str) -> tuple[Range, ...]:
        if topic not in self._ranges:
            partitions = self._cluster.topics([topic]).partitions
            first, ends = self._cluster.earliest(partitions), self._cluster.ends(partitions)
            self._ranges[topic] = tuple(Range(*at, first[at], ends[at]) for at in sorted(ends))
        return self._ranges[topic]


def _times(records: Records, rows: Rows) -> Int64s:
    """Return the time of the record of each row."""
    assert records.timestamp is not None, "the records were fetched whole"
    numbers = ArrivalNumber.pack(records.offset, records.partition)
    order = np.argsort(numbers, kind="stable")
    found: Int64s = records.timestamp[order[np.searchsorted(numbers[order], rows.seq)]]
    return found
