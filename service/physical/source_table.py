"""A table of the job, as the plan and the readers know it: plain frozen values that pickle."""

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
"""What becomes of a row whose TTL is over: it is forgotten without a word, or taken back with what is made of it."""

OnBadUpdate = Literal["keep", "retract", "null"]
"""What becomes of a row when its update is a dead letter: it is kept or retracted, or the bad columns are NULL."""


@dataclass(frozen=True)
class Start:
    """Where a topic is read from without a checkpoint.

    - `on_lost`: where it is read from when retention has eaten the checkpoint's offset.
    - `on_recreated`: what becomes of the query when the topic was deleted and made anew: it starts from nothing, too.
    """

    at: Literal["earliest", "latest", "timestamp", "offsets"] = "earliest"
    timestamp_ms: int | None = None
    offsets: Mapping[int, int] = field(default_factory=dict)
    on_lost: Literal["fail", "earliest", "latest"] = "fail"
    on_recreated: Literal["fail", "restart"] = "fail"


@dataclass(frozen=True)
class Watermark:
    """Until when rows of a table may still come: the highest `time` seen less `delay_us` microseconds.

    `of` is the time of a row that is meant: the same, or `time` has a delay of its own taken off. A partition of which
    nothing has come for `idle_ms` of batch time does not hold it back. `late` is what becomes of rows that come too
    late for everything that they could change. State is kept for `allowed_ms` longer than the watermark says, and rows
    that come as late as that are taken.
    """

    time: Expression
    of: Expression
    delay_us: int
    idle_ms: int
    late: Literal["drop", "dead_letter"] = "drop"
    allowed_ms: int = 0

    @property
    def subject(self) -> str:
        """The column that it is of, or the expression."""
        return self.of.column or self.of.text


@dataclass(frozen=True)
class SourceTable:
    """A table of the job, as the plan and the readers know it: what is declared of it is here and nowhere else.

    - `declared`: the table as the user (or the registry) declared it, the primary key NOT NULL: values are resolved
      from their writer's schema to it.
    - `written`: the same as plain Avro has it, where the primary key may be nullable; None in other formats.
    - `format`: how keys and values of the topic are to be read (`service.kafka.formats`). `debezium`: values are
      envelopes. In upsert mode only the new rows in them count, and of old ones the primary key.
    - `mode`: in upsert mode a null value is a delete, and the row is made of the primary key's columns from the Kafka
      key, the others NULL.
    - `ttl_ms`: the table's own, None for the job's. `on_expire`: what becomes of a row then; None for the job's.
    - `watermark`: until when its rows may still come; None where nobody knows.
    - `key_format`: that of keys where it is another one than that of values.
    - `units`: of columns that are dates, times or timestamps, the unit of numbers that do not say their own.
    - `record`: the full name of the record type of its rows, where the job names it; records of others are left out.
    - `known_as`: the name of that type where the registry has it; records of others are refused.
    - `exact`: the producer's promise that every retraction takes back a row that was sent, that every update brings
      its -U, and that the changes of one key come in their order.
    - `unavailable`: the text that stands for a value which Debezium does not know, None for none.
    - `on_bad_update`: what becomes of the row of a key when its update is a dead letter (`service.kafka.bad_updates`).
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
        """Whether a change may replace a row by the primary key without taking it back first."""
        return bool(self.primary_key) and self.mode != "append"

    @property
    def may_retract_unsent(self) -> bool:
        """Whether a row may be taken back that was never sent."""
        return self.mode == "retract" and not self.exact

    @property
    def ordered(self) -> bool:
        """Whether it matters in which order the changes of a batch arrived."""
        return self.replaces or self.may_retract_unsent

    @property
    def key(self) -> Record:
        """The primary key's columns: in upsert mode the Kafka key is resolved to them."""
        return self.declared.select(self.primary_key)

    def leaves_out(self, writer: Record) -> bool:
        """Whether records of this type are none of the table's, as the job says."""
        return self.record is not None and not _same_name(writer.name, self.record)

    def stranger(self, writer: Record) -> str | None:
        """Why a record of this type is none of the table's rows; None where it is one."""
        if self.record is not None:
            return None
        if self.known_as is not None:
            if _same_name(writer.name, self.known_as):
                return None
            return f"it is a record of type {writer.name!r}, and table {self.table} has {self.known_as!r}. {_ONE_TYPE}"
        own = self._columns(frozenset())
        if own & {*writer.names} and (
            self._columns(self.primary_key) & {*writer.names} or {*writer.names} <= own or own <= {*self.primary_key}
        ):
            return None
        rest = ", besides the key" if own & {*writer.names} else ""
        return (
            f"it is a record of type {writer.name!r} with {', '.join(writer.names) or 'no fields'}, and has no column "
            f"of table {self.table} (type {self.declared.name!r}){rest}: {', '.join(self.declared.names)}. {_ONE_TYPE}"
        )

    def _columns(self, without: Collection[str]) -> set[str]:
        fields = [field for field in self.declared.fields if field.name not in without]
        return {name for field in fields for name in (field.name, *field.aliases)}


_ONE_TYPE = (
    "If the topic holds several record types, name the table's, as `record: com.example.Order`: the others are then "
    "left out"
)


def _same_name(one: str, other: str) -> bool:
    """Whether two names of record types are the same, as far as both say their namespace."""
    if "." in one and "." in other:
        return one == other
    return one.rpartition(".")[2] == other.rpartition(".")[2]
