"""Plan the drafted sinks: adapt their columns to the table, filter out rows whose key is NULL, and locate errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rowkind.avro.schema import Type
from rowkind.errors import RowkindError
from rowkind.quantities import counted
from rowkind.service.flink.by_type import casts, divisions, marked
from rowkind.service.flink.document import Commented, document
from rowkind.service.flink.drafts import SinkDraft
from rowkind.service.flink.script import Script
from rowkind.service.flink.selects import renamed, select_list, spoken, unaliased, wrapped
from rowkind.service.flink.text import Sql, Stretch
from rowkind.service.job.load import loaded
from rowkind.service.job.model import Job
from rowkind.service.physical.graph import graph
from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import PlanError, Refusal
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.pipeline import logical, plan


@dataclass(frozen=True)
class Fitted:
    """The views and sinks for the job file. A sink that could not be planned is only a comment."""

    views: dict[str, str]
    sinks: dict[str, Commented]


def fitted(script: Script, rest: Mapping[str, Any], views: Mapping[str, Sql], drafts: Sequence[SinkDraft]) -> Fitted:
    """Plan each sink in an otherwise complete job, and add Flink's implicit casts, filters and settings to the sink."""
    done_views, cast = dict(views), set[tuple[str, int]]()
    sinks: dict[str, Commented] = {}
    for draft in drafts:
        work = _Fitting(script, rest, done_views, draft, cast)
        try:
            made = work.fitted()
            comments = [_CONFLICTS[made.on_conflict]] if made.on_conflict else []
            sinks[draft.name] = Commented(comments, made.settings)
        except (PlanError, RowkindError) as error:
            at, text = work.place(error)
            script.note(at, f"INSERT INTO {draft.name} is left out: {text}")
            shown = f"{draft.name} is left out, see line {script.line(at)} above:\n{work.draft.sql}"
            sinks[draft.name] = Commented([shown])
    return Fitted({name: str(sql) for name, sql in done_views.items()}, sinks)


_CONFLICTS = {
    "last": "Several rows may have the same key: the last one to arrive is kept, as in Flink.",
    "first": "Several rows may have the same key: the first one is kept, or the next one if the first is retracted.",
}


