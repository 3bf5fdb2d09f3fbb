"""The activity of one query: totals, rates, its last batches, and the state of each step.

It is computed from the tasks' counters, which are identified by metric name, and from the ended batches.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from rowkind.avro.schema import Record
from rowkind.service.execute.metrics import parse
from rowkind.service.kafka.lag import Lag
from rowkind.service.kafka.offsets import At
from rowkind.service.monitoring.history import HistoryRange, QueryHistory, SummedSeries
from rowkind.service.monitoring.last_rows import LastRows
from rowkind.service.monitoring.status import (
    BatchProgress,
    EdgeStatus,
    Flow,
    OperatorStatus,
    QueryState,
    QueryStatus,
    Shard,
    SinkStatus,
    TableStatus,
    WrittenChange,
)
from rowkind.service.plan.explain.description import QueryDescription, Step
from rowkind.service.plan.explain.values import ABSENT

_RATE_SECONDS = 30.0
_BATCHES = 60

_Place = tuple[str, ...]
"""A table, a sink, or an operator in a sink's plan."""

_FLOWS = {
    "rowkind_rows_in_total": "read",
    "rowkind_rows_out_total": "written",
    "rowkind_operator_rows_in_total": "taken",
    "rowkind_operator_rows_out_total": "emitted",
}
_TOTALS: Mapping[str, SummedSeries] = {"rowkind_rows_in_total": "read", "rowkind_rows_out_total": "written"}
_SECONDS = {
    "rowkind_operator_seconds_total": "operator",
    "rowkind_read_seconds_total": "reading",
    "rowkind_write_seconds_total": "writing",
}
_COUNTS = {
    "rowkind_late_rows_total": "late",
    "rowkind_unmatched_retractions_total": "unmatched",
    "rowkind_failed_rows_total": "failed",
}


@dataclass
class _Meter:
    """Counts rows or seconds, and keeps the counts of the last seconds with their times."""

    since: float
    rows: float = 0
    _lately: deque[tuple[float, float]] = field(default_factory=deque)

    def add(self, rows: float, now: float, window: float) -> None:
        self.rows += rows
        self._lately.append((now, rows))
        self._drop_old(now - window)

    def flow(self, now: float, window: float) -> Flow:
        self._drop_old(now - window)
        return Flow(int(self.rows), sum(rows for _, rows in self._lately) / min(window, max(1.0, now - self.since)))

    def _drop_old(self, first: float) -> None:
        while self._lately and self._lately[0][0] < first:
            self._lately.popleft()


