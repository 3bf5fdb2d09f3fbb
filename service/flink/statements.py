"""Parse the statements of a script that a job can express: SET, CREATE TABLE, CREATE VIEW and INSERT INTO."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rowkind.service.flink.script import NotCarriedOver, Reader, Script, Word, parts
from rowkind.service.flink.tables import CreateTable, FlinkOption, names, skip_comment, table


@dataclass(frozen=True)
class SetOption:
    """A SET 'name' = 'value' statement."""

    name: str
    option: FlinkOption


@dataclass(frozen=True)
class CreateView:
    """A CREATE VIEW statement, with its column names if they are given."""

    name: str
    at: int
    columns: tuple[str, ...]
    query: tuple[Word, ...]


@dataclass(frozen=True)
class InsertInto:
    """An INSERT INTO statement: a query, and the table and `columns` to which its result is written.

    If `columns` is empty, the result has all columns of the table. The query's columns correspond to the table's by
    position or, if `by_name` is set (CREATE TABLE … AS), by name. `conflict` is the ON CONFLICT policy for rows with
    the same key, as a value of the `on_conflict` setting; empty if there is none.
    """

    table: str
    at: int
    columns: tuple[str, ...]
    query: tuple[Word, ...]
    by_name: bool = False
    conflict: str = ""


Statement = SetOption | CreateTable | CreateView | InsertInto

_NOTHING: Mapping[str, str] = {
    "USE": "names in a job file have no catalog and no database",
    "DROP": "a job file lists only what exists, so nothing needs to be dropped",
    "SHOW": "it only displays information",
    "DESCRIBE": "it only displays information",
    "DESC": "it only displays information",
    "EXPLAIN": "`rowkind explain` shows the plan",
    "RESET": "a job file has only settings that differ from their defaults",
    "ADD": "jars are not used",
    "REMOVE": "jars are not used",
    "LOAD": "modules are not used",
    "UNLOAD": "modules are not used",
    "ANALYZE": "statistics are not used",
    "QUIT": "it only ends the session",
    "EXIT": "it only ends the session",
    "HELP": "it only displays information",
    "CLEAR": "it only clears the screen",
    "STOP": "SIGTERM stops `rowkind run`",
    "COMPILE": "a job file has queries, which are planned at each start",
}
_LOST: Mapping[str, str] = {
    "SELECT": "its result is only printed: use INSERT INTO a table, or make it a view",
    "WITH": "its result is only printed: use INSERT INTO a table, or make it a view",
    "ALTER": "change the CREATE statement instead",
    "DELETE": "a job writes results and does not delete rows from tables",
    "UPDATE": "a job writes results and does not update rows of tables",
    "TRUNCATE": "a job writes results and does not truncate tables",
    "CALL": "procedures are not supported",
    "EXECUTE": "it runs a plan or a statement that is not in the script: write its INSERT INTO … SELECT …",
}
_CREATES: Mapping[str, str] = {
    "FUNCTION": "Flink's own Java and Python functions are not supported: write an expression, or a Python function",
    "MODEL": "a model is not supported: compute its results before the topic is written",
    "MATERIALIZED": "use CREATE TABLE … WITH (…) AS SELECT …; a job's result is always up to date",
}
_CONFLICTS: Mapping[str, str] = {"NOTHING": "first", "DEDUPLICATE": "last", "ERROR": "refuse"}


def read(script: Script) -> Iterator[Statement]:
    """Yield the statements that a job can express, in order. Adds a note for each of the others. Raises ScriptError."""
    tables: dict[str, CreateTable] = {}
    in_unused_set = False
    for words in script.statements():
        keywords = [word.upper for word in words]
        if in_unused_set:
            in_unused_set = keywords != ["END"]
            continue
        # EXPLAIN and COMPILE PLAN do not run the INSERTs of a statement set, so skip them up to END.
        only_planned = keywords[0] in ("EXPLAIN", "COMPILE") and keywords[1:3] != ["AND", "EXECUTE"]
        in_unused_set = only_planned and "BEGIN" in keywords
        reader = Reader(words)
        try:
            for statement in _statement(script, reader, tables):
                if isinstance(statement, CreateTable):
                    tables[statement.name] = statement
                yield statement
        except NotCarriedOver as reason:
            script.note(reason.at, reason.text)


def _statement(script: Script, reader: Reader, tables: Mapping[str, CreateTable]) -> Iterator[Statement]:
    if reader.accept("COMPILE", "AND", "EXECUTE", "PLAN"):
        while not reader.accept("FOR"):
            reader.take()
    if _wraps_inserts(reader):
        return
    start, first = reader.start, reader.peek()
    if reader.peek(1) == "INSERT":
        reader.accept("EXECUTE")
    if reader.accept("SET"):
        yield from _set(reader)
    elif reader.accept("INSERT"):
        yield _insert(reader, start)
    elif reader.accept("CREATE") or reader.peek() == "REPLACE":
        yield from _create(script, reader, start, tables)
    elif first in _NOTHING:
        script.note(start, f"{first} is left out: {_NOTHING[first]}", lost=False)
    else:
        text = _LOST.get(first, "use INSERT INTO table SELECT …")
        raise NotCarriedOver(start, f"{first or 'this'} is not carried over: {text}")


def _create(script: Script, reader: Reader, start: int, tables: Mapping[str, CreateTable]) -> Iterator[Statement]:
    while reader.accept("OR") or reader.accept("REPLACE") or reader.accept("TEMPORARY") or reader.accept("SYSTEM"):
        pass
    kind = reader.take().upper
    if kind == "TABLE":
        made = table(script, reader, tables)
        yield made
        if made.query:
            yield InsertInto(made.name, made.at, (), made.query, by_name=True)
    elif kind == "VIEW":
        yield _view(reader)
    elif kind in _CREATES:
        raise NotCarriedOver(start, f"CREATE {kind}: {_CREATES[kind]}")
    else:
        script.note(start, f"CREATE {kind} is left out: a job file has no equivalent", lost=False)


def _wraps_inserts(reader: Reader) -> bool:
    """Skip the words that begin or end a statement set. Return whether the statement has no other words."""
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
        raise NotCarriedOver(start, "SET has no value: write SET 'name' = 'value'")
    name, value = ("".join(word.value for word in side) for side in (sides[0], words[len(sides[0]) + 1 :]))
    yield SetOption(name, FlinkOption(value, start))


def _insert(reader: Reader, start: int) -> InsertInto:
    if reader.accept("OVERWRITE"):
        text = "INSERT OVERWRITE is not carried over, because a job does not replace whole tables: use INSERT INTO"
        raise NotCarriedOver(start, text)
    reader.expect("INTO")
    name = reader.name()
    if reader.peek() == "PARTITION":
        text = "a topic is not partitioned by columns: add the values of PARTITION to the SELECT list"
        raise NotCarriedOver(reader.start, f"the INSERT into {name.value} is left out: {text}")
    columns = names(reader) if reader.peek() == "(" and reader.peek(1) not in ("SELECT", "WITH", "(") else ()
    if reader.peek() == "VALUES":
        raise NotCarriedOver(
            reader.start, "INSERT INTO … VALUES writes rows once and is not a query: use `rowkind produce`"
        )
    query = reader.rest()
    conflict = ""
    if [word.upper for word in query[-4:-1]] == ["ON", "CONFLICT", "DO"] and query[-1].upper in _CONFLICTS:
        conflict = _CONFLICTS[query[-1].upper]
        query = query[:-4]
    return InsertInto(name.value, start, columns, tuple(query), conflict=conflict)


def _view(reader: Reader) -> CreateView:
    reader.accept("IF", "NOT", "EXISTS")
    name = reader.name()
    columns = names(reader) if reader.peek() == "(" else ()
    skip_comment(reader)
    reader.expect("AS")
    return CreateView(name.value, name.start, columns, tuple(reader.rest()))
