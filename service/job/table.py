"""A source table in a job file, and how its topic is read."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from rowkind.avro.errors import SchemaError
from rowkind.avro.schema import Record
from rowkind.operators.changelog import ChangelogMode
from rowkind.service.job import duration
from rowkind.service.job.fields import ColumnNames, Duration, Section, TopicName, either
from rowkind.service.row_kind import PRESETS, RowKindHeader, spellings
from rowkind.service.source_table import OnExpire, Start, TopicFormat

Policy = Literal["insert", "dead_letter", "fail"]


class RowKindSettings(Section):
    """How a topic tells the row kind: a header, its spelling (`preset` or `values`), and what if it is not there.

    In a table that only inserts it need not be: each record is an insertion unless something else is said.
    """

    header: str = "op"
    preset: str = "rowkind"
    values: dict[str, str] | None = None
    missing: Policy | None = None
    unknown: Policy = "dead_letter"

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
    """Where a topic is read from when there is no checkpoint."""

    at: Literal["earliest", "latest", "timestamp", "offsets"] = "earliest"
    timestamp: datetime | None = None
    offsets: dict[int, int] = Field(default_factory=dict)
    on_lost: Literal["fail", "earliest", "latest"] = "fail"
    on_recreated: Literal["fail", "restart"] = "fail"

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

    `column` is the column with the time of the row, or an expression of SQL over the columns. `delay` is a length of
    time, or an expression too. Partitions of which nothing comes for as long as `idle` do not hold it back. What comes
    too late for everything that it could change is counted, and is a dead letter where `late` says so.
    """

    column: str
    delay: int | str = 0
    idle: Duration = 30_000
    late: Literal["drop", "dead_letter"] = "drop"

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"column": value} if isinstance(value, str) else value

    @field_validator("delay", mode="before")
    @classmethod
    def _delay(cls, value: Any) -> Any:
        if isinstance(value, str) and re.fullmatch(r"\s*0\s*(ms|s|min|m|h|d|w)?\s*", value):
            return 0
        if isinstance(value, str) and re.match(r"\s*\d", value):
            return duration.parse(value)
        if isinstance(value, int) and value < 0:
            raise ValueError("a negative delay would make rows late that are in order")
        return value


class Table(Section):
    """A source topic. Without `columns` and `schema` its columns are the registry's, under `<topic>-value`.

    `format` is how values and keys are written. In mode `debezium` values are its envelopes.
    `exact` is a promise of the producer's: every update comes as -U and +U, and every -U and -D takes back a row that
    was sent. Without it the job keeps the rows of the table wherever somebody depends on that.
    A row that was written a `ttl` ago is forgotten: what was made of it stays in the results. With `on_expire: retract`
    it is taken back from them, as if it had been deleted. Both are the job's where they are not said here.
    """

    topic: TopicName = ""
    format: TopicFormat = "avro"
    mode: Literal["append", "upsert", "retract", "debezium"]
    columns: dict[str, str] | None = None
    schema_file: str | None = Field(default=None, alias="schema")
    primary_key: ColumnNames = ()
    exact: bool = False
    ttl: Duration | None = None
    on_expire: OnExpire | None = None
    watermark: WatermarkSettings | None = None
    row_kind: RowKindSettings = RowKindSettings()
    start: From = From()

    @property
    def changelog(self) -> ChangelogMode:
        """What its changes say. Of Debezium's old rows only the key counts, unless the table is `exact`."""
        if self.mode == "debezium":
            return "retract" if self.exact else "upsert"
        return self.mode

    @field_validator("columns")
    @classmethod
    def _typed(cls, value: dict[str, str] | None) -> dict[str, str] | None:
        if value is not None:
            try:
                Record.of(value)
            except SchemaError as error:
                raise ValueError(str(error)) from None
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
        if self.format != "avro" and self.columns is None and self.schema_file is None:
            raise ValueError(f"`format: {self.format}` needs `columns` or a `schema`: no registry says what it holds")
        for column in self.primary_key:
            if self.columns is not None and column not in self.columns:
                raise ValueError(
                    f"the primary key names {column!r}, which is not among the columns {', '.join(self.columns)}"
                )
        return self
