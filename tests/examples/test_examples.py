"""Every query of every example in memory, over its own changes and random ones, compared with DuckDB."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import datetime

import pyarrow as pa
import pytest

from rowkind.operators.columns.changes import Changes
from rowkind.service.job.model import Job
from rowkind.service.physical.node import PhysicalScan, PhysicalSink
from rowkind.service.physical.tree import walk
from rowkind.service.plan.pipeline import plan
from rowkind.service.query.memory import Fold, MemoryEngine
from tests.examples.auctions import shuffled
from tests.examples.jobs import (
    GENERATED,
    Batch,
    InDuckDB,
    Inputs,
    bag,
    batches,
    every_query,
    example,
    stored_lines,
    unmatched,
)
from tests.plan.changelogs import World, bare_updates
from tests.plan.traits import SinkOrder, Traits
from tests.seeds import seeds

QUERIES = every_query()
NAMED = [f"{name}-{sink}" for name, sink in QUERIES]


class Check:
    """One query of a job, run batch by batch and compared with DuckDB after each.

    Rows that are emitted once, after a watermark, are compared for the windows that the watermark has passed.
    """

    def __init__(self, job: Job, sink: PhysicalSink) -> None:
        self._sink = sink
        self._traits, self._order = Traits(), SinkOrder(sink)
        self._engine = MemoryEngine(sink, unmatched=unmatched, watch=self._traits.watch)
        self._fold = Fold(keyed=sink.mode == "upsert")
        self._duckdb = InDuckDB(job)
        self.rows: Counter[str] = Counter()
        self.reads = [node.source.table for node in walk(sink) if isinstance(node, PhysicalScan)]

    def batch(self, number: int, rows: Batch, tables: dict[str, pa.Table], until: datetime | None = None) -> None:
        """Run one more batch; `tables` are the tables after it, and `until` is their watermark."""
        self._take(self._engine.batch(rows, now=now_of(number))[self._sink.name])
        self._duckdb.show(tables)
        assert self.rows == self._duckdb.rows(self._sink.name, self._sink.value, until), f"batch {number}"

    def end(self, number: int) -> None:
        """End the input, which passes every window."""
        self._take(self._engine.batch({}, now=now_of(number), ended=True)[self._sink.name])
        assert self.rows == self._duckdb.rows(self._sink.name, self._sink.value), "in the end"

    def _take(self, changes: Changes) -> None:
        self._traits.check()
        self._order.check(changes)
        self._fold.apply(changes)
        self.rows = bag(self._sink.value, pa.array(self._fold.payloads, pa.binary()))


def now_of(number: int) -> int:
    """Return the time of a batch in ms; a processing-time window contains a few batches."""
    return number * 3_000


@pytest.mark.parametrize(("name", "sink"), QUERIES, ids=NAMED)
def test_an_example_gives_what_duckdb_gives_after_every_batch(name: str, sink: str) -> None:
    """In batches of 17 lines and in one batch of the stored changes, every query equals DuckDB's and is not empty."""
    job = example(name)
    planned = plan(job, sink)
    lines = stored_lines(name)
    for rows in (17, len(lines)):
        check, inputs = Check(job, planned), Inputs(job)
        for number, batch in enumerate(batches(job, lines, rows)):
            inputs.apply(batch, now_of(number))
            check.batch(number, batch, inputs.tables, inputs.watermark(check.reads))
        check.end(len(lines))
        assert check.rows


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize(("name", "sink"), [each for each in QUERIES if each[0] not in GENERATED])
def test_random_changes_give_what_duckdb_gives(name: str, sink: str, seed: int) -> None:
    """Over random changes of the tables that the query reads, with unique times, every result equals DuckDB's."""
    job = example(name)
    planned = plan(job, sink)
    world = World.of(job, bare_updates(planned), seed, distinct_times=True)
    check, others = Check(job, planned), Inputs(job).tables
    for number, (batch, tables) in enumerate(world.batches(12)):
        check.batch(number, batch, others | tables)


@pytest.mark.parametrize("seed", [2])
@pytest.mark.parametrize("sink", example("nexmark").sinks)
def test_other_auctions_give_what_duckdb_gives(sink: str, seed: int) -> None:
    """Over other events than the stored ones, in another order and other batches, Nexmark's queries equal DuckDB's."""
    job = example("nexmark")
    lines = [json.dumps(event) for event in shuffled(seed, 240)]
    check, inputs = Check(job, plan(job, sink)), Inputs(job)
    for number, batch in enumerate(batches(job, lines, random.Random(seed).choice((9, 31)))):
        inputs.apply(batch, now_of(number))
        check.batch(number, batch, inputs.tables, inputs.watermark(check.reads))
    check.end(len(lines))
