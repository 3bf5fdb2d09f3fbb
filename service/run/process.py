"""The process of `rowkind run`. From its start until a signal ends it, the process serves its status and reports waits.

After SIGTERM or SIGINT, every query finishes its batch if there is time (`service.machine.signals`), and the process
exits with code 0. If no query is running yet, the process exits immediately.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyspark

from rowkind.service.checkpoint.savepoint import restore
from rowkind.service.job.model import Job
from rowkind.service.machine.signals import Signals
from rowkind.service.monitoring.monitor import Monitor
from rowkind.service.monitoring.status import JobStatus
from rowkind.service.monitoring.waiting import answered
from rowkind.service.processes import executors
from rowkind.service.query.topics import PlannedQueries
from rowkind.service.run.lifecycle import Life, Rebuild, beginning
from rowkind.service.run.supervisor import patience
from rowkind.service.spark import early_session
from rowkind.service.spark.errors import SparkLostError
from rowkind.service.spark.jvm import java_version
from rowkind.service.spark.session import is_local, local_master, session, stopping
from rowkind.service.web.http import serving
from rowkind.service.web.job_pages import JobPages
from rowkind.version import version

log = logging.getLogger("rowkind")

Watcher = Callable[[Callable[[], JobStatus]], AbstractContextManager[Any]]
"""Shows the job's status while its context is active."""


@dataclass(frozen=True)
class RunOptions:
    """The options of a job's run.

    - `master`: Spark's master; if None, Spark runs in this process. `host`, `port`: the address of the status page.
    - `rebuild`: which queries drop their state and start again. `savepoint`: the folder to start from if the job has no
      checkpoint.
    - `moves`: the process ends as soon as the state has the number of partitions that the job requests.
    """

    master: str | None
    host: str
    port: int
    rebuild: Rebuild
    savepoint: str | None = None
    moves: bool = False


def run(
    job: Job,
    plan: Callable[[], PlannedQueries],
    signals: Signals,
    options: RunOptions,
    watch: Watcher = lambda _: nullcontext(),
) -> None:
    """Run `job` until a signal ends it.

    `plan`: returns the queries that the job has without a checkpoint. `watch`: shows the status while the job runs.

    Raises:
        RowkindError: With a message for the person on call.
    """
    monitor = Monitor(job.name, version(), pyspark.__version__, java_version())
    with (
        serving(JobPages(monitor, job.views), job, options.host, options.port) as server,
        watch(monitor.status),
        monitor.waiting.watched(),
    ):
        at = f"{server.scheme}://{options.host}:{server.port}"
        announce = cache(lambda: log.info("status, metrics and health at %s", at))
        monitor.waiting.before = announce
        fresh = answered(plan, signals, patience(job))
        with beginning(job, fresh, monitor, signals) as life:
            _in_sessions(life, signals, options, announce)
    log.info("stopped")


def _in_sessions(life: Life, signals: Signals, options: RunOptions, announce: Callable[[], None]) -> None:
    """Run the job in a Spark session, and in a new one whenever the session is lost."""
    job, master, rebuild = life.job, options.master, options.rebuild
    cluster = master is not None and not is_local(master)
    while True:
        spark = early_session.take() or session(
            job.name,
            master=master or local_master(job.parallelism),
            parallelism=job.parallelism,
            checkpoint=life.checkpoint,
            budget=job.budget,
            code=job.python(),
        )
        signals.listen()
        try:
            with stopping(spark):
                if cluster:
                    executors.check(spark, lambda: signals.count > 0)
                if options.savepoint is not None:
                    restore(spark, job, options.savepoint, life.monitor.works)
                announce()
                life.live(spark, rebuild, moves=options.moves)
        except SparkLostError as error:
            life.supervisor.lost(error)
            signals.drains = False
            rebuild = "what changed" if rebuild == "everything" else rebuild
        else:
            return
