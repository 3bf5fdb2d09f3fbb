"""Other numbers of partitions for the shards of a query's state.

    end the batch that is under way, as it was begun ─▶ move the state ─▶ go on in as many tasks

A batch that was written in part must be completed by as many tasks as began it, of which each knows its own part. Only
then does Spark's own tool move the state, as a batch without rows. Whatever is killed in between is done again: an
unfinished batch is ended at the next start, an unfinished move is undone by it (`Checkpoint.mend`).

The caller sees that no earlier run writes any more: it could begin a batch meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from rowkind.service.checkpoint.checkpoint import Checkpoint
from rowkind.service.monitoring.failure import failed
from rowkind.service.monitoring.progress import Works
from rowkind.service.query.streaming import Deployment

log = logging.getLogger("rowkind")


def rescale(
    checkpoint: Checkpoint, at: Deployment, tasks: int, start: Callable[[Deployment], StreamingQuery], works: Works
) -> Deployment:
    """How a query runs once its state, which is now where `at` says, lies in as many partitions as there are `tasks`.

    Raises QueryFailedError, a ChangelogError or CheckpointFolderError.
    """
    if at.tasks == tasks:
        return at
    log.info("query %s: its state moves from %d partitions to %d", at.name, at.tasks, tasks)
    if not checkpoint.rests():
        to_its_end(checkpoint, at.once, start)
    with works.work(f"query {at.name} moves its state to {tasks} partitions", "tasks") as told:
        checkpoint.repartition(tasks, told)
    return replace(at, tasks=tasks)


def to_its_end(checkpoint: Checkpoint, at: Deployment, start: Callable[[Deployment], StreamingQuery]) -> None:
    """Run a query that ends by itself. Raises QueryFailedError."""
    query = start(at)
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        raise failed(at.name, checkpoint.folder, error) from None
    finally:
        query.stop()
