"""The status of a running job at one moment, as plain data: for the status page, for a terminal, and as JSON.

Times are Unix time in seconds, durations are in seconds. Rates are rows per second over the last 30 s, or over
the time of two batches if these take longer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any, Literal, Self

from rowkind.service.physical.sink_target import SinkTarget

OLD_SECONDS = 60.0
"""The minimum age of a lag, in seconds, at which it is highlighted."""

HOT = 2.0
"""The minimum ratio of the fullest shard's rows to the mean at which the shard is highlighted."""

HOT_ROWS = 1_000
"""The minimum number of rows in a highlighted shard. With fewer rows, the ratio is due to chance and the load low."""

LONG_SECONDS = 5.0
"""No forecast is shown for a lag that will be gone in fewer seconds than this."""

QueryState = Literal["starting", "filling", "running", "idle", "waiting", "failed", "stopped"]

_WORST_FIRST: tuple[QueryState, ...] = ("failed", "waiting", "starting", "filling", "stopped", "running", "idle")


def trouble_of(name: str, state: QueryState, reason: str) -> str:
    """Return why a query is not running, with the query's name if the reason does not contain it."""
    return reason if state == "failed" else f"query {name} is waiting: {reason}"


@dataclass(frozen=True)
class Flow:
    """The number of rows that have passed since the process was started, and the rate in rows per second."""

    rows: int = 0
    rate: float = 0.0


@dataclass(frozen=True)
class BatchProgress:
    """A finished batch: its number, end, duration in seconds, and the rows that it read and wrote."""

    number: int
    ended: float
    seconds: float
    rows_in: int
    rows_out: int


@dataclass(frozen=True)
class Shard:
    """The fullest of an operator's shards: its number, its row count, and the count's ratio (`times`) to the mean."""

    number: int
    rows: int
    times: float

    @property
    def tells(self) -> bool:
        """Whether there are enough rows for the ratio to be meaningful."""
        return self.rows >= HOT_ROWS

    @property
    def hot(self) -> bool:
        """Whether the shard is highlighted."""
        return self.tells and self.times >= HOT


@dataclass(frozen=True)
class TableStatus:
    """A table that a query reads.

    - `lag_rows`: the number of rows not yet read. `lag_seconds`: the age of the first of these rows.
    - `watermark`: the table's watermark, None if no operator uses it. `watermark_lag`: how far the watermark was behind
      the time of the last batch, in seconds.
    - `dead_letters`: the number of records that could not be turned into rows, by reason.
    """

    name: str
    topic: str
    read: Flow
    lag_rows: int
    lag_seconds: float
    watermark: float | None
    watermark_lag: float | None
    dead_letters: Mapping[str, int]


@dataclass(frozen=True)
class OperatorStatus:
    """An operator, identified by the first sink that uses it and its name in that sink's plan.

    `failed` counts the rows that were skipped because an expression failed on them, `late` those that arrived too late.
    `busy` is the share of the query's task time that the operator has used lately, from 0 to 1.
    """

    sink: str
    name: str
    kind: str
    taken: Flow
    emitted: Flow
    state_rows: int
    state_bytes: int
    hottest: Shard | None
    late: int
    unmatched: int
    failed: int
    busy: float = 0.0


@dataclass(frozen=True)
class EdgeStatus:
    """An edge of the graph, and the changes that have passed on it.

    `source` is a table, or an operator as `<sink>.<operator>`. `target` is an operator or a sink.
    """

    source: str
    target: str
    sent: Flow


@dataclass(frozen=True)
class WrittenChange:
    """A change that was written to a sink: when it was reported, its row kind, and its row. A row over 4 kB is None."""

    at: float
    kind: str
    row: Mapping[str, Any] | None


@dataclass(frozen=True)
class LetterStatus:
    """A dead letter: when it was reported, the stage at which its record failed, why, and the record's origin."""

    at: float
    table: str
    stage: str
    message: str
    topic: str | None
    partition: int | None
    offset: int | None


@dataclass(frozen=True)
class SinkStatus:
    """A sink, the changes that it has written, and a sample of the last ones, newest first.

    `topic` is empty if the changes do not go to a topic, but elsewhere (`to`).
    """

    name: str
    topic: str
    written: Flow
    last: tuple[WrittenChange, ...] = ()
    to: SinkTarget = "topic"


