"""The statements of a script that a job can say: SET, CREATE TABLE, CREATE VIEW and INSERT INTO."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rowkind.service.flink.script import NotCarriedOver, Reader, Script, Word, parts
from rowkind.service.flink.types import nullable, spark_type


@dataclass(frozen=True)
class FlinkColumn:
    """A column of a table: of a `type` and in the record, or `computed` from others."""

    name: str
    at: int
    type: str = ""
    computed: tuple[Word, ...] = ()

    @property
    def is_proctime(self) -> bool:
        """Whether it is the time of processing."""
        return [word.upper for word in self.computed] == ["PROCTIME", "(", ")"]


@dataclass(frozen=True)
class FlinkOption:
    """An entry of WITH or SET."""

    value: str
    at: int


Options = Mapping[str, FlinkOption]


@dataclass(frozen=True)
class FlinkWatermark:
    """WATERMARK FOR a column AS an expression."""

    column: str
    at: int
    expression: tuple[Word, ...]


@dataclass(frozen=True)
class SetOption:
    """SET 'name' = 'value'."""

    name: str
    option: FlinkOption


@dataclass(frozen=True)
class CreateTable:
    """CREATE TABLE, with the query behind AS if there is one."""

    name: str
    at: int
    columns: tuple[FlinkColumn, ...] = ()
    primary_key: tuple[str, ...] = ()
    options: Options = field(default_factory=dict)
    query: tuple[Word, ...] = ()
    watermark: FlinkWatermark | None = None

    @property
    def record(self) -> dict[str, str]:
        """The columns that are in the topic, and their types."""
        return {
            column.name: column.type + " NOT NULL" * (column.name in self.primary_key and "NOT NULL" not in column.type)
            for column in self.columns
            if column.type
        }


@dataclass(frozen=True)
class CreateView:
    """CREATE VIEW, with the names of its columns if they are given."""

    name: str
    at: int
    columns: tuple[str, ...]
    query: tuple[Word, ...]


@dataclass(frozen=True)
class InsertInto:
    """INSERT INTO a table, some of its columns or all, with the options behind its name."""

    table: str
    at: int
    columns: tuple[str, ...]
    query: tuple[Word, ...]


Statement = SetOption | CreateTable | CreateView | InsertInto

_NOTHING: Mapping[str, str] = {
    "USE": "names are those of the job file, without catalog and database",
    "DROP": "a job file says what there is, and nothing has to be dropped",
    "SHOW": "it only shows something",
    "DESCRIBE": "it only shows something",
    "DESC": "it only shows something",
    "EXPLAIN": "`rowkind explain` shows the plan",
    "RESET": "only what is set stands in a job file",
    "ADD": "there are no jars",
    "REMOVE": "there are no jars",
    "LOAD": "there are no modules",
    "UNLOAD": "there are no modules",
    "ANALYZE": "statistics are not used",
    "QUIT": "the end",
    "EXIT": "the end",
}
_LOST: Mapping[str, str] = {
    "SELECT": "a query that only prints is no sink: write INSERT INTO a table, or keep it as a view",
    "WITH": "a query that only prints is no sink: write INSERT INTO a table, or keep it as a view",
    "ALTER": "change the CREATE statement instead",
    "DELETE": "a job writes results and deletes no rows of tables",
    "UPDATE": "a job writes results and updates no rows of tables",
    "TRUNCATE": "a job writes results and truncates no tables",
    "CALL": "there are no procedures",
}
_CREATES: Mapping[str, str] = {
    "FUNCTION": "a function of Java or Python is not carried over: write it as an expression, or as a Python function",
    "MODEL": "a model is not carried over: compute what it gives before the topic is written",
}


def read(script: Script) -> Iterator[Statement]:
    """The statements in their order. What is none of these is noted. Raises ScriptError."""
    tables: dict[str, CreateTable] = {}
    for words in script.statements():
        reader = Reader(words)
        try:
            for statement in _statement(script, reader, tables):
                if isinstance(statement, CreateTable):
                    tables[statement.name] = statement
                yield statement
        except NotCarriedOver as reason:
            script.note(reason.at, reason.text)


def _statement(script: Script, reader: Reader, tables: Mapping[str, CreateTable]) -> Iterator[Statement]:
    if _wraps_inserts(reader):
        return
    start, first = reader.start, reader.peek()
    reader.accept("EXECUTE")
    if reader.accept("SET"):
        yield from _set(reader)
    elif reader.accept("INSERT", "INTO"):
        yield _insert(reader, start)
    elif reader.accept("CREATE"):
        while reader.accept("OR", "REPLACE") or reader.accept("TEMPORARY") or reader.accept("SYSTEM"):
            pass
        kind = reader.take().upper
        if kind == "TABLE":
            yield _table(script, reader, tables)
        elif kind == "VIEW":
            yield _view(reader)
        elif kind in _CREATES:
            raise NotCarriedOver(start, f"CREATE {kind}: {_CREATES[kind]}")
        else:
            script.note(start, f"CREATE {kind}: tables are named in the job file and nowhere else", lost=False)
    elif first in _NOTHING:
        script.note(start, f"{first} is left out: {_NOTHING[first]}", lost=False)
    else:
        text = _LOST.get(first, "write INSERT INTO table SELECT …")
        raise NotCarriedOver(start, f"{first or 'this'} is not carried over: {text}")


def _wraps_inserts(reader: Reader) -> bool:
    """Take the beginning of a statement set; whether it is the end of one, and nothing else."""
    reader.accept("EXECUTE", "STATEMENT", "SET", "BEGIN")
    reader.accept("BEGIN", "STATEMENT", "SET")
    reader.accept("STATEMENT", "SET", "BEGIN")
    reader.accept("END")
    return reader.done


def _set(reader: Reader) -> Iterator[SetOption]:
    start = reader.start
    if reader.done:
        return
    words = reader.rest()
    sides = parts(words, "=")
    if len(sides) < 2:
        raise NotCarriedOver(start, "SET is written SET 'name' = 'value'")
    name, value = ("".join(word.value for word in side) for side in (sides[0], words[len(sides[0]) + 1 :]))
    yield SetOption(name, FlinkOption(value, start))


def _insert(reader: Reader, start: int) -> InsertInto:
    name = reader.name()
    columns = _names(reader) if reader.peek() == "(" and reader.peek(1) not in ("SELECT", "WITH", "(") else ()
    if reader.peek() == "VALUES":
        raise NotCarriedOver(
            reader.start, "INSERT INTO … VALUES writes rows once and is no query: bring them by `rowkind produce`"
        )
    return InsertInto(name.value, start, columns, tuple(reader.rest()))


def _view(reader: Reader) -> CreateView:
    reader.accept("IF", "NOT", "EXISTS")
    name = reader.name()
    columns = _names(reader) if reader.peek() == "(" else ()
    _comment(reader)
    reader.expect("AS")
    return CreateView(name.value, name.start, columns, tuple(reader.rest()))


def _names(reader: Reader) -> tuple[str, ...]:
    return tuple(words[0].value for words in parts(reader.parenthesised()))


def _comment(reader: Reader) -> None:
    if reader.accept("COMMENT"):
        reader.take()


def _table(script: Script, reader: Reader, tables: Mapping[str, CreateTable]) -> CreateTable:
    reader.accept("IF", "NOT", "EXISTS")
    name = reader.name()
    made = CreateTable(name.value, name.start)
    if reader.peek() == "(":
        for definition in parts(reader.parenthesised(), angles=True):
            made = _defined(script, made, definition)
    _comment(reader)
    if reader.accept("PARTITIONED", "BY"):
        reader.parenthesised()
    if reader.accept("DISTRIBUTED"):
        while reader.peek() not in ("WITH", "LIKE", "AS", ""):
            reader.take()
    if reader.accept("WITH"):
        made = replace(made, options=_options(reader.parenthesised()))
    if reader.accept("LIKE"):
        made = _like(reader, made, tables)
    return replace(made, query=tuple(reader.rest()) if reader.accept("AS") else ())


def _defined(script: Script, table: CreateTable, words: Sequence[Word]) -> CreateTable:
    """The table with one more column or constraint."""
    reader = Reader(words)
    if reader.accept("CONSTRAINT"):
        reader.name()
    if reader.accept("PRIMARY", "KEY"):
        return replace(table, primary_key=_names(reader))
    if reader.accept("WATERMARK", "FOR"):
        of = reader.name()
        reader.expect("AS")
        return replace(table, watermark=FlinkWatermark(of.value, words[0].start, tuple(reader.rest())))
    column = reader.name()
    if reader.accept("AS"):
        return _with(table, FlinkColumn(column.value, column.start, computed=_expression(reader)))
    try:
        type_ = spark_type(reader) + nullable(reader)
    except NotCarriedOver as reason:
        script.note(reason.at, f"the column {column.value} is left out: {reason.text}")
        return table
    if reader.peek() == "METADATA":
        text = (
            f"the column {column.value} is left out: METADATA of a record is no column here; let the producer write it "
            f"into the value"
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
    """The table with a column, which takes the place of one that is called the same."""
    others = tuple(each for each in table.columns if each.name != column.name)
    return replace(table, columns=(*others, column))


def _options(words: Sequence[Word]) -> Options:
    found = {}
    for entry in parts(words):
        sides = parts(entry, "=")
        if len(sides) != 2:
            raise NotCarriedOver(entry[0].start, "an option is written 'name' = 'value'")
        name, value = ("".join(word.value for word in side) for side in sides)
        found[name] = FlinkOption(value, entry[0].start)
    return found


def _like(reader: Reader, table: CreateTable, tables: Mapping[str, CreateTable]) -> CreateTable:
    """The table with what it takes from another one."""
    name = reader.name()
    if name.value not in tables:
        raise NotCarriedOver(name.start, f"there is no table {name.value} above that this one could be like")
    base = tables[name.value]
    words = [word.upper for word in reader.parenthesised()] if reader.peek() == "(" else []
    left_out = set(re.findall(r"EXCLUDING (\w+)", " ".join(words)))
    for each in table.columns:
        base = _with(base, each)
    kept = {} if left_out & {"ALL", "OPTIONS"} else base.options
    return replace(
        base,
        name=table.name,
        at=table.at,
        primary_key=table.primary_key or (() if left_out & {"ALL", "CONSTRAINTS"} else base.primary_key),
        columns=table.columns if "ALL" in left_out else base.columns,
        watermark=table.watermark or (None if left_out & {"ALL", "WATERMARKS"} else base.watermark),
        options={**kept, **table.options},
    )


_HINT = re.compile(r"/\*\+\s*OPTIONS\s*\((.*?)\)\s*\*/", re.IGNORECASE | re.DOTALL)


def hinted_options(gap: str, at: int) -> Options:
    """The options in a hint `/*+ OPTIONS('name' = 'value') */` in a piece of text, which begins at a place."""
    return {
        name: FlinkOption(value.replace("''", "'"), at + hint.start())
        for hint in _HINT.finditer(gap)
        for name, value in re.findall(r"'([^']+)'\s*=\s*'((?:[^']|'')*)'", hint[1])
    }
