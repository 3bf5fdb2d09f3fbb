"""A table of the job as the plan and the readers know it, in plain frozen values that pickle."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from rowkind.avro.schema import Record
from rowkind.avro.ticks import TimeUnit
from rowkind.operators.changelog import ChangelogMode
from rowkind.service.physical.expression import Expression
from rowkind.service.physical.row_kind import DEFAULT_HEADER, RowKindHeader

TopicFormat = Literal["avro", "plain_avro", "json"]
KeyFormatName = Literal["string", "long", "json", "avro"]
OnExpire = Literal["forget", "retract"]
"""What happens to a row when its TTL is over: it is dropped silently, or retracted with everything derived from it."""

OnBadUpdate = Literal["keep", "retract", "null"]
"""What happens to a row when its update is a dead letter: it is kept or retracted, or the bad columns are NULL."""


@dataclass(frozen=True)
class Start:
    """Where reading of a topic starts if there is no checkpoint.

    - `on_lost`: where reading resumes if retention has deleted the checkpoint's offset.
    - `on_recreated`: what the query does if the topic was deleted and created again: it fails or starts from nothing.
    """

    at: Literal["earliest", "latest", "timestamp", "offsets"] = "earliest"
    timestamp_ms: int | None = None
    offsets: Mapping[int, int] = field(default_factory=dict)
    on_lost: Literal["fail", "earliest", "latest"] = "fail"
    on_recreated: Literal["fail", "restart"] = "fail"


@dataclass(frozen=True)
class Watermark:
    """The time up to which rows of a table may still arrive: the highest `time` seen less `delay_us` microseconds.

    `of` is the row time that the watermark is about: `time` itself, or `time` without the delay that `time` subtracts.
    A partition that has received nothing for `idle_ms` of batch time does not hold the watermark back. `late` says what
    happens to rows that arrive too late for everything that they could change. State is kept `allowed_ms` longer than
    the watermark requires, and rows that are late by no more than that are accepted.
    """

    time: Expression
    of: Expression
    delay_us: int
    idle_ms: int
    late: Literal["drop", "dead_letter"] = "drop"
    allowed_ms: int = 0

    @property
    def subject(self) -> str:
        """The column or the expression that the watermark is on."""
        return self.of.column or self.of.text


@dataclass(frozen=True)
class SourceTable:
    """A table of the job as the plan and the readers know it. All declared properties of a table are here.

    - `declared`: the table as the user (or the registry) declared it, with the primary key NOT NULL. Values are
      resolved from their writer's schema to it.
    - `written`: the same for plain Avro, whose schema may have a nullable primary key; None in other formats.
    - `format`: how keys and values of the topic are read (`service.kafka.formats`). `debezium`: values are envelopes.
      In upsert mode only the new rows in them count, and of the old rows the primary key.
    - `mode`: in upsert mode a null value is a delete. Its row has the primary key's columns from the Kafka key and NULL
      in all others.
    - `ttl_ms`: the table's own TTL, None for the job's. `on_expire`: what happens to an expired row; None for the
      job's.
    - `watermark`: the time up to which its rows may still arrive; None if the table has no watermark.
    - `key_format`: the format of keys if it differs from that of values.
    - `units`: for date, time and timestamp columns, the unit of numbers whose schema does not name one.
    - `record`: the full name of the record type of its rows, if the job names it. Records of other types are skipped.
    - `known_as`: the name of that type in the registry. Records of other types are refused.
    - `exact`: the producer's promise that every retraction is of a row that was sent, that every update has its -U, and
      that the changes of one key arrive in order.
    - `unavailable`: the text that stands for a value unknown to Debezium, None for none.
    - `on_bad_update`: what happens to the row of a key when its update is a dead letter (`service.kafka.bad_updates`).
    - `truncates`: a truncation retracts all its rows. It needs a primary key.
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

    @property
    def replaces(self) -> bool:
        """Whether a change may replace a row, by the primary key, without retracting it first."""
        return bool(self.primary_key) and self.mode != "append"

    @property
    def may_retract_unsent(self) -> bool:
        """Whether a retraction may be of a row that was never sent."""
        return self.mode == "retract" and not self.exact

    @property
    def ordered(self) -> bool:
        """Whether the arrival order of the changes in a batch matters."""
        return self.replaces or self.may_retract_unsent

    @property
    def key(self) -> Record:
        """The primary key's columns. In upsert mode the Kafka key is resolved to them."""
        return self.declared.select(self.primary_key)

    def leaves_out(self, writer: Record) -> bool:
        """Whether records of this type are not the table's, according to the job's `record`."""
        return self.record is not None and not _same_name(writer.name, self.record)

    def stranger(self, writer: Record) -> str | None:
        """Return why a record of this type cannot be a row of the table; None if it can."""
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
    """Whether two names of record types are equal. Namespaces are compared only if both names have one."""
    if "." in one and "." in other:
        return one == other
    return one.rpartition(".")[2] == other.rpartition(".")[2]
