"""Run the steps of scenarios over memory and over RocksDB, and measure them.

This is its own module because workers import objects that they receive by the name of their module.
"""

from __future__ import annotations

import pickle
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from rowkind.operators.arrangement.arrangement import StateSize
from rowkind.operators.arrangement.store import BlobStore, MemoryStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.block import Block
from rowkind.operators.columns.changes import Changes, Rows
from rowkind.operators.operator import Output
from rowkind.service.spark.placement import placement
from tests.bench.scenarios import GROW, SCENARIOS, Scenario, Step
from tests.spark.distinct import by_bytes, packed, unpacked
from tests.spark.running import Query, alone


@dataclass(frozen=True)
class Figures:
    """One batch: changes, seconds of CPU and wall time, wall seconds in state calls, and the state after it."""

    changes: int
    cpu: float
    wall: float
    waiting: float
    state: StateSize


def measure(scenario: Scenario, step: Step, number: int, stores: Mapping[str, BlobStore]) -> Figures:
    """Run one step over these stores."""
    changes = scenario.batch(step, number * 2 * GROW)
    wall, cpu = time.perf_counter(), time.process_time()
    output = scenario.operator.process(Batch(changes), stores, now=number)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Figures(
        len(changes), cpu, wall, sum(getattr(store, "seconds", 0.0) for store in stores.values()), output.state
    )


@dataclass(frozen=True)
class Measuring:
    """An operator whose payload is the number of a scenario and a step; it runs the step and emits the figures."""

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """Return the arrangements of all operators."""
        return dict.fromkeys(sorted({name for one in SCENARIOS for name in one.operator.arrangements}))

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Run one step of one scenario; its clock is the number of the step, not `now`."""
        assert now > 0
        scenario, number, step = pickle.loads(unpacked(batch.changes.payload)[0])
        mine = {name: stores[name] for name in SCENARIOS[scenario].operator.arrangements}
        figures = measure(SCENARIOS[scenario], step, number, mine)
        told = packed([pickle.dumps((scenario, number, figures))])
        rows = Rows(np.zeros(1, np.int8), batch.changes.seq, told)
        return Output(Emitted(rows), Changes.empty(), figures.state)


def in_memory(scenario: Scenario, script: Sequence[Step]) -> list[Figures]:
    """Return the figures of every step over dicts."""
    stores = {name: MemoryStore() for name in scenario.operator.arrangements}
    return [measure(scenario, step, number, stores) for number, step in enumerate(script)]


def on_rocksdb(
    spark: SparkSession, numbers: Sequence[int], script: Sequence[Step], folder: Path
) -> dict[int, list[Figures]]:
    """Return the figures of every step of these scenarios, which run side by side."""
    labels = placement(len(SCENARIOS))
    query = Query(spark, folder, alone("bench", Measuring(), labels=labels), len(SCENARIOS))
    for number, step in enumerate(script):
        batch = {}
        for scenario in numbers:
            payload = packed([pickle.dumps((scenario, number, step))])
            row = Rows(np.full(1, RowKind.INSERT, np.int8), np.zeros(1, np.int64), payload)
            batch[scenario] = [Block(Batch(by_bytes(row)))]
        query.add(batch)
    query.run()
    found: dict[int, dict[int, Figures]] = defaultdict(dict)
    for block in query.blocks():
        for told in unpacked(block.changes.payload):
            scenario, number, figures = pickle.loads(told)
            found[scenario][number] = figures
    return {scenario: [figures[number] for number in sorted(figures)] for scenario, figures in found.items()}