class Activity:
    """The activity of a query that begins at `now` and has this many tasks. Every `now` is Unix time in seconds."""

    def __init__(self, now: float, tasks: int, records: Mapping[str, Record]) -> None:
        self._since, self._tasks = now, tasks
        self._seconds, self._window = 0.0, _RATE_SECONDS
        self.history, self.last = QueryHistory(), LastRows(records)
        self._flows: dict[tuple[str, _Place], _Meter] = {}
        self._counts: Counter[tuple[str, _Place]] = Counter()
        self._letters: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._rows: defaultdict[_Place, dict[int, int]] = defaultdict(dict)
        self._bytes: defaultdict[_Place, dict[int, int]] = defaultdict(dict)
        self._kept = {"rowkind_state_rows": self._rows, "rowkind_state_bytes": self._bytes}
        self._watermarks: dict[str, float] = {}
        self._behind: dict[str, float] = {}
        self._batches: deque[tuple[int, float, float]] = deque(maxlen=_BATCHES)
        self._in_batch: defaultdict[int, Counter[str]] = defaultdict(Counter)

    def count(self, batch: int, counters: Mapping[str, float], now: float) -> None:
        """Add the counters of one task in a batch."""
        for sample, value in counters.items():
            name, labels = parse(sample)
            place = _place(labels)
            if name in _FLOWS:
                for each in (place, ()):
                    self._flows.setdefault((_FLOWS[name], each), _Meter(self._since)).add(int(value), now, self._window)
                self._in_batch[batch][_FLOWS[name]] += int(value)
                if (total := _TOTALS.get(name)) is not None:
                    self.history.add(total, value, now, self._seconds)
            elif name == "rowkind_edge_rows_total":
                edge = (labels["source"], labels["target"])
                self._flows.setdefault(("sent", edge), _Meter(self._since)).add(int(value), now, self._window)
            elif name in _SECONDS:
                self._flows.setdefault((_SECONDS[name], place), _Meter(self._since)).add(value, now, self._window)
                self.history.add("busy", value, now, self._seconds)
            elif name in _COUNTS:
                self._counts[_COUNTS[name], place] += int(value)
            elif name == "rowkind_dead_letters_total":
                self._letters[labels["table"]][labels["reason"]] += int(value)
            elif name in self._kept:
                self._kept[name][place][int(labels["shard"])] = int(value)
            elif name == "rowkind_watermark_timestamp_seconds":
                self._watermarks[labels["table"]] = value
            elif name == "rowkind_watermark_lag_seconds":
                self._behind[labels["table"]] = value

    def latencies(self, counters: Mapping[str, float], ended: float, now: float) -> None:
        """Add the latencies of the records of a task whose batch has ended."""
        for sample, value in counters.items():
            name, labels = parse(sample)
            if name == "rowkind_latency_seconds":
                self.history.observe(max(0.0, ended - int(labels["made"]) / 1000), value, now)

    def lag(self, lags: Collection[Lag], now: float) -> None:
        """Record the query's lag, and the size of its state."""
        self.history.raise_to("lag_rows", sum(lag.rows for lag in lags), now)
        self.history.raise_to("lag_seconds", max((lag.seconds for lag in lags), default=0.0), now)
        self.history.raise_to("state_rows", sum(sum(each.values()) for each in self._rows.values()), now)
        self.history.raise_to("state_bytes", sum(sum(each.values()) for each in self._bytes.values()), now)

    def ranges(self, now: float) -> tuple[HistoryRange, ...]:
        """Return the query's history."""
        return self.history.ranges(now, self._tasks)

    def batch(self, number: int, seconds: float, now: float) -> None:
        """Record that a batch has ended."""
        self._batches.append((number, now, seconds))
        # The counters of a batch arrive at its end. A window with two batches shows no pause between them.
        self._seconds, self._window = seconds, max(_RATE_SECONDS, 2 * seconds)
        for old in [each for each in self._in_batch if each < self._batches[0][0]]:
            del self._in_batch[old]

    def status(
        self,
        state: QueryState,
        reason: str,
        plan: QueryDescription,
        lags: Mapping[At, Lag],
        now: float,
    ) -> QueryStatus:
        """Return the status of the query with all its steps; each step comes after its inputs."""
        read, lag_rows = self._flow("read", (), now), sum(lag.rows for lag in lags.values())
        return QueryStatus(
            plan.name,
            state,
            reason,
            read,
            self._flow("written", (), now),
            lag_rows,
            max((lag.seconds for lag in lags.values()), default=0.0),
            lag_rows / read.rate if lag_rows and read.rate else None,
            tuple(
                BatchProgress(number, ended, seconds, self._in_batch[number]["read"], self._in_batch[number]["written"])
                for number, ended, seconds in self._batches
            ),
            tuple(self._table(table, topic, lags, now) for table, topic in _topics(plan).items()),
            tuple(self._operator(sink, step, now) for sink, step in _operators(plan)),
            tuple(
                _sink(sink.root, self._flow("written", (sink.root.name,), now), self.last.changes(sink.root.name))
                for sink in plan.sinks
            ),
            tuple(EdgeStatus(*edge, self._flow("sent", edge, now)) for edge in edges(plan)),
            self._busy("reading", (), now),
            self._busy("writing", (), now),
            self.last.letters(),
        )

    def _table(self, table: str, topic: str, lags: Mapping[At, Lag], now: float) -> TableStatus:
        own = [lag for at, lag in lags.items() if at[0] == topic]
        return TableStatus(
            table,
            topic,
            self._flow("read", (table,), now),
            sum(lag.rows for lag in own),
            max((lag.seconds for lag in own), default=0.0),
            self._watermarks.get(table),
            self._behind.get(table),
            dict(self._letters[table]),
        )

    def _operator(self, sink: str, step: Step, now: float) -> OperatorStatus:
        place = (sink, step.name)
        return OperatorStatus(
            sink,
            step.name,
            step.kind,
            self._flow("taken", place, now),
            self._flow("emitted", place, now),
            sum(self._rows[place].values()),
            sum(self._bytes[place].values()),
            _hottest(self._rows[place]),
            self._counts["late", place],
            self._counts["unmatched", place],
            self._counts["failed", place],
            self._busy("operator", place, now),
        )

    def _busy(self, which: str, place: _Place, now: float) -> float:
        meter = self._flows.get((which, place))
        return 0.0 if meter is None else min(1.0, meter.flow(now, self._window).rate / self._tasks)

    def _flow(self, which: str, place: _Place, now: float) -> Flow:
        meter = self._flows.get((which, place))
        return Flow() if meter is None else meter.flow(now, self._window)


