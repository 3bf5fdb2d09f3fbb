"""A source table in a job file, and how its topic is read."""

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
from rowkind.service.physical.row_kind import PRESETS, RowKindHeader, spellings
from rowkind.service.physical.source_table import KeyFormatName, OnBadUpdate, OnExpire, Start, TopicFormat

_MOST_DIGITS = 38
"""Of a decimal, as in Spark and Flink: more can be handed on, but not be computed with or compared."""

_UNAVAILABLE = "__debezium_unavailable_value"
"""Debezium's default."""

Policy = Literal["insert", "dead_letter", "fail"]


class RowKindSettings(Section):
    """How a topic tells the row kind: a header, its spelling (`preset` or `values`), and what if it is not there.

    A preset's name alone is short for it: `row_kind: ordinal`.
    """

    header: str = "op"
    """The name of the header; of several in a record the last counts."""

    preset: str = "rowkind"
    """A spelling that is known: `rowkind` (`+I`, `-U`, `+U`, `-D`), `ordinal` (0 to 3), `words` (insert, update_before,
    update_after, update, delete), `debezium` (c, r, u, d) or `diff` (1, -1)."""

    values: dict[str, str] | None = None
    """A spelling of your own in its place: the header's text to the row kind, `{new: +I, gone: -D}`."""

    missing: Policy | None = None
    """What becomes of a record without the header: it is an insertion, a dead letter, or the end of the job. If left
    out, an insertion in a table of mode `append`, and elsewhere a dead letter."""

    unknown: Policy = "dead_letter"
    """What becomes of a record with another text in the header."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"preset": value} if isinstance(value, str) else value

    @field_validator("preset")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in PRESETS:
            raise ValueError(f"{value!r} is not a spelling of row kinds: expected {either(sorted(PRESETS))}")
        return value

    @field_validator("values")
    @classmethod
    def _complete(cls, value: dict[str, str] | None) -> dict[str, str] | None:
        if value is not None:
            for word, kind in value.items():
                if kind not in _SYMBOLS:
                    raise ValueError(f"{word!r} stands for {kind!r}: expected {either(_SYMBOLS)}")
            spellings({word.encode(): _SYMBOLS[kind] for word, kind in value.items()})
        return value

    def physical(self, mode: ChangelogMode) -> RowKindHeader:
        """The header as the plan has it, of a topic of this mode."""
        values = PRESETS[self.preset]
        if self.values is not None:
            values = {word.encode(): _SYMBOLS[kind] for word, kind in self.values.items()}
        missing = self.missing or ("insert" if mode == "append" else "dead_letter")
        return RowKindHeader(self.header, values, missing, self.unknown)


_SYMBOLS = {"+I": 0, "-U": 1, "+U": 2, "-D": 3}


class From(Section):
    """Where a topic is read from when there is no checkpoint. `start: latest` is short for `start: {at: latest}`."""

    at: Literal["earliest", "latest", "timestamp", "offsets"] = "earliest"
    """The first record that there is, the end, or what `timestamp` or `offsets` say, which need no `at`."""

    timestamp: Moment | None = None
    """The first record of each partition that is as young as this time; without a zone it is UTC."""

    offsets: dict[int, int] = Field(default_factory=dict)
    """Partition to offset; partitions that are not named are read from their start."""

    on_lost: Literal["fail", "earliest", "latest"] = "fail"
    """What becomes of the job when retention has taken records that it has not read: it ends, or goes on with the first
    record that is left, or with those that come."""

    on_recreated: Literal["fail", "restart"] = "fail"
    """What becomes of the job when the topic was deleted and made anew: it ends, or is rebuilt from nothing."""

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
            raise ValueError("`at: timestamp` and `timestamp` belong together")
        if (self.at == "offsets") != bool(self.offsets):
            raise ValueError("`at: offsets` and `offsets` belong together")
        return self

    def physical(self) -> Start:
        """The start as the plan has it; a time without a zone is UTC."""
        moment = self.timestamp
        if moment is not None and moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        milliseconds = None if moment is None else round(moment.timestamp() * 1000)
        return Start(self.at, milliseconds, dict(self.offsets), self.on_lost, self.on_recreated)


class WatermarkSettings(Section):
    """Until when rows of a table may still come: the highest time seen, less the `delay`.

    A column's name alone is short for it: `watermark: at`.
    """

    column: str
    """The column with the time of a row, or an expression of SQL over the columns."""

    delay: int | str = 0
    """By how much rows may be out of order: a length of time, or an expression too, an INTERVAL or a CASE of them."""

    idle: Annotated[int, LengthOfTime] = 30_000
    """A partition of which nothing comes for so long does not hold the watermark back."""

    late: Literal["drop", "dead_letter"] = "drop"
    """What becomes of a row that comes too late for everything that it could change, beside being counted."""

    allowed_lateness: Annotated[int, LengthOfTime] = 0
    """State is kept for so long after the watermark has passed it, and rows that come as late as that are still taken:
    they correct what has gone out, final rows as well."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"column": value} if isinstance(value, str) else value

    @field_validator("delay", mode="before")
    @classmethod
    def _delay(cls, value: Any) -> Any:
        if isinstance(value, int | float) or re.match(r"\s*[-+]?\s*\d", str(value)):
            return _length(value, "a negative delay would make rows late that are in order")
        return value

    @field_validator("allowed_lateness", mode="before")
    @classmethod
    def _allowed(cls, value: Any) -> Any:
        return _length(value, "rows that are not late yet cannot be refused: make the delay shorter")

    @field_validator("idle", mode="before")
    @classmethod
    def _idle(cls, value: Any) -> Any:
        never = "every partition would be idle at once, and hold nothing back: write how long it is waited for, as 30s"
        if not (length := _length(value, never)):
            raise ValueError(never)
        return length


