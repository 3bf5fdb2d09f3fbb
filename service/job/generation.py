"""The section `generate` of a table: the rows that the job generates instead of reading a topic."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from rowkind.avro.schema import Record
from rowkind.avro.type import Type
from rowkind.service.job.fields import Duration, Section
from rowkind.service.physical.generation import FEWEST_NEW, ColumnValues, Generation

Fraction = Annotated[float, Field(ge=0, le=1)]
Skew = Annotated[float, Field(ge=0, le=5)]


_NUMBERS = r"(TINYINT|SMALLINT|INT|BIGINT|FLOAT|DOUBLE|DECIMAL.*)"
_SIZED = r"(STRING|BINARY|ARRAY.*|MAP.*)"
_TYPES = {
    "min": _NUMBERS,
    "max": _NUMBERS,
    "skew": r"(TINYINT|SMALLINT|INT|BIGINT|DECIMAL.*|STRING)",
    "values": rf"({_NUMBERS}|STRING)",
    "length": _SIZED,
    "var_len": _SIZED,
    "max_past": r"(DATE|TIME.*)",
}
"""The SQL types of the columns to which a setting applies, as patterns."""
_BITS = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}
"""The number of bits of a whole number, without its sign."""


class GeneratedColumn(Section):
    """The values of one column of a generated table. The settings are those of Flink's datagen connector, and more."""

    kind: Literal["random", "sequence"] | None = None
    """`random`: values are drawn by the column's type. `sequence`: values are counted. If omitted, primary keys of
    whole numbers are counted, and other columns are random."""

    start: int = 1
    """The first value of a sequence."""

    end: int | None = None
    """The last value of a sequence. The table ends with it."""

    min: int | float | None = None
    """The smallest random number. If omitted, 0."""

    max: int | float | None = None
    """The largest random number. If omitted, `min` and 999."""

    skew: Skew = 0.0
    """Zipf's exponent of random whole numbers and `values`: with 1, the second most frequent value is half as frequent
    as the first. With 0, all are equally frequent."""

    values: tuple[str, ...] = ()
    """The values to choose from, in a column of text or numbers."""

    length: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """The length of random texts and bytes (8 if omitted), and of arrays and maps (3 if omitted)."""

    var_len: bool = False
    """Whether lengths are random, from 1 to `length`."""

    max_past: Duration | None = None
    """Times are up to this long before the time at which the row is generated. If omitted, they are that time."""

    null_rate: Fraction = 0.0
    """The share of NULL, in a column that allows NULL."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.kind == "sequence" and self.end is not None and self.end < self.start:
            raise ValueError(f"`end` is {self.end}, but must be at least `start`, {self.start}")
        if self.min is not None and self.max is not None and self.max < self.min:
            raise ValueError(f"`max` is {self.max}, but must be at least `min`, {self.min}")
        if self.values and (self.min is not None or self.max is not None):
            raise ValueError("`values` and the range `min` to `max` cannot be combined")
        return self

    @model_validator(mode="before")
    @classmethod
    def _counted(cls, value: Any) -> Any:
        """Set the kind of a column with `start` or `end`, which only sequences have."""
        if isinstance(value, dict) and "kind" not in value and ("start" in value or "end" in value):
            return {"kind": "sequence", **value}
        return value

    def problem(self, type_: Type, *, is_key: bool) -> str | None:
        """Return the reason why a column of this type cannot have these values, None if it can."""
        sql = type_.required.sql
        for setting, types in _TYPES.items():
            if setting in self.model_fields_set and not re.fullmatch(types, sql):
                return f"is {sql}, to which `{setting}` does not apply"
        if self.kind == "sequence" and not re.fullmatch(_NUMBERS, sql):
            return f"is {sql}, but only numbers can be a sequence"
        largest = 2 ** _BITS.get(sql, 1_000)
        for setting, number in (("min", self.min), ("max", self.max), ("start", self.start), ("end", self.end)):
            if number is not None and not -largest <= number < largest:
                return f"is {sql}, which cannot be {number}, its `{setting}`"
        if self.null_rate and (is_key or not type_.nullable):
            return "is NOT NULL, so it cannot have a `null_rate`"
        for value in self.values if sql != "STRING" else ():
            try:
                Decimal(value)
            except InvalidOperation:
                return f"is {sql}, but its value {value!r} is not a number"
        return None

    def physical(self) -> ColumnValues:
        """Return the values for the plan."""
        rest = self.model_dump(exclude={"max_past"})
        return ColumnValues(**rest, max_past_ms=self.max_past or 0)


class GenerateSettings(Section):
    """Rows that the job generates instead of reading a topic, to try a query or to measure it.

    `updates`, `deletes`, `keys` and `skew` apply to tables of mode `upsert` and `retract`. Key columns of whole numbers
    are counted up, and other columns are random by their type. Equal settings give equal rows, except for times.
    """

    rows_per_second: Annotated[float, Field(gt=0, le=100_000_000)] = 10_000.0
    """How many changes the table gets per second, from the first start of the job on, whether the job runs or not."""

    number_of_rows: Annotated[int, Field(gt=0)] | None = None
    """How many changes the table gets in all. If omitted, the table has no end."""

    updates: Fraction = 0.3
    """About this share of the changes update a row."""

    deletes: Fraction = 0.1
    """About this share of the changes delete a row. The other changes are inserts."""

    late: Fraction = 0.0
    """The share of rows whose times are 10 minutes old."""

    keys: Annotated[int, Field(gt=0, le=10_000_000)] = 10_000
    """Only so many of the latest rows are updated or deleted."""

    skew: Skew = 0.0
    """Zipf's exponent for the choice of the row that is updated or deleted. The latest row is the most likely one. With
    0, all of `keys` are equally likely."""

    seed: int = 0
    """Other seeds give other rows."""

    columns: dict[str, GeneratedColumn] = Field(default_factory=dict)
    """The values of columns, by column."""

    @field_validator("columns", mode="before")
    @classmethod
    def _choices(cls, value: Any) -> Any:
        """Accept a list of values for a column: `status: [open, paid]`."""
        if not isinstance(value, dict):
            return value
        return {name: {"values": each} if isinstance(each, list) else each for name, each in value.items()}

    @model_validator(mode="after")
    def _grows(self) -> Self:
        if (inserts := 1 - self.updates - self.deletes) < (least := self.deletes + FEWEST_NEW) - 1e-9:
            raise ValueError(
                f"`updates` and `deletes` leave a share of {max(0.0, inserts):g} for inserts, which must be at least "
                f"{least:g}: {FEWEST_NEW:g} more than `deletes`"
            )
        return self

    def problem(self, record: Record, key: Sequence[str]) -> str | None:
        """Return the reason why a table with these columns and this primary key cannot be generated, None if it can."""
        for field in record.fields:
            if field.type.opaque:
                return f"{field.name!r} is {field.type.sql}, which cannot be generated"
        for name, column in self.columns.items():
            if name not in record.names:
                return f"`generate` has {name!r}, which is not a column; the columns are {', '.join(record.names)}"
            if (problem := column.problem(record.type(name), is_key=name in key)) is not None:
                return f"{name!r} {problem}"
        return None

    def physical(self) -> Generation:
        """Return the contents of the table for the plan."""
        columns = {name: column.physical() for name, column in self.columns.items()}
        return Generation(**self.model_dump(exclude={"columns"}), columns=columns)
