"""The life of a running job: check, connect, start its query, watch, drain, stop.

SIGTERM and SIGINT let every query finish its batch: sources then offer nothing new, and the process ends with 0. A
second signal stops at once, which loses nothing either, since an unfinished batch is done again at the next start.
"""

from __future__ import annotations

import logging
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from types import FrameType
from typing import Self

import pyspark
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rowkind.errors import UNREACHABLE
from rowkind.service.graph import graph
from rowkind.service.job.model import Job
from rowkind.service.kafka.progress import read as read_progress
from rowkind.service.kafka.topics import progress_name
from rowkind.service.physical import PhysicalSink
from rowkind.service.plan.explain.render import explain
from rowkind.service.plan.fingerprint import fingerprint
from rowkind.service.plan.pipeline import PlannedQuery
from rowkind.service.run.checkpoint import Checkpoint, Contents, queries
from rowkind.service.run.errors import (
    CheckpointMismatchError,
    QueryFailedError,
    QueryUnreachableError,
    RunError,
    StartError,
    SupersededError,
)
from rowkind.service.run.http import StatusServer
from rowkind.service.run.monitor import Monitor
from rowkind.service.run.outage import Outage
from rowkind.service.run.queries import planned
from rowkind.service.run.streaming import Deployment, register, start
from rowkind.service.run.topics import Connection, PlannedQueries, check, connect, create
from rowkind.service.run.topics import register as register_schemas
from rowkind.service.run.writer import Reports
from rowkind.service.spark.errors import surfaced
from rowkind.service.spark.session import session
from rowkind.version import version

_POLL_SECONDS = 0.2
_HELD_SECONDS = 1.0
"""How often is looked whether a later run has taken over."""

_PASSING = {
    "CONCURRENT_STREAM_LOG_UPDATE": "another run was still at work on the checkpoint",
    # Spark gives it ten seconds.
    "Python worker failed to connect back": "the machine was too busy to start a worker in time",
}
"""Failures of Spark's that are no reason to end even of a query that never ran, by words of theirs."""

_MOST_RESTARTS = 5
"""How often in a row a query is started again though Kafka answers: a second after it failed, then two, four, eight."""

log = logging.getLogger("rowkind")


@dataclass
class _Running:
    """A query. `start` starts it from its checkpoint, which may be done again."""

    name: str
    checkpoint: Checkpoint
    reports: Reports
    start: Callable[[], StreamingQuery]
    query: StreamingQuery
    idle: int = 0
    ran: bool = False
    restarts: int = 0
    again: float | None = None
    """When it is to be started again, having failed; None while it runs."""


def run(job: Job, fresh: PlannedQueries, *, master: str | None, host: str, port: int, reset: bool) -> None:
    """Run `job`, whose queries without a checkpoint are `fresh`, until a signal ends it.

    Raises:
        RowkindError: With a message for the person on call.
    """
    assert job.checkpoint is not None, "the command line checks that a job to be run has a checkpoint"
    monitor = Monitor(job.name, version(), pyspark.__version__)
    with (
        _Signals() as signals,
        tempfile.TemporaryDirectory(prefix="rowkind-") as scratch,
        _serving(job.name, monitor, host, port) as server,
    ):
        connection = connect(job)
        _topics(job, fresh, connection)
        ids = {sink.name: register_schemas(sink, connection) for query in fresh.values() for sink in query.sinks}
        spark = session(
            job.name,
            master=master or f"local[{job.parallelism},4]",
            parallelism=job.parallelism,
            checkpoint=job.checkpoint,
            budget=job.budget,
        )
        running: list[_Running] = []
        try:
            signals.listen()
            register(spark)
            folder = f"{job.checkpoint}/{job.name}"
            recorded = queries(spark, folder)
            if reset:
                # Those of sinks that had a query of their own, which they would find again at the next start.
                for name in recorded.keys() - fresh.keys():
                    Checkpoint(spark, f"{folder}/{name}").delete()
            chosen = fresh if reset else _going_on(job, fresh, recorded)
            if chosen != fresh:
                _topics(job, chosen, connection)
            log.info("status, metrics and health at http://%s:%d", host, server.port)
            for name, query in chosen.items():
                if signals.count:
                    break
                at = Deployment(job, name, connection, ids, Reports(spark), drain=Path(scratch, "drain"))
                monitor.add(name, [sink.name for sink in query.sinks], explain(query.sinks, name))
                running.append(_start(spark, query, f"{folder}/{name}", at, reset=reset))
                _until_it_runs(running[-1].query, signals)
                for sink in query.sinks:
                    log.info("sink %s: writing to topic %s", sink.name, sink.topic)
            limit = inf if job.outage is None else job.outage / 1000
            watch = _Watch(job.name, monitor, Outage(connection.kafka), limit, signals, Path(scratch, "drain"))
            watch.over(running)
        finally:
            for each in running:
                # A query that has failed may still be on its way out, and would stumble over a stopped session.
                each.query.stop()
            spark.stop()