@dataclass
class _Fitting:
    script: Script
    rest: Mapping[str, Any]
    views: dict[str, Sql]
    draft: SinkDraft
    cast: set[tuple[str, int]]

    def fitted(self) -> SinkDraft:
        """Return the draft, completed so that it can be planned. Raises PlanError or JobError."""
        self._spell()
        self._fit()
        try:
            plan(self._job(), self.draft.name)
        except PlanError as error:
            if not error.place.endswith(".key") or self.draft.mode != "upsert" or self.draft.conflict == "refuse":
                raise
            self.draft = replace(self.draft, on_conflict=self.draft.conflict)
            plan(self._job(), self.draft.name)
        return self._once()

    def _once(self) -> SinkDraft:
        """Return the draft, with `emit: final` (one result per window) if its query uses watermarks and supports it."""
        if (
            not self.draft.final
            or self.draft.mode == "append"
            or not graph([plan(self._job(), self.draft.name)]).timed_tables
        ):
            return self.draft
        without, self.draft = self.draft, replace(self.draft, emit="final")
        try:
            plan(self._job(), self.draft.name)
        except PlanError:
            self.draft = without
        return self.draft

    def _job(self, *, probe: bool = False) -> Job:
        sink = self.draft.settings | ({"mode": "retract", "key": []} if probe and not self.draft.to else {})
        sink.pop("on_conflict" if probe else "", None)
        spell = marked if probe else str
        values = {
            **self.rest,
            "views": {name: spell(str(sql)) for name, sql in self.views.items()},
            "sinks": {self.draft.name: sink | {"sql": spell(str(self.draft.sql))}},
        }
        if not self.views:
            del values["views"]
        return loaded(document(values), Path(self.script.name), {})

    def _spell(self) -> None:
        """Rewrite the expressions whose results differ between Flink and Spark, in the sink's query and in views."""
        origin = f"sinks.{self.draft.name}.sql"
        while True:
            sqls = {f"views.{name}": sql for name, sql in self.views.items()} | {origin: self.draft.sql}
            texts = {name: str(sql) for name, sql in sqls.items()}
            root = self._result()[0]
            # A cast may turn a division into an integer division, which may make the argument of an AVG an integer.
            places = {each: (each.origin, sqls[each.origin].source(each.at)) for each in casts(root, texts)}
            found = {each for each, place in places.items() if place not in self.cast} or divisions(root, texts)
            self.cast |= set(places.values())
            if not found:
                return
            for each in sorted(found, key=lambda one: one.at, reverse=True):
                sqls[each.origin] = sqls[each.origin].edited(each.edits)
            self.draft = replace(self.draft, sql=sqls.pop(origin))
            self.views.update({name.removeprefix("views."): sql for name, sql in sqls.items()})

    def _result(self) -> tuple[LogicalNode, dict[str, Type]]:
        """Return the logical plan before any pass, and the columns of the result. Raises PlanError or JobError."""
        try:
            root = logical(self._job(probe=True), self.draft.name).root
            return root, columns(root)
        except (Refusal, PlanError) as refusal:
            # Planning the texts without marks raises the error with its position.
            plan(self._job(), self.draft.name)
            raise PlanError("", refusal.text) from None

    def _fit(self) -> None:
        """Rename the columns to the table's names, cast them to its types, and filter out rows whose key is NULL."""
        draft, wanted = self.draft, list(self.draft.types.items())
        _, result = self._result()
        missing = draft.missing
        if draft.by_name:
            missing = {name: type_ for name, type_ in draft.types.items() if name not in result}
            wanted = [(name, draft.types.get(name, "")) for name in result]
        empty = self._empty(missing)
        if wanted and len(result) != len(wanted):
            found = counted(len(result), "column")
            raise PlanError("", f"its query has {found}, but the table has {len(wanted)}, not counting omitted columns")
        pairs = wanted or [(name, "") for name in result]
        listed = [
            (inner, outer, self._cast(draft, outer, type_, to))
            for (inner, type_), (outer, to) in zip(result.items(), pairs, strict=True)
        ]
        outer_of = {inner: outer for inner, outer, _ in listed}
        nulls = [
            inner
            for inner, type_ in result.items()
            if draft.mode == "upsert" and outer_of[inner] in draft.key and type_.nullable
        ]
        where = " AND ".join(f"{name} IS NOT NULL" for name in nulls)
        if nulls and not draft.nulls_dropped:
            text = (
                f"{draft.name}: rows whose key is NULL are filtered out ({where}); Flink fails on them, or drops them "
                f"if table.exec.sink.not-null-enforcer is DROP"
            )
            self.script.note(draft.at, text, lost=False)
        if not nulls and not empty and all(inner == outer and not cast for inner, outer, cast in listed):
            return
        items = None if draft.union or nulls else select_list(str(draft.sql))
        if items is not None and len(items) == len(listed):
            edits = self._in_place(str(draft.sql), items, listed)
            edits += [(items[-1][1], items[-1][1], "".join(f", {each}" for each in empty))] if empty else []
            self.draft = replace(draft, sql=draft.sql.edited(edits))
        else:
            before, behind = wrapped(listed, where, empty)
            at = draft.sql.at
            self.draft = replace(
                draft, sql=Sql((Stretch(before, at),)) + draft.sql.indented() + Sql((Stretch(behind, at),))
            )

    def _empty(self, missing: Mapping[str, str]) -> list[str]:
        """Return a NULL for each table column that the query lacks. Adds a note on those that cannot be added."""
        left_out = [name for name, type_ in missing.items() if type_.endswith("NOT NULL") or "<" in type_]
        if left_out:
            text = f"{self.draft.name}: columns that the query does not have are left out: {', '.join(left_out)}"
            self.script.note(self.draft.at, text)
        return [f"CAST(NULL AS {type_}) AS {spoken(name)}" for name, type_ in missing.items() if name not in left_out]

    def _in_place(
        self, sql: str, items: Any, listed: Sequence[tuple[str, str, str | None]]
    ) -> list[tuple[int, int, str]]:
        found = []
        for (first, last, _), (_, outer, to) in zip(items, listed, strict=True):
            if to is not None:
                end = first + len(unaliased(sql[first:last]))
                found += [(first, first, "CAST("), (end, last, f" AS {to}) AS {outer}")]
            else:
                found += renamed(sql, [(first, last, _)], [outer])
        return found

    def _cast(self, draft: SinkDraft, column: str, found: Type, declared: str) -> str | None:
        """Return the type to cast a column to, or None if readers accept its type. Adds a note for a nested type."""
        if not declared:
            return None
        to = Type.of(declared).required
        if _plain(to) == _plain(found.required) or (column in draft.key and {to.sql, found.sql} <= {"INT", "BIGINT"}):
            # A CAST would hide from the plan that the column is a key. Readers accept a narrow integer for a wide one.
            return None
        if "<" in to.sql or "<" in found.sql:
            text = f"{draft.name}: the column {column} is {found.required.sql} in the query, but {to.sql} in the table"
            self.script.note(draft.at, text)
            return None
        return to.sql

    def place(self, error: RowkindError) -> tuple[int, str]:
        """Return a planning error's position in the script, and its text."""
        if not isinstance(error, PlanError):
            return self.draft.at, str(error).partition(": ")[2] or str(error)
        if error.span is None:
            return self.draft.at, error.text
        name = error.span.origin.removeprefix("views.")
        sql = self.views.get(name, self.draft.sql) if name != error.span.origin else self.draft.sql
        return sql.source(error.span.first), error.text


def _plain(type_: Type) -> str:
    """Return a type's name without the precision of times, because readers accept both millis and micros."""
    text = type_.sql
    return text.partition("(")[0] if text.startswith("TIME") else text
