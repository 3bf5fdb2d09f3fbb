"""Draft a sink for each table that a script's INSERTs write to: its columns, key and mode, before it is planned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowkind.service.flink.connectors import TOPICLESS, TableTopic, topic_of
from rowkind.service.flink.queries import Translator
from rowkind.service.flink.script import NotCarriedOver, Script
from rowkind.service.flink.selects import renamed, select_list
from rowkind.service.flink.statements import InsertInto
from rowkind.service.flink.tables import CreateTable
from rowkind.service.flink.text import Sql, Stretch


@dataclass(frozen=True)
class SinkDraft:
    """A draft of a sink: its destination, the columns and types of its table, and its query so far.

    `to` is `print`, `blackhole`, or empty for a topic. `prefix` begins the lines of a print sink.

    The query's columns correspond to `types` by position or, if `by_name` is set, by name. With `by_name`, the query's
    other columns are kept, too. The columns in `missing` are not in the query and become NULL. `conflict` is the
    `on_conflict` setting to use if the sink's key is not unique in the result.
    """

    name: str
    at: int
    topic: str
    format: str
    mode: str
    key: tuple[str, ...]
    types: Mapping[str, str]
    missing: Mapping[str, str]
    sql: Sql
    union: bool
    by_name: bool
    conflict: str
    nulls_dropped: bool
    final: bool = False
    to: str = ""
    prefix: str = ""
    on_conflict: str = ""
    emit: str = ""

    @property
    def settings(self) -> dict[str, Any]:
        """The sink's entry in the job file."""
        made: dict[str, Any] = {"to": self.to} if self.to else self._of_topic
        if self.prefix:
            made["prefix"] = self.prefix
        if self.emit:
            made["emit"] = self.emit
        return made | {"sql": str(self.sql)}

    @property
    def _of_topic(self) -> dict[str, Any]:
        made: dict[str, Any] = {} if self.topic == self.name else {"topic": self.topic}
        if self.format != "avro":
            made["format"] = self.format
        made["mode"] = self.mode
        if self.key and self.mode != "append":
            made["key"] = list(self.key)
        if self.on_conflict:
            made["on_conflict"] = self.on_conflict
        return made


@dataclass(frozen=True)
class Drafting:
    """Context for drafting sinks. `nulls_dropped` and `final` come from SET statements and apply to all sinks."""

    script: Script
    tables: Mapping[str, CreateTable]
    translator: Translator
    nulls_dropped: bool
    final: bool

    def drafts(self, inserts: Mapping[str, Sequence[InsertInto]]) -> Iterator[SinkDraft]:
        """Yield a draft for each table with INSERTs. Adds a note for each table that is left out."""
        for name, own in inserts.items():
            try:
                yield self._draft(name, own)
            except NotCarriedOver as reason:
                self.script.note(reason.at, f"INSERT INTO {name} is left out: {reason.text}")

    def _draft(self, name: str, inserts: Sequence[InsertInto]) -> SinkDraft:
        """Draft the sink of one table. Raises NotCarriedOver."""
        first, table = inserts[0], self.tables.get(name)
        if table is None:
            raise NotCarriedOver(first.at, f"there is no CREATE TABLE {name}")
        if apart := [insert for insert in inserts if insert.columns != first.columns]:
            text = "its INSERTs list different columns: list the same columns in the same order"
            raise NotCarriedOver(apart[0].at, text)
        topic = topic_of(self.script, table, sink=True)
        given = first.columns or tuple(table.record)
        if topic.format == "plain_avro":
            self.script.note(first.at, f"{name}: Avro is written in the registry's wire format, not as plain Avro")
        if topic.mode == "debezium":
            text = f"{name}: Debezium envelopes cannot be written: in mode retract, the row kind is in a record header"
            self.script.note(first.at, text)
        return SinkDraft(
            name=name,
            at=first.at,
            topic=topic.name,
            format="json" if topic.format == "json" else "avro",
            mode=_mode(topic, table),
            key=() if topic.mode in TOPICLESS else table.primary_key,
            types={column: table.record[column] for column in given if column in table.record},
            missing={column: type_ for column, type_ in table.record.items() if column not in given},
            sql=self._query(inserts, given),
            union=len(inserts) > 1,
            by_name=first.by_name,
            conflict=next((insert.conflict for insert in inserts if insert.conflict), "last"),
            nulls_dropped=self.nulls_dropped,
            final=self.final,
            to=topic.mode if topic.mode in TOPICLESS else "",
            prefix=_prefix(table) if topic.mode == "print" else "",
        )

    def _query(self, inserts: Sequence[InsertInto], columns: tuple[str, ...]) -> Sql:
        """Return the queries of a table's INSERTs, combined with UNION ALL. Raises NotCarriedOver."""
        sql = Sql()
        for insert in inserts:
            query = self.translator.query(insert.query)
            if not insert.by_name:
                query = named(query, columns, only_if_known=True)
            sql = query if not sql.pieces else sql + Sql((Stretch("\nUNION ALL\n", insert.at),)) + query
        return sql


def _prefix(table: CreateTable) -> str:
    """Return the beginning of the lines that a print sink prints, if the script sets it."""
    identifier = table.options.get("print-identifier")
    return "" if identifier is None else identifier.value


def _mode(topic: TableTopic, table: CreateTable) -> str:
    """Return the mode of the sink that replaces a table."""
    connector = table.options.get("connector")
    if topic.mode in ("debezium", *TOPICLESS):
        return "retract"
    if connector is not None and topic.mode != "append":
        return topic.mode
    if connector is not None and connector.value == "kafka":
        return "append"
    return "upsert" if table.primary_key else topic.mode


def named(query: Sql, names: tuple[str, ...], *, only_if_known: bool = False) -> Sql:
    """Rename a query's columns to `names`.

    If `only_if_known` is set, a query stays unchanged if its text does not list its columns, as in SELECT *.
    """
    items = select_list(str(query))
    if not names:
        return query
    if items is not None and len(items) == len(names):
        return query.edited(renamed(str(query), items, names))
    if only_if_known:
        return query
    listed = ", ".join(names)
    return (
        Sql((Stretch("SELECT * FROM (\n  ", query.at),))
        + query.indented()
        + Sql((Stretch(f"\n) AS named({listed})", query.at),))
    )
