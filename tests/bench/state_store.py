"""The cost of a batch around the operator: blocks, state calls, commits, and the minimum cost of an almost empty batch.

`python -m tests.bench.state_store`. Every row of the output is one query with one stateful operator on 2 partitions,
which writes one blob per shard and batch to state; the settings differ. Compare only rows of the same run.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from rowkind.operators.columns.block import Block
from rowkind.service.execute.metrics import parse
from rowkind.service.spark.cache import CacheLimits
from rowkind.service.spark.placement import placement
from rowkind.service.spark.processor import over_shards
from rowkind.service.spark.session import session
from tests.bench.blocks import BlockSource, Keep, block
from tests.spark.running import alone

SHARDS = 2
STATE_STORE = "spark.sql.streaming.stateStore"
CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"

WITHOUT_CACHE = "no run cache"
VARIANTS: Mapping[str, Mapping[str, str]] = {
    "as a job has it": {},
    "Spark's own writer of checkpoint files": {
        "spark.sql.streaming.checkpointFileManagerClass": f"{CHECKPOINTING}.FileContextBasedCheckpointFileManager"
    },
    "a whole snapshot per commit": {f"{STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "false"},
    WITHOUT_CACHE: {},
}


@dataclass(frozen=True)
class Figures:
    """Lower quartiles of the batches after the warm-up, in ms; other work on the machine can only add time.

    For a batch on the driver: its whole time, its tasks, and its offset and commit logs. For a task: its commit, its
    state calls, and its operator.
    """

    batch: float
    tasks: float
    logs: float
    commit: float
    state: float
    operator: float

    @classmethod
    def header(cls) -> str:
        """Return the column heads."""
        return f"{'':44}{'batch':>8}{'tasks':>8}{'logs':>8}{'commit':>8}{'state':>8}{'operator':>9}"

    def line(self, name: str) -> str:
        """Return these figures as a row of their table."""
        figures = (self.batch, self.tasks, self.logs, self.commit, self.state)
        return f"{name:44}" + "".join(f"{figure:8.0f}" for figure in figures) + f"{self.operator:9.0f}"


def measure(
    spark: SparkSession,
    rows: int,
    settings: Mapping[str, str],
    *,
    cold: bool,
    warm: int,
    batches: int,
) -> Figures:
    """Run a query of `batches` batches with `rows` changes per shard; `cold` reads every blob from the state store."""
    limits = CacheLimits(0, 0) if cold else CacheLimits()
    labels = placement(SHARDS)
    processor = alone("bench", Keep(), exits=(), labels=labels, limits=limits)
    with _set(spark, settings), tempfile.TemporaryDirectory() as folder:
        source = spark.readStream.format("blocks")
        query = (
            over_shards(source.options(rows=rows, shards=SHARDS, batches=batches).load(), processor)
            .writeStream.format("memory")
            .queryName("out")
            .option("checkpointLocation", folder)
            .start()
        )
        while query.exception() is None and len(_batches(query)) < batches:
            time.sleep(0.2)
        if error := query.exception():
            raise error
        query.stop()
        progress = _batches(query)[warm:]
        stages: dict[str, list[float]] = {"state": [], "operator": []}
        for row in spark.table("out").tail(SHARDS * len(progress)):
            for name, value in Block.from_bytes(bytes(row["block"])).counters.items():
                stage = parse(name)[1].get("stage")
                if stage in stages:
                    stages[stage].append(1000 * value)
        spark.sql("DROP VIEW out")

    def spent(*names: str) -> float:
        return quartile([sum(each.durationMs.get(name, 0) for name in names) for each in progress])

    return Figures(
        batch=spent("triggerExecution"),
        tasks=spent("addBatch"),
        logs=spent("walCommit", "commitOffsets"),
        commit=quartile([each.stateOperators[0].commitTimeMs / SHARDS for each in progress]),
        state=quartile(stages["state"]),
        operator=quartile(stages["operator"]),
    )


@contextmanager
def _set(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set these settings of a session, and restore the old ones afterwards."""
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    yield
    for key, value in before.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


def quartile(values: Sequence[float]) -> float:
    """Return the lower quartile."""
    return statistics.quantiles(values, n=4)[0]


def _batches(query: StreamingQuery) -> list[StreamingQueryProgress]:
    return [each for each in query.recentProgress if each.numInputRows]


def main() -> None:
    """Print the figures of every variant for almost empty and for large batches."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.state_store", description="The cost of a batch.")
    parser.add_argument("--changes", type=int, default=100_000, help="per shard in a large batch")
    parser.add_argument("--batches", type=int, default=40, help="per variant, of which the first 15 are the warm-up")
    parser.add_argument("--only", default="", help="a part of the names of the variants to run")
    given = parser.parse_args()
    warm = min(15, given.batches // 2)
    with tempfile.TemporaryDirectory() as folder:
        spark = session("state store", master="local[2]", parallelism=SHARDS, checkpoint=folder)
        spark.dataSource.register(BlockSource)
        measure(spark, 10, {}, cold=False, warm=warm, batches=given.batches + 20)
        print(
            f"{Figures.header()}   ms; a block of {given.changes} changes is {len(block(given.changes)) / 1e6:.1f} MB"
        )
        for rows in (10, given.changes):
            print(f"{rows} changes per shard and batch")
            for name, settings in VARIANTS.items():
                if given.only in name:
                    cold = name == WITHOUT_CACHE
                    figures = measure(spark, rows, settings, cold=cold, warm=warm, batches=given.batches)
                    print(figures.line("  " + name), flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
