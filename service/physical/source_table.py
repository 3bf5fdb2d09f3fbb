"""Tables of the job in the form that plans and readers use, as plain, frozen, picklable values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from rowkind.avro.schema import Record
from rowkind.avro.ticks import TimeUnit
from rowkind.operators.changelog import ChangelogMode
from rowkind.service.physical.expression import Expression
from rowkind.service.physical.generation import Generation, Schedule
from rowkind.service.physical.row_kind import DEFAULT_HEADER, RowKindHeader

TopicFormat = Literal["avro", "plain_avro", "json"]
KeyFormatName = Literal["string", "long", "json", "avro"]
OnExpire = Literal["forget", "retract"]
"""The policy for expired rows: a row is dropped silently, or it and everything derived from it are retracted."""

OnBadUpdate = Literal["keep", "retract", "null"]
"""The policy for a row whose update is a dead letter: the row is kept or retracted, or its bad columns become NULL."""


@dataclass(frozen=True)
class Start:
    """The position at which reading of a topic starts if there is no checkpoint.

    - `on_lost`: where reading resumes if retention has deleted the record at the checkpoint's offset.
    - `on_recreated`: the policy for a topic that was deleted and created again: the query fails or starts from scratch.
    """

    at: Literal["earliest", "latest", "timestamp", "offsets"] = "earliest"
    timestamp_ms: int | None = None
    offsets: Mapping[int, int] = field(default_factory=dict)
    on_lost: Literal["fail", "earliest", "latest"] = "fail"
    on_recreated: Literal["fail", "restart"] = "fail"


@dataclass(frozen=True)
class Watermark:
    """A table's watermark: the highest `time` seen minus `delay_us` microseconds.

    Rows with times before the watermark are no longer expected.

    `of` is the row's own time: `time` itself, or `time` without the delay that `time` subtracts. A partition that has
    received no rows for `idle_ms` of batch time does not hold back the watermark. `late` is the policy for rows that
    arrive too late to change any result. State is kept `allowed_ms` longer than the watermark requires, so that rows
    that are late by no more than this are accepted.
    """

    time: Expression
    of: Expression
    delay_us: int
    idle_ms: int
    late: Literal["drop", "dead_letter"] = "drop"
    allowed_ms: int = 0

    @property
    def subject(self) -> str:
        """The column or expression on which the watermark is declared."""
        return self.of.column or self.of.text


@dataclass(frozen=True)
class SourceTable:
    """A table of the job in the form that plans and readers use, with all its declared properties.

    - `declared`: the table's record as the user (or the registry) declared it, with the primary key NOT NULL. Values
      are resolved from their writer's schema to this record.
    - `written`: the same record for plain Avro, where the schema may declare the primary key as nullable. None in other
      formats.
    - `format`: how keys and values of the topic are read (`service.kafka.formats`). `debezium`: whether values are
      envelopes. In upsert mode, only the new rows and the primary keys of the old rows in the envelopes are read.
    - `mode`: the changelog mode. In upsert mode, a null value is a delete. The deleted row contains the primary key's
      columns from the Kafka key, and NULL in all other columns.
    - `ttl_ms`: the table's own TTL, or None if the job's TTL applies. `on_expire`: the policy for expired rows, or None
      if the job's setting applies.
    - `watermark`: the table's watermark, or None.
    - `key_format`: the format of keys if it differs from the format of values.
    - `units`: for date, time and timestamp columns, the unit of numbers if the schema does not specify a unit.
    - `record`: the full name of the record type of the rows, if the job names it. Records of other types are skipped.
    - `known_as`: the name of that type in the registry. Records of other types are refused.
    - `exact`: whether the producer promises that every retraction matches a row that was sent, that every update has
      its -U, and that changes with the same key arrive in order.
    - `unavailable`: the text with which Debezium marks a value that it does not know, or None.
    - `on_bad_update`: the policy for the existing row if an update of it is a dead letter
      (`service.kafka.bad_updates`).
    - `truncates`: whether a truncation of the table retracts all rows. It requires a primary key.
    - `generation`: the contents of a table that is generated, None for a table that is read from Kafka. `topic` is then
      only a name for messages and offsets, which no topic of Kafka can have.
    """

    table: str
    topic: str
    mode: ChangelogMode
    declared: Record
    primary_key: tuple[str, ...]
    ttl_ms: int | None = None
    on_expire: OnExpire | None = None
    row_kind: RowKindHeader = DEFAULT_HEADER
    start: Start = Start()
    exact: bool = False
    truncates: bool = False
    on_bad_update: OnBadUpdate = "keep"
    unavailable: str | None = None
    format: TopicFormat = "avro"
    debezium: bool = False
    written: Record | None = None
    watermark: Watermark | None = None
    key_format: KeyFormatName | None = None
    units: tuple[tuple[str, TimeUnit], ...] = ()
    record: str | None = None
    known_as: str | None = None
    generation: Generation | None = None

    def schedule(self, begun: int) -> Schedule:
        """Return when the rows of a generated table are due, of which the first is due at `begun`, Unix time in ms."""
        assert self.generation is not None, "the table is generated"
        # An update of a retract table is two records.
        return Schedule(self.generation, begun, 2 if self.mode == "retract" else 1)

    @property
    def replaces(self) -> bool:
        """Whether a change may replace the row with the same primary key without a preceding retraction."""
        return bool(self.primary_key) and self.mode != "append"

    @property
    def may_retract_unsent(self) -> bool:
        """Whether a retraction may refer to a row that was never sent."""
        return self.mode == "retract" and not self.exact

    @property
    def ordered(self) -> bool:
        """Whether the arrival order of the changes in a batch matters."""
        return self.replaces or self.may_retract_unsent

    @property
    def key(self) -> Record:
        """The record with the primary key's columns. In upsert mode, the Kafka key is resolved to this record."""
        return self.declared.select(self.primary_key)

    def leaves_out(self, writer: Record) -> bool:
        """Return whether the table's `record` excludes records of this type."""
        return self.record is not None and not _same_name(writer.name, self.record)

    def stranger(self, writer: Record) -> str | None:
        """Return the reason why a record of this type cannot be a row of the table, or None if it can."""
        if self.record is not None:
            return None
        if self.known_as is not None:
            if _same_name(writer.name, self.known_as):
                return None
            return f"it is a record of type {writer.name!r}, but table {self.table} has {self.known_as!r}. {_ONE_TYPE}"
        own = self._columns(frozenset())
        if own & {*writer.names} and (
            self._columns(self.primary_key) & {*writer.names} or {*writer.names} <= own or own <= {*self.primary_key}
        ):
            return None
        rest = " except the key" if own & {*writer.names} else ""
        return (
            f"it is a record of type {writer.name!r} with {', '.join(writer.names) or 'no fields'}, but has no column "
            f"of table {self.table} (type {self.declared.name!r}){rest}: {', '.join(self.declared.names)}. {_ONE_TYPE}"
        )

    def _columns(self, without: Collection[str]) -> set[str]:
        fields = [field for field in self.declared.fields if field.name not in without]
        return {name for field in fields for name in (field.name, *field.aliases)}


_ONE_TYPE = (
    "If the topic has several record types, select the table's type, for example `record: com.example.Order`; other "
    "records are then skipped"
)


def _same_name(one: str, other: str) -> bool:
    """Return whether two record type names are equal. Namespaces are compared only if both names have one."""
    if "." in one and "." in other:
        return one == other
    return one.rpartition(".")[2] == other.rpartition(".")[2]
