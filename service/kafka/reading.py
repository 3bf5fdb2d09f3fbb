"""Run a read task: decode records once per table, apply each reader's calc, and build blocks for the shards."""

from __future__ import annotations

import gc
import json
import time
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache

from rowkind.avro.registry import listeners
from rowkind.operators.columns.batch import Emitted
from rowkind.operators.columns.block import Block
from rowkind.operators.columns.changes import Rows, binary
from rowkind.service.execute.delete_times import with_delete_times
from rowkind.service.execute.failures import LeftOut, OnFailure
from rowkind.service.execute.metrics import add, sample
from rowkind.service.execute.route import Part, pieces, scanned, spread
from rowkind.service.execute.watermarks import marks_of
from rowkind.service.kafka.ages import ages
from rowkind.service.kafka.bad_updates import decoder_of
from rowkind.service.kafka.dead_letter import EXPRESSION
from rowkind.service.kafka.decode import Decoder
from rowkind.service.kafka.errors import RestartedTopicError, TruncatedTopicError, truncated
from rowkind.service.kafka.fetch import Fetcher
from rowkind.service.kafka.generated_topic import GeneratedTopic
from rowkind.service.kafka.offsets import Offset, Range
from rowkind.service.kafka.record import Records
from rowkind.service.kafka.registry_outage import writing
from rowkind.service.kafka.spec import SourceSpec, from_option
from rowkind.service.physical.graph import GraphScan
from rowkind.service.physical.node import PhysicalScan

LabelledBlock = tuple[int, int, Block]
"""The label of a block's shard, the block's level, and the block."""


@dataclass
class _Table:
    scan: GraphScan
    decoder: Decoder


