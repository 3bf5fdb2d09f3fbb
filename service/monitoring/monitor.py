"""The monitor of a running job: collects Spark's progress and the tasks' reports, for the status server.

A report contains the counters of a write task, and the counters that arrived with the task's blocks
(`service.query.spark_sink`). Progress is Spark's own record of a batch: its number, durations and offsets.
"""

from __future__ import annotations

import json
import platform
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from rowkind.avro.schema import Record
from rowkind.service.execute.metrics import parse
from rowkind.service.kafka.lag import Lag
from rowkind.service.kafka.offsets import At, Offset
from rowkind.service.kafka.progress import BatchPartition
from rowkind.service.monitoring.activity import Activity
from rowkind.service.monitoring.exposition import Exposition
from rowkind.service.monitoring.history import HistoryRange
from rowkind.service.monitoring.incidents import Incidents
from rowkind.service.monitoring.process_memory import memory
from rowkind.service.monitoring.progress import Works
from rowkind.service.monitoring.status import Incident, JobStatus, QueryState, QueryStatus, trouble_of
from rowkind.service.monitoring.timeline import Timeline
from rowkind.service.monitoring.waiting import SYSTEMS, Waiting
from rowkind.service.plan.explain.description import QueryDescription
from rowkind.service.query.spark_sink import Report

STAGES = {
    "latestOffset": "source",
    "walCommit": "log",
    "getBatch": "planning",
    "queryPlanning": "planning",
    "addBatch": "tasks",
    "commitOffsets": "log",
}
"""The phases of a batch that Spark measures, in order, and the stage to which each is assigned."""


NO_RECORDS: Mapping[str, Record] = MappingProxyType({})

HELD_SECONDS = 60.0
"""An open transaction is reported after this time. A producer's own transaction timeout is 60 s by default."""


@dataclass(frozen=True)
class HeldPartition:
    """A partition in which an open transaction blocks `rows` offsets. `since`: its start, in Unix seconds."""

    topic: str
    partition: int
    rows: int
    since: float

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since, UTC).isoformat(timespec="seconds")
        return (
            f"Partition {self.partition} of topic {self.topic} is blocked by a transaction that has been open since "
            f"{since}. Blocked offsets: {self.rows:,}. Stop the transaction's producer, or abort the transaction with "
            "`kafka-transactions.sh find-hanging` and `abort`."
        )


@dataclass
class _Query:
    name: str
    plan: QueryDescription
    activity: Activity
    state: QueryState = "starting"
    reason: str = ""
    filling: bool = False
    batch: int = -1
    ended: float | None = None
    at: Mapping[At, int] | None = None
    lags: Mapping[At, Lag] = field(default_factory=dict)
    due: dict[str, float] = field(default_factory=dict)
    carried: dict[BatchPartition, Mapping[str, float]] = field(default_factory=dict)


