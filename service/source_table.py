"""A table of the job, as the plan and the readers know it: plain frozen values that pickle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rowkind.avro.schema import Record
from rowkind.operators.changelog import ChangelogMode
from rowkind.service.expression import Expression
from rowkind.service.row_kind import DEFAULT_HEADER, RowKindHeader

TopicFormat = Literal["avro", "plain_avro", "json"]
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
    - `exact`: the producer's promise that every retraction takes back a row that was sent, that every update brings
      its -U, and that the changes of one key come in their order.
    - `unavailable`: the text that stands for a value which Debezium does not know, None for none.
    - `on_bad_update`: what becomes of the row of a key when its update is a dead letter (`service.kafka.salvage`).
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

    @property
    def replaces(self) -> bool:
        """Whether a change may replace a row by the primary key without taking it back first."""
        return bool(self.primary_key) and self.mode != "append"

    @property
    def strays(self) -> bool:
        """Whether a row may be taken back that was never sent."""
        return self.mode == "retract" and not self.exact

    @property
    def ordered(self) -> bool:
        """Whether it matters in which order the changes of a batch arrived."""
        return self.replaces or self.strays

    @property
    def key(self) -> Record:
        """The primary key's columns: in upsert mode the Kafka key is resolved to them."""
        return self.declared.select(self.primary_key)
