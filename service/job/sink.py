"""A sink of a job file: a query, and where the changes of its result go."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from rowkind.operators.changelog import ChangelogMode
from rowkind.service.job.fields import ColumnNames, Section, TopicName
from rowkind.service.job.table import RowKindSettings
from rowkind.service.physical.sink_target import SinkTarget

OnLostResult = Literal["fail", "rebuild", "ignore"]
"""What a job does if a result topic has lost rows."""


OF_TOPICLESS = {"to", "prefix", "sql", "emit", "isolated"}
"""The settings of a sink without a topic."""


class Sink(Section):
    """A query, and the topic that contains its result. With `to`, the changes of the result go elsewhere."""

    to: SinkTarget = "topic"
    """Where the changes of the result go. `topic`: to a Kafka topic. `print`: to the log of the job, one line per
    change. `blackhole`: nowhere, so that the query can be measured. `print` and `blackhole` accept any query, and allow
    only `prefix`, `sql`, `emit` and `isolated` besides."""

    prefix: str = ""
    """The text at the beginning of each printed line. If omitted, the name of the sink. Only for `to: print`."""

    topic: TopicName = ""
    """The topic's name. If omitted, the name of the sink."""

    format: Literal["avro", "json"] = "avro"
    """How values and keys are written."""

    connect_schema: bool = False
    """Whether JSON keys and values include Kafka Connect's schema, as `{"schema": …, "payload": …}`. Sink connectors
    read them with `schemas.enable: true`."""

    mode: ChangelogMode
    """What the records mean; required for a topic. `append`: rows that are only inserted; a query that can retract rows
    is refused. `upsert`: the current row of each `key`, and null once it is deleted, in a compacted topic. `retract`:
    rows that are inserted and retracted, as the header of `row_kind` says."""

    key: ColumnNames = ()
    """The columns of the record key. An upsert sink requires them, and they must be a unique key of the result."""

    sql: str
    """The query, in Spark SQL."""

    on_conflict: Literal["refuse", "first", "last"] = "refuse"
    """Which row an upsert sink contains if several rows of the result share its key. `first`, `last`: the first or the
    last one to arrive. `refuse`: such a query is refused."""

    emit: Literal["changes", "final"] | None = None
    """When rows of windows are written. `changes`: immediately, followed by corrections. `final`: once, when they are
    final. If omitted, `final` in an append sink and `changes` elsewhere."""

    row_kind: RowKindSettings = RowKindSettings()
    """How a record encodes whether its row is inserted, updated or deleted. `missing` and `unknown` have no effect."""

    partitions: int | None = Field(default=None, gt=0)
    """The number of partitions with which the job creates the topic. If omitted, the job's `parallelism`."""

    replication: int | None = Field(default=None, gt=0)
    """The number of replicas with which the job creates the topic. If omitted, the broker's default."""

    create: bool = True
    """Whether the job creates the topic if it does not exist."""

    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once"
    """`exactly_once`: changes are written in transactions. `at_least_once`: without transactions, so that a change may
    be written twice; only an upsert sink may use it."""

    on_lost: OnLostResult = "fail"
    """What the job does if the topic has lost rows of the result: it was deleted, recreated, shortened by retention, or
    its partitions have changed. `fail`: the job ends. `rebuild`: the query is rebuilt, and the missing rows are
    written. `ignore`: the job continues, and the topic stays as it is."""

    isolated: bool = False
    """Whether the sink runs as its own query. It then shares no work with other sinks, reads its topics separately,
    and neither waits for other sinks nor delays them."""

    @model_validator(mode="before")
    @classmethod
    def _topicless(cls, value: Any) -> Any:
        """Check that a sink without a topic has no settings of a topic, and set its mode, which accepts any query."""
        if not isinstance(value, dict) or value.get("to") not in ("print", "blackhole"):
            return value
        to = value["to"]
        if of_topics := [name for name in value if name in cls.model_fields.keys() - OF_TOPICLESS]:
            listed = ", ".join(f"`{name}`" for name in of_topics)
            raise ValueError(f"a sink with `to: {to}` has no topic: remove {listed}, or remove `to: {to}`")
        return {**value, "mode": "retract"}

    @model_validator(mode="after")
    def _whole(self) -> Sink:
        if self.prefix and self.to != "print":
            raise ValueError("`prefix` is only for sinks with `to: print`")
        if not self.prefix.isprintable():
            raise ValueError("`prefix` must be one line of printable text")
        if self.mode == "upsert" and not self.key:
            raise ValueError("an upsert sink needs `key`: the columns that identify a row of the result")
        if self.connect_schema and self.format != "json":
            raise ValueError(f"`connect_schema` is only for `format: json`; this sink uses {self.format}")
        if self.on_conflict != "refuse" and self.mode != "upsert":
            raise ValueError(f"`on_conflict` is only for upsert sinks; this sink has mode {self.mode}")
        if self.delivery == "at_least_once" and self.mode != "upsert":
            raise ValueError(
                f"`delivery: at_least_once` may write changes twice, which only upsert sinks allow; this sink has mode "
                f"{self.mode}"
            )
        return self


def has_topic(entry: dict[str, Any]) -> bool:
    """Return whether an entry of `tables` or `sinks` has a topic."""
    return "generate" not in entry and bool(entry.get("to", "topic") == "topic")
