"""The end of a query: each of its last tasks writes its blocks, and the driver learns what was counted.

The rows that leave a query for Spark's own sink are none. A sink in Python would be two more workers, which all that is
written has to pass through, and a process on the driver that is asked to commit. Nothing is left for it to do: a task
that has written has committed (`service.kafka.transaction`), and one that is done again writes nothing twice.
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
    """What a task of a batch counted. If it is done again, there is another one of the same batch and partition."""

    of: BatchPartition
    counted: Counted


class _Together(AccumulatorParam[list[Report]]):
    """Reports one after the other. A list is changed in place, so that it can be emptied meanwhile."""

    def zero(self, value: list[Report]) -> list[Report]:  # noqa: ARG002 - Spark's interface
        return []

    def addInPlace(self, value1: list[Report], value2: list[Report]) -> list[Report]:  # noqa: N802 - Spark's name
        value1 += value2
        return value1


class Reports:
    """What the tasks of a query have counted, in the order in which they ended."""

    def __init__(self, spark: SparkSession) -> None:
        self.accumulator: Accumulator[list[Report]] = spark.sparkContext.accumulator([], _Together())

    def take(self) -> list[Report]:
        """Those that have come since they were last taken; a batch's are there before Spark says that it is done."""
        there = self.accumulator.value
        return [there.pop(0) for _ in range(len(there))]


class TaskWriter:
    """Writes what a task has for the writer, exactly once or at least once as each sink says."""

    def __init__(self, spec: WriterSpec, reports: Reports) -> None:
        self._spec = spec
        self._reports = reports.accumulator

    def __call__(self, blocks: Sequence[pa.Buffer], now: int) -> None:
        """Write these blocks, which are all that the task has, at the time of the batch. Raises a ChangelogError."""
        of = _batch_partition(now)
        write_them = write_there if self._spec.transactions else write
        self._reports += [Report(of, write_them(self._spec, of, blocks))]

    def after(self, blocks: DataFrame) -> DataFrame:
        """No rows: those of an edge, written by the tasks that have them."""
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
    """What this task is. Spark tells a task no batch number, but these local properties have it."""
    context = TaskContext.get()
    assert context is not None, "a task is asked"
    batch = context.getLocalProperty("streaming.sql.batchId")
    checkpoint = context.getLocalProperty("sql.streaming.queryId")
    assert batch is not None, "a streaming task has a batch number"
    assert checkpoint is not None, "a streaming task has a query id"
    return BatchPartition(checkpoint, int(batch), context.partitionId(), now)