class Reading:
    """Reads offset ranges into blocks. A worker process keeps one reader per source."""

    def __init__(self, spec: SourceSpec) -> None:
        self._spec = spec
        self._fetcher = Fetcher(spec.kafka, whole=spec.whole)
        self._generated = {name: GeneratedTopic(table, spec.begun) for name, table in spec.generated.items()}
        self._on_lost = {topic: start.on_lost for topic, start in spec.starts.items()}
        self._tables: dict[str, list[_Table]] = defaultdict(list)
        for each in spec.scans:
            decoder = decoder_of(each.scan, spec.registry, tolerate=spec.tolerate, promises=spec.promises)
            self._tables[each.scan.source.topic].append(_Table(each, decoder))

    def close(self) -> None:
        """Close the connection to the brokers."""
        self._fetcher.close()

    def blocks(
        self,
        ranges: Sequence[Range],
        *,
        opens: bool = False,
        extent: str = "",
        first: bool = True,
        reports: bool = False,
    ) -> Iterator[LabelledBlock]:
        """Yield the blocks of all records in the ranges, with control blocks before and after them.

        If `extent` is given, the first blocks send it to every writer. If `opens` is set, further blocks let operators
        start without rows. If `reports` is set, further blocks ask every shard to report its state size. The last
        blocks carry the watermarks. In the `first` task of a batch, the watermarks include partitions without new
        records.
        """
        labels, spec = self._spec.labels, self._spec
        # If partitions stay whole, nothing is shuffled and each read task is its own writer.
        for label in spec.writers if extent and (first or spec.whole_partitions) else ():
            yield label, spec.writer, Block(extent=extent)
        for shard, level in spec.opens if opens else ():
            yield labels[shard], level, Block()
        for level in spec.levels if reports else ():
            yield from ((label, level, Block(reports=True)) for label in labels)
        told = bool(extent) and first
        marks = self._partitions(extent) if told else {}
        # Close the generator at once if the task fails: the worker keeps the consumer, and the next task reassigns it.
        with closing(self._fetched(ranges)) as chunks:
            more = True
            while more:
                with _no_cycles():
                    counters: dict[str, float] = {}
                    started = time.perf_counter()
                    chunk = next(chunks, [])
                    more = bool(chunk)
                    _spend(counters, "fetch", started)
                    parts = [part for records in chunk for part in self._parts(records, counters, marks)]
                    del chunk
                    started = time.perf_counter()
                    blocks = [(labels[shard], level, Block(piece)) for shard, level, piece in pieces(parts)]
                    _spend(counters, "pack", started)
                if more:
                    yield from blocks
                    yield labels[0], spec.writer, Block(counters=counters)
        if marks or told:
            for level in spec.timed_levels:
                yield from ((label, level, Block(marks=marks)) for label in labels)

    def _fetched(self, ranges: Sequence[Range]) -> Generator[list[Records], None, None]:
        """Yield the records of the ranges. Raises ChangelogError, or RestartedTopicError if the job rebuilds itself."""
        for each in ranges:
            if each.topic in self._generated:
                yield from ([records] for records in self._generated[each.topic].records(each.start, each.end))
        fetched = [each for each in ranges if each.topic not in self._generated]
        with closing(self._fetcher.fetch(fetched, self._on_lost)) as chunks:
            try:
                yield from chunks
            except TruncatedTopicError as error:
                if self._spec.starts[error.topic].on_recreated == "fail":
                    raise
                how = truncated(error.partition, error.read, error.end)
                raise RestartedTopicError(error.topic, how) from None

    def _partitions(self, extent: str) -> dict[str, dict[int, int | None]]:
        """Return the partitions in `extent`, by table, for the tables whose watermarks are used.

        Each partition is mapped to None, because its watermark is not known yet.
        """
        marks: dict[str, dict[int, int | None]] = {}
        for topic, partition in Offset.from_json(json.loads(extent)).at:
            for each in self._tables.get(topic, ()):
                if (name := each.scan.scan.source.table) in self._spec.timed_tables:
                    marks.setdefault(name, {})[partition] = None
        return marks

    def _parts(
        self, records: Records, counters: dict[str, float], marks: dict[str, dict[int, int | None]]
    ) -> Iterator[Part]:
        shards = len(self._spec.labels)
        for table in self._tables[records.topic]:
            started = time.perf_counter()
            decoded = table.decoder.decode(records)
            add(counters, decoded.counters)
            add(counters, ages(table.scan.scan.source.table, records.made, time.time()))
            letters = list(decoded.letters)
            _spend(counters, "decode", started)
            started = time.perf_counter()
            if len(decoded.rows) or decoded.truncation is not None:
                rows = with_delete_times(table.scan, decoded.rows, marks.get(table.scan.scan.source.table, {}))
                self._mark(table.scan.scan, decoded.rows, marks)
                left_out: list[LeftOut] = []
                name = table.scan.scan.source.table
                emitted = Emitted(rows, truncation=decoded.truncation)
                failure = OnFailure(name, left_out.append, self._spec.excused)
                yield from scanned(table.scan, emitted, shards, failure, counters)
                for each in left_out:
                    letters += table.decoder.left_out(records, each)
                    failed = sample("rowkind_dead_letters_total", table=name, reason=EXPRESSION)
                    add(counters, {failed: len(each.reasons)})
            if letters:
                yield from spread(binary(each.to_bytes() for each in letters), self._spec.writer, shards)
            _spend(counters, "calc", started)

    def _mark(self, scan: PhysicalScan, rows: Rows, marks: dict[str, dict[int, int | None]]) -> None:
        """Advance the watermarks in `marks` according to the times of the given rows."""
        source = scan.source
        if source.watermark is None or source.table not in self._spec.timed_tables:
            return
        own = marks.setdefault(source.table, {})
        for partition, mark in marks_of(source.watermark, scan.calc.input, rows).items():
            known = own.get(partition)
            own[partition] = mark if known is None else max(known, mark)


@contextmanager
def _no_cycles() -> Iterator[None]:
    """Pause the garbage collector.

    A chunk's objects form no cycles, and the search for cycles took a third of the time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _spend(counters: dict[str, float], stage: str, since: float) -> None:
    add(counters, {sample("rowkind_read_seconds_total", stage=stage): time.perf_counter() - since})


@lru_cache(maxsize=4)
def worker_reading(option: str) -> Reading:
    """Return the reader that this worker process keeps for a spec, with its consumer, schemas and compiled calcs."""
    spec = from_option(option)
    listeners[:] = [] if spec.registry_file is None else [writing(spec.registry_file)]
    return Reading(spec)