@dataclass(frozen=True)
class QueryStatus:
    """A query.

    - `reason`: why the query waits or has failed.
    - `left`: the estimated seconds until the query has caught up; None if there is nothing to read or no progress.
    - `batches`: the query's last batches.
    - `reading`, `writing`: the shares of the query's task time that all its tables and all its sinks have used lately,
      from 0 to 1.
    - `letters`: the last dead letters, newest first.
    """

    name: str
    state: QueryState
    reason: str
    read: Flow
    written: Flow
    lag_rows: int
    lag_seconds: float
    left: float | None
    batches: tuple[BatchProgress, ...]
    tables: tuple[TableStatus, ...]
    operators: tuple[OperatorStatus, ...]
    sinks: tuple[SinkStatus, ...]
    edges: tuple[EdgeStatus, ...] = ()
    reading: float = 0.0
    writing: float = 0.0
    letters: tuple[LetterStatus, ...] = ()

    @property
    def busy(self) -> float:
        """The share of the task time in which the query's tasks have worked lately, from 0 to 1."""
        return min(1.0, self.reading + self.writing + sum(each.busy for each in self.operators))

    @property
    def usual_seconds(self) -> float:
        """The median duration of the last batches in seconds, or 0 before the first batch."""
        return median(batch.seconds for batch in self.batches) if self.batches else 0.0


@dataclass(frozen=True)
class Incident:
    """A problem and its remedy. It occurred `times` times, most recently at `at`. `query` is "" for the whole job."""

    at: float
    query: str
    what: str
    remedy: str
    times: int = 1


SpanKind = Literal["start", "outage", "restart", "failed", "rebuild", "filling", "warning"]


@dataclass(frozen=True)
class IncidentSpan:
    """An incident on the time line. `ended` is None while it lasts. `query` is "" for the whole job.

    `times`: how often it occurred within the span.
    """

    kind: SpanKind
    query: str
    what: str
    began: float
    ended: float | None
    times: int = 1


@dataclass(frozen=True)
class Work:
    """Long-running work in progress: how much is `done`, of a `total` that may be unknown."""

    what: str
    unit: str
    since: float
    done: int
    total: int | None

    def left(self, now: float) -> float | None:
        """Return the estimated remaining seconds at the current pace, or None if they cannot be estimated."""
        if not self.done or self.total is None:
            return None
        return (now - self.since) * max(0, self.total - self.done) / self.done


@dataclass(frozen=True)
class JobStatus:
    """The status of a job at the time `at`. Its process was started at `since`. `warnings` do not stop the job.

    `spans`: the incidents of the last day. `shows_rows`: whether the last rows and dead letters are included.
    """

    job: str
    version: str
    at: float
    since: float
    queries: tuple[QueryStatus, ...]
    warnings: tuple[str, ...]
    incidents: tuple[Incident, ...]
    work: tuple[Work, ...]
    spans: tuple[IncidentSpan, ...] = ()
    shows_rows: bool = True

    def without_rows(self) -> Self:
        """Return the same status without values of rows and dead letters."""
        queries = tuple(
            replace(each, sinks=tuple(replace(sink, last=()) for sink in each.sinks), letters=())
            for each in self.queries
        )
        return replace(self, queries=queries, shows_rows=False)

    @property
    def state(self) -> QueryState:
        """The worst state of all queries."""
        states = {query.state for query in self.queries}
        return next((state for state in _WORST_FIRST if state in states), "starting")

    def to_json(self) -> str:
        """Return a JSON document. Its keys are the names of the fields; later releases may add keys."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Restore the status that `to_json` returned. Raises ValueError, KeyError or TypeError for anything else."""
        said = json.loads(text)
        return cls(
            said["job"],
            said["version"],
            said["at"],
            said["since"],
            tuple(map(_query, said["queries"])),
            tuple(said["warnings"]),
            tuple(Incident(**each) for each in said["incidents"]),
            tuple(Work(**each) for each in said["work"]),
            tuple(IncidentSpan(**each) for each in said["spans"]),
            said["shows_rows"],
        )


def _query(said: Mapping[str, Any]) -> QueryStatus:
    lists = {
        "batches": tuple(BatchProgress(**each) for each in said["batches"]),
        "tables": tuple(TableStatus(**_flows(each, "read")) for each in said["tables"]),
        "operators": tuple(map(_operator, said["operators"])),
        "sinks": tuple(map(_sink, said["sinks"])),
        "edges": tuple(EdgeStatus(**_flows(each, "sent")) for each in said["edges"]),
        "letters": tuple(LetterStatus(**each) for each in said["letters"]),
    }
    return QueryStatus(**_flows(said, "read", "written") | lists)


def _operator(said: Mapping[str, Any]) -> OperatorStatus:
    hottest = None if said["hottest"] is None else Shard(**said["hottest"])
    return OperatorStatus(**_flows(said, "taken", "emitted") | {"hottest": hottest})


def _sink(said: Mapping[str, Any]) -> SinkStatus:
    return SinkStatus(**_flows(said, "written") | {"last": tuple(WrittenChange(**each) for each in said["last"])})


def _flows(said: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {**said, **{name: Flow(**said[name]) for name in names}}
