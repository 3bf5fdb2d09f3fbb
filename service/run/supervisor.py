"""Supervises a job's queries: restarts them after temporary failures, and ends the job after all other failures."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf, isinf
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rowkind.errors import RowkindError
from rowkind.service.checkpoint.cut_over import CutOver
from rowkind.service.checkpoint.forgotten_deletes import ForgottenDeletes
from rowkind.service.checkpoint.written_topics import WrittenTopics
from rowkind.service.execute.promises import Broken, told
from rowkind.service.job.model import Job
from rowkind.service.kafka.errors import MissingTopicError, RestartedTopicError, UnfitTopicError
from rowkind.service.kafka.registry_outage import registry_outage
from rowkind.service.machine.signals import AskedToStop
from rowkind.service.monitoring.dead_letter_ratio import Share, Shares
from rowkind.service.monitoring.failure import awaited, damage, failed, passing
from rowkind.service.monitoring.incidents import incident, remedy
from rowkind.service.monitoring.monitor import Monitor
from rowkind.service.monitoring.outage import Outage
from rowkind.service.query.errors import (
    CheckpointFolderError,
    CheckpointTornError,
    DeadLettersError,
    LostResultError,
    QueryFailedError,
    RebuildError,
    ReplayError,
    RunError,
    SessionStoppedError,
    SupersededError,
    TopicGoneError,
)
from rowkind.service.query.streaming import due_file, registry_file
from rowkind.service.run.running_query import Awaited, Running
from rowkind.service.spark.errors import SparkLostError

if TYPE_CHECKING:
    from rowkind.service.monitoring.traces import Traces

_POLL_SECONDS = 0.2
_HELD_SECONDS = 1.0
"""Interval in seconds at which the supervisor checks whether a later run has taken over."""

_AWAITED_SECONDS = 3.0
"""Interval in seconds at which a query that waits for the registry or a topic is started again."""

_TOPIC_SECONDS = 300.0
"""The maximum time in seconds to wait for a topic that existed before."""

_MOST_RESTARTS = 5
"""The maximum number of consecutive restarts of a query while Kafka answers: after 1 s, then after 2, 4, 8 and 16 s."""

log = logging.getLogger("rowkind")


@dataclass
class Supervisor:
    """Watches a job's queries while they run.

    - `drain`: the file that tells the sources to offer nothing new.
    - `traces`: receives each batch, if traces are on.
    - `losses`: how often Spark as a whole has been lost since a query last ran.
    """

    job: Job
    monitor: Monitor
    outage: Outage
    signals: AskedToStop
    drain: Path
    traces: Traces | None
    losses: int = 0
    shares: Shares = field(default_factory=Shares)
    broken: dict[str, Broken] = field(default_factory=dict)
    forgotten: dict[str, ForgottenDeletes] = field(default_factory=dict)

    def remark(self, query: str, topics: WrittenTopics, forgotten: Sequence[ForgottenDeletes]) -> None:
        """Before a query starts, record which of its topics are incomplete although the query is allowed to run."""
        self.forgotten |= {f"{query}, {each.topic}, deletes": each for each in forgotten}
        for topic in topics.on_lost:
            self.monitor.incomplete(query, topic, "lost", whole=topic not in topics.accepted)
        late = {each.topic for each in forgotten}
        for table in topics.tables:
            self.monitor.incomplete(query, table.topic, "deletes", whole=table.topic not in late)

    def until_it_runs(self, started: Running) -> None:
        """Wait until a query has started its source processes.

        Each process must connect to Spark within 10 s. Many processes that start together on a busy machine would
        exceed this limit.
        """
        while (
            started.query.isActive
            and started.query.status["message"].startswith("Initializing")
            and not self.signals.count
        ):
            time.sleep(_POLL_SECONDS)
        self._tell(started)

    def over(self, running: Sequence[Running]) -> None:
        """Supervise the queries until all have stopped after a signal. Raises when a query fails or is superseded."""
        looked = time.monotonic()
        # These waits belonged to earlier queries, which the current ones have replaced.
        for system in ("topic", "registry"):
            self.monitor.waiting.end(system)
        while not self._asked_to_stop(running):
            if any(each.stranded for each in running):
                raise SessionStoppedError
            for each in running:
                self._look(each)
            self._hear(running)
            if time.monotonic() - looked > _HELD_SECONDS:
                looked = time.monotonic()
                if lost := next((each for each in running if not each.checkpoint.held()), None):
                    raise SupersededError(self.job.name, lost.name)
            self._ask()
            time.sleep(_POLL_SECONDS)
        for each in running:
            each.query.stop()
            self._note(each)
            if not self.outage.seconds:
                each.topics.end()
            self.monitor.stopped(each.name)
        self.signals.drains = False

    def lost(self, error: SparkLostError) -> None:
        """After Spark was lost, wait until it may be started again. Raises `error` if Spark was lost too often."""
        if self.losses == _MOST_RESTARTS:
            raise error
        log.warning("%s; Spark is restarted", error)
        self.monitor.all_wait(str(error))
        again = time.monotonic() + 2**self.losses - 1
        self.losses += 1
        self._ask(now=True)
        while not self.signals.count and self.outage.seconds <= self._limit:
            if time.monotonic() >= again and not self.outage.seconds:
                return
            time.sleep(_POLL_SECONDS)
            self._ask()
        raise error

    def _look(self, each: Running) -> None:
        self._note(each)
        self._hold(each)
        if each.again is not None:
            self._retry(each)
        elif (error := each.query.exception()) is not None:
            failure: RunError = failed(each.name, each.checkpoint.folder, error)
            if isinstance(failure, QueryFailedError) and failure.error in (MissingTopicError, UnfitTopicError):
                # A task may detect the loss before the watch does.
                each.topics.look()
                each.topics.look()
                self._hold(each)
            if not each.checkpoint.held():
                failure = SupersededError(self.job.name, each.name)
            if isinstance(failure, QueryFailedError) and failure.error is RestartedTopicError:
                raise RebuildError(failure.reason)
            if torn := damage(error):
                self._back(each, torn)
            else:
                self._later(each, failure, passing(failure, error, ran=each.ran))
        elif each.cut_over is not None and not each.query.isActive and not self.signals.count:
            self._cut_over(each, each.cut_over)
        elif each.query.lastProgress is not None:
            each.ran, each.restarts, self.losses = True, 0, 0
            self._is_answered(each)
        # A query that waits for a restart, or has filled its state, has no batch to finish.
        rests = each.again is not None or each.query.status["message"] in {"Waiting for data to arrive", "Stopped"}
        each.idle = each.idle + 1 if rests else 0

    def _hold(self, each: Running) -> None:
        """If the query's topics have lost records, end the job, or raise an error that requests a rebuild."""
        try:
            each.topics.judge()
            for topic in each.topics.accepted:
                self.monitor.incomplete(each.name, topic, "lost", whole=False)
        except (LostResultError, ReplayError) as error:
            if error.rebuilds:
                raise
            self._fail(each, error)

    def _cut_over(self, each: Running, cut_over: CutOver) -> None:
        try:
            with self.monitor.works.work(f"query {each.name} updates its result topics", ""):
                cut_over.end()
                each.topics.renew()
        except RowkindError as error:
            self._later(each, error, str(error) if error.retryable else None)
        else:
            each.cut_over = None
            self._begin(each)
            self._tell(each)

    def _back(self, each: Running, damage: str) -> None:
        """Restart a query whose state cannot be loaded. It recomputes the state from that of one batch earlier."""
        batch = each.checkpoint.back()
        if batch is None:
            why = f"neither the state nor an earlier one can be loaded ({damage})"
            self._fail(each, CheckpointTornError(each.checkpoint.folder, why))
        log.warning(
            "query %s: the state after batch %d is damaged (%s); the batch is repeated", each.name, batch, damage
        )
        self._begin(each)

    def _begin(self, each: Running) -> None:
        try:
            each.begin()
        except RowkindError as error:
            self._later(each, error, str(error) if error.retryable else None)

    def _later(self, each: Running, failure: RowkindError, reason: str | None) -> None:
        """Schedule a query's restart after a temporary failure. If `reason` is None, raise the failure instead."""
        if self.traces is not None:
            self.traces.failed(each.name, str(failure))
        self._ask(now=True)
        now, away, system = time.monotonic(), self.outage.seconds > 0, awaited(failure)
        if reason is None or (each.restarts == _MOST_RESTARTS and not away and system is None):
            self._fail(each, failure)
        news = each.awaits is None or each.awaits.system != system
        if system is not None and news:
            each.awaits = Awaited(system, now)
            self.monitor.waiting.begin(system, f"the {system}", why=reason.partition("\n")[0])
        self._give_up_in_time(each, failure)
        each.failure = failure
        each.again = now + (0 if away else _AWAITED_SECONDS if system is not None else 2**each.restarts)
        each.restarts += not away and system is None
        if system is None or news:
            log.warning("query %s: %s; the query is restarted", each.name, reason.partition("\n")[0].rstrip("."))
            self.monitor.waits(each.name, reason, remedy(failure))

    def _give_up_in_time(self, each: Running, failure: RowkindError) -> None:
        """Fail a query that has waited for an external system longer than the job allows."""
        if each.awaits is None:
            return
        seconds = time.monotonic() - each.awaits.since
        if each.awaits.system == "topic" and seconds > min(self._limit, _TOPIC_SECONDS):
            self._fail(each, TopicGoneError(each.name, _reason(failure), seconds))
        if seconds > self._limit:
            self._fail(each, failure)

    def _hear(self, running: Sequence[Running]) -> None:
        """Read the tasks' reports about the registry, which may arrive long before their batch fails."""
        for each in running:
            if (silent := registry_outage(registry_file(each.at))) is not None:
                what = f"the registry at {silent.address}"
                self.monitor.waiting.begin("registry", what, seconds=silent.seconds, why=silent.why)
                return
        if all(each.awaits is None for each in running):
            self.monitor.waiting.end("registry")

    def _is_answered(self, each: Running) -> None:
        """End a query's wait, because the query has since run a batch or had nothing to do."""
        if each.awaits is not None:
            self.monitor.waiting.end(each.awaits.system)
            each.awaits = None

    def _fail(self, each: Running, failure: RowkindError) -> NoReturn:
        """End the job because a query failed. Record the failure for the next run, if possible."""
        told = incident(time.time(), each.name, failure)
        self.monitor.failed(each.name, str(failure), told)
        with suppress(CheckpointFolderError):
            each.checkpoint.leave_word(told)
        raise failure

    def _retry(self, each: Running) -> None:
        """Start a query again once its restart time has been reached and Kafka answers."""
        assert each.again is not None, "the query has failed"
        assert each.failure is not None, "the query has failed"
        if self.outage.seconds > self._limit:
            self._fail(each, each.failure)
        self._give_up_in_time(each, each.failure)
        if not self.outage.seconds and time.monotonic() >= each.again:
            self._begin(each)

    def _tell(self, each: Running) -> None:
        """Report the state of a query that has been started."""
        self.monitor.fills(each.name, filling=each.cut_over is not None)
        for sink in each.sinks if each.cut_over is None else ():
            match sink.to:
                case "topic":
                    log.info("sink %s: writing to topic %s", sink.name, sink.topic)
                case "print":
                    log.info("sink %s: printing its changes to the log", sink.name)
                case "blackhole":
                    log.info("sink %s: discarding its changes", sink.name)

    @property
    def _limit(self) -> float:
        return patience(self.job)

    def _ask(self, *, now: bool = False) -> None:
        if self.outage.look(now=now):
            self.monitor.outage()
        elif not self.outage.seconds:
            self.monitor.outage_ended()

    def _note(self, each: Running) -> None:
        """Collect a query's new progress and reports."""
        progress = each.progress()
        for told_of in progress:
            self.monitor.progress(each.name, told_of)
        reports = each.at.reports.take()
        if self.traces is not None:
            self.traces.note(each.name, reports, progress)
        self.monitor.collect(each.name, reports)
        if (due := self.monitor.due_ms(each.name)) is not None and due != each.due:
            each.due = due
            _replace(due_file(each.at), "" if isinf(due) else str(due))
        now = time.monotonic()
        for report in reports:
            self.shares.add(report.counted.carried, now)
            for broken in told(report.counted.carried):
                self.broken.setdefault(f"{broken.table}, {broken.promise}", broken)
        self._judge(self.shares.many(now))

    def _judge(self, shares: Sequence[Share]) -> None:
        """Report tables with too many dead letters, and tables that violate their declared constraints.

        Raises DeadLettersError if a table's ratio exceeds the job's `max_ratio`.
        """
        for warning in self.monitor.warns(
            {**{each.table: each for each in shares}, **self.broken, **self.forgotten, **self.monitor.held()}
        ):
            log.error("%s", warning)
        most = self.job.dead_letters.max_ratio
        if most is not None and (over := next((each for each in shares if each.ratio > most), None)):
            raise DeadLettersError(str(over), most)

    def _asked_to_stop(self, running: Sequence[Running]) -> bool:
        """Return whether the job must stop now: once all batches have ended, or at once after a second signal."""
        if self.signals.count and not self.drain.exists():
            log.info("finishing the batch")
            self.drain.touch()
            for each in running:
                each.idle = 0
        # A query must be idle twice in a row, because a trigger that began just before the signal may still start a
        # batch.
        return self.signals.count > 1 or (self.drain.exists() and all(each.idle > 1 for each in running))


def patience(job: Job) -> float:
    """Return for how many seconds Kafka or the registry may be unavailable before the job fails."""
    return inf if job.outage is None else job.outage / 1000


def _reason(failure: RowkindError) -> str:
    return failure.reason if isinstance(failure, QueryFailedError) else str(failure)


def _replace(path: Path, text: str) -> None:
    """Replace the content of a file atomically, so that a reader sees the old or the new text."""
    draft = path.with_name(f"{path.name}.draft")
    draft.write_text(text, "utf-8")
    draft.replace(path)
