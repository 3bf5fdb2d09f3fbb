"""Specifications of a query's source and writer: frozen values that are sent to Spark's workers.

The source's specification is passed in a Spark option whose name contains "secret", so that Spark redacts its value
wherever options are shown. The specification's Kafka and registry settings may contain passwords.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from rowkind.avro.registry import Registry
from rowkind.avro.schema import Record
from rowkind.operators.changelog import ChangelogMode
from rowkind.service.execute.promises import OnBroken
from rowkind.service.kafka.sink_formats import Written
from rowkind.service.physical.generation import Schedule
from rowkind.service.physical.graph import GraphScan
from rowkind.service.physical.row_kind import RowKindHeader
from rowkind.service.physical.source_table import SourceTable, Start

OPTION = "secret.spec"


@dataclass(frozen=True)
class SourceSpec:
    """The specification of a source: all tables that a query reads.

    - `scans`: the tables' scans, each with the exits of its rows. `labels`: Spark's label of each shard.
    - `kafka`: librdkafka settings.
    - `writer`: the level that receives counters and dead letters. `writers`: for each of the writer's tasks, a label
      that is sent to it.
    - `opens`: the shards and levels of operators that emit a row even if their input is empty. If there are any, the
      source has a first batch even if there is nothing to read, and sends an empty block to each of these operators.
    - `levels`: the levels that keep state. In the first batch of a run, every shard reports its state size.
    - `timed_tables`: the tables whose watermarks an operator uses. `timed_levels`: the levels whose operators depend on
      time even without rows, so that every batch sends them the watermarks. `due_file`: a file on the driver with the
      time, in Unix ms, at which the next batch is due even without rows; None if no operator needs such batches.
    - `tasks`: the maximum number of read tasks per batch. `rows_per_task`: the minimum number of rows per task.
    - `whole_partitions`: each partition is read by a single task, because the rows are not shuffled afterwards.
    - `rows_per_batch`, `bytes_per_batch`: the limits of a batch over all topics: its number of rows, and the
      approximate size of its records, estimated from the first records.
    - `min_interval_ms`: the minimum time between the beginnings of two batches, unless there is a backlog.
    - `tolerate`: records that cannot be decoded become dead letters; otherwise they fail the query.
    - `promises`: the further reaction to a NULL in a NOT NULL column: "warn" or "fail".
    - `excused`: rows that may be skipped if an expression fails on them (`service.execute.failures`).
    - `drain_file`: a file on the driver. Once it exists, the source offers nothing new, so that a job can stop between
      two batches.
    - `replay_file`: a file on the driver with the batches to replay first, as a JSON array of their ends.
      `replay_only`: the source offers no other batches.
    - `registry_file`: a file on the driver in which tasks report for how long the registry has not answered.
    - `begun`: the time of the first row of generated tables, Unix time in ms.
    """

    scans: tuple[GraphScan, ...]
    kafka: Mapping[str, str]
    registry: Registry
    labels: tuple[int, ...] = (0,)
    writer: int = 1
    writers: tuple[int, ...] = (0,)
    opens: tuple[tuple[int, int], ...] = ()
    levels: tuple[int, ...] = ()
    timed_tables: frozenset[str] = frozenset()
    timed_levels: tuple[int, ...] = ()
    due_file: str | None = None
    tasks: int = 2
    rows_per_task: int = 5_000
    whole_partitions: bool = False
    rows_per_batch: int = 500_000
    bytes_per_batch: int = 64 << 20
    min_interval_ms: int = 0
    tolerate: bool = False
    promises: OnBroken = "warn"
    excused: frozenset[str] = frozenset()
    drain_file: str | None = None
    replay_file: str | None = None
    replay_only: bool = False
    registry_file: str | None = None
    begun: int = 0

    @property
    def whole(self) -> bool:
        """Whether records are fetched whole, in case one becomes a dead letter or its key identifies a deleted row."""
        sources = [each.scan.source for each in self.scans]
        # The record's key identifies the deleted row, and a JSON value may be a literal `null`, which deletes too.
        if any(each.debezium or (each.format == "json" and each.mode == "upsert") for each in sources):
            return True
        policies = {way.calc.on_error for each in self.scans for way in each.exits}
        return self.tolerate or bool(self.excused) or bool(policies - {"fail"})

    @property
    def starts(self) -> Mapping[str, Start]:
        """The start position of each topic."""
        return starts(self.scans)

    @property
    def generated(self) -> Mapping[str, SourceTable]:
        """The generated tables, by topic."""
        sources = [each.scan.source for each in self.scans]
        return {each.topic: each for each in sources if each.generation is not None}

    @property
    def schedules(self) -> Mapping[str, Schedule]:
        """When the records of each generated topic are due."""
        return {topic: table.schedule(self.begun) for topic, table in self.generated.items()}


def starts(scans: Iterable[GraphScan]) -> dict[str, Start]:
    """Return the start position of each topic that the given scans read."""
    return {each.scan.source.topic: each.scan.source.start for each in scans}


@dataclass(frozen=True)
class SinkSpec:
    """A result topic and how it is written.

    - `keyed`: changes carry the sink's unique key, packed as the Kafka key.
    - `by_seq`: the changes are an upsert stream as read from its topic, so the last change of each key counts.
      `ordered`: all changes are inserts, written in order. See `operators.columns.emission.net` for both.
    - `value`, `key`: the formats of values and keys; `key` is None if records have no keys.
    - `row_kind`: the header for the row kind, None for no header.
    - `transactions`: True for exactly-once delivery; False for at-least-once, which only upsert sinks allow.
    """

    sink: str
    topic: str
    form: ChangelogMode
    keyed: bool
    by_seq: bool
    value: Written
    key: Written | None = None
    row_kind: RowKindHeader | None = field(default_factory=RowKindHeader)
    transactions: bool = True
    ordered: bool = False


@dataclass(frozen=True)
class TopiclessSink:
    """A sink without a topic, whose changes are printed to the job's log if `prints` is set, and otherwise discarded.

    - `prefix`: the beginning of each printed line.
    - `keyed`: changes carry a unique key of the result. `ordered`: see `SinkSpec`.
    - `record`: the columns of the result.
    """

    sink: str
    prefix: str
    prints: bool
    keyed: bool
    ordered: bool
    record: Record


@dataclass(frozen=True)
class WriterSpec:
    """The specification of a query's writer.

    - `sinks`: the query's sinks with topics, by their positions in the query's graph. `topicless`: its other sinks.
    - `transaction_timeout_ms`: how long a transaction may stay open. A task opens it only when everything is ready to
      be sent.
    - `run`: the name of this run of the job; a later run has a greater name (`service.kafka.progress`).
    - `progress_topic`: the query's own progress topic, with a partition for every task of a batch.
    - `written`: all tasks have written every batch with a lower number. Replaying such a batch only restores state.
    - `tasks`: the number of partitions of the query's state.
    - `claims`: the result topics, which no other job may write (`service.kafka.topic_claims`).
    - `printer`: the address at which the job's process logs printed changes; empty if tasks run on other machines.
    """

    job: str
    query: str
    sinks: Mapping[int, SinkSpec]
    kafka: Mapping[str, str]
    progress_topic: str
    dead_letter_topic: str | None = None
    transaction_timeout_ms: int = 60_000
    run: str = ""
    written: int = 0
    tasks: int = 0
    claims: tuple[str, ...] = ()
    topicless: Mapping[int, TopiclessSink] = field(default_factory=dict)
    printer: str = ""

    @property
    def transactions(self) -> bool:
        """Whether any sink is written exactly once."""
        return any(each.transactions for each in self.sinks.values())

    def topics(self, *, transactions: bool) -> list[str]:
        """Return the topics of the sinks that are written in transactions, or of those that are not."""
        return [each.topic for each in self.sinks.values() if each.transactions == transactions]

    def without_claims(self) -> Self:
        """Return the same specification without claims, so that other jobs can write to its topics."""
        return replace(self, claims=())

    def transactional_id(self, partition: int) -> str:
        """Return a task partition's transactional id. It is the same in each run, so a run fences the previous one."""
        return f"{self.job}-{self.query}-{partition}"


def to_option(spec: SourceSpec) -> str:
    """Return the value of the Spark option `OPTION`."""
    return base64.b64encode(pickle.dumps(spec)).decode()


def from_option(value: str) -> SourceSpec:
    """Restore the specification from the value that `to_option` returned."""
    spec = pickle.loads(base64.b64decode(value))  # noqa: S301 - our own, from our own driver
    assert isinstance(spec, SourceSpec), "the option contains a source's spec"
    return spec
