"""What a read task does: decode once per table, calc once per scan, blocks for the consumer's shards."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache

from rowkind.operators.columns.changes import Block, Changes, Counters, Rows
from rowkind.service.execute.blocks import cut
from rowkind.service.execute.route import Route
from rowkind.service.kafka.dead_letter import as_changes
from rowkind.service.kafka.decode import Decoder
from rowkind.service.kafka.fetch import Fetcher
from rowkind.service.kafka.offsets import Range
from rowkind.service.kafka.record import Records
from rowkind.service.kafka.spec import OPTION, SourceSpec, from_option
from rowkind.service.metrics import add, sample
from rowkind.service.physical import PhysicalScan

LabelledBlock = tuple[int, Block]


@dataclass
class _Table:
    """Scans of one topic that read the same columns of it in the same way: decoded once, a calc for each."""

    scan: PhysicalScan
    decoder: Decoder
    routes: list[Route] = field(default_factory=list)


class Reading:
    """Turns offset ranges into blocks; a worker keeps one per source."""

    def __init__(self, spec: SourceSpec) -> None:
        self._spec = spec
        self._fetcher = Fetcher(spec.kafka, whole=spec.tolerate)
        self._on_lost = {scan.source.topic: scan.source.start.on_lost for scan in spec.scans}
        self._tables = _tables(spec)

    def close(self) -> None:
        """Let go of the brokers."""
        self._fetcher.close()

    def blocks(self, ranges: Sequence[Range]) -> Iterator[LabelledBlock]:
        """The blocks of all records in the ranges, each with the label of its shard."""
        # Closed at once if the task fails: the consumer is the worker's, and the next task assigns it anew.
        with closing(self._fetcher.fetch(ranges, self._on_lost)) as chunks:
            more, sent = True, False
            while more:
                with _no_cycles():
                    counters: dict[str, float] = {}
                    started = time.perf_counter()
                    chunk = next(chunks, [])
                    more = bool(chunk)
                    _spend(counters, "fetch", started)
                    changes = [part for records in chunk for part in self._changes(records, counters)]
                    # Headers are lists, which the collector would go through if they were still there when it is back.
                    del chunk
                    started = time.perf_counter()
                    blocks = list(self._packed(Changes.concat(changes)))
                    _spend(counters, "pack", started)
                if more or (self._spec.opens and not sent):
                    sent = True
                    yield from _with_counters(blocks, counters, self._spec.placement[0])

    def _changes(self, records: Records, counters: dict[str, float]) -> Iterator[Changes]:
        counted: set[str] = set()
        for table in self._tables[records.topic]:
            started = time.perf_counter()
            decoded = table.decoder.decode(records)
            if table.scan.source.table not in counted:
                # A table that is read twice, as in a self join, is counted once and has each dead letter once.
                counted.add(table.scan.source.table)
                add(counters, decoded.counters)
                if decoded.letters:
                    yield as_changes(decoded.letters)
            _spend(counters, "decode", started)
            started = time.perf_counter()
            yield from self._calculated(table, decoded.rows)
            _spend(counters, "calc", started)

    def _calculated(self, table: _Table, rows: Rows) -> list[Changes]:
        return [route(rows) for route in table.routes] if len(rows) else []

    def _packed(self, changes: Changes) -> Iterator[LabelledBlock]:
        labels = self._spec.placement
        for label, part in zip(labels, changes.split(len(labels)), strict=True):
            for piece in cut(part):
                yield label, Block(piece)


def _tables(spec: SourceSpec) -> dict[str, list[_Table]]:
    tables: dict[str, list[_Table]] = {}
    for scan, route in zip(spec.scans, spec.routes, strict=True):
        of_topic = tables.setdefault(scan.source.topic, [])
        same = next((table for table in of_topic if _reads_alike(table.scan, scan)), None)
        if same is None:
            same = _Table(scan, Decoder(scan, spec.registry, tolerate=spec.tolerate))
            of_topic.append(same)
        same.routes.append(route)
    return tables


def _reads_alike(one: PhysicalScan, other: PhysicalScan) -> bool:
    def reads(scan: PhysicalScan) -> tuple[object, ...]:
        return scan.source, scan.calc.input

    return reads(one) == reads(other)


def _with_counters(blocks: Sequence[LabelledBlock], counters: Counters, label: int) -> Iterator[LabelledBlock]:
    """The blocks, of which the first carries the counters; an empty one where there is none."""
    (first, block), *others = blocks or [(label, Block(Changes.empty()))]
    yield first, Block(block.changes, counters)
    yield from others


@contextmanager
def _no_cycles() -> Iterator[None]:
    """Without the collector of cycles: a chunk's objects make none, and looking for them took a third of the time."""
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
    """The reading that this worker process keeps for a spec, with its consumer, schemas and compiled calcs."""
    return Reading(from_option({OPTION: option}))