class Monitor:
    """The monitor of one job. All methods may be called from any thread."""

    def __init__(self, job: str, version: str, spark: str, java: str) -> None:
        self._lock = threading.Lock()
        self._queries: dict[str, _Query] = {}
        self._metrics = Exposition(job)
        self._warnings: dict[str, str] = {}
        self._job, self._version, self._since = job, version, time.time()
        self._incidents, self._timeline = Incidents(), Timeline()
        self._timeline.mark("start", "", "The process was started", self._since)
        self.works, self.waiting = Works(), Waiting()
        versions = {"version": version, "spark": spark, "python": platform.python_version(), "java": java}
        self._metrics.set("rowkind_info", 1, **versions)
        self._metrics.set("rowkind_job_up", 1)
        self._metrics.set("rowkind_start_timestamp_seconds", self._since)

    def add(
        self,
        query: str,
        plan: QueryDescription,
        at: Mapping[At, int] | None,
        born: Mapping[str, float] | None = None,
        *,
        tasks: int = 1,
        records: Mapping[str, Record] = NO_RECORDS,
    ) -> None:
        """Add a query that is about to start.

        `at`: the query's offsets, None if it has never run. `born`: the initial values of its counters. `tasks`: how
        many tasks work at the same time. `records`: the schemas of its sinks.
        """
        with self._lock:
            # A query that continues after Spark was lost keeps its counters. If the query begins again from scratch,
            # its counters start at zero.
            if query in self._queries and at is not None:
                return
            self._queries[query] = _Query(query, plan, Activity(time.time(), tasks, records), at=at)
            self._metrics.set("rowkind_up", 1, query=query)
            self._metrics.set("rowkind_restarts_total", 0, query=query)
            self._metrics.set("rowkind_rebuilds_total", 0, query=query)
            self._metrics.add(born or {}, query)

    def collect(self, name: str, reports: Iterable[Report]) -> None:
        """Add reports of a query's tasks.

        The counters of written rows are added immediately. The counters that arrived with blocks would arrive again if
        the batch were repeated, so they are added only when Spark has reported the batch's progress.
        """
        with self._lock:
            query = self._queries[name]
            for report in reports:
                self._add(query, report.of.batch, report.counted.written)
                query.carried[report.of] = report.counted.carried
                for sample in report.counted.samples:
                    query.activity.last.add(sample, time.time())
            for of in [of for of in query.carried if of.batch <= query.batch]:
                self._add(query, of.batch, query.carried.pop(of))

    def due_ms(self, name: str) -> float | None:
        """Return the Unix time in ms of a query's next batch without rows: infinity for never, None if unknown."""
        with self._lock:
            return min(self._queries[name].due.values(), default=None)

    def progress(self, name: str, progress: Mapping[str, Any]) -> None:
        """Record Spark's progress of one trigger, whether it ran a batch or found nothing to do."""
        with self._lock:
            query = self._queries[name]
            ran = "addBatch" in progress["durationMs"]
            self._timeline.end("restart", name, time.time())
            query.state, query.reason = "running" if ran else "idle", ""
            self._metrics.set("rowkind_up", 1, query=name)
            self._stands(query, progress["sources"])
            if ran and progress["batchId"] > query.batch:
                query.batch = progress["batchId"]
                seconds = progress["durationMs"]["triggerExecution"] / 1000
                query.ended = datetime.fromisoformat(progress["timestamp"]).timestamp() + seconds
                query.activity.batch(query.batch, seconds, time.time())
                for stage, spent in _stages(progress).items():
                    self._metrics.set("rowkind_batch_seconds_total", spent, query=name, stage=stage)
                self._metrics.set("rowkind_batch_id", query.batch, query=name)
                self._metrics.observe("rowkind_batch_duration_seconds", seconds, 1, query=name)
                self._metrics.set("rowkind_last_batch_timestamp_seconds", query.ended, query=name)

    def position(self, name: str) -> Mapping[At, int] | None:
        """Return the next offset that a query reads in each partition, or None before its first batch."""
        with self._lock:
            return self._queries[name].at

    def lags(self, name: str, lags: Mapping[At, Lag]) -> None:
        """Record the lag of a query."""
        with self._lock:
            self._lags(self._queries[name], lags)

    def waits(self, name: str, reason: str, remedy: str = "") -> None:
        """Record that a query has failed for this reason and will be started again."""
        with self._lock:
            what = reason.partition("\n")[0]
            self._incidents.add(Incident(time.time(), name, what, remedy or "The query is restarted automatically."))
            self._timeline.begin("restart", name, what, time.time())
            self._queries[name].state, self._queries[name].reason = "waiting", reason
            self._metrics.set("rowkind_up", 0, query=name)
            self._metrics.set("rowkind_restarts_total", 1, query=name)

    def warns(self, warnings: Mapping[str, object]) -> list[object]:
        """Replace the current warnings, keyed by subject, and return the new ones. Warnings do not stop the job."""
        with self._lock:
            new = [warning for about, warning in warnings.items() if about not in self._warnings]
            for about in self._warnings.keys() - warnings.keys():
                self._timeline.end("warning", "", time.time(), about)
            for about in warnings.keys() - self._warnings.keys():
                self._timeline.begin("warning", "", about, time.time())
            self._warnings = {about: str(warning) for about, warning in warnings.items()}
            for warning in new:
                self._incidents.add(Incident(time.time(), "", str(warning), "The job continues."))
            return new

    def held(self) -> dict[str, HeldPartition]:
        """Return the partitions that open transactions have blocked for `HELD_SECONDS`, by their names in warnings."""
        with self._lock:
            found = [
                HeldPartition(*at, lag.rows, time.time() - lag.held)
                for query in self._queries.values()
                for at, lag in query.lags.items()
                if lag.held >= HELD_SECONDS
            ]
        return {f"{each.topic}, partition {each.partition}": each for each in found}

    def warning(self) -> str:
        """Return the current warnings, one per line."""
        with self._lock:
            return "\n".join(self._warnings.values())

    def fills(self, name: str, *, filling: bool) -> None:
        """Record whether a started query is still filling its state, before it writes to its result topics."""
        with self._lock:
            self._queries[name].filling = filling
            if filling:
                self._timeline.begin("filling", name, "The query fills its state before it writes", time.time())
            else:
                self._timeline.end("filling", name, time.time())

    def rebuilt(self, query: str, why: str) -> None:
        """Record that a query's state is rebuilt automatically for this reason."""
        with self._lock:
            what = why.partition("\n")[0]
            self._incidents.add(
                Incident(time.time(), query, what, "The state is rebuilt from the topics automatically.")
            )
            self._timeline.mark("rebuild", query, what, time.time())
            self._metrics.set("rowkind_rebuilds_total", 1, query=query)

    def incomplete(self, query: str, topic: str, reason: str, *, whole: bool) -> None:
        """Record whether a topic is `whole`. If not, it may lack records on which a query's result depends."""
        with self._lock:
            self._metrics.set("rowkind_incomplete_topic", float(not whole), query=query, topic=topic, reason=reason)

    def all_wait(self, reason: str) -> None:
        """Record that every query has ended for this reason and will be started again."""
        for name in list(self._queries):
            self.waits(name, reason)

    def outage(self) -> None:
        """Record that Kafka has stopped answering."""
        with self._lock:
            self._metrics.set("rowkind_outages_total", 1)
            self._incidents.add(
                Incident(time.time(), "", "Kafka stopped answering", "The job waits until Kafka answers.")
            )
            self._timeline.begin("outage", "", "Kafka does not answer", time.time())

    def outage_ended(self) -> None:
        """Record that Kafka answers."""
        with self._lock:
            self._timeline.end("outage", "", time.time())

    def stopped(self, name: str) -> None:
        """Record that a query has stopped as requested."""
        with self._lock:
            self._queries[name].state = "stopped"
            self._timeline.end("restart", name, time.time())
            self._metrics.set("rowkind_up", 0, query=name)

    def failed(self, name: str, reason: str, incident: Incident) -> None:
        """Record that a query has failed for this reason and will not be started again."""
        with self._lock:
            self._queries[name].state, self._queries[name].reason = "failed", reason
            self._incidents.add(incident)
            self._timeline.end("restart", name, time.time())
            self._timeline.begin("failed", name, incident.what, time.time())
            self._metrics.set("rowkind_up", 0, query=name)

    def recall(self, incident: Incident) -> None:
        """Add an incident from before this process was started. Adding the same incident again has no effect."""
        with self._lock:
            if all(each.at != incident.at for each in self._incidents.latest()):
                self._incidents.add(incident)
                self._timeline.mark("failed", incident.query, incident.what, incident.at)

    def healthy(self) -> bool:
        """Return whether no query has failed."""
        with self._lock:
            return all(query.state != "failed" for query in self._queries.values())

    def ready(self) -> bool:
        """Return whether every query has finished a batch or found nothing to do, and none is filling or waiting."""
        with self._lock:
            ready = (each.state in {"running", "idle"} and not each.filling for each in self._queries.values())
            return bool(self._queries) and all(ready) and not self.waiting.said()

    def reason(self) -> str:
        """Return why the job is not ready."""
        with self._lock:
            queries = self._queries.values()
            reasons = self.waiting.said()
            reasons += [trouble_of(each.name, each.state, each.reason) for each in queries if each.reason]
            reasons += [f"query {each.name} is filling its state before it writes" for each in queries if each.filling]
            return "\n".join(reasons) or "not ready yet"

    def exposition(self) -> bytes:
        """Return the metrics in Prometheus text format."""
        taken = memory()
        with self._lock:
            for process, size in taken.items():
                self._metrics.set("rowkind_memory_bytes", size, process=process)
            for system in SYSTEMS:
                self._metrics.set("rowkind_waiting_seconds", self.waiting.seconds(system), system=system)
            return self._metrics.text()

    def plans(self) -> Sequence[QueryDescription]:
        """Return the plan of every query."""
        with self._lock:
            return [query.plan for query in self._queries.values()]

    def status(self) -> JobStatus:
        """Return the current status."""
        now = time.time()
        with self._lock:
            queries = tuple(_status(query, now) for query in self._queries.values())
            warnings, incidents = tuple(self._warnings.values()), self._incidents.latest()
            spans = self._timeline.latest(now)
        return JobStatus(
            self._job, self._version, now, self._since, queries, warnings, incidents, self.works.under_way(), spans
        )

    def history(self) -> Mapping[str, tuple[HistoryRange, ...]]:
        """Return the history of every query: the last hour and the last day."""
        with self._lock:
            return {name: query.activity.ranges(time.time()) for name, query in self._queries.items()}

    def _add(self, query: _Query, batch: int, counters: Mapping[str, float]) -> None:
        now = time.time()
        query.activity.count(batch, counters, now)
        query.activity.latencies(counters, query.ended or now, now)
        self._metrics.add(counters, query.name, query.ended)
        for sample, value in counters.items():
            if parse(sample)[0] == "rowkind_next_due_timestamp_seconds":
                query.due[sample] = value * 1000

    def _stands(self, query: _Query, sources: Sequence[Mapping[str, Any]]) -> None:
        (source,) = sources
        if (end := _read(source.get("endOffset"))) is not None:
            query.at = Offset.from_json(end).at
            for (topic, partition), offset in query.at.items():
                self._metrics.set(
                    "rowkind_committed_offset", offset, query=query.name, topic=topic, partition=partition
                )
            self._lags(query, query.lags)

    def _lags(self, query: _Query, lags: Mapping[At, Lag]) -> None:
        """Set the query's lag, minus the offsets that were read after the lag was measured."""
        at = query.at or {}
        query.lags = {each: lag.at(at[each]) if each in at else lag for each, lag in lags.items()}
        query.activity.lag(query.lags.values(), time.time())
        for (topic, partition), lag in query.lags.items():
            labels = {"query": query.name, "topic": topic, "partition": partition}
            self._metrics.set("rowkind_lag_rows", lag.rows, **labels)
            self._metrics.set("rowkind_lag_seconds", lag.seconds, **labels)
            self._metrics.set("rowkind_held_seconds", lag.held, **labels)


def _stages(progress: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds of a batch by stage: its consecutive phases, and the sum of the tasks' state commits."""
    milliseconds: Mapping[str, int] = progress["durationMs"]
    found = dict.fromkeys(STAGES.values(), 0)
    for name, stage in STAGES.items():
        found[stage] += milliseconds.get(name, 0)
    found["other"] = max(0, milliseconds["triggerExecution"] - sum(found.values()))
    found["commit"] = sum(each["commitTimeMs"] for each in progress["stateOperators"])
    return {stage: each / 1000 for stage, each in found.items()}


def _status(query: _Query, now: float) -> QueryStatus:
    state: QueryState = "filling" if query.filling and query.state in {"running", "idle"} else query.state
    return query.activity.status(state, query.reason, query.plan, query.lags, now)


def _read(offsets: Any) -> Mapping[str, Any] | None:
    """Parse offsets as Spark reports them, which is JSON text inside JSON text."""
    while isinstance(offsets, str):
        offsets = json.loads(offsets)
    return offsets or None
