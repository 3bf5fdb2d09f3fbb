"""Every metric of the service, in one list.

Readers, operators and writers count in samples, whose names follow the exposition format (`Counters` of
`operators.columns.changes`). The samples travel with the blocks to the writer, and return to the main process with the
batch's report. There they are collected in one `Exposition` (`service.monitoring.exposition`), together with the main
process's own metrics. Names follow Prometheus conventions: base units, `_total` for counters, and no label with
unbounded values. The page docs/reference/metrics.md is generated from the list (`python -m generators`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from rowkind.operators.columns.block import Counters

MetricKind = Literal["counter", "gauge", "histogram"]
Unit = Literal[
    "rows", "records", "changes", "runs", "bytes", "seconds", "Unix time", "offset", "number", "times", "1", "1 or 0"
]

MetricName = Literal[
    "rowkind_info",
    "rowkind_job_up",
    "rowkind_start_timestamp_seconds",
    "rowkind_memory_bytes",
    "rowkind_up",
    "rowkind_restarts_total",
    "rowkind_rebuilds_total",
    "rowkind_incomplete_topic",
    "rowkind_outages_total",
    "rowkind_waiting_seconds",
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
    "rowkind_operator_refreshes_total",
    "rowkind_edge_rows_total",
    "rowkind_operator_seconds_total",
    "rowkind_unmatched_retractions_total",
    "rowkind_expired_retractions_total",
    "rowkind_broken_promises_total",
    "rowkind_broken_promise_offset",
    "rowkind_state_rows",
    "rowkind_state_bytes",
    "rowkind_state_runs",
    "rowkind_state_hottest_shard_ratio",
    "rowkind_state_merged_rows_total",
    "rowkind_state_expired_rows_total",
    "rowkind_late_rows_total",
    "rowkind_watermark_timestamp_seconds",
    "rowkind_watermark_lag_seconds",
    "rowkind_next_due_timestamp_seconds",
    "rowkind_batch_id",
    "rowkind_batch_duration_seconds",
    "rowkind_batch_seconds_total",
    "rowkind_last_batch_timestamp_seconds",
    "rowkind_latency_seconds",
    "rowkind_lag_rows",
    "rowkind_lag_seconds",
    "rowkind_held_seconds",
    "rowkind_committed_offset",
]
"""The name of a metric. `METRICS` contains one entry per name."""


@dataclass(frozen=True)
class Metric:
    """A metric, with its unit and the labels of its samples.

    The exposition adds the label `query`, and the label `name` with the job's name, to all samples. Samples that travel
    with blocks have neither label. For an operator that several sinks share, the label names the first sink.

    If `shards` is set, samples have the label `shard` in transit, and the function `shards` combines the values of all
    shards for the exposition. The values may come from another metric, `made_of`. In transit, a histogram's sample has
    the label `made`: the start time, in ms, from which the observations are measured. The sample's value is the number
    of observations.
    """

    name: MetricName
    kind: MetricKind
    unit: Unit
    help: str
    labels: tuple[str, ...] = ()
    shards: Callable[[Collection[float]], float] | None = None
    made_of: MetricName | None = None


def hottest(rows: Collection[float]) -> float:
    """Return the number of rows in the fullest shard divided by the mean of all shards, or 1 if there are no rows."""
    return max(rows) * len(rows) / sum(rows) if any(rows) else 1.0


_QUERY, _TABLE, _OPERATOR, _PARTITION = (
    ("query",),
    ("query", "table"),
    ("sink", "operator"),
    ("query", "topic", "partition"),
)

METRICS: tuple[Metric, ...] = (
    Metric(
        "rowkind_info",
        "gauge",
        "1",
        "Always 1, with the versions as labels.",
        ("version", "spark", "python", "java"),
    ),
    Metric(
        "rowkind_job_up",
        "gauge",
        "1 or 0",
        "1 while the job's process responds. In a multi-job service, 0 for a job whose process does not respond, as "
        "it is starting, has exited or was refused. A file that does not contain a job is listed by the file's name.",
    ),
    Metric("rowkind_start_timestamp_seconds", "gauge", "Unix time", "Start time of the process."),
    Metric(
        "rowkind_memory_bytes",
        "gauge",
        "bytes",
        "Memory of the job's processes on this machine: the command, java, and all other python. Linux only.",
        ("process",),
    ),
    Metric("rowkind_up", "gauge", "1 or 0", "1 while the query runs; 0 from a failure until it runs again.", _QUERY),
    Metric("rowkind_restarts_total", "counter", "times", "Restarts of a query after a temporary failure.", _QUERY),
    Metric(
        "rowkind_rebuilds_total",
        "counter",
        "times",
        "Automatic rebuilds of a query's state, because a result topic or the progress topic had lost records, or "
        "because batches were not on record.",
        _QUERY,
    ),
    Metric(
        "rowkind_incomplete_topic",
        "gauge",
        "1",
        "1 for an incomplete topic with which the job continues, otherwise 0. Reason lost: a result topic has lost "
        "rows. Reason deletes: compaction may have removed deletes from a source topic before they were read.",
        (*_QUERY, "topic", "reason"),
    ),
    Metric("rowkind_outages_total", "counter", "times", "How often Kafka became unavailable."),
    Metric(
        "rowkind_waiting_seconds",
        "gauge",
        "seconds",
        "How long the job has waited for an external system: kafka, a topic, the registry or the checkpoint. 0 if it "
        "is not waiting.",
        ("system",),
    ),
    Metric(
        "rowkind_lag_rows",
        "gauge",
        "rows",
        "Number of unread offsets up to the end of the partition, including records of open transactions. Transaction "
        "markers also count as offsets.",
        _PARTITION,
    ),
    Metric(
        "rowkind_held_seconds",
        "gauge",
        "seconds",
        "How long an open transaction has blocked the records behind it in a partition; 0 if there is none.",
        _PARTITION,
    ),
    Metric(
        "rowkind_lag_seconds",
        "gauge",
        "seconds",
        "Age of the first unread record, by its timestamp; 0 if there is none. While Kafka is unavailable, at least "
        "the time since it became unavailable.",
        _PARTITION,
    ),
    Metric(
        "rowkind_latency_seconds",
        "histogram",
        "seconds",
        "Time from a record's timestamp to the end of its batch, when its results have been written. One in sixteen "
        "records that arrive together is sampled.",
        _TABLE,
    ),
    Metric("rowkind_committed_offset", "gauge", "offset", "The next offset to be read.", _PARTITION),
    Metric(
        "rowkind_rows_in_total", "counter", "rows", "Rows read from a table's topic, by row kind.", (*_TABLE, "kind")
    ),
    Metric("rowkind_bytes_in_total", "counter", "bytes", "Size of record values read from a table's topic.", _TABLE),
    Metric(
        "rowkind_rows_out_total",
        "counter",
        "changes",
        "Changes written to a sink, by row kind.",
        ("sink", "kind"),
    ),
    Metric(
        "rowkind_bytes_out_total", "counter", "bytes", "Size of keys and values written to a sink's topic.", ("sink",)
    ),
    Metric(
        "rowkind_dead_letters_total",
        "counter",
        "records",
        "Records that could not be read as rows, or on which an expression failed, by the stage of the failure.",
        (*_TABLE, "reason"),
    ),
    Metric(
        "rowkind_dead_letters_written_total", "counter", "records", "Records written to the dead letter topic.", _QUERY
    ),
    Metric(
        "rowkind_failed_rows_total",
        "counter",
        "rows",
        "Rows emitted by an operator that were dropped because an expression failed on them.",
        _OPERATOR,
    ),
    Metric(
        "rowkind_late_rows_total",
        "counter",
        "changes",
        "Changes that were dropped because the watermark had passed all results that they could change.",
        _OPERATOR,
    ),
    Metric("rowkind_unmatched_retractions_total", "counter", "changes", "Retractions that matched no row.", _OPERATOR),
    Metric(
        "rowkind_expired_retractions_total",
        "counter",
        "changes",
        "Retractions of expired rows in a join. They are joined with the rows that remain.",
        _OPERATOR,
    ),
    Metric(
        "rowkind_broken_promises_total",
        "counter",
        "records",
        "Records that violate a declared constraint of their table: primary_key, exact or not_null.",
        (*_TABLE, "promise"),
    ),
    Metric(
        "rowkind_broken_promise_offset",
        "gauge",
        "offset",
        "Offset of a recent record that violates a declared constraint.",
        (*_TABLE, "promise", "partition"),
    ),
    Metric("rowkind_watermark_timestamp_seconds", "gauge", "Unix time", "The watermark of a table.", _TABLE),
    Metric(
        "rowkind_watermark_lag_seconds",
        "gauge",
        "seconds",
        "How far the watermark of a table was behind the time of the last batch.",
        _TABLE,
    ),
    Metric(
        "rowkind_next_due_timestamp_seconds",
        "gauge",
        "Unix time",
        "When an operator next has work to do even without input; infinite if never.",
        _OPERATOR,
        shards=min,
    ),
    Metric("rowkind_batch_id", "gauge", "number", "Number of the last committed batch.", _QUERY),
    Metric("rowkind_last_batch_timestamp_seconds", "gauge", "Unix time", "End of the last successful batch.", _QUERY),
    Metric("rowkind_batch_duration_seconds", "histogram", "seconds", "Time from a batch's start to its end.", _QUERY),
    Metric(
        "rowkind_batch_seconds_total",
        "counter",
        "seconds",
        "Time of batches by stage: source, planning, log, tasks, other. Stage commit is the sum of all tasks' state "
        "commits, which are part of stage tasks.",
        (*_QUERY, "stage"),
    ),
    Metric(
        "rowkind_read_seconds_total",
        "counter",
        "seconds",
        "Time of read tasks by stage: fetch, decode, calc, pack.",
        (*_QUERY, "stage"),
    ),
    Metric(
        "rowkind_write_seconds_total",
        "counter",
        "seconds",
        "Time of write tasks by stage: unpack, net, send.",
        (*_QUERY, "stage"),
    ),
    Metric(
        "rowkind_transactions_total",
        "counter",
        "times",
        "Kafka transactions by outcome: committed, skipped (the batch had been written before) or retried.",
        (*_QUERY, "outcome"),
    ),
    Metric(
        "rowkind_operator_rows_in_total",
        "counter",
        "changes",
        "Changes that an operator received, by row kind.",
        (*_OPERATOR, "kind"),
    ),
    Metric(
        "rowkind_operator_rows_out_total",
        "counter",
        "changes",
        "Changes that an operator emitted, by row kind.",
        (*_OPERATOR, "kind"),
    ),
    Metric(
        "rowkind_operator_refreshes_total",
        "counter",
        "rows",
        "Rows that an operator passed on to refresh the TTL of the rows derived from them.",
        _OPERATOR,
    ),
    Metric(
        "rowkind_edge_rows_total",
        "counter",
        "changes",
        "Changes on an edge of the graph, after the filters and projections between its ends. Label source: a table, "
        "or an operator as sink.operator. Label target: an operator, or a sink.",
        (*_QUERY, "source", "target"),
    ),
    Metric(
        "rowkind_operator_seconds_total",
        "counter",
        "seconds",
        "Time of an operator's work by stage: state, operator, calc.",
        (*_OPERATOR, "stage"),
    ),
    Metric("rowkind_state_rows", "gauge", "rows", "Rows kept by an operator.", _OPERATOR, shards=sum),
    Metric("rowkind_state_bytes", "gauge", "bytes", "Size of an operator's state, as stored.", _OPERATOR, shards=sum),
    Metric("rowkind_state_runs", "gauge", "runs", "Sorted runs kept by an operator.", _OPERATOR, shards=sum),
    Metric(
        "rowkind_state_hottest_shard_ratio",
        "gauge",
        "1",
        "Rows in an operator's fullest shard divided by the mean: 1 if all shards have equally many rows, the number "
        "of shards if one shard has all rows. Not meaningful for few rows.",
        _OPERATOR,
        shards=hottest,
        made_of="rowkind_state_rows",
    ),
    Metric("rowkind_state_merged_rows_total", "counter", "rows", "Rows read by merges of runs.", _OPERATOR),
    Metric(
        "rowkind_state_expired_rows_total",
        "counter",
        "rows",
        "Rows evicted from state because their TTL had expired or their time had passed.",
        _OPERATOR,
    ),
)

_SAMPLE = re.compile(r"([a-z_]+)(?:\{(.*)\})?")
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

_GAUGES = frozenset(metric.name for metric in METRICS if metric.kind == "gauge")

assert {metric.name for metric in METRICS} == set(get_args(MetricName)), "every metric is named once and described once"


def sample(name: MetricName, /, **labels: object) -> str:
    """Return a sample's name, including its labels, in the form that counters use."""
    return _sample(name, *labels.items())


@lru_cache(maxsize=4_096)
def _sample(name: str, *labels: tuple[str, object]) -> str:
    # The same operators count the same samples in every batch.
    inside = ",".join(f'{label}="{_escape(str(value))}"' for label, value in labels)
    return f"{name}{{{inside}}}"


def parse(text: str) -> tuple[str, dict[str, str]]:
    """Split a sample name that `sample` has returned into the metric's name and the labels."""
    match = _SAMPLE.fullmatch(text)
    assert match is not None, f"no sample's name: {text}"
    return match[1], {label: _unescape(value) for label, value in _LABEL.findall(match[2] or "")}


def add(into: dict[str, float], counters: Counters) -> None:
    """Add `counters` to `into`. Gauges are replaced, and all other values are added up."""
    for name, value in counters.items():
        into[name] = value if name.partition("{")[0] in _GAUGES else into.get(name, 0) + value


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _unescape(text: str) -> str:
    return re.sub(r'\\\\|\\"|\\n', lambda found: _ESCAPES[found[0]], text)
