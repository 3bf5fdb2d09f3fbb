"""The lifecycle of a running job: plan, check, connect, start its queries, watch, drain, stop.

When the job is asked to stop, sources offer nothing new, and every query finishes its batch.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Literal, TypeVar

from pyspark.sql import SparkSession

from rowkind.service.checkpoint.checkpoint import Checkpoint, queries
from rowkind.service.checkpoint.checkpoint_metadata import Contents
from rowkind.service.checkpoint.cut_over import CutOver, clear, take_over
from rowkind.service.checkpoint.replay import QueryStart, last_progress
from rowkind.service.checkpoint.rescale import rescale, to_its_end
from rowkind.service.checkpoint.savepoint import whole
from rowkind.service.checkpoint.upgrade import TWICE, contents, doubled, sinks_of, upgrade
from rowkind.service.checkpoint.written_topics import TopicWatch, WrittenTopics
from rowkind.service.job.model import Job
from rowkind.service.kafka import topic_claims
from rowkind.service.kafka.client_columns import is_compiled
from rowkind.service.kafka.clients import servers
from rowkind.service.kafka.progress import Progress, next_run
from rowkind.service.kafka.sink_formats import Forms
from rowkind.service.kafka.spec import WriterSpec
from rowkind.service.kafka.topics import group_name, progress_name, with_records
from rowkind.service.machine.signals import AskedToStop
from rowkind.service.monitoring.lag import LagWatch
from rowkind.service.monitoring.monitor import Monitor
from rowkind.service.monitoring.outage import Outage
from rowkind.service.monitoring.waiting import answered
from rowkind.service.physical.graph import Graph
from rowkind.service.physical.node import topic_sinks
from rowkind.service.plan.explain.describe import describe
from rowkind.service.plan.pipeline import PlannedQuery
from rowkind.service.query.errors import (
    CheckpointMismatchError,
    LostResultError,
    ParallelismError,
    RebuildError,
    ReplayError,
    SavepointError,
    StrangeCheckpointError,
    TopicsHeldError,
)
from rowkind.service.query.initial_counters import births
from rowkind.service.query.queries import planned
from rowkind.service.query.spark_sink import Reports
from rowkind.service.query.streaming import Deployment, register, source, writer
from rowkind.service.query.topics import Connection, PlannedQueries, check, connect, create
from rowkind.service.query.topics import register as register_schemas
from rowkind.service.run.printing import printing
from rowkind.service.run.running_query import Running
from rowkind.service.run.supervisor import Supervisor, patience
from rowkind.service.spark.session import is_local

if TYPE_CHECKING:
    from rowkind.service.monitoring.traces import Traces

log = logging.getLogger("rowkind")

Anew = TypeVar("Anew")

Rebuild = Literal["nothing", "what changed", "everything"]
"""Which sinks may be rebuilt, so that their topics are updated to the new result."""

_TRACED = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Environment variables. If any of them is set, traces are on."""


@contextmanager
def beginning(job: Job, fresh: PlannedQueries, monitor: Monitor, signals: AskedToStop) -> Iterator[Life]:
    """Create and check a job's topics, before there is a Spark session, and yield the job's `Life`.

    Raises:
        RowkindError: With a message for the person on call.
    """
    assert job.checkpoint is not None, "the caller has checked that the job has a checkpoint"
    with (
        tempfile.TemporaryDirectory(prefix="rowkind-") as scratch,
        LagWatch(monitor) as lags,
        TopicWatch.begun() as watch,
        _tracing(job.name) as traces,
        printing(job) as printer,
    ):
        if not is_compiled():
            log.info("records are read and written one at a time, because Rowkind was installed without a C compiler")
        connection = connect(job)
        sinks = [sink for query in fresh.values() for sink in query.sinks]
        with monitor.waiting.on("kafka", f"Kafka at {servers(connection.kafka)}"):
            topic_claims.check(connection.kafka, [sink.topic for sink in topic_sinks(sinks)], job.name)
            _topics(job, fresh, connection)
        forms = answered(
            lambda: {sink.name: register_schemas(sink, connection) for sink in topic_sinks(sinks)},
            signals,
            patience(job),
        )
        with monitor.waiting.on("kafka", f"Kafka at {servers(connection.kafka)}"):
            outage = Outage(connection.kafka, monitor.waiting)
        supervisor = Supervisor(job, monitor, outage, signals, Path(scratch, "drain"), traces)
        yield Life(job, job.checkpoint, fresh, connection, forms, monitor, lags, watch, supervisor, printer)


