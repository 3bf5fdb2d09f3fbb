"""The source tables of a job file: topic, format, columns, row kind, watermark and start."""

from __future__ import annotations

import re
from datetime import UTC
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from rowkind.avro.errors import SchemaError
from rowkind.avro.schema import Record
from rowkind.avro.ticks import TimeUnit
from rowkind.operators.changelog import ChangelogMode
from rowkind.service.job import duration
from rowkind.service.job.fields import ColumnNames, Duration, LengthOfTime, Moment, Section, TopicName, either
from rowkind.service.job.generation import GenerateSettings
from rowkind.service.physical.row_kind import PRESETS, RowKindHeader, spellings
from rowkind.service.physical.source_table import KeyFormatName, OnBadUpdate, OnExpire, Start, TopicFormat

_MOST_DIGITS = 38
"""The maximum precision of a decimal, as in Spark and Flink. Wider decimals can only be passed through."""

_UNAVAILABLE = "__debezium_unavailable_value"
"""Debezium's default placeholder for a large value that an update left unchanged."""

_OF_READING = ["topic", "format", "units", "record", "key_format", "exact", "row_kind", "start"]
_OF_PRODUCERS = ["on_truncate", "on_bad_update", "unavailable_value"]
_ABOUT_TOPICS = {*_OF_READING, *_OF_PRODUCERS}
"""Settings of tables that a generated table cannot have."""

Policy = Literal["insert", "dead_letter", "fail"]


class RowKindSettings(Section):
    """How records encode their row kind: a header, its spelling (`preset` or `values`), and how to treat other records.

    `row_kind: ordinal` is short for `row_kind: {preset: ordinal}`.
    """

    header: str = "op"
    """The name of the header. If a record has the header several times, the last one counts."""

    preset: str = "rowkind"
    """A predefined spelling: `rowkind` (`+I`, `-U`, `+U`, `-D`), `ordinal` (0 to 3), `words` (insert, update_before,
    update_after, update, delete), `debezium` (c, r, u, d) or `diff` (1, -1)."""

    values: dict[str, str] | None = None
    """Your own spelling instead of a preset. It maps header texts to row kinds, as in `{new: +I, gone: -D}`."""

    missing: Policy | None = None
    """How to treat a record without the header. `insert`: as an insertion. `dead_letter`: as a dead letter. `fail`: the
    job ends. If omitted, `insert` in a table of mode `append`, and `dead_letter` elsewhere."""

    unknown: Policy = "dead_letter"
    """How to treat a record whose header has an unknown value."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"preset": value} if isinstance(value, str) else value

    @field_validator("preset")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in PRESETS:
            raise ValueError(f"{value!r} is not a known spelling of row kinds: expected {either(sorted(PRESETS))}")
        return value

    @field_validator("values")
    @classmethod
    def _complete(cls, value: dict[str, str] | None) -> dict[str, str] | None:
        if value is not None:
            for word, kind in value.items():
                if kind not in _SYMBOLS:
                    raise ValueError(f"the row kind of {word!r} is {kind!r}, but must be {either(_SYMBOLS)}")
            spellings({word.encode(): _SYMBOLS[kind] for word, kind in value.items()})
        return value

    def physical(self, mode: ChangelogMode) -> RowKindHeader:
        """Return the header for the plan; `mode` is the topic's changelog mode."""
        values = PRESETS[self.preset]
        if self.values is not None:
            values = {word.encode(): _SYMBOLS[kind] for word, kind in self.values.items()}
        missing = self.missing or ("insert" if mode == "append" else "dead_letter")
        return RowKindHeader(self.header, values, missing, self.unknown)


_SYMBOLS = {"+I": 0, "-U": 1, "+U": 2, "-D": 3}


