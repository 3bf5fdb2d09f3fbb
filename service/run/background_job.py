"""A job that lives in somebody's own Spark session, in a thread, beside whatever else that session does."""

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
from rowkind.service.job.model import Job
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
from rowkind.service.spark.errors import surfaced
from rowkind.service.spark.jvm import java_version
from rowkind.service.spark.session import beside, is_local, is_stopped
from rowkind.version import version

_RAISED = re.compile(r"^\w+(?:\.\w+)*(?:Error|Exception): .+$", re.MULTILINE)


class StartedJob:
    """A running job. Used with `with`, it is stopped in the end, its batch finished."""

    def __init__(self, job: Job, spark: SparkSession, rebuild: Rebuild) -> None:
        """Check the job and its topics, and start it. Raises a RowkindError for what is wrong with them."""
        job.check_runnable()
        assert job.checkpoint is not None, "as checked"
        self._asked = AskedToStop()
        self._monitor = Monitor(job.name, version(), pyspark.__version__, java_version())
        with self._monitor.waiting.watched():
            fresh = answered(lambda: planned(job), self._asked, patience(job))
        own = beside(
            spark, parallelism=job.parallelism, checkpoint=job.checkpoint, budget=job.budget, code=job.python()
        )
        if is_local(spark.sparkContext.master):
            interpreter.check(spark.sparkContext.pythonExec)
        self._failure: Exception | None = None
        with ExitStack() as stack:
            stack.enter_context(self._monitor.waiting.watched())
            life = stack.enter_context(beginning(job, fresh, self._monitor, self._asked))
            arguments = (own, life, rebuild, stack.pop_all())
        # Who forgets to stop it is not kept from ending; an unfinished batch is done again at the next start.
        self._thread = threading.Thread(target=self._live, args=arguments, name=f"job {job.name}", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._thread.is_alive()

    @property
    def ready(self) -> bool:
        """Whether every query has finished a batch, or found nothing to do, and writes what it finds."""
        return self.running and self._monitor.ready()

    def status(self) -> JobStatus:
        """What its status page would say now."""
        return self._monitor.status()

    def metrics(self) -> str:
        """Its metrics, as Prometheus reads them."""
        return self._monitor.exposition().decode()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it has ended, at most so long; whether it has. Raises what it ended by, a RowkindError mostly."""
        self._thread.join(seconds)
        if self._failure is not None:
            raise self._failure
        return not self.running

    def stop(self) -> None:
        """Let it finish its batch, and return when it has. Raises what it ended by, if that was before."""
        self._asked.count += 1
        self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._asked.count += 1
        self._thread.join()
        # What is under way already says more.
        if error is None:
            self.wait()

    def _live(self, spark: SparkSession, life: Life, rebuild: Rebuild, stack: ExitStack) -> None:
        try:
            with stack:
                if not is_local(spark.sparkContext.master):
                    executors.check(spark, lambda: self._asked.count > 0)
                life.live(spark, rebuild)
        except Exception as error:  # noqa: BLE001 - whatever it is, whoever waits is told
            self._failure = error
            # Where Java itself has ended, nobody can be asked.
            with suppress(Py4JError, OSError):
                if is_stopped(spark):
                    self._failure = SessionStoppedError()
            self._tell(self._failure)

    def _tell(self, failure: Exception) -> None:
        """Let the status say why the job has ended, of those queries whose end has not been told yet."""
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


def _error(query: str, failure: Exception) -> RowkindError:
    """What a query has ended by, in a line or a message of ours."""
    if isinstance(failure, RowkindError):
        return failure
    if ours := surfaced(failure):
        return QueryFailedError(query, ours.message, ours.error)
    # Where Spark tells what a process of Python's raised, its last line says most.
    raised = _RAISED.findall(str(failure))
    said = raised[-1] if raised else f"{type(failure).__name__}: {failure}".partition("\n")[0]
    return QueryFailedError(query, said, None)