def _going_on(job: Job, fresh: PlannedQueries, recorded: Mapping[str, Contents]) -> PlannedQueries:
    """The queries of a job that has been running: those whose checkpoints are there, and maybe one of what is new."""
    views = {
        name: {view: frozenset(columns) for view, columns in each.views.items()} for name, each in recorded.items()
    }
    same = {name: (list(each.sinks), views[name]) for name, each in recorded.items()}
    if same == {name: ([sink.name for sink in each.sinks], each.views) for name, each in fresh.items()}:
        return fresh
    return planned(job, same)


def _topics(job: Job, of: PlannedQueries, connection: Connection) -> None:
    """Make and check the topics of these queries."""
    for name in create(job, of, connection):
        log.info("made topic %s", name)
    for advice in check(job, of, connection):
        log.warning("%s", advice)


@contextmanager
def _serving(job: str, monitor: Monitor, host: str, port: int) -> Iterator[StatusServer]:
    try:
        server = StatusServer(job, monitor, host, port)
    except OSError as error:
        raise StartError(
            f"port {port} of {host} cannot be had for status and metrics: {error.strerror}. Choose another with --port "
            f"(0 takes any free one), or end what listens there; is it another run of this job?"
        ) from None
    with server:
        yield server


def _start(spark: SparkSession, query: PlannedQuery, folder: str, at: Deployment, *, reset: bool) -> _Running:
    checkpoint, whole = Checkpoint(spark, folder), graph(query.sinks)
    wanted = Contents(
        sinks={sink.name: fingerprint(sink) for sink in query.sinks},
        parallelism=at.job.parallelism,
        levels=whole.levels,
        exchange=whole.exchange,
        atomic=at.job.atomic,
        views={view: sorted(columns) for view, columns in query.views.items()},
        states=whole.states,
    )
    contents = checkpoint.claim(wanted, reset=reset, after=_last_run(query.sinks, at))
    whole = graph(query.sinks, contents.levels, exchange=contents.exchange, states=contents.states)
    if len({each.state for each in whole.operators}) < len(whole.operators):
        raise CheckpointMismatchError(folder, ["STATE_TTL: what was kept once would have to be kept twice"])
    begin = partial(start, spark, whole, folder, replace(at, run=checkpoint.run))
    return _Running(at.name, checkpoint, at.reports, begin, begin())


def _until_it_runs(query: StreamingQuery, signals: _Signals) -> None:
    """Wait until the query has started the processes of its sources.

    Spark gives each ten seconds to connect, which many of them, started at once on a busy machine, do not keep.
    """
    while query.isActive and query.status["message"].startswith("Initializing") and not signals.count:
        time.sleep(_POLL_SECONDS)


def _last_run(sinks: Sequence[PhysicalSink], at: Deployment) -> str:
    """The last run of this query that has written, whatever checkpoint it had."""
    if all(sink.delivery != "exactly_once" for sink in sinks):
        return ""
    topic = progress_name(at.job.name, at.name)
    found = [read_progress(at.connection.kafka, topic, partition) for partition in range(at.job.parallelism)]
    return max((each.run for each in found if each is not None), default="")


