"""Changes the number of partitions that contain the shards of a query's state.

    complete the current batch with the old number of tasks ─▶ move the state ─▶ continue with the new number

A partly written batch must be completed by the same number of tasks that began it, because each task knows only its own
part. Only then does Spark's own tool move the state, as a batch without rows. If the process is killed before the end,
the next start completes an unfinished batch, and undoes an unfinished move (`Checkpoint.mend`).

The caller must ensure that no earlier run is writing, because that run could begin a batch at the same time.
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
    """Move a query's state from `at.tasks` to `tasks` partitions, and return the query's new deployment.

    Raises QueryFailedError, ChangelogError or CheckpointFolderError.
    """
    if at.tasks == tasks:
        return at
    log.info("query %s: moving its state from parallelism %d to %d", at.name, at.tasks, tasks)
    if not checkpoint.rests():
        to_its_end(checkpoint, at.once, start)
    with works.work(f"query {at.name} moves its state to parallelism {tasks}", "tasks") as told:
        checkpoint.repartition(tasks, told)
    return replace(at, tasks=tasks)


def to_its_end(checkpoint: Checkpoint, at: Deployment, start: Callable[[Deployment], StreamingQuery]) -> None:
    """Run a query until it ends on its own. Raises QueryFailedError."""
    query = start(at)
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        raise failed(at.name, checkpoint.folder, error) from None
    finally:
        query.stop()
