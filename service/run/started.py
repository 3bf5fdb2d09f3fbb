"""A job that lives in somebody's own Spark session, in a thread, beside whatever else that session does."""

from __future__ import annotations

import threading
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped] # it ships no type information
from pyspark.sql import SparkSession

from rowkind.service.job.model import Job
from rowkind.service.run import executors
from rowkind.service.run.errors import SessionStoppedError
from rowkind.service.run.lifecycle import Life, Rebuild, beginning
from rowkind.service.run.monitor import Monitor
from rowkind.service.run.queries import planned
from rowkind.service.run.signals import AskedToStop
from rowkind.service.run.status import JobStatus
from rowkind.service.spark.jvm import java_version
from rowkind.service.spark.session import beside, is_local, is_stopped
from rowkind.version import version


class StartedJob:
    """A running job. Used with `with`, it is stopped in the end, its batch finished."""

    def __init__(self, job: Job, spark: SparkSession, rebuild: Rebuild) -> None:
        """Check the job and its topics, and start it. Raises a RowkindError for what is wrong with them."""
        job.check_runnable()
        fresh = planned(job)
        self._asked = AskedToStop()
        self._monitor = Monitor(job.name, version(), pyspark.__version__, java_version())
        self._failure: Exception | None = None
        with ExitStack() as stack:
            life = stack.enter_context(beginning(job, fresh, self._monitor, self._asked))
            own = beside(
                spark, parallelism=job.parallelism, checkpoint=life.checkpoint, budget=job.budget, code=job.python()
            )
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
