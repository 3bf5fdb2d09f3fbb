"""Parse CREATE TABLE: columns, key, watermark and options, including those inherited with LIKE."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from rowkind.service.flink.script import NotCarriedOver, Reader, Script, Word, parts
from rowkind.service.flink.types import nullable, spark_type


@dataclass(frozen=True)
class FlinkColumn:
    """A column of a table: either a physical column with a `type`, or `computed` from others.

    In CREATE TABLE t (a, b) AS SELECT … it has neither, because the query determines its type.
    """

    name: str
    at: int
    type: str = ""
    computed: tuple[Word, ...] = ()

    @property
    def is_proctime(self) -> bool:
        """Whether the column is PROCTIME(), the processing time."""
        return [word.upper for word in self.computed] == ["PROCTIME", "(", ")"]


@dataclass(frozen=True)
class FlinkOption:
    """The value of an option in WITH or SET, and its position in the script."""

    value: str
    at: int


Options = Mapping[str, FlinkOption]


@dataclass(frozen=True)
class FlinkWatermark:
    """A WATERMARK FOR column AS expression clause."""

    column: str
    at: int
    expression: tuple[Word, ...]


@dataclass(frozen=True)
class CreateTable:
    """A CREATE TABLE statement, with the query after AS if there is one."""

    name: str
    at: int
    columns: tuple[FlinkColumn, ...] = ()
    primary_key: tuple[str, ...] = ()
    options: Options = field(default_factory=dict)
    query: tuple[Word, ...] = ()
    watermark: FlinkWatermark | None = None

    @property
    def record(self) -> dict[str, str]:
        """The physical columns with their types. Columns of the primary key and the watermark are NOT NULL."""
        never_null = {*self.primary_key, *((self.watermark.column,) if self.watermark else ())}
        return {
            column.name: column.type
            + " NOT NULL" * (column.name in never_null and not column.type.endswith("NOT NULL"))
            for column in self.columns
            if column.type
        }


def table(script: Script, reader: Reader, tables: Mapping[str, CreateTable]) -> CreateTable:
    """Parse the rest of a CREATE TABLE. `tables` has the tables declared above it, by name. Raises NotCarriedOver."""
    reader.accept("IF", "NOT", "EXISTS")
    name = reader.name()
    made = CreateTable(name.value, name.start)
    if reader.peek() == "(":
        for definition in parts(reader.parenthesised(), angles=True):
            made = _defined(script, made, definition)
    skip_comment(reader)
    if reader.accept("PARTITIONED", "BY"):
        reader.parenthesised()
    if reader.accept("DISTRIBUTED"):
        while not reader.done and reader.peek() not in ("WITH", "LIKE", "AS"):
            reader.take()
    if reader.accept("WITH"):
        made = replace(made, options=_options(reader.parenthesised()))
    if reader.accept("LIKE"):
        made = _like(reader, made, tables)
    if reader.accept("AS"):
        return replace(made, query=tuple(reader.rest()))
    if not reader.done:
        raise NotCarriedOver(reader.start, f"CREATE TABLE {name.value}: the rest of the statement is not supported")
    for each in made.columns:
        if not each.type and not each.computed:
            script.note(each.at, f"the column {each.name} is left out: it has no type")
    return replace(made, columns=tuple(each for each in made.columns if each.type or each.computed))


def _defined(script: Script, table: CreateTable, words: Sequence[Word]) -> CreateTable:
    """Return the table with one more column, or with its primary key or watermark."""
    reader = Reader(words)
    if reader.accept("CONSTRAINT"):
        reader.name()
    if reader.accept("PRIMARY", "KEY"):
        return replace(table, primary_key=names(reader))
    if reader.accept("WATERMARK", "FOR"):
        of = reader.name()
        reader.expect("AS")
        return replace(table, watermark=FlinkWatermark(of.value, words[0].start, tuple(reader.rest())))
    column = reader.name()
    if reader.done:
        return _with(table, FlinkColumn(column.value, column.start))
    if reader.accept("AS"):
        return _with(table, FlinkColumn(column.value, column.start, computed=_expression(reader)))
    try:
        type_ = spark_type(reader) + nullable(reader)
    except NotCarriedOver as reason:
        script.note(reason.at, f"the column {column.value} is left out: {reason.text}")
        return table
    if reader.peek() == "METADATA":
        text = (
            f"the column {column.value} is left out: a record's METADATA cannot be a column; let the producer add it "
            f"to the value"
        )
        script.note(column.start, text)
        return table
    key = table.primary_key
    if reader.accept("PRIMARY", "KEY"):
        key = (*key, column.value)
    return replace(_with(table, FlinkColumn(column.value, column.start, type_)), primary_key=key)


def _expression(reader: Reader) -> tuple[Word, ...]:
    words = reader.rest()
    comments = [place for place, word in enumerate(words) if word.upper == "COMMENT"]
    return tuple(words[: comments[-1]] if comments else words)


def _with(table: CreateTable, column: FlinkColumn) -> CreateTable:
    """Return the table with one more column, which replaces a column of the same name."""
    others = tuple(each for each in table.columns if each.name != column.name)
    return replace(table, columns=(*others, column))


def _options(words: Sequence[Word]) -> Options:
    found = {}
    for entry in parts(words):
        sides = parts(entry, "=")
        if len(sides) != 2:
            raise NotCarriedOver(entry[0].start, "an option must be written as 'name' = 'value'")
        name, value = ("".join(word.value for word in side) for side in sides)
        found[name] = FlinkOption(value, entry[0].start)
    return found


def _like(reader: Reader, table: CreateTable, tables: Mapping[str, CreateTable]) -> CreateTable:
    """Return the table with everything that it inherits from another table with LIKE."""
    name = reader.name()
    if name.value not in tables:
        raise NotCarriedOver(name.start, f"LIKE {name.value}: no table of this name is declared above")
    base = tables[name.value]
    said = [word.upper for word in reader.parenthesised()] if reader.peek() == "(" else []
    takes = {feature: verb != "EXCLUDING" for verb, feature in pairwise(said)}

    def taken(feature: str) -> bool:
        return takes.get(feature, takes.get("ALL", True))

    merged = replace(base, columns=tuple(each for each in base.columns if each.type or taken("GENERATED")))
    for each in table.columns:
        merged = _with(merged, each)
    return replace(
        merged,
        name=table.name,
        at=table.at,
        primary_key=table.primary_key or (base.primary_key if taken("CONSTRAINTS") else ()),
        watermark=table.watermark or (base.watermark if taken("WATERMARKS") else None),
        options={**(base.options if taken("OPTIONS") else {}), **table.options},
    )


_HINT = re.compile(r"/\*\+\s*OPTIONS\s*\((.*?)\)\s*\*/", re.IGNORECASE | re.DOTALL)


def hinted_options(gap: str, at: int) -> Options:
    """Return the options from `/*+ OPTIONS('name' = 'value') */` hints in the text `gap`, which begins at `at`."""
    return {
        name: FlinkOption(value.replace("''", "'"), at + hint.start())
        for hint in _HINT.finditer(gap)
        for name, value in re.findall(r"'([^']+)'\s*=\s*'((?:[^']|'')*)'", hint[1])
    }


def names(reader: Reader) -> tuple[str, ...]:
    """Take and return the names in the next parentheses. Raises NotCarriedOver."""
    return tuple(words[0].value for words in parts(reader.parenthesised()))


def skip_comment(reader: Reader) -> None:
    """Skip COMMENT and its text if they come next."""
    if reader.accept("COMMENT"):
        reader.take()
