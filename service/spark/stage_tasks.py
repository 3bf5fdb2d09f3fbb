"""Reports Spark's progress during a wait: the number of finished tasks in the stages that have started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError  # type: ignore[import-untyped] # it ships no type information
from pyspark.sql import SparkSession

from rowkind.service.machine.periodic import meanwhile

_EVERY_SECONDS = 0.5


@contextmanager
def tasks_told(spark: SparkSession, told: Callable[[int, int], None]) -> Iterator[None]:
    """Call `told` every 0.5 s with the numbers of finished and of all tasks, for stages started inside the block."""
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getActiveStageIds())
    stages: dict[int, tuple[int, int]] = {}

    def look() -> None:
        stages.update({stage: (tasks, tasks) for stage, (_, tasks) in stages.items()})
        for stage in set(tracker.getActiveStageIds()) - before:
            if (info := tracker.getStageInfo(stage)) is not None:
                stages[stage] = (info.numCompletedTasks, info.numTasks)
        if stages:
            told(sum(done for done, _ in stages.values()), sum(tasks for _, tasks in stages.values()))

    def quietly() -> None:
        # If the session is lost, the caller's own call reports it.
        with suppress(Py4JError, OSError):
            look()

    with meanwhile(quietly, _EVERY_SECONDS, "tasks"):
        yield
