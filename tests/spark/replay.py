"""A world for the operator laws with state in RocksDB: one query plays all runs, each in a separate shard.

The laws first run over memory, to record which runs they need. Then the query plays these runs, and the laws run again
over its output.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.block import Block
from rowkind.operators.columns.changes import Changes, Rows
from rowkind.operators.operator import Output
from rowkind.service.spark.cache import CacheLimits
from rowkind.service.spark.placement import placement
from rowkind.service.spark.store import MAP
from tests.changelogs import Change
from tests.laws.cases import ALL
from tests.laws.laws import MemoryWorld, Played
from tests.laws.subjects import Subject
from tests.oracle.inputs import Batches
from tests.spark.distinct import by_bytes, packed, unpacked
from tests.spark.running import Query, alone

Run = tuple[int, tuple[tuple[Change, ...], ...], bool]
"""A subject's number, its batches, and whether it is stopped in between."""


@dataclass(frozen=True)
class Replay:
    """An operator that plays any subject.

    The payload carries a batch of changes, and the output carries the emitted changes.
    """

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The arrangements of all subjects."""
        return dict.fromkeys(sorted({name for subject in ALL for name in subject.operator.arrangements}))

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Play one batch of one run; its clock is the batch's number, not `now`."""
        assert now > 0
        run, subject, number, played = pickle.loads(unpacked(batch.changes.payload)[0])
        output = ALL[subject].operator.process(ALL[subject].columns(played), stores, now=number)
        told = packed([pickle.dumps((run, number, output))])
        rows = Rows(np.array([RowKind.INSERT], np.int8), batch.changes.seq, told)
        return Output(Emitted(rows), Changes.empty(), output.state)


@dataclass
class RecordingWorld:
    """A world with state in dicts that records all runs; a run that several laws need is recorded once."""

    runs: dict[Run, None] = field(default_factory=dict)

    def play(self, subject: Subject, batches: Batches, *, stopping: bool = False) -> Played:
        """Apply these batches to empty stores."""
        self.runs[_run(subject, batches, stopping=stopping)] = None
        return MemoryWorld().play(subject, batches, stopping=stopping)


@dataclass(frozen=True)
class RocksDBWorld:
    """The query's output for each run, and how many entries of its state are left."""

    played: Mapping[Run, Played]

    @classmethod
    def of(cls, runs: Mapping[Run, None], spark: SparkSession, folder: Path) -> RocksDBWorld:
        """Play these runs.

        The query is stopped once, at the point where the stopping runs need it and the others have ended.

        There is no cache, so a batch reads everything from RocksDB.
        """
        labels = placement(len(runs))
        processor = alone("replay", Replay(), labels=labels, limits=CacheLimits(worker=0, disk=0))
        query = Query(spark, folder, processor, shards=len(runs))
        longest = max(len(batches) for _, batches, _ in runs)
        starts = [longest - len(batches) // 2 if stopping else 0 for _, batches, stopping in runs]
        for at in range(max(start + len(batches) for start, (_, batches, _) in zip(starts, runs, strict=True))):
            numbered = enumerate(zip(starts, runs, strict=True))
            query.add(
                {
                    run: [Block(Batch(_change(run, subject, at - start, batches[at - start])))]
                    for run, (start, (subject, batches, _)) in numbered
                    if 0 <= at - start < len(batches)
                }
            )
            if at == longest - 1:
                query.run()
        query.run()
        outputs: list[dict[int, Output]] = [{} for _ in runs]
        for block in query.blocks():
            for row in unpacked(block.changes.payload):
                number, batch, output = pickle.loads(row)
                outputs[number][batch] = output
        blobs = _left(spark, folder, len(runs))
        return cls(
            {
                run: Played([of for _, of in sorted(outputs[number].items())], blobs[number])
                for number, run in enumerate(runs)
            }
        )

    def play(self, subject: Subject, batches: Batches, *, stopping: bool = False) -> Played:
        """Return the output of this run."""
        return self.played[_run(subject, batches, stopping=stopping)]


def _run(subject: Subject, batches: Batches, *, stopping: bool) -> Run:
    return ALL.index(subject), tuple(map(tuple, batches)), stopping


def _change(run: int, subject: int, number: int, batch: Sequence[Change]) -> Changes:
    payload = packed([pickle.dumps((run, subject, number, batch))])
    return by_bytes(Rows(np.array([RowKind.INSERT], np.int8), np.zeros(1, np.int64), payload))


def _left(spark: SparkSession, folder: Path, runs: int) -> Counter[int]:
    """Return how many entries the state store has for each run."""
    entries = spark.read.format("statestore").option("stateVarName", MAP).load(str(folder / "checkpoint"))
    left: Counter[int] = Counter()
    for row in entries.groupBy("key.shard").count().collect():
        left[row["shard"] % runs] += row["count"]
    return left
