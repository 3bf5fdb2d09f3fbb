"""Run a processor as a real streaming query: one file per batch in, the blocks of every batch out."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from rowkind.operators.columns.block import Block
from rowkind.operators.operator import Operator
from rowkind.service.execute.members import Member, Wrap
from rowkind.service.physical.graph import Exit
from rowkind.service.spark.edge import EDGE_SCHEMA, edge_rows
from rowkind.service.spark.placement import placement
from rowkind.service.spark.processor import Level, OperatorProcessor, over_shards
from tests.spark.distinct import fold, way_out

LEVEL = 1
WRITER = 2
SINK = "sink"

Batch = Mapping[int, Sequence[Block]]
"""The blocks of one batch, by shard number."""


def alone(
    node: str,
    operator: Operator,
    *,
    exits: Sequence[Exit] = (way_out(),),
    wrap: Wrap | None = None,
    labels: Sequence[int],
    **options: Any,
) -> OperatorProcessor:
    """Return a processor for a level with one operator, whose rows are sent to the writer by their bytes."""
    member = Member(0, SINK, node, node, operator, tuple(exits), wrap=wrap)
    return OperatorProcessor(Level([member], LEVEL, WRITER, labels), **options)


@dataclass
class Query:
    """A query over a folder that survives restarts: input files, checkpoint and the output so far.

    `outputs[batch][label]` are the blocks that a batch sends to a label. A batch that is run again replaces its own
    blocks.
    """

    spark: SparkSession
    folder: Path
    processor: OperatorProcessor
    shards: int
    outputs: dict[int, dict[int, list[Block]]] = field(default_factory=dict)
    added: int = 0
    started: float = field(default_factory=lambda: time.time() - 3600)

    def add(self, *batches: Batch) -> None:
        """Add batches to the input."""
        labels = placement(self.shards)
        source = self.folder / "source"
        source.mkdir(parents=True, exist_ok=True)
        for batch in batches:
            rows = ((labels[shard], LEVEL, block.to_bytes()) for shard, blocks in batch.items() for block in blocks)
            draft = self.folder / "draft"
            pq.write_table(pa.Table.from_batches([edge_rows(rows, round(time.time() * 1000))]), draft)
            # Spark reads files in the order of their modification times.
            os.utime(draft, (self.started + self.added, self.started + self.added))
            draft.rename(source / f"{self.added:06}.parquet")
            self.added += 1

    def run(self) -> None:
        """Run until every added batch has ended; an error of the query is raised unchanged."""
        while len(self.outputs) < self.added:
            self._run()

    def _run(self) -> None:
        """Run until Spark has nothing left to do; after a failed batch, Spark runs only that batch."""
        source = self.spark.readStream.schema(EDGE_SCHEMA).option("maxFilesPerTrigger", 1)
        query = (
            over_shards(source.parquet(str(self.folder / "source")), self.processor)
            .writeStream.foreachBatch(self._collect)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def _collect(self, frame: DataFrame, batch: int) -> None:
        blocks: dict[int, list[Block]] = defaultdict(list)
        for row in frame.collect():
            assert row["level"] == WRITER
            blocks[row["shard"]].append(Block.from_bytes(bytes(row["block"])))
        self.outputs[batch] = blocks

    def blocks(self) -> list[Block]:
        """Return all blocks emitted so far, in order of batches."""
        return [block for _, labels in sorted(self.outputs.items()) for blocks in labels.values() for block in blocks]

    def folded(self) -> Counter[bytes]:
        """Return the multiset that all changes emitted so far add up to."""
        return fold([block.changes for block in self.blocks()])
