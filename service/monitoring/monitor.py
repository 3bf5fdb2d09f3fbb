"""What is known of a running job: fed with Spark's progress and the tasks' reports, asked by the status server.

A report is what a task that writes has counted, and what rode with its blocks (`service.query.spark_sink`). Progress is
Spark's own record of a batch: its number, durations and offsets.
"""

from __future__ import annotations

import json
import platform
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rowkind.service.execute.metrics import parse
from rowkind.service.kafka.lag import Lag
from rowkind.service.kafka.offsets import At, Offset
from rowkind.service.kafka.progress import BatchPartition
from rowkind.service.monitoring.activity import Activity
from rowkind.service.monitoring.exposition import Exposition
from rowkind.service.monitoring.incidents import Incidents
from rowkind.service.monitoring.process_memory import memory
from rowkind.service.monitoring.progress import Works
from rowkind.service.monitoring.status import Incident, JobStatus, QueryState, QueryStatus, trouble_of
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
"""What Spark times of a batch, in the order in which it happens, and what that is spent on."""


HELD_SECONDS = 60.0
"""After which it is said of a transaction that it is open; a producer's own limit is a minute by default."""


@dataclass(frozen=True)
class HeldPartition:
    """A partition in which so many rows wait for the end of a transaction that is open since then, Unix time."""

    topic: str
    partition: int
    rows: int
    since: float

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since, UTC).isoformat(timespec="seconds")
        return (
            f"Partition {self.partition} of topic {self.topic} is held by a transaction that has been open since "
            f"{since}: {self.rows:,} offsets wait behind it. End its producer, or abort it with "
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
    """The status of one job; all methods may be called from any thread."""

    def __init__(self, job: str, version: str, spark: str, java: str) -> None:
        self._lock = threading.Lock()
        self._queries: dict[str, _Query] = {}
        self._metrics = Exposition(job)
        self._warnings: dict[str, str] = {}
        self._job, self._version, self._since = job, version, time.time()
        self._incidents = Incidents()
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
    ) -> None:
        """A query is about to start, with this plan, from these offsets; None where it never ran.

        Its counters are `born` with these values.
        """
        with self._lock:
            # One that goes on after Spark was lost is the same as before; one that begins anew counts anew.
            if query in self._queries and at is not None:
                return
            self._queries[query] = _Query(query, plan, Activity(time.time()), at=at)
            self._metrics.set("rowkind_up", 1, query=query)
            self._metrics.set("rowkind_restarts_total", 0, query=query)
            self._metrics.set("rowkind_rebuilds_total", 0, query=query)
            self._metrics.add(born or {}, query)

    def collect(self, name: str, reports: Iterable[Report]) -> None:
        """Take in what tasks of a query have counted.

        What they wrote is written. What rode along with their blocks will ride along again if the batch is done again,
        and counts when the progress of the batch is there.
        """
        with self._lock:
            query = self._queries[name]
            for report in reports:
                self._add(query, report.of.batch, report.counted.written)
                query.carried[report.of] = report.counted.carried
            for of in [of for of in query.carried if of.batch <= query.batch]:
                self._add(query, of.batch, query.carried.pop(of))

    def due_ms(self, name: str) -> float | None:
        """When a query next has something to do without rows, in ms; infinity for never, None where nobody has said."""
        with self._lock:
            return min(self._queries[name].due.values(), default=None)

    def progress(self, name: str, progress: Mapping[str, Any]) -> None:
        """Take in Spark's progress of one trigger, whether it ran a batch or found nothing to do."""
        with self._lock:
            query = self._queries[name]
            ran = "addBatch" in progress["durationMs"]
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
        """The next offset that a query reads of each partition, None before its first batch."""
        with self._lock:
            return self._queries[name].at

    def lags(self, name: str, lags: Mapping[At, Lag]) -> None:
        """Take in how far a query is behind."""
        with self._lock:
            self._lags(self._queries[name], lags)

    def waits(self, name: str, reason: str, remedy: str = "") -> None:
        """A query has failed for this reason and will be started again."""
        with self._lock:
            what = reason.partition("\n")[0]
            self._incidents.add(Incident(time.time(), name, what, remedy or "It is started again by itself."))
            self._queries[name].state, self._queries[name].reason = "waiting", reason
            self._metrics.set("rowkind_up", 0, query=name)
            self._metrics.set("rowkind_restarts_total", 1, query=name)

    def warns(self, warnings: Mapping[str, object]) -> list[object]:
        """What is wrong and lets the job go on, all of it by what it is about; those of it that are new."""
        with self._lock:
            new = [warning for about, warning in warnings.items() if about not in self._warnings]
            self._warnings = {about: str(warning) for about, warning in warnings.items()}
            for warning in new:
                self._incidents.add(Incident(time.time(), "", str(warning), "The job goes on."))
            return new

    def held(self) -> dict[str, HeldPartition]:
        """The partitions that an open transaction has held for long, by what they are called in a warning."""
        with self._lock:
            found = [
                HeldPartition(*at, lag.rows, time.time() - lag.held)
                for query in self._queries.values()
                for at, lag in query.lags.items()
                if lag.held >= HELD_SECONDS
            ]
        return {f"{each.topic}, partition {each.partition}": each for each in found}

    def warning(self) -> str:
        """What is wrong though the job goes on, a line each."""
        with self._lock:
            return "\n".join(self._warnings.values())

    def fills(self, name: str, *, filling: bool) -> None:
        """A query has been started, and fills its state before it writes to where it belongs, or does not."""
        with self._lock:
            self._queries[name].filling = filling

    def rebuilt(self, query: str, why: str) -> None:
        """The state of a query is rebuilt for this reason, without anybody having asked for it at this start."""
        with self._lock:
            what = why.partition("\n")[0]
            self._incidents.add(Incident(time.time(), query, what, "The state is rebuilt from the topics by itself."))
            self._metrics.set("rowkind_rebuilds_total", 1, query=query)

    def incomplete(self, query: str, topic: str, reason: str, *, whole: bool) -> None:
        """Whether a topic lacks records that the result of a query depends on, or may lack them, or is whole."""
        with self._lock:
            self._metrics.set("rowkind_incomplete_topic", float(not whole), query=query, topic=topic, reason=reason)

    def all_wait(self, reason: str) -> None:
        """Every query has ended for this reason and will be started again."""
        for name in list(self._queries):
            self.waits(name, reason)

    def outage(self) -> None:
        """Kafka has stopped answering."""
        with self._lock:
            self._metrics.set("rowkind_outages_total", 1)
            self._incidents.add(Incident(time.time(), "", "Kafka stopped answering", "The job waits until it does."))

    def stopped(self, name: str) -> None:
        """A query was asked to end, and did."""
        with self._lock:
            self._queries[name].state = "stopped"
            self._metrics.set("rowkind_up", 0, query=name)

    def failed(self, name: str, reason: str, incident: Incident) -> None:
        """A query runs no more, for this reason."""
        with self._lock:
            self._queries[name].state, self._queries[name].reason = "failed", reason
            self._incidents.add(incident)
            self._metrics.set("rowkind_up", 0, query=name)

    def recall(self, incident: Incident) -> None:
        """Something had gone wrong before this process was started; may be told again when Spark is."""
        with self._lock:
            if all(each.at != incident.at for each in self._incidents.latest()):
                self._incidents.add(incident)

    def healthy(self) -> bool:
        """Whether no query has failed."""
        with self._lock:
            return all(query.state != "failed" for query in self._queries.values())

    def ready(self) -> bool:
        """Whether every query has finished a batch, or found nothing to do, and writes what it finds."""
        with self._lock:
            ready = (each.state in {"running", "idle"} and not each.filling for each in self._queries.values())
            return bool(self._queries) and all(ready) and not self.waiting.said()

    def reason(self) -> str:
        """Why it is not ready."""
        with self._lock:
            queries = self._queries.values()
            reasons = self.waiting.said()
            reasons += [trouble_of(each.name, each.state, each.reason) for each in queries if each.reason]
            reasons += [f"query {each.name} fills its state before it writes" for each in queries if each.filling]
            return "\n".join(reasons) or "not yet"

    def exposition(self) -> bytes:
        """The metrics in Prometheus text format."""
        taken = memory()
        with self._lock:
            for process, size in taken.items():
                self._metrics.set("rowkind_memory_bytes", size, process=process)
            for system in SYSTEMS:
                self._metrics.set("rowkind_waiting_seconds", self.waiting.seconds(system), system=system)
            return self._metrics.text()

    def plans(self) -> Sequence[QueryDescription]:
        """The plan of every query."""
        with self._lock:
            return [query.plan for query in self._queries.values()]

    def status(self) -> JobStatus:
        """All that is known now."""
        now = time.time()
        with self._lock:
            queries = tuple(_status(query, now) for query in self._queries.values())
            warnings, incidents = tuple(self._warnings.values()), self._incidents.latest()
        return JobStatus(
            self._job, self._version, now, self._since, queries, warnings, incidents, self.works.under_way()
        )

    def _add(self, query: _Query, batch: int, counters: Mapping[str, float]) -> None:
        query.activity.count(batch, counters, time.time())
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
        """How far the query is behind; what has been read since somebody looked is not left."""
        at = query.at or {}
        query.lags = {each: lag.at(at[each]) if each in at else lag for each, lag in lags.items()}
        for (topic, partition), lag in query.lags.items():
            labels = {"query": query.name, "topic": topic, "partition": partition}
            self._metrics.set("rowkind_lag_rows", lag.rows, **labels)
            self._metrics.set("rowkind_lag_seconds", lag.seconds, **labels)
            self._metrics.set("rowkind_held_seconds", lag.held, **labels)


def _stages(progress: Mapping[str, Any]) -> dict[str, float]:
    """Seconds of a batch by stage: of the batch itself, one after the other, and of the tasks' commits of state."""
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
    """Offsets as Spark reports them, which is JSON text in JSON text."""
    while isinstance(offsets, str):
        offsets = json.loads(offsets)
    return offsets or None
