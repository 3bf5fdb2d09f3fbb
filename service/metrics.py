"""Every metric of the service, in one list, and their exposition for Prometheus.

Readers, operators and writers count into samples named as in the exposition format (`Counters` of
`operators.columns.changes`), which ride with the blocks to the writer and come back to the main process with the
batch's report. There they go into one `Metrics`, beside what only the main process knows. Names follow Prometheus:
base units, `_total` for what only grows, no label without a bound on its values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from rowkind.operators.columns.changes import Counters

MetricKind = Literal["counter", "gauge", "histogram"]

MetricName = Literal[
    "rowkind_info",
    "rowkind_start_timestamp_seconds",
    "rowkind_up",
    "rowkind_restarts_total",
    "rowkind_outages_total",
    "rowkind_rows_in_total",
    "rowkind_bytes_in_total",
    "rowkind_rows_out_total",
    "rowkind_bytes_out_total",
    "rowkind_dead_letters_total",
    "rowkind_dead_letters_written_total",
    "rowkind_failed_rows_total",
    "rowkind_transactions_total",
    "rowkind_read_seconds_total",
    "rowkind_write_seconds_total",
    "rowkind_operator_rows_in_total",
    "rowkind_operator_rows_out_total",
    "rowkind_operator_seconds_total",
    "rowkind_unmatched_retractions_total",
    "rowkind_expired_retractions_total",
    "rowkind_broken_promises_total",
    "rowkind_broken_promise_offset",
    "rowkind_state_rows",
    "rowkind_state_bytes",
    "rowkind_state_runs",
    "rowkind_state_merged_rows_total",
    "rowkind_late_rows_total",
    "rowkind_watermark_timestamp_seconds",
    "rowkind_watermark_lag_seconds",
    "rowkind_next_due_timestamp_seconds",
    "rowkind_batch_id",
    "rowkind_batch_duration_seconds",
    "rowkind_batch_seconds_total",
    "rowkind_last_batch_timestamp_seconds",
    "rowkind_lag_rows",
    "rowkind_lag_seconds",
    "rowkind_committed_offset",
]
"""The name of a metric; `METRICS` has one entry for each."""


@dataclass(frozen=True)
class Metric:
    """A metric: what it is called, what it counts, and which labels its samples carry.

    The label `query` is added in the end: what rides with blocks does without it. An operator that several sinks share
    has the first one's label. `shards` says that samples carry the label `shard` on their way, and what the exposition
    says of all shards.
    """

    name: MetricName
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    shards: Callable[[Iterable[float]], float] | None = None


METRICS: tuple[Metric, ...] = (
    Metric("rowkind_info", "gauge", "Constant 1, with the job's name and the versions.", ("name", "version", "spark")),
    Metric("rowkind_start_timestamp_seconds", "gauge", "When the process was started, Unix time."),
    Metric(
        "rowkind_up",
        "gauge",
        "1 while the query runs; 0 from when it has failed until it runs again.",
        ("query",),
    ),
    Metric("rowkind_restarts_total", "counter", "Starts of a query after a failure that passes.", ("query",)),
    Metric("rowkind_outages_total", "counter", "Times that Kafka stopped answering."),
    Metric("rowkind_rows_in_total", "counter", "Rows read from a table's topic.", ("query", "table", "kind")),
    Metric("rowkind_bytes_in_total", "counter", "Bytes of record values read from a topic.", ("query", "table")),
    Metric("rowkind_rows_out_total", "counter", "Changes written to a sink's topic, by row kind.", ("sink", "kind")),
    Metric("rowkind_bytes_out_total", "counter", "Bytes of keys and values written to a sink's topic.", ("sink",)),
    Metric(
        "rowkind_dead_letters_total",
        "counter",
        "Records that were no row of their table, or on which an expression failed.",
        ("query", "table", "reason"),
    ),
    Metric("rowkind_dead_letters_written_total", "counter", "Records written to a dead letter topic.", ("query",)),
    Metric(
        "rowkind_failed_rows_total",
        "counter",
        "Rows that an operator had emitted and that were left out because an expression failed on them.",
        ("sink", "operator"),
    ),
    Metric(
        "rowkind_transactions_total",
        "counter",
        "Kafka transactions by outcome: committed, skipped (its batch was there already) or retried.",
        ("query", "outcome"),
    ),
    Metric(
        "rowkind_read_seconds_total",
        "counter",
        "Seconds of read tasks by stage: fetch, decode, calc, pack.",
        ("query", "stage"),
    ),
    Metric(
        "rowkind_write_seconds_total",
        "counter",
        "Seconds of write tasks by stage: unpack, net, send.",
        ("query", "stage"),
    ),
    Metric(
        "rowkind_operator_rows_in_total", "counter", "Changes that reached an operator.", ("sink", "operator", "kind")
    ),
    Metric(
        "rowkind_operator_rows_out_total", "counter", "Changes that an operator emitted.", ("sink", "operator", "kind")
    ),
    Metric(
        "rowkind_operator_seconds_total", "counter", "Seconds of an operator by stage.", ("sink", "operator", "stage")
    ),
    Metric("rowkind_unmatched_retractions_total", "counter", "Retractions that found no row.", ("sink", "operator")),
    Metric(
        "rowkind_expired_retractions_total",
        "counter",
        "Retractions in a join of rows that had expired, joined with what was left.",
        ("sink", "operator"),
    ),
    Metric(
        "rowkind_broken_promises_total",
        "counter",
        "Records that broke what the job promises of their table: primary_key, exact or not_null.",
        ("query", "table", "promise"),
    ),
    Metric(
        "rowkind_broken_promise_offset",
        "gauge",
        "Offset of a late record that broke a promise.",
        ("query", "table", "promise", "partition"),
    ),
    Metric("rowkind_state_rows", "gauge", "Rows kept by an operator.", ("sink", "operator"), shards=sum),
    Metric("rowkind_state_bytes", "gauge", "Bytes kept by an operator, as stored.", ("sink", "operator"), shards=sum),
    Metric("rowkind_state_runs", "gauge", "Sorted runs kept by an operator.", ("sink", "operator"), shards=sum),
    Metric("rowkind_state_merged_rows_total", "counter", "Rows rewritten by merges of runs.", ("sink", "operator")),
    Metric(
        "rowkind_late_rows_total",
        "counter",
        "Changes that came when the watermark had passed all that they could change, and were left out.",
        ("sink", "operator"),
    ),
    Metric("rowkind_watermark_timestamp_seconds", "gauge", "The watermark of a table, Unix time.", ("query", "table")),
    Metric(
        "rowkind_watermark_lag_seconds",
        "gauge",
        "By how much the watermark of a table was behind the time of the last batch.",
        ("query", "table"),
    ),
    Metric(
        "rowkind_next_due_timestamp_seconds",
        "gauge",
        "When an operator next has something to do without input, Unix time; infinite if it has not.",
        ("sink", "operator"),
        shards=min,
    ),
    Metric("rowkind_batch_id", "gauge", "Number of the last batch that was committed.", ("query",)),
    Metric("rowkind_batch_duration_seconds", "histogram", "Seconds from a batch's start to its end.", ("query",)),
    Metric(
        "rowkind_batch_seconds_total",
        "counter",
        "Seconds of batches by stage: source, planning, log, tasks, other; and within tasks, of all of them, commit.",
        ("query", "stage"),
    ),
    Metric("rowkind_last_batch_timestamp_seconds", "gauge", "When the last batch ended, Unix time.", ("query",)),
    Metric("rowkind_lag_rows", "gauge", "Offsets still to be read.", ("query", "topic", "partition")),
    Metric(
        "rowkind_lag_seconds",
        "gauge",
        "Age of the first record that is still to be read, by its timestamp; 0 if there is none. While Kafka does not "
        "answer, at least the time since then.",
        ("query", "topic", "partition"),
    ),
    Metric("rowkind_committed_offset", "gauge", "The next offset to be read.", ("query", "topic", "partition")),
)

_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_SAMPLE = re.compile(r"([a-z_]+)(?:\{(.*)\})?")
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

assert {metric.name for metric in METRICS} == set(get_args(MetricName)), "every metric is named once and described once"


def sample(name: MetricName, /, **labels: object) -> str:
    """The name of a sample with its labels, as counters carry it."""
    inside = ",".join(f'{label}="{_escape(str(value))}"' for label, value in labels.items())
    return f"{name}{{{inside}}}"


def parse(text: str) -> tuple[str, dict[str, str]]:
    """The metric's name and the labels of a sample that `sample` named."""
    match = _SAMPLE.fullmatch(text)
    assert match is not None, f"no sample's name: {text}"
    return match[1], {label: _unescape(value) for label, value in _LABEL.findall(match[2] or "")}


