"""What the source and the writer of a query are told, as frozen values that travel to Spark's workers.

The source's does in an option, whose name holds the word "secret", so that Spark redacts its value wherever it shows
options: the settings of Kafka and of the registry may contain passwords.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from rowkind.avro.registry import Registry
from rowkind.operators.changelog import ChangelogMode
from rowkind.service.execute.promises import OnBroken
from rowkind.service.kafka.sink_formats import Written
from rowkind.service.physical.graph import GraphScan
from rowkind.service.physical.row_kind import RowKindHeader
from rowkind.service.physical.source_table import Start

OPTION = "secret.spec"


@dataclass(frozen=True)
class SourceSpec:
    """A source: all tables that a query reads.

    - `scans`: each with the ways of its rows. `labels`: Spark's label of each shard.
    - `kafka`: librdkafka settings.
    - `writer`: the level to which counters and dead letters go; `writers`: labels that lead to each of its tasks.
    - `opens`: shards and levels at which an operator has a row of empty topics too. The source has a first batch then
      even if there is nothing to read, and sends an empty block there.
    - `levels`: those that keep state. The first batch of a run reports how much, in all shards.
    - `timed_tables`: those whose watermarks somebody goes by; `timed_levels`: where time passes also without rows, so
      that every batch is told there. `due_file`: a file on the driver that says when something is due that needs a
      batch, in ms; None where nothing ever is.
    - `tasks`: the most read tasks of a batch; `rows_per_task`: the fewest rows for which there is a further one.
    - `whole_partitions`: records of one partition are read by one task, because what they become is not shuffled.
    - `rows_per_batch`, `bytes_per_batch`: the most rows of a batch over all topics, and about how many bytes of
      records, told from the first ones.
    - `tolerate`: records that are no rows become dead letters; else they fail the query.
    - `promises`: what becomes of a NULL in a column that is NOT NULL beside that.
    - `excused`: rows that may be left out where an expression fails on them (`service.execute.failures`).
    - `drain_file`: a file on the driver; from when it exists the source offers nothing new, so that a job can end
      between two batches.
    - `replay_file`: a file on the driver with the batches that are replayed first, a JSON array of their ends.
      `replay_only`: the source offers nothing else.
    - `registry_file`: a file on the driver that says for how long the registry has not answered.
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
    tolerate: bool = False
    promises: OnBroken = "warn"
    excused: frozenset[str] = frozenset()
    drain_file: str | None = None
    replay_file: str | None = None
    replay_only: bool = False
    registry_file: str | None = None

    @property
    def whole(self) -> bool:
        """Whether all of a record is read: it may become a dead letter, or its key may say what is deleted."""
        sources = [each.scan.source for each in self.scans]
        # The key of a delete is in the record's key, and a null value may be spelled out in JSON.
        if any(each.debezium or (each.format == "json" and each.mode == "upsert") for each in sources):
            return True
        policies = {way.calc.on_error for each in self.scans for way in each.exits}
        return self.tolerate or bool(self.excused) or bool(policies - {"fail"})

    @property
    def starts(self) -> Mapping[str, Start]:
        """All topics, with where each is read from."""
        return starts(self.scans)


def starts(scans: Iterable[GraphScan]) -> dict[str, Start]:
    """The topics of these tables, with where each is read from."""
    return {each.scan.source.topic: each.scan.source.start for each in scans}


@dataclass(frozen=True)
class SinkSpec:
    """A topic and how it is written.

    - `keyed`: changes carry the sink's unique key, packed as the Kafka key.
    - `by_seq`: they are an upsert stream as it was read, `ordered`: they are written in an order
      (`operators.columns.emission.net`).
    - `value`, `key`: how values and keys are written; None where there are no keys.
    - `row_kind`: the header of the row kind, None for none.
    - `transactions`: exactly once; else at least once, for upsert sinks.
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
class WriterSpec:
    """What a query writes.

    - `sinks`: those of the query, by their places in its graph.
    - `transaction_timeout_ms`: how long a transaction may stay open; a task opens it only when all is ready to be sent.
    - `run`: the name of this run of the job; that of a later run is greater (`service.kafka.progress`).
    - `progress_topic`: this query's own, with a partition for every task of a batch.
    - `written`: all tasks have written the batches before this number. A replay of them only restores state.
    - `tasks`: in how many partitions its state lies.
    - `claims`: the result topics, which no other job may write (`service.kafka.topic_claims`).
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

    @property
    def transactions(self) -> bool:
        """Whether anything is written exactly once."""
        return any(each.transactions for each in self.sinks.values())

    def topics(self, *, transactions: bool) -> list[str]:
        """Those of its sinks that are written exactly once, or else the others."""
        return [each.topic for each in self.sinks.values() if each.transactions == transactions]

    def without_claims(self) -> Self:
        """The same, but that any other job may write its topics."""
        return replace(self, claims=())

    def transactional_id(self, partition: int) -> str:
        """The id under which one task partition writes: each run of the job fences the one before."""
        return f"{self.job}-{self.query}-{partition}"


def to_option(spec: SourceSpec) -> str:
    """The value of the option `OPTION`."""
    return base64.b64encode(pickle.dumps(spec)).decode()


def from_option(value: str) -> SourceSpec:
    """The spec that `to_option` made."""
    spec = pickle.loads(base64.b64decode(value))  # noqa: S301 - our own, from our own driver
    assert isinstance(spec, SourceSpec), "the option holds a source's spec"
    return spec
