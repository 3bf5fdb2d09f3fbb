"""Which piece of work a write task is: the one place that asks Spark for it."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import TaskContext


@dataclass(frozen=True)
class BatchPartition:
    """A task partition of a batch of a checkpoint; a retry of the task is the same again.

    `checkpoint` is the query's id in its checkpoint: it survives restarts, and a new checkpoint has another one.
    """

    checkpoint: str
    batch: int
    partition: int


def current() -> BatchPartition:
    """What this task is. Spark gives a streaming sink no batch number, but these local properties have it."""
    context = TaskContext.get()
    assert context is not None, "a task is asked"
    batch = context.getLocalProperty("streaming.sql.batchId")
    checkpoint = context.getLocalProperty("sql.streaming.queryId")
    assert batch is not None, "a streaming task has a batch number"
    assert checkpoint is not None, "a streaming task has a query id"
    return BatchPartition(checkpoint, int(batch), context.partitionId())