class From(Section):
    """Where to start reading a topic if there is no checkpoint. `start: latest` is short for `start: {at: latest}`."""

    at: Literal["earliest", "latest", "timestamp", "offsets"] = "earliest"
    """`earliest`: the first existing record. `latest`: the end. `timestamp` or `offsets`: the position in the
    setting of that name; `at` may then be omitted."""

    timestamp: Moment | None = None
    """Start at each partition's first record with this timestamp or a later one. A time without a zone is UTC."""

    offsets: dict[int, int] = Field(default_factory=dict)
    """The first offset to read, by partition. Partitions without an entry are read from their start."""

    on_lost: Literal["fail", "earliest", "latest"] = "fail"
    """What the job does if retention has deleted records that it has not read. `fail`: it ends. `earliest`: it
    continues with the first remaining record. `latest`: it continues with new records."""

    on_recreated: Literal["fail", "restart"] = "fail"
    """What the job does if the topic was deleted and recreated. `fail`: it ends. `restart`: it rebuilds its state and
    results from the new topic."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"at": value}
        if isinstance(value, dict) and "at" not in value:
            for given in ("timestamp", "offsets"):
                if given in value:
                    return {**value, "at": given}
        return value

    @model_validator(mode="after")
    def _whole(self) -> From:
        if (self.at == "timestamp") != (self.timestamp is not None):
            raise ValueError("`at: timestamp` and `timestamp` must be set together")
        if (self.at == "offsets") != bool(self.offsets):
            raise ValueError("`at: offsets` and `offsets` must be set together")
        return self

    def physical(self) -> Start:
        """Return the start position for the plan. A time without a zone is UTC."""
        moment = self.timestamp
        if moment is not None and moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        milliseconds = None if moment is None else round(moment.timestamp() * 1000)
        return Start(self.at, milliseconds, dict(self.offsets), self.on_lost, self.on_recreated)


class WatermarkSettings(Section):
    """The watermark of a table: the highest time seen, minus `delay`. Rows with an earlier time are late.

    `watermark: at` is short for `watermark: {column: at}`.
    """

    column: str
    """The column with a row's time, or a SQL expression over the columns."""

    delay: int | str = 0
    """How far rows may be out of order: a length of time, or a SQL expression (an INTERVAL, or a CASE of intervals)."""

    idle: Annotated[int, LengthOfTime] = 30_000
    """A partition without new records for this long no longer delays the watermark."""

    late: Literal["drop", "dead_letter"] = "drop"
    """What happens to a row that arrives too late to change any result. It is counted in any case. `drop`: it is
    dropped. `dead_letter`: it becomes a dead letter."""

    allowed_lateness: Annotated[int, LengthOfTime] = 0
    """How long state is kept after the watermark has passed it. Rows that are late by no more than this are still
    accepted. They correct earlier results, final rows included."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"column": value} if isinstance(value, str) else value

    @field_validator("delay", mode="before")
    @classmethod
    def _delay(cls, value: Any) -> Any:
        if isinstance(value, int | float) or re.match(r"\s*[-+]?\s*\d", str(value)):
            return _length(value, "the delay cannot be negative, because rows in order would then be late")
        return value

    @field_validator("allowed_lateness", mode="before")
    @classmethod
    def _allowed(cls, value: Any) -> Any:
        return _length(value, "the allowed lateness cannot be negative: use a shorter delay instead")

    @field_validator("idle", mode="before")
    @classmethod
    def _idle(cls, value: Any) -> Any:
        never = (
            "`idle` must be more than 0, or every partition would be idle at once: write a length of time such as 30s"
        )
        if not (length := _length(value, never)):
            raise ValueError(never)
        return length


def _length(value: Any, negative: str) -> int:
    """Return a length of time in ms, which may be 0. Raises ValueError, with the text `negative` if it is negative."""
    text = str(value).strip()
    if text.startswith("-"):
        raise ValueError(negative)
    if re.fullmatch(r"0+\s*(ms|s|min|m|h|d|w)?", text):
        return 0
    return duration.parse(text)


class Table(Section):
    """A source topic. The key is the table's name in SQL."""

    topic: TopicName = ""
    """The topic's name. If omitted, the name of the table."""

    generate: GenerateSettings | None = None
    """Rows that the job generates instead of reading a topic. `generate: {}` has the default settings."""

    format: TopicFormat = "avro"
    """How values and keys are written. `avro`: Avro with the schema's id. `plain_avro`: Avro only. `json`: JSON."""

    mode: Literal["append", "upsert", "retract", "debezium"]
    """What the records mean. `append`: rows that are only inserted. `upsert`: the current row of each primary key, and
    null once it is deleted. `retract`: rows that are inserted and retracted, as the header of `row_kind` says.
    `debezium`: Debezium's envelopes."""

    columns: dict[str, str] | None = None
    """The columns and their SQL types, each with or without NOT NULL. Without `columns` and `schema`, the columns come
    from the registry's subject `<topic>-value`."""

    schema_file: str | None = Field(default=None, alias="schema")
    """A file with the Avro schema, instead of `columns`. The path is relative to the job file."""

    units: dict[str, TimeUnit] = Field(default_factory=dict)
    """The units of numbers in DATE, TIME and TIMESTAMP columns, by column, if the topic does not declare them:
    `{day: days, at: millis}`. A date has `days`, the other types have `seconds`, `millis`, `micros` or `nanos`."""

    record: str | None = None
    """The full name of the table's record type, such as `com.example.Order`, if the topic has several types. Records of
    other types are ignored."""

    key_format: KeyFormatName | None = Field(default=None, alias="key.format")
    """The format of keys, if it differs from the format of values. `string`: text without quotes. `long`: 8 bytes.
    `json`: JSON. `avro`: Avro with the schema's id. The key of a record is read if its value is null."""

    primary_key: ColumnNames = ()
    """The columns that identify a row when it is replaced or retracted. They are NOT NULL."""

    exact: bool = False
    """A guarantee of the producer: every update is a -U followed by a +U, and every -U and -D retracts a row that was
    sent. Without it, the job stores the table's rows wherever a query depends on old rows. For a `debezium` table it
    means that both rows of an envelope are read. The job still stores the rows, because a snapshot may repeat them."""

    on_truncate: Literal["refuse", "empty"] = "refuse"
    """What happens if the database truncates a `debezium` table. `refuse`: the event is a dead letter, and the rows
    stay. `empty`: all rows are retracted, and the job stores the rows for this. The connector needs
    `skipped.operations: none`."""

    on_bad_update: OnBadUpdate = "keep"
    """What happens to a row if its update is a dead letter, in a table of mode `upsert`, or `debezium` without `exact`.
    `keep`: the row stays as it was. `retract`: it is retracted. `null`: it is replaced, with NULL in the columns that
    cannot be read, if these columns may be NULL."""

    unavailable_value: str | None = Field(default=None, min_length=1)
    """The text that Debezium writes instead of a large value that an update left unchanged: the connector's
    `unavailable.value.placeholder`. A row that has this text in a column that a query reads is a dead letter. If
    omitted, Debezium's default `__debezium_unavailable_value` in tables of mode `debezium` and `upsert`, and no text
    elsewhere."""

    ttl: Duration | None = None
    """A row expires this long after its last write. If omitted, the job's `ttl` applies."""

    on_expire: OnExpire | None = None
    """What happens to an expired row; see the job's `on_expire`, which applies if this is omitted."""

    watermark: WatermarkSettings | None = None
    """The table's watermark, which closes windows and evicts state."""

    row_kind: RowKindSettings = RowKindSettings()
    """How a record encodes whether its row is inserted, updated or deleted."""

    start: From = From()
    """Where to start reading if there is no checkpoint."""

    @model_validator(mode="after")
    def _without_topic(self) -> Table:
        """Refuse settings about topics in a generated table."""
        if self.generate is None:
            return self
        if self.mode == "debezium":
            raise ValueError("a generated table has no Debezium envelopes: use mode append, upsert or retract")
        named = {field.alias or name: name for name, field in type(self).model_fields.items()}
        useless = [name for name, own in named.items() if own in self.model_fields_set & _ABOUT_TOPICS]
        if useless:
            raise ValueError(f"`{useless[0]}` is about a topic, but the table is generated: remove it, or `generate`")
        return self

    @property
    def needs_registry(self) -> bool:
        """Whether keys or values contain ids of schemas."""
        return self.generate is None and "avro" in (self.format, self.key_format)

    @property
    def changelog(self) -> ChangelogMode:
        """The topic's changelog mode. Debezium is `upsert` (only old keys are read), or `retract` if it is `exact`."""
        if self.mode == "debezium":
            return "retract" if self.exact else "upsert"
        return self.mode

    @property
    def unavailable(self) -> str | None:
        """The placeholder for a value that Debezium does not know, or None if there is none."""
        return self.unavailable_value or (_UNAVAILABLE if self.mode in ("debezium", "upsert") else None)

    @property
    def repeats(self) -> bool:
        """Whether an existing row may be sent again with its primary key, as a second Debezium snapshot does.

        Such a table is not treated as `exact`, even if the job says so: its rows are stored where a query depends on
        old rows.
        """
        return self.mode == "debezium" and bool(self.primary_key)

    @field_validator("on_bad_update", mode="before")
    @classmethod
    def _null(cls, value: Any) -> Any:
        """Return the word `null`, which YAML parses as None."""
        return "null" if value is None else value

    @field_validator("columns")
    @classmethod
    def _typed(cls, value: dict[str, str] | None) -> dict[str, str] | None:
        if value is not None:
            try:
                record = Record.of(value)
            except SchemaError as error:
                raise ValueError(str(error)) from None
            for field in record.fields:
                # An Avro schema may declare more digits; such values are only passed through.
                wide = next((each.required for each in field.type.walk() if each.precision > _MOST_DIGITS), None)
                if wide is not None:
                    raise ValueError(
                        f"column {field.name!r}: {wide.sql} is too wide: a decimal has up to {_MOST_DIGITS} digits, as "
                        f"DECIMAL({_MOST_DIGITS},{min(wide.scale, _MOST_DIGITS)})"
                    )
        return value

    @model_validator(mode="before")
    @classmethod
    def _nested(cls, value: Any) -> Any:
        """Accept `key: {format: …}` for `key.format: …`, the spelling of Flink's options."""
        if isinstance(value, dict) and isinstance(key := value.get("key"), dict) and [*key] == ["format"]:
            rest = {name: each for name, each in value.items() if name != "key"}
            return {"key.format": key["format"], **rest}
        return value

    @model_validator(mode="after")
    def _whole(self) -> Table:
        if self.columns is not None and self.schema_file is not None:
            raise ValueError("`columns` and `schema` cannot both be set: remove one of them")
        if self.changelog == "upsert" and not self.primary_key:
            a = "a debezium" if self.mode == "debezium" else "an upsert"
            raise ValueError(f"{a} table needs `primary_key`: the columns that identify the row to be replaced")
        if self.exact and self.changelog != "retract":
            raise ValueError(f"`exact` is only for retract and debezium tables; this table has mode {self.mode}")
        if self.on_bad_update != "keep" and self.changelog != "upsert":
            raise ValueError("`on_bad_update` is only for upsert tables, and debezium tables without `exact`")
        if self.on_truncate == "empty" and not self.repeats:
            raise ValueError("`on_truncate: empty` is only for debezium tables with a `primary_key`")
        if self.format != "avro" and self.columns is None and self.schema_file is None:
            raise ValueError(
                f"`format: {self.format}` needs `columns` or a `schema`: its columns are not in a registry"
            )
        if self.record is not None and self.format == "plain_avro":
            raise ValueError(
                "`record` selects records by the name of their type, which `format: plain_avro` does not have"
            )
        if self.key_format in ("string", "long") and len(self.primary_key) != 1:
            raise ValueError(
                f"`key.format: {self.key_format}` needs a primary key of one column, but the primary key has "
                f"{len(self.primary_key)}: {', '.join(self.primary_key) or 'none'}"
            )
        for column in self.primary_key:
            if self.columns is not None and column not in self.columns:
                raise ValueError(
                    f"the primary key has {column!r}, which is not a column; the columns are {', '.join(self.columns)}"
                )
        return self
