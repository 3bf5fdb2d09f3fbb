"""The statements of a script that a job can say: SET, CREATE TABLE, CREATE VIEW and INSERT INTO."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rowkind.service.flink.script import NotCarriedOver, Reader, Script, Word, parts
from rowkind.service.flink.tables import CreateTable, FlinkOption, names, skip_comment, table


@dataclass(frozen=True)
class SetOption:
    """SET 'name' = 'value'."""

    name: str
    option: FlinkOption


@dataclass(frozen=True)
class CreateView:
    """CREATE VIEW, with the names of its columns if they are given."""

    name: str
    at: int
    columns: tuple[str, ...]
    query: tuple[Word, ...]


@dataclass(frozen=True)
class InsertInto:
    """A query whose result goes to a table, into some of its columns or all.

    The query's columns are the table's by their places, with `by_name` (CREATE TABLE … AS) by their names. `conflict`
    is what ON CONFLICT says about rows that share a key, as a sink's `on_conflict` has it; empty if it says nothing.
    """

    table: str
    at: int
    columns: tuple[str, ...]
    query: tuple[Word, ...]
    by_name: bool = False
    conflict: str = ""


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
    "HELP": "it only shows something",
    "CLEAR": "it only clears the screen",
    "STOP": "SIGTERM stops `rowkind run`",
    "COMPILE": "a job file holds queries, and its plan is made at each start",
}
_LOST: Mapping[str, str] = {
    "SELECT": "a query that only prints is no sink: write INSERT INTO a table, or keep it as a view",
    "WITH": "a query that only prints is no sink: write INSERT INTO a table, or keep it as a view",
    "ALTER": "change the CREATE statement instead",
    "DELETE": "a job writes results and deletes no rows of tables",
    "UPDATE": "a job writes results and updates no rows of tables",
    "TRUNCATE": "a job writes results and truncates no tables",
    "CALL": "there are no procedures",
    "EXECUTE": "it runs a plan or a statement that is not in the script: write its INSERT INTO … SELECT …",
}
_CREATES: Mapping[str, str] = {
    "FUNCTION": "a function of Java or Python is not carried over: write it as an expression, or as a Python function",
    "MODEL": "a model is not carried over: compute what it gives before the topic is written",
    "MATERIALIZED": "write CREATE TABLE … WITH (…) AS SELECT …: the result of a job is always up to date",
}
_CONFLICTS: Mapping[str, str] = {"NOTHING": "first", "DEDUPLICATE": "last", "ERROR": "refuse"}


def read(script: Script) -> Iterator[Statement]:
    """The statements in their order. What is none of these is noted. Raises ScriptError."""
    tables: dict[str, CreateTable] = {}
    in_unused_set = False
    for words in script.statements():
        keywords = [word.upper for word in words]
        if in_unused_set:
            in_unused_set = keywords != ["END"]
            continue
        # EXPLAIN and COMPILE PLAN only look at the INSERTs of a set, all of which are statements up to END.
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
        text = _LOST.get(first, "write INSERT INTO table SELECT …")
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
        script.note(start, f"CREATE {kind}: tables are named in the job file and nowhere else", lost=False)


def _wraps_inserts(reader: Reader) -> bool:
    """Take the beginning of a statement set; whether it is the beginning or the end of one, and nothing else."""
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
    if reader.accept("OVERWRITE"):
        text = "INSERT OVERWRITE is not carried over: a job does not replace a table at once: write INSERT INTO"
        raise NotCarriedOver(start, text)
    reader.expect("INTO")
    name = reader.name()
    if reader.peek() == "PARTITION":
        text = "a topic is not partitioned by columns: select the values that PARTITION gives"
        raise NotCarriedOver(reader.start, f"the INSERT into {name.value} is left out: {text}")
    columns = names(reader) if reader.peek() == "(" and reader.peek(1) not in ("SELECT", "WITH", "(") else ()
    if reader.peek() == "VALUES":
        raise NotCarriedOver(
            reader.start, "INSERT INTO … VALUES writes rows once and is no query: bring them by `rowkind produce`"
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
