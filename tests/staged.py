"""A job run stage by stage as on Spark, but in this process: reading tasks, shards, blocks, and state per stage.

Spark's choices are random here: which task reads which changes, and in which order blocks reach a shard. State is in
PySpark's own in-memory test double. Everything else is the code that a job runs.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from rowkind.operators.columns.batch import Emitted
from rowkind.operators.columns.block import Block
from rowkind.operators.columns.changes import Changes, Rows
from rowkind.service.execute.metrics import add
from rowkind.service.execute.route import pieces, scanned
from rowkind.service.job.model import Job
from rowkind.service.physical.graph import Graph, graph
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.query.memory import marks_of_tables, pruned
from rowkind.service.query.streaming import levels, opens
from rowkind.service.query.trial_on_spark import changes_of
from rowkind.service.spark.cache import CacheLimits
from rowkind.service.spark.placement import placement
from rowkind.service.spark.processor import OperatorProcessor

_BROKEN = "rowkind_broken_promises_total"

Edge = tuple[int, int, bytes]
"""The label of its shard, its level, and a block."""


@dataclass
class Staged:
    """The query of a sink over `shards`; tables are read in shuffled chunks of `rows` rows."""

    job: Job
    sink: PhysicalSink
    rng: random.Random
    shards: int = 3
    rows: int = 2
    counters: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._graph = graph([self.sink])
        self._labels = placement(self.shards)
        self._stages = [TwsTester(each) for each in _processors(self._graph, self.job, self.shards)]

    def batch(self, tables: Mapping[str, Rows], now: int, *, ended: bool = False) -> Changes:
        """Return the changes that one more batch writes at time `now`, in ms."""
        edges = [*self._read(tables, ended=ended)]
        for stage in self._stages:
            edges = [edge for label, own in self._shuffled(edges) for edge in _staged(stage, label, own, now)]
        blocks = [Block.from_bytes(block) for _, own in self._shuffled(edges) for _, _, block in own]
        for block in blocks:
            add(self.counters, block.counters)
        return changes_of(self.sink, blocks, self._graph.place(self.sink.name))

    @property
    def broken(self) -> dict[str, float]:
        """Return how often each promise of each table was reported as broken."""
        return {name: count for name, count in self.counters.items() if name.startswith(_BROKEN) and count}

    def _read(self, tables: Mapping[str, Rows], *, ended: bool) -> Iterator[Edge]:
        """Yield the blocks that the reading tasks send."""
        whole, labels = self._graph, self._labels
        for each in whole.scans:
            for chunk in _chunks(pruned(each.scan, tables), self.rows):
                for shard, level, piece in pieces(scanned(each, Emitted(chunk), self.shards)):
                    yield labels[shard], level, Block(piece).to_bytes()
        for shard, level in opens(whole, self.shards):
            yield labels[shard], level, Block().to_bytes()
        marks = Block(marks=marks_of_tables(whole, tables, ended=ended)).to_bytes()
        yield from ((label, level, marks) for level in whole.timed_levels for label in labels)

    def _shuffled(self, edges: Iterable[Edge]) -> Iterator[tuple[int, list[Edge]]]:
        """Yield the blocks of each shard in random order."""
        found: dict[int, list[Edge]] = defaultdict(list)
        for edge in edges:
            found[edge[0]].append(edge)
        for label, own in sorted(found.items()):
            self.rng.shuffle(own)
            yield label, own


def _processors(of: Graph, job: Job, shards: int) -> Iterator[OperatorProcessor]:
    for level in levels(of, job, shards):
        yield OperatorProcessor(
            level,
            unmatched=job.unmatched if job.unmatched != "dead_letter" else "ignore",
            promises=job.promises,
            limits=CacheLimits(0, 0),
        )


def _staged(stage: TwsTester, label: int, edges: Iterable[Edge], now: int) -> list[Edge]:
    rows = [Row(shard=shard, level=level, block=block, now=now) for shard, level, block in edges]
    return [(row.shard, row.level, row.block) for row in stage.test(label, rows)]


def _chunks(rows: Rows, size: int) -> Iterator[Rows]:
    for at in range(0, len(rows), size):
        yield rows.take(np.arange(at, min(at + size, len(rows))))
