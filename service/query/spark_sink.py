"""The output of a query: each task of the last stage writes its blocks, and reports its counters to the driver.

Spark's own sink receives no rows. A Spark sink in Python would need two more worker processes, through which all output
would have to pass, and a driver process for commits. No separate commit is needed: a task that has written has also
committed (`service.kafka.transaction`), and a repeated task writes nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import DataFrame, SparkSession

from rowkind.service.kafka.producer_process import write_there
from rowkind.service.kafka.progress import BatchPartition
from rowkind.service.kafka.sink import Counted, write
from rowkind.service.kafka.spec import WriterSpec
from rowkind.service.spark.edge import EDGE_SCHEMA
from rowkind.service.spark.worker_memory import freeze_long_lived_objects, release_freed_memory

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Report:
    """The counters of one task of a batch. A repeated task adds another report for the same batch and partition."""

    of: BatchPartition
    counted: Counted


class _Together(AccumulatorParam[list[Report]]):
    """Concatenates reports. The list is changed in place, so that `Reports.take` can empty it."""

    def zero(self, value: list[Report]) -> list[Report]:  # noqa: ARG002 - Spark's interface
        return []

    def addInPlace(self, value1: list[Report], value2: list[Report]) -> list[Report]:  # noqa: N802 - Spark's name
        value1 += value2
        return value1


class Reports:
    """The reports of a query's tasks, in the order in which the tasks ended."""

    def __init__(self, spark: SparkSession) -> None:
        self.accumulator: Accumulator[list[Report]] = spark.sparkContext.accumulator([], _Together())

    def take(self) -> list[Report]:
        """Remove and return all reports. A batch's reports arrive before Spark announces the end of the batch."""
        there = self.accumulator.value
        return [there.pop(0) for _ in range(len(there))]


class TaskWriter:
    """Writes a task's output exactly once or at least once, as each sink requires."""

    def __init__(self, spec: WriterSpec, reports: Reports) -> None:
        self._spec = spec
        self._reports = reports.accumulator

    def __call__(self, blocks: Sequence[pa.Buffer], now: int) -> None:
        """Write all blocks of the task, at the time of the batch. Raises ChangelogError."""
        of = _batch_partition(now)
        write_them = write_there if self._spec.transactions else write
        self._reports += [Report(of, write_them(self._spec, of, blocks))]

    def after(self, blocks: DataFrame) -> DataFrame:
        """Write an edge's rows in the tasks that compute them. The returned DataFrame is empty."""
        return blocks.mapInArrow(self._all, EDGE_SCHEMA)

    def _all(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_long_lived_objects("write")
        blocks: list[pa.Buffer] = []
        now = 0
        for batch in batches:
            blocks += [value.as_buffer() for value in batch.column("block")]
            now = batch.column("now")[0].as_py() if len(batch) else now
        if blocks:
            self(blocks, now)
            blocks.clear()
            release_freed_memory()
        yield from ()


def _batch_partition(now: int) -> BatchPartition:
    """Return the batch and partition of this task.

    Spark passes the batch number only in the task's local properties.
    """
    context = TaskContext.get()
    assert context is not None, "this code runs in a task"
    batch = context.getLocalProperty("streaming.sql.batchId")
    checkpoint = context.getLocalProperty("sql.streaming.queryId")
    assert batch is not None, "a streaming task has a batch number"
    assert checkpoint is not None, "a streaming task has a query id"
    return BatchPartition(checkpoint, int(batch), context.partitionId(), now)
