"""Every metric of the service, in one list.

Readers, operators and writers count into samples named as in the exposition format (`Counters` of
`operators.columns.changes`), which ride with the blocks to the writer and come back to the main process with the
batch's report. There they go into one `Exposition` (`service.monitoring.exposition`), beside what only the main process
knows. Names follow Prometheus: base units, `_total` for what only grows, no label without a bound on its values. The
page docs/metrics.md is made of the list (`python -m generators`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
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
"""The name of a metric; `METRICS` has one entry for each."""


@dataclass(frozen=True)
class Metric:
    """A metric: what it is called, what it counts in which unit, and which labels its samples carry.

    The label `query` is added in the end, and `name`, the job's, to all there is: what rides with blocks does without.
    An operator that several sinks share has the first one's label. `shards` says that samples carry the label `shard`
    on their way, and what the exposition says of all shards; they may be those of another metric, which this one is
    `made_of`. What a histogram observes has on its way the label `made`, the time in ms since when it is, and how often
    it was.
    """

    name: MetricName
    kind: MetricKind
    unit: Unit
    help: str
    labels: tuple[str, ...] = ()
    shards: Callable[[Collection[float]], float] | None = None
    made_of: MetricName | None = None


def hottest(rows: Collection[float]) -> float:
    """How many times the mean of all shards the fullest keeps; 1 where nothing is kept."""
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
        "Constant, with the versions.",
        ("version", "spark", "python", "java"),
    ),
    Metric(
        "rowkind_job_up",
        "gauge",
        "1 or 0",
        "1 while the job's process answers. A service with several jobs says 0 of each that has none, because it "
        "starts, has ended or was refused; a file that says no job has its own name.",
    ),
    Metric("rowkind_start_timestamp_seconds", "gauge", "Unix time", "When the process was started."),
    Metric(
        "rowkind_memory_bytes",
        "gauge",
        "bytes",
        "Memory of the job's processes on this machine: the command, java, and all other python. On Linux only.",
        ("process",),
    ),
    Metric(
        "rowkind_up",
        "gauge",
        "1 or 0",
        "1 while the query runs; 0 from when it has failed until it runs again.",
        _QUERY,
    ),
    Metric("rowkind_restarts_total", "counter", "times", "Starts of a query after a failure that passes.", _QUERY),
    Metric(
        "rowkind_rebuilds_total",
        "counter",
        "times",
        "Rebuilds of the state of a query that the job began by itself, because a result topic or the progress topic "
        "had lost records, or batches were not on record.",
        _QUERY,
    ),
    Metric(
        "rowkind_incomplete_topic",
        "gauge",
        "1",
        "0 for a topic that is whole, 1 for one that is not, though the job goes on: a result topic that has lost "
        "rows (lost), or a source topic whose deletes compaction may have removed before they were read (deletes).",
        (*_QUERY, "topic", "reason"),
    ),
    Metric("rowkind_outages_total", "counter", "times", "Times that Kafka stopped answering."),
    Metric(
        "rowkind_waiting_seconds",
        "gauge",
        "seconds",
        "For how long the job has waited for what is not its own: kafka, a topic, the registry or the checkpoint. 0 if "
        "it does not wait.",
        ("system",),
    ),
    Metric(
        "rowkind_lag_rows",
        "gauge",
        "rows",
        "Offsets still to be read to the end of the partition, those that open transactions hold included. Transaction "
        "markers take some.",
        _PARTITION,
    ),
    Metric(
        "rowkind_held_seconds",
        "gauge",
        "seconds",
        "For how long an open transaction has kept what is behind it in a partition from being read; 0 if none has.",
        _PARTITION,
    ),
    Metric(
        "rowkind_lag_seconds",
        "gauge",
        "seconds",
        "Age of the first record that is still to be read, by its timestamp; 0 if there is none. While Kafka does not "
        "answer, at least the time since then.",
        _PARTITION,
    ),
    Metric(
        "rowkind_latency_seconds",
        "histogram",
        "seconds",
        "From a record's timestamp to the end of the batch that read it, when its results are written. Of sixteen "
        "records that came together one is looked at.",
        _TABLE,
    ),
    Metric("rowkind_committed_offset", "gauge", "offset", "The next offset to be read.", _PARTITION),
    Metric(
        "rowkind_rows_in_total", "counter", "rows", "Rows read from a table's topic, by row kind.", (*_TABLE, "kind")
    ),
    Metric("rowkind_bytes_in_total", "counter", "bytes", "Record values read from a table's topic.", _TABLE),
    Metric(
        "rowkind_rows_out_total",
        "counter",
        "changes",
        "Changes written to a sink's topic, by row kind.",
        ("sink", "kind"),
    ),
    Metric("rowkind_bytes_out_total", "counter", "bytes", "Keys and values written to a sink's topic.", ("sink",)),
    Metric(
        "rowkind_dead_letters_total",
        "counter",
        "records",
        "Records that were no row of their table, or on which an expression failed, by the stage at which they failed.",
        (*_TABLE, "reason"),
    ),
    Metric(
        "rowkind_dead_letters_written_total", "counter", "records", "Records written to the dead letter topic.", _QUERY
    ),
    Metric(
        "rowkind_failed_rows_total",
        "counter",
        "rows",
        "Rows that an operator had emitted and that were left out because an expression failed on them.",
        _OPERATOR,
    ),
    Metric(
        "rowkind_late_rows_total",
        "counter",
        "changes",
        "Changes that came when the watermark had passed all that they could change, and were left out.",
        _OPERATOR,
    ),
    Metric("rowkind_unmatched_retractions_total", "counter", "changes", "Retractions that found no row.", _OPERATOR),
    Metric(
        "rowkind_expired_retractions_total",
        "counter",
        "changes",
        "Retractions in a join of rows that had expired, joined with what was left.",
        _OPERATOR,
    ),
    Metric(
        "rowkind_broken_promises_total",
        "counter",
        "records",
        "Records that broke what the job promises of their table: primary_key, exact or not_null.",
        (*_TABLE, "promise"),
    ),
    Metric(
        "rowkind_broken_promise_offset",
        "gauge",
        "offset",
        "Where a late record is that broke a promise.",
        (*_TABLE, "promise", "partition"),
    ),
    Metric("rowkind_watermark_timestamp_seconds", "gauge", "Unix time", "The watermark of a table.", _TABLE),
    Metric(
        "rowkind_watermark_lag_seconds",
        "gauge",
        "seconds",
        "By how much the watermark of a table was behind the time of the last batch.",
        _TABLE,
    ),
    Metric(
        "rowkind_next_due_timestamp_seconds",
        "gauge",
        "Unix time",
        "When an operator next has something to do without input; infinite if it has not.",
        _OPERATOR,
        shards=min,
    ),
    Metric("rowkind_batch_id", "gauge", "number", "Number of the last batch that was committed.", _QUERY),
    Metric(
        "rowkind_last_batch_timestamp_seconds",
        "gauge",
        "Unix time",
        "When the last batch ended: the last success.",
        _QUERY,
    ),
    Metric("rowkind_batch_duration_seconds", "histogram", "seconds", "From a batch's start to its end.", _QUERY),
    Metric(
        "rowkind_batch_seconds_total",
        "counter",
        "seconds",
        "Batches by stage: source, planning, log, tasks, other; and within tasks, of all of them, commit.",
        (*_QUERY, "stage"),
    ),
    Metric(
        "rowkind_read_seconds_total",
        "counter",
        "seconds",
        "Read tasks by stage: fetch, decode, calc, pack.",
        (*_QUERY, "stage"),
    ),
    Metric(
        "rowkind_write_seconds_total",
        "counter",
        "seconds",
        "Write tasks by stage: unpack, net, send.",
        (*_QUERY, "stage"),
    ),
    Metric(
        "rowkind_transactions_total",
        "counter",
        "times",
        "Kafka transactions by outcome: committed, skipped (its batch was there already) or retried.",
        (*_QUERY, "outcome"),
    ),
    Metric(
        "rowkind_operator_rows_in_total",
        "counter",
        "changes",
        "Changes that reached an operator, by row kind.",
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
        "Rows that an operator passed on because they were written again, so that what is made of them lives longer.",
        _OPERATOR,
    ),
    Metric(
        "rowkind_operator_seconds_total",
        "counter",
        "seconds",
        "An operator's work by stage: state, operator, calc.",
        (*_OPERATOR, "stage"),
    ),
    Metric("rowkind_state_rows", "gauge", "rows", "Rows kept by an operator.", _OPERATOR, shards=sum),
    Metric("rowkind_state_bytes", "gauge", "bytes", "What an operator keeps, as stored.", _OPERATOR, shards=sum),
    Metric("rowkind_state_runs", "gauge", "runs", "Sorted runs kept by an operator.", _OPERATOR, shards=sum),
    Metric(
        "rowkind_state_hottest_shard_ratio",
        "gauge",
        "1",
        "Rows in the fullest of an operator's shards over their mean: 1 where all keep the same, the number of shards "
        "where one keeps everything. Of few rows it means nothing.",
        _OPERATOR,
        shards=hottest,
        made_of="rowkind_state_rows",
    ),
    Metric("rowkind_state_merged_rows_total", "counter", "rows", "Rows read to be merged into longer runs.", _OPERATOR),
    Metric(
        "rowkind_state_expired_rows_total",
        "counter",
        "rows",
        "Rows of state let go of because their TTL was over, or their time had passed.",
        _OPERATOR,
    ),
)

_SAMPLE = re.compile(r"([a-z_]+)(?:\{(.*)\})?")
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

_GAUGES = frozenset(metric.name for metric in METRICS if metric.kind == "gauge")

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
    """Take `counters` into `into`: gauges replace, all else adds up."""
    for name, value in counters.items():
        into[name] = value if name.partition("{")[0] in _GAUGES else into.get(name, 0) + value


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _unescape(text: str) -> str:
    return re.sub(r'\\\\|\\"|\\n', lambda found: _ESCAPES[found[0]], text)
