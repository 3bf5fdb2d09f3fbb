"""What is known of a running job at one moment, as plain data: for the status page, for a terminal, and as JSON.

Moments are in Unix time, durations in seconds, rates in rows a second over the last half minute.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal, Self

OLD_SECONDS = 60.0
"""The age of what is still to be read from which on it is worth a look."""

HOT = 2.0
"""How many times the mean the fullest shard keeps where it is worth a look."""

HOT_ROWS = 1_000
"""How many rows it keeps at least; of fewer the share is chance, and no load either."""

LONG_SECONDS = 5.0
"""A lag that is read away in less than this needs no forecast."""

QueryState = Literal["starting", "filling", "running", "idle", "waiting", "failed", "stopped"]

_WORST_FIRST: tuple[QueryState, ...] = ("failed", "waiting", "starting", "filling", "stopped", "running", "idle")


def trouble_of(name: str, state: QueryState, reason: str) -> str:
    """Why a query does not run, with its name where the reason has none."""
    return reason if state == "failed" else f"query {name} waits: {reason}"


@dataclass(frozen=True)
class Flow:
    """Rows that have passed since the process was started, and how many do so a second."""

    rows: int = 0
    rate: float = 0.0


@dataclass(frozen=True)
class BatchProgress:
    """A batch that has ended, how long it took, and what it read and wrote."""

    number: int
    ended: float
    seconds: float
    rows_in: int
    rows_out: int


@dataclass(frozen=True)
class Shard:
    """The fullest of an operator's shards: how many rows it keeps, and how many times the mean that is."""

    number: int
    rows: int
    times: float

    @property
    def tells(self) -> bool:
        """Whether there are enough rows for the share to mean something."""
        return self.rows >= HOT_ROWS

    @property
    def hot(self) -> bool:
        """Whether it is worth a look."""
        return self.tells and self.times >= HOT


@dataclass(frozen=True)
class TableStatus:
    """A table that a query reads.

    `lag_rows` are still to be read, of which the first is `lag_seconds` old. The `watermark` was `watermark_lag` behind
    the last batch; None where nobody goes by it. `dead_letters` are records that were no row, by reason.
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
    """An operator, by the first sink that needs it and what it is called in that one's plan.

    `failed` rows are left out because an expression failed on them, `late` ones because they came too late.
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


@dataclass(frozen=True)
class SinkStatus:
    """A sink, and the changes that were written to its topic."""

    name: str
    topic: str
    written: Flow


@dataclass(frozen=True)
class QueryStatus:
    """A query: `reason` is why it waits or has failed; `left` is how long it will take to read what there is.

    `left` is None where there is nothing to be read, or where it does not get less. `batches` are the last ones.
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

    @property
    def usual_seconds(self) -> float:
        """What a batch takes, by the median of the last ones; 0 before the first."""
        return median(batch.seconds for batch in self.batches) if self.batches else 0.0


@dataclass(frozen=True)
class Incident:
    """Something that went wrong, of late so many `times`, and what to do about it; `query` is empty for the job."""

    at: float
    query: str
    what: str
    remedy: str
    times: int = 1


@dataclass(frozen=True)
class Work:
    """Something that takes long and is under way: so much of it is `done`, of a total that may not be known."""

    what: str
    unit: str
    since: float
    done: int
    total: int | None

    def left(self, now: float) -> float | None:
        """How many seconds it will go on, if it does as until now; None where nobody can say."""
        if not self.done or self.total is None:
            return None
        return (now - self.since) * max(0, self.total - self.done) / self.done


@dataclass(frozen=True)
class JobStatus:
    """A job at the moment `at`, whose process was started at `since`. `warnings` let it go on."""

    job: str
    version: str
    at: float
    since: float
    queries: tuple[QueryStatus, ...]
    warnings: tuple[str, ...]
    incidents: tuple[Incident, ...]
    work: tuple[Work, ...]

    @property
    def state(self) -> QueryState:
        """That of the query which needs most looking after."""
        states = {query.state for query in self.queries}
        return next((state for state in _WORST_FIRST if state in states), "starting")

    def to_json(self) -> str:
        """One JSON document. Its keys are the names of the fields; new ones may come."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """What `to_json` has written. Raises ValueError, KeyError or TypeError for anything else."""
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
        )


def _query(said: Mapping[str, Any]) -> QueryStatus:
    lists = {
        "batches": tuple(BatchProgress(**each) for each in said["batches"]),
        "tables": tuple(TableStatus(**_flows(each, "read")) for each in said["tables"]),
        "operators": tuple(map(_operator, said["operators"])),
        "sinks": tuple(SinkStatus(**_flows(each, "written")) for each in said["sinks"]),
    }
    return QueryStatus(**_flows(said, "read", "written") | lists)


def _operator(said: Mapping[str, Any]) -> OperatorStatus:
    hottest = None if said["hottest"] is None else Shard(**said["hottest"])
    return OperatorStatus(**_flows(said, "taken", "emitted") | {"hottest": hottest})


def _flows(said: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {**said, **{name: Flow(**said[name]) for name in names}}
