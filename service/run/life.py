"""The life of a running job: check, connect, start one query per sink, watch, drain, stop.

SIGTERM and SIGINT let every query finish its batch: sources then offer nothing new, and the process ends with 0. A
second signal stops at once, which loses nothing either, since an unfinished batch is done again at the next start.
"""

from __future__ import annotations

import logging
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import FrameType

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from service.job.model import Job
from service.kafka.topics import SchemaIds
from service.plan.explain import explain
from service.plan.fingerprint import fingerprint
from service.plan.physical import Sink
from service.run.checkpoint import claim
from service.run.errors import QueryFailedError
from service.run.http import StatusServer
from service.run.monitor import Monitor
from service.run.streaming import Deployment, register, start
from service.run.topics import check, connect, create
from service.run.topics import register as register_schemas
from service.spark.errors import surfaced
from service.spark.session import session

_POLL_SECONDS = 0.2

log = logging.getLogger("rowkind")


@dataclass
class _Running:
    sink: str
    query: StreamingQuery
    idle: int = 0


def run(job: Job, sinks: Sequence[Sink], *, master: str | None, port: int, reset: bool) -> None:
    """Run `job`, whose sinks were planned as `sinks`, until a signal ends it.

    Raises:
        RunError, ChangelogError, RegistryError: Each with a message for the person on call.
    """
    assert job.checkpoint is not None, "the command line checks that a job to be run has a checkpoint"
    connection = connect(job)
    for name in create(job, list(sinks), connection):
        log.info("made topic %s", name)
    for advice in check(job, list(sinks), connection):
        log.warning("%s", advice)
    ids = [register_schemas(sink, connection) for sink in sinks]
    with tempfile.TemporaryDirectory(prefix="rowkind-") as scratch:
        spark = session(
            job.name,
            master=master or f"local[{job.parallelism},4]",
            parallelism=job.parallelism,
            checkpoint=job.checkpoint,
        )
        register(spark)
        monitor = Monitor(job.name, version("rowkind"), spark.version)
        try:
            with _signals() as signals, StatusServer(job.name, monitor, port) as server:
                log.info("status, metrics and health on port %d", server.port)
                running = []
                for sink, schemas in zip(sinks, ids, strict=True):
                    reports = Path(scratch, "reports", sink.name)
                    reports.mkdir(parents=True)
                    deployment = Deployment(job, connection, reports, drain=Path(scratch, "drain"))
                    monitor.add(sink.name, explain(sink), reports)
                    running.append(_Running(sink.name, _start(spark, sink, schemas, deployment, reset=reset)))
                _watch(running, monitor, signals, Path(scratch, "drain"))
        finally:
            spark.stop()


def _start(spark: SparkSession, sink: Sink, ids: SchemaIds, at: Deployment, *, reset: bool) -> StreamingQuery:
    checkpoint = f"{at.job.checkpoint}/{at.job.name}/{sink.name}"
    claim(spark, checkpoint, fingerprint(sink, at.job.parallelism), reset=reset)
    query = start(spark, sink, ids, checkpoint, at)
    log.info("sink %s: writing to topic %s", sink.name, sink.topic)
    return query


def _watch(running: Sequence[_Running], monitor: Monitor, signals: Callable[[], int], drain: Path) -> None:
    """Until every query has stopped: after a signal, or because one of them failed."""
    while True:
        for each in running:
            if (error := each.query.exception()) is not None:
                monitor.collect(each.sink)
                monitor.ended(each.sink, "failed")
                raise _failure(each.sink, error)
            monitor.collect(each.sink)
            if (progress := each.query.lastProgress) is not None:
                monitor.progress(each.sink, progress)
            each.idle = each.idle + 1 if each.query.status["message"] == "Waiting for data to arrive" else 0
        if signals() and not drain.exists():
            log.info("finishing the batch")
            drain.touch()
            for each in running:
                each.idle = 0
        # Idle twice in a row, because a trigger that began just before the signal may still be on its way to a batch.
        if signals() > 1 or (drain.exists() and all(each.idle > 1 for each in running)):
            break
        time.sleep(_POLL_SECONDS)
    for each in running:
        each.query.stop()
        monitor.collect(each.sink)
        monitor.ended(each.sink, "stopped")
    log.info("stopped")


def _failure(sink: str, error: StreamingQueryException) -> Exception:
    found = surfaced(error)
    return QueryFailedError(
        sink, found.message if found else str(error).partition("\n")[0], found.name if found else None
    )


@contextmanager
def _signals() -> Iterator[Callable[[], int]]:
    """How many signals to stop have come so far."""
    count = 0

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal count
        count += 1

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: count
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
