"""A job that runs in a thread of the caller's process, in the caller's Spark session or in Rowkind's own."""

from __future__ import annotations

import re
import threading
import time
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped] # it ships no type information
from pyspark.sql import SparkSession

from rowkind.errors import RowkindError
from rowkind.quantities import amount, counted, duration
from rowkind.service.job.model import Job
from rowkind.service.library import own_session
from rowkind.service.library.progress_bar import ReadyProgress, progress_bar
from rowkind.service.machine.signals import AskedToStop
from rowkind.service.monitoring.incidents import incident
from rowkind.service.monitoring.monitor import Monitor
from rowkind.service.monitoring.status import JobStatus
from rowkind.service.monitoring.waiting import answered
from rowkind.service.processes import executors, interpreter
from rowkind.service.query.errors import QueryFailedError, SessionStoppedError
from rowkind.service.query.queries import planned
from rowkind.service.run.lifecycle import Life, Rebuild, beginning
from rowkind.service.run.supervisor import patience
from rowkind.service.spark.errors import SparkLostError, surfaced
from rowkind.service.spark.jvm import java_version, python
from rowkind.service.spark.session import beside, is_local, is_stopped, lost
from rowkind.version import version

_POLL_SECONDS = 0.1

_RAISED = re.compile(r"^\w+(?:\.\w+)*(?:Error|Exception): .+$", re.MULTILINE)


class NotReadyError(RowkindError, TimeoutError):
    """The job has not become ready within the time that the caller waits. The job continues."""


class EndedError(RowkindError):
    """The job was stopped before it became ready."""