def _length(value: Any, negative: str) -> int:
    """A length of time in ms, which may be nothing, as a job file has it. Raises ValueError."""
    text = str(value).strip()
    if text.startswith("-"):
        raise ValueError(negative)
    if re.fullmatch(r"0+\s*(ms|s|min|m|h|d|w)?", text):
        return 0
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return duration.parse(text)


class Table(Section):
    """A source topic, under the name that the SQL has for it."""

    topic: TopicName = ""
    """The topic's name; that of the table if left out."""

    format: TopicFormat = "avro"
    """How values and keys are written: Avro with the registry's number in front, Avro alone, or JSON."""

    mode: Literal["append", "upsert", "retract", "debezium"]
    """What its changes say: rows that only come; the newest row of each primary key, and null once it is gone; rows
    that come and are taken back, by the header of `row_kind`; or Debezium's envelopes."""

    columns: dict[str, str] | None = None
    """Its columns, name to SQL type, each with or without NOT NULL. Without `columns` and `schema` they are the
    registry's, under `<topic>-value`."""

    schema_file: str | None = Field(default=None, alias="schema")
    """A file with its Avro schema in place of `columns`, seen from the job file."""

    units: dict[str, TimeUnit] = Field(default_factory=dict)
    """The unit of numbers in columns that are dates, times or timestamps, column to unit, where the topic does not say
    it: `{day: days, at: millis}`. A date has `days`, the others `seconds`, `millis`, `micros` or `nanos`."""

    record: str | None = None
    """The full name of the table's record type, such as `com.example.Order`, where the topic has several: records of
    other types are left out."""

    key_format: KeyFormatName | None = Field(default=None, alias="key.format")
    """How keys are written, if not as values are: `string`, the text without quotes; `long`, 8 bytes; `json`; or `avro`
    with the registry's number in front. Keys are read where a value is null."""

    primary_key: ColumnNames = ()
    """The columns by which a row is replaced or taken back. They are NOT NULL."""

    exact: bool = False
    """A promise of the producer's: every update comes as -U and +U, and every -U and -D takes back a row that was sent.
    Without it the job keeps the rows of the table wherever somebody depends on that. Of a `debezium` table it means
    that both rows of an envelope are read; its rows are kept all the same: a snapshot may bring them again."""

    on_truncate: Literal["refuse", "empty"] = "refuse"
    """What becomes of a `debezium` table when the database truncates it: the event is a dead letter and the rows stay,
    or all rows are retracted, for which the job keeps them. The connector needs `skipped.operations: none`."""

    on_bad_update: OnBadUpdate = "keep"
    """What becomes of a row when its update is a dead letter, in a table of mode `upsert`, or `debezium` without
    `exact`: the row is kept as it was or retracted, or the columns that cannot be read are NULL, where they may be."""

    unavailable_value: str | None = Field(default=None, min_length=1)
    """What Debezium writes in place of a large value that an update left unchanged: `unavailable.value.placeholder` of
    the connector. A row that has it in a column that is read is a dead letter. If left out, it is Debezium's default,
    `__debezium_unavailable_value`, in tables of mode `debezium` and `upsert`, and elsewhere nothing."""

    ttl: Duration | None = None
    """A row that was written so long ago is forgotten: what was made of it stays in the results. If left out, the
    job's."""

    on_expire: OnExpire | None = None
    """Whether a row whose `ttl` is over is only forgotten, or taken back from the results as if it had been deleted. If
    left out, the job's."""

    watermark: WatermarkSettings | None = None
    """Until when its rows may come, which closes windows and lets state go."""

    row_kind: RowKindSettings = RowKindSettings()
    """How a record says whether its row is inserted, updated or deleted."""

    start: From = From()
    """Where it is read from when there is no checkpoint."""

    @property
    def changelog(self) -> ChangelogMode:
        """What its changes say. Of Debezium's old rows only the key is read, unless the table is `exact`."""
        if self.mode == "debezium":
            return "retract" if self.exact else "upsert"
        return self.mode

    @property
    def unavailable(self) -> str | None:
        """The text that stands for a value which Debezium does not know."""
        return self.unavailable_value or (_UNAVAILABLE if self.mode in ("debezium", "upsert") else None)

    @property
    def repeats(self) -> bool:
        """Whether a row may be sent again that is there, under its primary key: another snapshot of Debezium's does.

        Such a table is not `exact`, whatever the job says: its rows are kept where somebody depends on old ones.
        """
        return self.mode == "debezium" and bool(self.primary_key)

    @field_validator("on_bad_update", mode="before")
    @classmethod
    def _null(cls, value: Any) -> Any:
        """The word, which YAML takes for nothing."""
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
                # An Avro schema may have more, which then are handed on.
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
        """`key: {format: …}` is `key.format: …`, as in the SQL of others."""
        if isinstance(value, dict) and isinstance(key := value.get("key"), dict) and [*key] == ["format"]:
            rest = {name: each for name, each in value.items() if name != "key"}
            return {"key.format": key["format"], **rest}
        return value

    @model_validator(mode="after")
    def _whole(self) -> Table:
        if self.columns is not None and self.schema_file is not None:
            raise ValueError("`columns` and `schema` say the same thing: keep one of them")
        if self.changelog == "upsert" and not self.primary_key:
            a = "a debezium" if self.mode == "debezium" else "an upsert"
            raise ValueError(f"{a} table needs `primary_key`: the columns that a row replaces another one by")
        if self.exact and self.changelog != "retract":
            raise ValueError(f"`exact` is said of a retract table; this one is {self.mode}")
        if self.on_bad_update != "keep" and self.changelog != "upsert":
            raise ValueError("`on_bad_update` is for an upsert table, or a debezium table without `exact`")
        if self.on_truncate == "empty" and not self.repeats:
            raise ValueError("`on_truncate: empty` is for a debezium table with a `primary_key`")
        if self.format != "avro" and self.columns is None and self.schema_file is None:
            raise ValueError(f"`format: {self.format}` needs `columns` or a `schema`: no registry says what it holds")
        if self.record is not None and self.format == "plain_avro":
            raise ValueError(
                "`record` tells record types apart by their names, which `format: plain_avro` does not have"
            )
        if self.key_format in ("string", "long") and len(self.primary_key) != 1:
            raise ValueError(
                f"`key.format: {self.key_format}` is a key of one column, but the primary key has "
                f"{len(self.primary_key)}: {', '.join(self.primary_key) or 'none'}"
            )
        for column in self.primary_key:
            if self.columns is not None and column not in self.columns:
                raise ValueError(
                    f"the primary key names {column!r}, which is not among the columns {', '.join(self.columns)}"
                )
        return self