@contextmanager
def _tracing(job: str) -> Iterator[Traces | None]:
    """Yield an object that sends batches as traces, or None unless the environment requests traces."""
    asked = next((name for name in _TRACED if os.environ.get(name)), None)
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if asked is None or off or os.environ.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp":
        yield None
        return
    try:
        from rowkind.service.monitoring.traces import Traces  # noqa: PLC0415 -- its libraries need not be there
    except ImportError:
        log.warning("%s requests traces, but OpenTelemetry is not installed: install rowkind[traces]", asked)
        yield None
    else:
        with closing(Traces(job)) as traces:
            yield traces


@dataclass(frozen=True)
class Life:
    """The parts of a job that outlast its successive Spark sessions. `printer`: see `WriterSpec`."""

    job: Job
    checkpoint: str
    fresh: PlannedQueries
    connection: Connection
    forms: Mapping[str, Forms]
    monitor: Monitor
    lags: LagWatch
    watch: TopicWatch
    supervisor: Supervisor
    printer: str

    @property
    def folder(self) -> str:
        """The folder with the checkpoints of the job's queries."""
        return f"{self.checkpoint}/{self.job.name}"

    def live(self, spark: SparkSession, rebuild: Rebuild, *, moves: bool = False) -> None:
        """Start and supervise the queries in a session until they stop. If `moves` is set, only move their state."""
        if "folder" in (self.job.registry or {}) and not is_local(spark.sparkContext.master):
            log.warning(
                "schemas are read from a folder: every machine of the cluster must have the folder at the same path"
            )
        with self.monitor.waiting.on("checkpoint", f"the checkpoint {self.checkpoint}"):
            there = whole(spark, self.folder)
        if not there:
            raise SavepointError("the checkpoint is an incomplete copy of a savepoint: run again with --from")
        while True:
            try:
                _Queries(spark, self).live(rebuild, moves=moves)
            except (ReplayError, LostResultError) as error:
                if moves or not error.rebuilds:
                    raise
                log.warning("query %s: %s; rebuilding the state from the topics", error.query, error.cause)
                checkpoint = Checkpoint(spark, f"{self.folder}/{error.query}")
                # A task of this run may write to a recreated progress topic, and must not be mistaken for a task of a
                # later run.
                run = next_run(*checkpoint.runs())
                checkpoint.delete()
                checkpoint.sign(run)
                self.monitor.rebuilt(error.query, error.cause)
                # Missing topics are created again.
                _topics(self.job, self.fresh, self.connection)
                rebuild = "what changed"
            except RebuildError as error:
                log.warning("%s", error)
                rebuild = "everything"
            else:
                return