class StartedJob:
    """A running job. Used as a context manager, it stops the job at the end, after the current batch."""

    def __init__(self, job: Job, spark: SparkSession | None, rebuild: Rebuild) -> None:
        """Check the job and its topics, and start the job. Raises RowkindError if a check fails.

        Without a session, the job starts Rowkind's own (`own_session`).
        """
        job.check_runnable()
        assert job.checkpoint is not None, "checked above"
        self._asked = AskedToStop()
        self._monitor = Monitor(job.name, version(), pyspark.__version__, java_version())
        self._name, self._began, self._session = job.name, time.monotonic(), False
        if spark is None:
            own_session.begin(job)
        with self._monitor.waiting.watched():
            fresh = answered(lambda: planned(job), self._asked, patience(job))
        own = None if spark is None else _beside(spark, job)
        # Workers of Rowkind's own session run this process's Python.
        if spark is not None and is_local(spark.sparkContext.master) and spark.sparkContext.pythonExec != python():
            interpreter.check(spark.sparkContext.pythonExec)
        self._failure: Exception | None = None
        with ExitStack() as stack:
            stack.enter_context(self._monitor.waiting.watched())
            life = stack.enter_context(beginning(job, fresh, self._monitor, self._asked))
            arguments = (own, life, rebuild, stack.pop_all())
        # A caller that forgets to stop the job can still exit. An unfinished batch is repeated at the next start.
        self._thread = threading.Thread(target=self._live, args=arguments, name=f"job {job.name}", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether the job has not ended yet."""
        return self._thread.is_alive()

    @property
    def ready(self) -> bool:
        """Whether every query has finished a batch or found nothing to do, and writes to its result topics."""
        return self.running and self._monitor.ready()

    def status(self) -> JobStatus:
        """Return the job's current status, as its status page shows it."""
        return self._monitor.status()

    def metrics(self) -> str:
        """Return the job's metrics in the Prometheus text format."""
        return self._monitor.exposition().decode()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait up to `seconds` for the job to end. Return whether it has ended. Raises the error that ended the job."""
        self._thread.join(seconds)
        if self._failure is not None:
            raise self._failure
        return not self.running

    def wait_ready(self, timeout: float | None = None) -> Self:
        """Wait until the job is `ready`, and return it. A notebook or terminal shows a progress bar meanwhile.

        `timeout`: the time to wait in seconds, None for no limit. Raises NotReadyError after that time, the error that
        ended the job, or EndedError if the job was stopped.
        """
        end = None if timeout is None else time.monotonic() + timeout
        with progress_bar() as show:
            while not self.ready:
                if self.wait(_POLL_SECONDS):
                    raise EndedError(f"job {self._name} was stopped before it was ready")
                progress = self._progress()
                show(progress)
                if end is not None and time.monotonic() >= end:
                    raise NotReadyError(
                        f"job {self._name} is not ready after {duration(timeout or 0)}: {progress.text}. The job "
                        "continues: wait longer, or look at status()"
                    )
            show(self._progress())
        return self

    def stop(self) -> None:
        """Let the job finish its batch, and wait until the job has ended. Raises the error if the job has failed."""
        self._asked.count += 1
        self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._asked.count += 1
        self._thread.join()
        # An exception that is already propagating is more informative.
        if error is None:
            self.wait()

    def __repr__(self) -> str:
        return f"<running job {self._name}: {self._progress().text}>"

    def _progress(self) -> ReadyProgress:
        status = self.status()
        read = sum(query.read.rows for query in status.queries)
        left = sum(query.lag_rows for query in status.queries)
        rows = f"{amount(read)} of {counted(read + left, 'row')} read"
        seconds = time.monotonic() - self._began
        if not self.running:
            return ReadyProgress(self._name, f"{status.state if status.state == 'failed' else 'stopped'}, {rows}", None)
        if self.ready:
            return ReadyProgress(self._name, f"ready, {rows}", 1.0, seconds)
        if not self._session:
            return ReadyProgress(self._name, "starting Spark", 0.0, seconds)
        if not status.queries or status.state == "starting":
            return ReadyProgress(self._name, "starting the queries", 0.0, seconds)
        if self._monitor.waiting.said() or status.state in {"failed", "waiting"}:
            return ReadyProgress(self._name, self._monitor.reason(), None, seconds)
        return ReadyProgress(self._name, rows, read / max(1, read + left), seconds)

    def _live(self, session: SparkSession | None, life: Life, rebuild: Rebuild, stack: ExitStack) -> None:
        spark: SparkSession | None = session
        try:
            with stack:
                spark = _beside(own_session.own_session(life.job), life.job) if session is None else session
                self._session = True
                if not is_local(spark.sparkContext.master):
                    executors.check(spark, lambda: self._asked.count > 0)
                life.live(spark, rebuild)
        except Exception as error:  # noqa: BLE001 - any failure is raised again in `wait`
            self._failure = error
            if spark is not None and isinstance(error, (Py4JError, OSError)):
                self._failure = lost(spark) or error
            # If Java itself has exited, the session cannot be queried.
            with suppress(Py4JError, OSError, AttributeError):
                if spark is not None and not isinstance(self._failure, SparkLostError) and is_stopped(spark):
                    self._failure = SessionStoppedError()
            self._tell(self._failure)

    def _tell(self, failure: Exception) -> None:
        """Report in the status why the job ended, for the queries whose end has not been reported yet."""
        queries = self._monitor.status().queries
        known = any(each.state == "failed" for each in queries)
        for each in queries:
            if not known:
                error = _error(each.name, failure)
                self._monitor.failed(each.name, str(error), incident(time.time(), each.name, error))
            elif each.state != "failed":
                self._monitor.stopped(each.name)
        if not queries:
            self._monitor.recall(incident(time.time(), "", _error("", failure)))


def _beside(spark: SparkSession, job: Job) -> SparkSession:
    """Return a session with the job's settings, in the context of the given session. Raises SparkStartError."""
    assert job.checkpoint is not None, "the caller has checked that the job has a checkpoint"
    return beside(spark, parallelism=job.parallelism, checkpoint=job.checkpoint, budget=job.budget, code=job.python())


def _error(query: str, failure: Exception) -> RowkindError:
    """Return the failure as a Rowkind error of the query. Text from other errors is reduced to one line."""
    if isinstance(failure, RowkindError):
        return failure
    if ours := surfaced(failure):
        return QueryFailedError(query, ours.message, ours.error)
    # If Spark reports an exception in a Python process, the last such line is the most informative.
    raised = _RAISED.findall(str(failure))
    said = raised[-1] if raised else f"{type(failure).__name__}: {failure}".partition("\n")[0]
    return QueryFailedError(query, said, None)
