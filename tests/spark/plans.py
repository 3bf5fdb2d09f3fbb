"""Runs a physical plan as a real streaming query: one file per batch and source in, the blocks of every batch out."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id

from rowkind.operators.columns.changes import Block, Changes, Rows
from rowkind.service.execute.route import Route
from rowkind.service.execute.stages import Inflow
from rowkind.service.job.model import Job
from rowkind.service.physical import PhysicalScan, PhysicalSink
from rowkind.service.run.memory import Fold, pruned
from rowkind.service.run.streaming import assemble
from rowkind.service.run.trial_on_spark import write
from rowkind.service.spark.processor import EDGE_SCHEMA
from tests.queries import rows_of

JOB: Mapping[str, Any] = {
    "job": "plans",
    "tables": {"t": {"columns": {"a": "INT"}, "mode": "append"}},
    "sinks": {"s": {"mode": "append", "sql": "SELECT a FROM t"}},
}
"""A job with no other purpose than to have settings."""


@dataclass
class PlanQuery:
    """A plan, its checkpoint, and what it has emitted so far; a batch that is run again replaces its own blocks.

    `tasks` are the numbers of the tasks that would have written the blocks of each batch.
    """

    spark: SparkSession
    folder: Path
    sink: PhysicalSink
    settings: Mapping[str, Any] = field(default_factory=dict)
    outputs: dict[int, list[Block]] = field(default_factory=dict)
    tasks: dict[int, list[int]] = field(default_factory=dict)
    batches: list[Mapping[str, Rows]] = field(default_factory=list)
    started: float = field(default_factory=lambda: time.time() - 3600)

    def run(self, *batches: Mapping[str, Rows]) -> None:
        """Run these batches and stop."""
        self.batches += batches
        job = Job.model_validate({**JOB, "parallelism": 2, **self.settings})
        query = (
            assemble(self.sink, job, self._source)
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

    @property
    def rows(self) -> Counter[tuple[Any, ...]]:
        """What all changes so far add up to."""
        fold = Fold(keyed=False)
        fold.apply(Changes.concat([block.changes for _, blocks in sorted(self.outputs.items()) for block in blocks]))
        return rows_of(self.sink.value, fold.payloads)

    @property
    def counters(self) -> Counter[str]:
        """All counters of all batches."""
        counters: Counter[str] = Counter()
        for blocks in self.outputs.values():
            for block in blocks:
                counters.update(block.counters)
        return counters

    def _source(self, inflows: Sequence[Inflow], labels: Sequence[int]) -> DataFrame:
        ways = [
            (i.node, Route(i.node.calc, i.member, len(labels))) for i in inflows if isinstance(i.node, PhysicalScan)
        ]
        folder = self.folder / "sources" / "-".join(scan.node for scan, _ in ways)
        folder.mkdir(parents=True, exist_ok=True)
        for number, batch in enumerate(self.batches):
            path = folder / f"{number:08}.parquet"
            if not path.exists():
                write(path, Changes.concat([route(pruned(scan, batch)) for scan, route in ways]), labels)
                # Spark takes files in the order of their times.
                os.utime(path, (self.started + number, self.started + number))
        return self.spark.readStream.schema(EDGE_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))

    def _collect(self, frame: DataFrame, batch: int) -> None:
        rows = frame.select("block", spark_partition_id().alias("task")).collect()
        self.outputs[batch] = [Block.from_bytes(bytes(row["block"])) for row in rows]
        self.tasks[batch] = [row["task"] for row in rows]
