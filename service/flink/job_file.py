"""Convert a script's tables, views and INSERTs to a job file. Notes report what a job file cannot express."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rowkind.service.flink import watermarks
from rowkind.service.flink.connectors import Endpoints, length_of_time, shared, start_of, topic_of
from rowkind.service.flink.datagen import generate, uses_datagen
from rowkind.service.flink.document import Commented, document
from rowkind.service.flink.drafts import Drafting, named
from rowkind.service.flink.queries import Translator, read_tables
from rowkind.service.flink.script import NotCarriedOver, Script, ScriptError, Word
from rowkind.service.flink.selects import spoken
from rowkind.service.flink.sinks import fitted
from rowkind.service.flink.statements import CreateView, InsertInto, SetOption, Statement, read
from rowkind.service.flink.tables import CreateTable, FlinkOption, Options
from rowkind.service.flink.text import Sql, Stretch
from rowkind.service.job.load import loaded
from rowkind.service.plan.pipeline import plan_query

_UTC = ("UTC", "GMT", "Z", "Etc/UTC", "+00:00")


@dataclass(frozen=True)
class Imported:
    """The text of a job file, and the notes as lines. `whole` says whether the job does all that the script does."""

    text: str
    notes: tuple[str, ...]
    whole: bool


def imported(name: str, text: str) -> Imported:
    """Convert a script to a job file. Raises ScriptError if this is impossible."""
    script = Script(name, text)
    work = _Import(script)
    for statement in read(script):
        work.take(statement)
    found = work.finished()
    return Imported(found, tuple(script.told()), not any(note.lost for note in script.notes))


@dataclass
class _Import:
    script: Script
    tables: dict[str, CreateTable] = field(default_factory=dict)
    views: dict[str, CreateView] = field(default_factory=dict)
    inserts: dict[str, list[InsertInto]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    endpoints: Endpoints = field(default_factory=Endpoints)
    nulls_dropped: bool = False
    idle: FlinkOption | None = None
    early: bool = False

    def take(self, statement: Statement) -> None:
        """Add a statement of the script."""
        match statement:
            case SetOption():
                self._set(statement)
            case CreateTable():
                self.tables[statement.name] = statement
            case CreateView():
                self.views[statement.name] = statement
            case InsertInto():
                self.inserts.setdefault(statement.table, []).append(statement)

    def _set(self, statement: SetOption) -> None:
        name, option = statement.name, statement.option
        value = option.value
        try:
            match name:
                case "pipeline.name":
                    self.settings["job"] = re.sub(r"[^A-Za-z0-9._-]+", "-", value).strip("-.") or "job"
                case "parallelism.default" if value.isdigit():
                    self.settings["parallelism"] = int(value)
                case "table.exec.state.ttl":
                    if (length := length_of_time(option, name)) is not None:
                        self.settings["ttl"] = length
                case "state.checkpoints.dir" | "execution.checkpointing.dir":
                    self.settings["checkpoint"] = value.removeprefix("file://")
                case "table.exec.sink.not-null-enforcer":
                    self.nulls_dropped = value.upper() == "DROP"
                case watermarks.IDLE:
                    self.idle = option
                case "table.exec.emit.early-fire.enabled":
                    self.early = value.lower() == "true"
                case "table.local-time-zone" if value not in _UTC:
                    text = f"the time zone is always UTC, not {value}: use CONVERT_TIMEZONE where it matters"
                    self.script.note(option.at, text)
                case "table.local-time-zone" | "table.exec.emit.early-fire.delay":
                    pass
                case _:
                    text = f"{name} is left out: it tunes Flink and has no equivalent"
                    self.script.note(option.at, text, lost=False)
        except NotCarriedOver as reason:
            self.script.note(reason.at, reason.text)

    def finished(self) -> str:
        """Return the text of the job file. Raises ScriptError."""
        if not self.inserts:
            raise ScriptError(
                "\n".join([*self.script.told(), self._nothing("no INSERT INTO … SELECT writes a result")])
            )
        names = frozenset(self.tables) | frozenset(self.views)
        proctime = frozenset(
            column.name for table in self.tables.values() for column in table.columns if column.is_proctime
        )
        translator = Translator(self.script, names, proctime)
        reads: dict[str, dict[str, Any]] = {}
        for words in self._queries():
            for read_, options in read_tables(self.script, words, names).items():
                reads.setdefault(read_, {}).update(options)
        views = self._views(translator)
        for name, table in self.tables.items():
            if table.query and reads.pop(name, None) is not None:
                text = "its columns come from a query: use CREATE VIEW for the query, and read the view"
                self.script.note(table.at, f"{name} is not read: {text}")
        tables = {
            f"{name}_topic" if name in views else name: self._table(table, reads[name], views, translator)
            for name, table in self.tables.items()
            if name in reads
        }
        for name, table in self.tables.items():
            if name not in reads and name not in self.inserts:
                self.script.note(table.at, f"{name} is left out: no query reads or writes it", lost=False)
        drafting = Drafting(self.script, self.tables, translator, self.nulls_dropped, final=not self.early)
        drafts = list(drafting.drafts(self.inserts))
        head = self._head()
        if not tables:
            raise ScriptError("\n".join([*self.script.told(), self._nothing("no query reads a declared table")]))
        fitting = fitted(self.script, {**head, "tables": tables}, views, drafts)
        sinks = {name: each for name, each in fitting.sinks.items() if each.value is not None}
        if not sinks:
            raise ScriptError("\n".join([*self.script.told(), self._nothing("no sink can be carried over")]))
        whole = {**head, "tables": tables, "sinks": fitting.sinks}
        if fitting.views:
            whole = {**head, "tables": tables, "views": fitting.views, "sinks": fitting.sinks}
        self._check(whole)
        comment = [f"Converted from {Path(self.script.name).name} by `rowkind import`."]
        if self.script.notes:
            comment += ["Differences from the script:"]
            comment += [f"- line {self.script.line(note.at)}: {note.text}" for note in sorted(self.script.notes)]
        return document({"": Commented(comment)} | whole)

    def _check(self, whole: dict[str, Any]) -> None:
        """Check that the sinks, each of which is valid alone, are valid together. Raises JobError or PlanError."""
        job = loaded(document(whole), Path(self.script.name), {})
        plan_query(job, list(job.sinks))

    def _nothing(self, reason: str) -> str:
        return f"{self.script.name}: the script cannot be converted to a job: {reason}"

    def _queries(self) -> list[tuple[Word, ...]]:
        return [each.query for each in self.views.values()] + [
            insert.query for inserts in self.inserts.values() for insert in inserts
        ]

    def _head(self) -> dict[str, Any]:
        for table in self.tables.values():
            shared(self.script, table, self.endpoints)
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(self.script.name).stem).strip("-.") or "job"
        head: dict[str, Any] = {"job": self.settings.get("job", stem)}
        kafka = self.endpoints.kafka
        if kafka.get("bootstrap.servers"):
            head["kafka"] = dict(kafka)
        if self.endpoints.registry.get("url"):
            head["registry"] = dict(self.endpoints.registry)
        head["checkpoint"] = self.settings.get("checkpoint", f".rowkind/{head['job']}")
        for name in ("ttl", "parallelism"):
            if name in self.settings:
                head[name] = self.settings[name]
        if self.endpoints.tolerant:
            head["dead_letters"] = {"topic": f"{head['job']}-dead-letters"}
        return head

    def _views(self, translator: Translator) -> dict[str, Sql]:
        found: dict[str, Sql] = {}
        for name, table in self.tables.items():
            computed = [column for column in table.columns if column.computed and not column.is_proctime]
            try:
                if computed:
                    found[name] = self._with_computed(table, translator)
            except NotCarriedOver as reason:
                self.script.note(reason.at, f"the computed columns of {name} are left out: {reason.text}")
        for name, view in self.views.items():
            try:
                found[name] = named(translator.query(view.query), view.columns)
            except NotCarriedOver as reason:
                self.script.note(reason.at, f"the view {name} is left out: {reason.text}")
        return found

    def _with_computed(self, table: CreateTable, translator: Translator) -> Sql:
        """Return a view with a table's physical and computed columns, in their order. Raises NotCarriedOver.

        A row whose computed time attribute is NULL stops a Flink job. The view filters such rows out.
        """
        sql, where = Sql(), Sql()
        for column in table.columns:
            if not column.is_proctime:
                value = translator.query(column.computed) if column.computed else Sql()
                name = f" AS {spoken(column.name)}" if column.computed else spoken(column.name)
                before = Sql((Stretch(", " if sql.pieces else "SELECT ", column.at),))
                sql += before + value + Sql((Stretch(name, column.at),))
                if column.computed and table.watermark is not None and table.watermark.column == column.name:
                    before, behind = (Sql((Stretch(text, column.at),)) for text in (" WHERE ", " IS NOT NULL"))
                    where = before + value + behind
                    text = f"{table.name}: rows whose {column.name} is NULL are filtered out; Flink fails on them"
                    self.script.note(column.at, text, lost=False)
        return sql + Sql((Stretch(f" FROM {table.name}_topic", table.at),)) + where

    def _generated(self, table: CreateTable, options: Options, translator: Translator) -> dict[str, Any]:
        made = {"mode": "append", "generate": generate(self.script, table, options), "columns": table.record}
        time = watermarks.watermark(self.script, table, options, self.idle, translator)
        return made if time is None else {**made, "watermark": time}

    def _table(
        self, table: CreateTable, hinted: Options, views: Mapping[str, Sql], translator: Translator
    ) -> dict[str, Any]:
        options = {**table.options, **hinted}
        if uses_datagen(table):
            return self._generated(table, options, translator)
        topic = topic_of(self.script, table, sink=False)
        made: dict[str, Any] = {} if topic.name == table.name and table.name not in views else {"topic": topic.name}
        if topic.format != "avro":
            made["format"] = topic.format
        made["mode"] = topic.mode
        if topic.exact:
            made["exact"] = True
        if topic.key_format is not None:
            made["key.format"] = topic.key_format
        if table.primary_key:
            made["primary_key"] = list(table.primary_key)
        elif topic.mode == "upsert":
            self.script.note(table.at, f"{table.name}: an upsert table needs a PRIMARY KEY: add `primary_key`")
        made["columns"] = table.record
        if (time := watermarks.watermark(self.script, table, options, self.idle, translator)) is not None:
            made["watermark"] = time
        if (start := start_of(self.script, table, options)) is not None:
            made["start"] = start
        return made
