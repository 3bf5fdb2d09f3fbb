"""Run plans as one real streaming query: one file per batch in, the blocks of every batch out."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id

from rowkind.operators.columns.batch import Emitted
from rowkind.operators.columns.block import Block
from rowkind.operators.columns.changes import Rows
from rowkind.service.execute.route import scanned
from rowkind.service.job.model import Job
from rowkind.service.physical.graph import Graph, graph
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.query.memory import Fold, marks_of_tables, pruned
from rowkind.service.query.streaming import assemble, levels
from rowkind.service.query.trial_on_spark import changes_of, write
from rowkind.service.spark.edge import EDGE_SCHEMA
from tests.queries import rows_of

JOB: Mapping[str, Any] = {
    "job": "plans",
    "tables": {"t": {"columns": {"a": "INT"}, "mode": "append"}},
    "sinks": {"s": {"mode": "append", "sql": "SELECT a FROM t"}},
}
"""A job that only supplies settings."""


@dataclass
class PlanQuery:
    """Plans, their checkpoint and their output so far; a batch that is run again replaces its own blocks.

    The checkpoint has at least `levels` stages. `tasks` has, for each batch, the numbers of the tasks that would have
    written its blocks. A batch is read by `readers` tasks, and each task reads a part of the changes of every table.
    """

    spark: SparkSession
    folder: Path
    sinks: Sequence[PhysicalSink]
    settings: Mapping[str, Any] = field(default_factory=dict)
    levels: int = 0
    readers: int = 1
    outputs: dict[int, list[Block]] = field(default_factory=dict)
    tasks: dict[int, list[int]] = field(default_factory=dict)
    batches: list[Mapping[str, Rows]] = field(default_factory=list)
    started: float = field(default_factory=lambda: time.time() - 3600)

    @property
    def graph(self) -> Graph:
        """The graph of the plans."""
        return graph(self.sinks, self.levels)

    def run(self, *batches: Mapping[str, Rows]) -> None:
        """Run these batches and stop."""
        self.batches += batches
        of, job = self.graph, Job.model_validate({**JOB, "parallelism": 2, **self.settings})
        query = (
            assemble(of, job, levels(of, job, job.parallelism), self._source(job.parallelism), job.parallelism)
            .writeStream.foreachBatch(self._collect)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()
        assert sorted(self.outputs) == list(range(len(self.batches)))

    def rows(self, number: int = 0, batches: int | None = None) -> Counter[tuple[Any, ...]]:
        """Return the rows that all changes of a sink so far, or of the first `batches` batches, add up to."""
        sink = self.sinks[number]
        fold = Fold(keyed=sink.mode == "upsert")
        for _, blocks in sorted(self.outputs.items())[:batches]:
            fold.apply(changes_of(sink, blocks, self.graph.place(sink.name)))
        return rows_of(sink.value, fold.payloads)

    @property
    def counters(self) -> Counter[str]:
        """The counters of all batches, added up."""
        counters: Counter[str] = Counter()
        for blocks in self.outputs.values():
            for block in blocks:
                counters.update(block.counters)
        return counters

    def _source(self, shards: int) -> DataFrame:
        whole = self.graph
        folder = self.folder / "source"
        folder.mkdir(parents=True, exist_ok=True)
        files = [part for batch in self.batches for part in _divided(batch, self.readers)]
        for number, part in enumerate(files):
            path = folder / f"{number:08}.parquet"
            if not path.exists():
                parts = [
                    found for each in whole.scans for found in scanned(each, Emitted(pruned(each.scan, part)), shards)
                ]
                write(path, parts, whole, shards, marks_of_tables(whole, part, ended=False))
                # Spark reads files in the order of their modification times.
                os.utime(path, (self.started + number, self.started + number))
        source = self.spark.readStream.schema(EDGE_SCHEMA).option("maxFilesPerTrigger", self.readers)
        return source.parquet(str(folder))

    def _collect(self, frame: DataFrame, batch: int) -> None:
        rows = frame.select("block", spark_partition_id().alias("task")).collect()
        self.outputs[batch] = [Block.from_bytes(bytes(row["block"])) for row in rows]
        self.tasks[batch] = [row["task"] for row in rows]


def _divided(batch: Mapping[str, Rows], parts: int) -> list[dict[str, Rows]]:
    """Return the changes of each table in this number of consecutive parts."""
    return [
        {
            table: rows.take(np.arange(len(rows) * part // parts, len(rows) * (part + 1) // parts))
            for table, rows in batch.items()
        }
        for part in range(parts)
    ]