@dataclass
class _Queries:
    """The queries of a job in one Spark session."""

    spark: SparkSession
    life: Life
    _running: list[Running] = field(default_factory=list)
    _begun: int = 0

    def live(self, rebuild: Rebuild, *, moves: bool) -> None:
        """Start and supervise the queries until they stop. If `moves` is set, only move their state (`rescale`)."""
        try:
            register(self.spark)
            with self._asking_checkpoint():
                recorded = queries(self.spark, self.life.folder)
            # All queries of the job see the same generated rows.
            self._begun = min(
                (each.begun for each in recorded.values() if each.begun), default=round(time.time() * 1000)
            )
            self._take_over_moved(recorded, may_move=moves or rebuild != "nothing")
            chosen, new = self._as_before(recorded) if rebuild == "nothing" else self._rebuilt(recorded, rebuild)
            if chosen != self.life.fresh:
                _topics(self.life.job, chosen, self.life.connection)
            filling = self._filling({name: chosen[name] for name in new}, rebuild)
            for name, query in chosen.items():
                if self.life.supervisor.signals.count:
                    break
                token = token_hex(4) if name in filling else ""
                running = self._ready(name, query, token, requested=rebuild != "nothing")
                if not moves:
                    self._begin(running)
            if not moves:
                self.life.supervisor.over(self._running)
        finally:
            for each in self._running:
                # A failed query may still be shutting down, and would fail again on a stopped session.
                each.query.stop()

    def _begin(self, running: Running) -> None:
        self.life.supervisor.signals.drains = True
        running.begin()
        self._running.append(running)
        self.life.supervisor.until_it_runs(running)

    def _take_over_moved(self, recorded: Mapping[str, Contents], *, may_move: bool) -> None:
        """Fence earlier runs of queries whose state has a different number of partitions than the job requests.

        Raises ParallelismError if the state is not allowed to move.
        """
        tasks = self.life.job.parallelism
        moved = {name: each.parallelism for name, each in recorded.items() if each.parallelism != tasks}
        for name, before in moved.items():
            if not may_move:
                raise ParallelismError(name, before, tasks)
            self._take_over(name)

    def _as_before(self, recorded: Mapping[str, Contents]) -> tuple[PlannedQueries, AbstractSet[str]]:
        """Return the queries of a job that continues from its checkpoints, and the names of the new queries."""
        chosen = self._planned(lambda: _going_on(self.life.job, self.life.fresh, recorded))
        for name in recorded.keys() - chosen.keys():
            # The query's sinks were removed, so its claims to their topics must end.
            if any(each.topics for each in self._progress(name)):
                self._take_over(name)
        return chosen, chosen.keys() - recorded.keys()

    def _rebuilt(self, recorded: Mapping[str, Contents], rebuild: Rebuild) -> tuple[PlannedQueries, AbstractSet[str]]:
        """Return a job's queries after an upgrade or reset, and the names of those that start without a checkpoint."""
        plan = self._planned(lambda: upgrade(self.life.job, recorded, keep=rebuild == "what changed"))
        new = plan.queries.keys() - plan.stay
        for name in plan.left:
            self._take_over(name)
            if name in plan.stay:
                self._checkpoint(name).keep({sink.name for sink in plan.queries[name].sinks})
        torn = [name for name in new if self._checkpoint(name).torn()]
        for name in (*plan.dropped, *torn):
            self._checkpoint(name).delete()
        clear(self.life.job, self.life.connection.kafka, {recorded[name].filling for name in plan.stay})
        return plan.queries, new

    def _planned(self, plan: Callable[[], Anew]) -> Anew:
        """Return the result of `plan`, which may send requests to the registry."""
        return answered(plan, self.life.supervisor.signals, patience(self.life.job))

    def _asking_checkpoint(self) -> AbstractContextManager[None]:
        return self.life.monitor.waiting.on("checkpoint", f"the checkpoint {self.life.checkpoint}")

    def _asking_kafka(self) -> AbstractContextManager[None]:
        kafka = self.life.connection.kafka
        return self.life.monitor.waiting.on("kafka", f"Kafka at {servers(kafka)}")

    def _checkpoint(self, name: str) -> Checkpoint:
        return Checkpoint(self.spark, f"{self.life.folder}/{name}")

    def _filling(self, new: PlannedQueries, rebuild: Rebuild) -> set[str]:
        """Return the queries without a checkpoint whose result topics contain records. May raise TopicsHeldError."""
        topics = {sink.topic: name for name, query in new.items() for sink in topic_sinks(query.sinks)}
        with self._asking_kafka():
            held = with_records(self.life.connection.kafka, topics)
        if held and rebuild == "nothing":
            raise TopicsHeldError(held)
        return {topics[topic] for topic in held}

    def _take_over(self, name: str) -> None:
        """Ensure that no earlier run is still writing for this query.

        The checkpoint records the new run's name before Kafka does. If nothing has been written since a cut-over, a
        name that is only in Kafka is taken for the name of a run with another checkpoint.
        """
        checkpoint = self._checkpoint(name)
        run = next_run(*(each.run for each in self._progress(name)), *checkpoint.runs())
        checkpoint.sign(run)
        kafka = self.life.connection.kafka
        take_over(WriterSpec(self.life.job.name, name, {}, kafka, progress_name(self.life.job.name, name), run=run))

    def _ready(self, name: str, query: PlannedQuery, token: str, *, requested: bool) -> Running:
        """Return a query that is ready to start. A new query with a token first fills its state.

        `requested`: a rebuild of changed sinks was requested.
        """
        checkpoint = self._checkpoint(name)
        progress = self._progress(name)
        last = max(progress, key=attrgetter("run"), default=None)
        with self._asking_checkpoint():
            whole, wanted = contents(self.life.job, query, checkpoint.contents())
            if last is not None and checkpoint.is_strange(last):
                raise StrangeCheckpointError(checkpoint.folder)
            last_run = "" if last is None else last.run
            wanted = replace(wanted, filling=wanted.filling or token, begun=wanted.begun or self._begun)
            checkpoint.claim(wanted, after=last_run)
            if doubled(whole):
                raise CheckpointMismatchError(checkpoint.folder, [TWICE])
            checkpoint.settle()
            for file in checkpoint.mend():
                log.warning("query %s: removed the incomplete file %s; its batch is repeated", name, file)
        job, kafka = self.life.job, self.life.connection.kafka
        topics = WrittenTopics.of(job, name, whole, kafka, checkpoint, requested=requested)
        self.life.watch.add(topics)
        at = self._brought_up(name, whole, checkpoint)
        topic_claims.claim(writer(whole, replace(at, filling="")))
        position = checkpoint.position()
        sqls = {sink: settings.sql for sink, settings in self.life.job.sinks.items()}
        at_start = None if position is None else position.at
        self.life.monitor.add(
            name,
            describe(name, query.sinks, sqls),
            at_start,
            births(whole),
            tasks=job.parallelism,
            records={sink.name: sink.value for sink in whole.sinks},
        )
        self.life.supervisor.remark(name, topics, topics.forgotten(position))
        if (failure := checkpoint.last_failure()) is not None:
            self.life.monitor.recall(failure)
        self.life.lags.add(name, source(whole, at), group_name(self.life.job.name, name))
        cut_over = CutOver(whole, checkpoint, at, replace(at, filling="")) if at.filling else None
        begin = QueryStart(self.spark, whole, checkpoint)
        return Running(checkpoint, query.sinks, replace(at, filling=""), begin, cut_over, topics)

    def _brought_up(self, name: str, whole: Graph, checkpoint: Checkpoint) -> Deployment:
        """Move the state of a query to the job's number of partitions, and return the query's deployment."""
        there = checkpoint.contents()
        assert there is not None, "the checkpoint was claimed"
        at = Deployment(
            self.life.job,
            name,
            self.life.connection,
            self.life.forms,
            Reports(self.spark),
            self.life.supervisor.drain,
            there.shards,
            there.parallelism,
            checkpoint.run,
            filling=there.filling,
            excused=frozenset(there.excused),
            begun=there.begun,
            printer=self.life.printer if is_local(self.spark.sparkContext.master) else "",
        )
        begin = QueryStart(self.spark, whole, checkpoint)
        works, tasks = self.life.monitor.works, self.life.job.parallelism
        last = begin.last_written(at)
        if last is not None and (last.tasks or at.tasks) != tasks:
            # A batch must be completed by the same number of tasks that began it.
            at = rescale(checkpoint, at, last.tasks or at.tasks, begin, works)
            to_its_end(checkpoint, at.forward, begin)
        return rescale(checkpoint, at, tasks, begin, works)

    def _progress(self, name: str) -> list[Progress]:
        """Return the last progress of each of a query's tasks."""
        with self._asking_kafka():
            return last_progress(self.life.connection.kafka, progress_name(self.life.job.name, name))


def _going_on(job: Job, fresh: PlannedQueries, recorded: Mapping[str, Contents]) -> PlannedQueries:
    """Return the queries of a job that has run before: those with checkpoints, and possibly one for the new sinks."""
    same = {name: each.planned_by for name, each in recorded.items()}
    as_fresh = same == {name: ([sink.name for sink in each.sinks], each.views) for name, each in fresh.items()}
    # A schema in the registry may have gained columns since the checkpoint was written.
    known = all(each.columns is not None or each.schema_file is not None for each in job.tables.values())
    if not recorded or (as_fresh and known):
        return fresh
    return planned(job, same, sinks_of(recorded))


def _topics(job: Job, of: PlannedQueries, connection: Connection) -> None:
    """Create and check the topics of the given queries."""
    for name in create(job, of, connection):
        log.info("created topic %s", name)
    for advice in check(job, of, connection):
        log.warning("%s", advice)
