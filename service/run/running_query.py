"""A query of a running job: how it is started, and what Spark tells of its batches."""

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


@dataclass(frozen=True)
class Awaited:
    """A system that a query waits for, since then, by the monotonic clock."""

    system: System
    since: float


@dataclass
class Running:
    """A query. It is started `at` where it belongs, by `start`, or as its cut-over wants it until that is done."""

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
    """When it is to be started again, having failed; None while it runs."""
    failure: RowkindError | None = None
    awaits: Awaited | None = None
    """What outside of the job has to answer before it can run."""
    told: int = -1
    """The last batch of this start of which Spark has told that it ended."""
    due: float | None = None
    """When it next has something to do without rows, in ms, as its source has been told."""

    @property
    def name(self) -> str:
        """The query's."""
        return self.at.name

    @property
    def stranded(self) -> bool:
        """Whether Spark has been stopped under it, which a query that has nothing to do does not notice."""
        return bool(self.query._jsq.sparkSession().sparkContext().isStopped())  # noqa: SLF001 - pyspark has no such call

    def begin(self) -> None:
        """Start it from its checkpoint, which may be done again. Raises a ChangelogError."""
        self.again, self.told = None, -1
        registry_file(self.at).unlink(missing_ok=True)
        at = self.at if self.cut_over is None else self.cut_over.begin()
        self.query = self.start(at)

    def progress(self) -> list[StreamingQueryProgress]:
        """What Spark tells of the batches that have ended since this was asked, or of what it does without any."""
        # What a query that has failed told last is from before.
        found = progress_since(self.query, self.told) if self.again is None else []
        ended = max(map(_ended, found), default=-1)
        if ended > self.told:
            self.told = ended
            # Whatever its tasks had to wait for is over.
            registry_file(self.at).unlink(missing_ok=True)
        return found


def progress_since(query: StreamingQuery, told: int) -> list[StreamingQueryProgress]:
    """Spark's progress of the batches after number `told`, or if there are none, the last one; it keeps a hundred."""
    last = query.lastProgress
    if last is None:
        return []
    if _ended(last) <= told + 1:
        return [last]
    # More than one has ended since somebody looked; or all of them before this start, of which Spark has no progress.
    ended = [each for each in query.recentProgress if each["batchId"] > told and "addBatch" in each["durationMs"]]
    return ended or [last]


def _ended(progress: StreamingQueryProgress) -> int:
    """The last batch that has ended by then: that of the progress, or if it is of no batch, the one before the next."""
    return int(progress["batchId"]) - ("addBatch" not in progress["durationMs"])