@dataclass(frozen=True)
class _Watch:
    """What is looked at while the queries run.

    - `limit`: for how many seconds Kafka may be away.
    - `drain`: the file that tells the sources to offer nothing new.
    """

    job: str
    monitor: Monitor
    outage: Outage
    limit: float
    signals: _Signals
    drain: Path

    def over(self, running: Sequence[_Running]) -> None:
        """Until every query has stopped: after a signal, or because one of them failed or has been replaced."""
        looked = time.monotonic()
        while not self._asked_to_stop(running):
            for each in running:
                self._look(each)
            if time.monotonic() - looked > _HELD_SECONDS:
                looked = time.monotonic()
                if lost := next((each for each in running if not each.checkpoint.held()), None):
                    raise SupersededError(self.job, lost.name)
            self._ask()
            time.sleep(_POLL_SECONDS)
        for each in running:
            each.query.stop()
            self._note(each)
            self.monitor.ended(each.name, "stopped")
        log.info("stopped")

    def _look(self, each: _Running) -> None:
        self._note(each)
        if (error := each.query.exception()) is not None:
            self._failed(each, error)
        elif each.query.lastProgress is not None:
            each.ran, each.restarts = True, 0
        # What waits to be started again has no batch to finish.
        rests = each.again is not None or each.query.status["message"] == "Waiting for data to arrive"
        each.idle = each.idle + 1 if rests else 0

    def _failed(self, each: _Running, error: StreamingQueryException) -> None:
        """Start a query again whose failure passes, once Kafka answers; raise what another one means."""
        if each.again is None:
            failure = _failure(self.job, each, error)
            reason = _passing(failure, error, ran=each.ran)
            self._ask(now=True)
            away = self.outage.seconds > 0
            if reason is None or (each.restarts == _MOST_RESTARTS and not away):
                self.monitor.ended(each.name, "failed")
                raise failure
            each.again = time.monotonic() + (0 if away else 2**each.restarts)
            each.restarts += not away
            log.warning("query %s: %s; it is started again", each.name, reason.partition("\n")[0])
            self.monitor.waits(each.name, reason)
        if self.outage.seconds > self.limit:
            self.monitor.ended(each.name, "failed")
            raise _failure(self.job, each, error)
        if not self.outage.seconds and time.monotonic() >= each.again:
            each.again = None
            each.query = each.start()

    def _ask(self, *, now: bool = False) -> None:
        if self.outage.look(now=now):
            self.monitor.outage()

    def _note(self, each: _Running) -> None:
        """What has become known of a query since."""
        # What a query that has failed told last is from before.
        if each.again is None and (progress := each.query.lastProgress) is not None:
            self.monitor.progress(each.name, progress)
        self.monitor.collect(each.name, each.reports.take())

    def _asked_to_stop(self, running: Sequence[_Running]) -> bool:
        """Whether there was a signal, and every query has finished its batch; or a second signal."""
        if self.signals.count and not self.drain.exists():
            log.info("finishing the batch")
            self.drain.touch()
            for each in running:
                each.idle = 0
        # Idle twice in a row, because a trigger that began just before the signal may still be on its way to a batch.
        return self.signals.count > 1 or (self.drain.exists() and all(each.idle > 1 for each in running))


def _failure(job: str, each: _Running, error: StreamingQueryException) -> RunError:
    if not each.checkpoint.held():
        return SupersededError(job, each.name)
    found = surfaced(error)
    if found is None:
        said = str(error).partition("\n")[0]
        return QueryFailedError(each.name, "Spark does not say why" if "(no cause message)" in said else said, None)
    unreachable = found.error is not None and found.error.exit_code == UNREACHABLE
    return (QueryUnreachableError if unreachable else QueryFailedError)(each.name, found.message, found.error)


def _passing(failure: RunError, error: StreamingQueryException, *, ran: bool) -> str | None:
    """Why a query has failed, if the same may go well when it is started again.

    Our own errors say whether it may. What else ends a query that `ran` is taken for a loss of Spark's, such as of one
    of its processes, of which it tells nothing but that a pipe is broken.
    """
    if not isinstance(failure, QueryFailedError):
        return None
    if failure.error is not None:
        return failure.reason if failure.passes else None
    known = next((reason for words, reason in _PASSING.items() if words in str(error)), None)
    return known or (f"Spark's part of it was lost ({failure.reason})" if ran else None)


class _Signals:
    """How many signals to stop have come. Used with `with`, after which the handlers are what they were."""

    _NUMBERS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Self:
        self._before = {number: signal.getsignal(number) for number in self._NUMBERS}
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def listen(self) -> None:
        """Take the signals, also from whoever took them since: pyspark does so when a session starts."""
        for number in self._NUMBERS:
            signal.signal(number, self._handle)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