def _sink(root: Step, written: Flow, last: tuple[WrittenChange, ...]) -> SinkStatus:
    to = root.value("to")
    topic = root.value("topic") if to is ABSENT else ""
    return SinkStatus(root.name, topic, written, last, "topic" if to is ABSENT else to)


def _place(labels: Mapping[str, str]) -> _Place:
    return tuple(labels[label] for label in ("table", "sink", "operator") if label in labels)


def edges(plan: QueryDescription) -> tuple[tuple[str, str], ...]:
    """Return the edges of a query's graph, each with its source and its target as `EdgeStatus` names them."""
    found: dict[tuple[str, str], None] = {}
    for sink in plan.sinks:
        root = sink.root.name
        for step in sink.root.walk():
            if step.kind != "union" and step.same_as is None:
                target = step.name if step.kind == "sink" else f"{root}.{step.name}"
                found |= dict.fromkeys((source, target) for source in _sources(step, root))
    return tuple(found)


def _sources(step: Step, sink: str) -> Iterator[str]:
    """Yield the tables and operators whose rows a step receives, by itself or by a union."""
    for each in step.inputs:
        if each.kind == "union":
            yield from _sources(each, sink)
        else:
            yield each.value("table") if each.kind == "scan" else ".".join(each.same_as or (sink, each.name))


def _hottest(rows: Mapping[int, int]) -> Shard | None:
    """Return the fullest shard, or None if there are no rows, or fewer than 2 shards to compare."""
    if len(rows) < 2 or not any(rows.values()):
        return None
    number = max(rows, key=lambda each: (rows[each], -each))
    return Shard(number, rows[number], rows[number] * len(rows) / sum(rows.values()))


def _topics(plan: QueryDescription) -> dict[str, str]:
    """Return the topic of each table that a query reads."""
    steps = (step for sink in plan.sinks for step in sink.root.walk() if step.kind == "scan")
    return {step.value("table"): step.value("topic") for step in steps}


def _operators(plan: QueryDescription) -> Iterator[tuple[str, Step]]:
    """Yield each of a query's operators once, after its inputs, with the first sink that uses the operator."""
    for sink in plan.sinks:
        for step in _upwards(sink.root):
            if step.kind not in ("sink", "scan", "union") and step.same_as is None:
                yield sink.root.name, step


def _upwards(step: Step) -> Iterator[Step]:
    """Yield a step after all steps that feed it, directly or indirectly, inputs first."""
    for each in step.inputs:
        yield from _upwards(each)
    yield step
