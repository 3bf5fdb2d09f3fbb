"""A query of a running job: how it is started, and Spark's progress reports on its batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from rowkind.errors import RowkindError
from rowkind.service.checkpoint.checkpoint import Checkpoint
from rowkind.service.checkpoint.cut_over import CutOver
from rowkind.service.checkpoint.written_topics import WrittenTopics
from rowkind.service.monitoring.waiting import System
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.query.streaming import Deployment, registry_file
from rowkind.service.spark.jvm import has_run_a_batch


@dataclass(frozen=True)
class Awaited:
    """A system for which a query waits, and when the wait began, in seconds of the monotonic clock."""

    system: System
    since: float


@dataclass
class Running:
    """A running query. `start` uses the deployment `at` or, until a cut-over is done, the cut-over's deployment."""

    checkpoint: Checkpoint
    sinks: Sequence[PhysicalSink]
    at: Deployment
    start: Callable[[Deployment], StreamingQuery]
    cut_over: CutOver | None
    topics: WrittenTopics
    query: StreamingQuery = field(init=False)
    idle: int = 0
    ran: bool = False
    restarts: int = 0
    again: float | None = None
    """Time by the monotonic clock at which a failed query is started again; None while it runs."""
    failure: RowkindError | None = None
    awaits: Awaited | None = None
    """The external system that must answer before the query can run."""
    told: int = -1
    """The last batch of this start that Spark has reported as ended."""
    due: float | None = None
    """The time in ms at which the query next needs a batch without rows, as last written for the query's source."""

    @property
    def name(self) -> str:
        """The query's name."""
        return self.at.name

    @property
    def stranded(self) -> bool:
        """Whether Spark was stopped while the query ran. An idle query does not notice that Spark was stopped."""
        return bool(self.query._jsq.sparkSession().sparkContext().isStopped())  # noqa: SLF001 - pyspark has no such call

    def begin(self) -> None:
        """Start the query from its checkpoint. This method can be called repeatedly. Raises ChangelogError."""
        self.again, self.told = None, -1
        registry_file(self.at).unlink(missing_ok=True)
        at = self.at if self.cut_over is None else self.cut_over.begin()
        self.query = self.start(at)

    def progress(self) -> list[StreamingQueryProgress]:
        """Return Spark's progress for batches that ended since the last call, or the latest progress if none did."""
        # The last progress of a failed query is from before the failure.
        found = progress_since(self.query, self.told) if self.again is None else []
        if any("addBatch" in each["durationMs"] for each in found):
            has_run_a_batch()
        ended = max(map(_ended, found), default=-1)
        if ended > self.told:
            self.told = ended
            # If the batch's tasks waited for the registry, this wait is over.
            registry_file(self.at).unlink(missing_ok=True)
        return found


def progress_since(query: StreamingQuery, told: int) -> list[StreamingQueryProgress]:
    """Return Spark's progress for batches after number `told`, or its latest progress. Spark keeps 100 batches."""
    last = query.lastProgress
    if last is None:
        return []
    if _ended(last) <= told + 1:
        return [last]
    # Either several batches have ended since the last call, or all batches ended before this start. In the second case,
    # Spark has no progress for them.
    ended = [each for each in query.recentProgress if each["batchId"] > told and "addBatch" in each["durationMs"]]
    return ended or [last]


def _ended(progress: StreamingQueryProgress) -> int:
    """Return the number of the last ended batch: the reported batch, or the one before if it has not ended."""
    return int(progress["batchId"]) - ("addBatch" not in progress["durationMs"])