def add(into: dict[str, float], counters: Counters) -> None:
    """Take `counters` into `into`: what ends in `_total` adds up, gauges replace."""
    for name, value in counters.items():
        if name.partition("{")[0].endswith("_total"):
            into[name] = into.get(name, 0) + value
        else:
            into[name] = value


class Metrics:
    """The values of all metrics of this process."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._metrics = {metric.name: (metric, _instrument(metric, self._registry)) for metric in METRICS}
        self._shards: dict[tuple[str, tuple[str, ...]], dict[str, float]] = {}

    def set(self, name: MetricName, value: float, /, **labels: object) -> None:
        """Set a gauge, add to a counter, observe for a histogram."""
        metric, instrument = self._metrics[name]
        child = instrument.labels(*(str(labels[label]) for label in metric.labels)) if metric.labels else instrument
        match metric.kind:
            case "counter":
                child.inc(value)
            case "gauge":
                child.set(value)
            case "histogram":
                child.observe(value)

    def add(self, counters: Counters, query: str) -> None:
        """Take in the samples of one batch of a query, which need not name it."""
        for text, value in counters.items():
            name, labels = parse(text)
            labels["query"] = query
            metric, _ = self._metrics[name]  # type: ignore[index] # a KeyError says that a metric lacks its entry
            if metric.shards is not None:
                shard = labels.pop("shard")
                by_shard = self._shards.setdefault((name, tuple(labels[label] for label in metric.labels)), {})
                by_shard[shard] = value
                self.set(metric.name, metric.shards(by_shard.values()), **labels)
            else:
                self.set(metric.name, value, **labels)

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return bytes(generate_latest(self._registry))


def _instrument(metric: Metric, registry: CollectorRegistry) -> Any:
    match metric.kind:
        case "counter":
            return Counter(metric.name, metric.help, metric.labels, registry=registry)
        case "gauge":
            return Gauge(metric.name, metric.help, metric.labels, registry=registry)
        case "histogram":
            return Histogram(metric.name, metric.help, metric.labels, registry=registry, buckets=_BUCKETS)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _unescape(text: str) -> str:
    return re.sub(r'\\\\|\\"|\\n', lambda found: _ESCAPES[found[0]], text)
