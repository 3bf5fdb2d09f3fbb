# ruff: noqa: S608 - every name in a statement is quoted
"""Judge a sink: compare the rows of its topic with DuckDB's results over the folded tables.

exact      DuckDB computes the query; columns with unknown values are left out (`unknown`)
limited    DuckDB cannot compute it, and only rows that no source explains are found (`possible`)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rowkind.quantities import counted
from rowkind.service.client.folded_topics import FoldedTable, FoldedTopics
from rowkind.service.execute.job_functions import make_known
from rowkind.service.job.model import Job
from rowkind.service.physical.graph import graph
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.physical.operators import PhysicalMatch, PhysicalTemporalFilter
from rowkind.service.physical.tree import walk
from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import enclosing_span
from rowkind.service.plan.passes.extract_equal_keys import extracted
from rowkind.service.plan.pipeline import source_table, texts
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.typed import quoted
from rowkind.service.plan.traits.event_times import event_times
from rowkind.service.python.function import PythonFunction
from rowkind.service.verify.certainty import (
    EXPIRED,
    SureRows,
    check_retractions,
    sure_rows,
    ttl_of,
    watermark_at_least,
)
from rowkind.service.verify.compare import AuditedPart, Compared, Difference, Sides, compare
from rowkind.service.verify.cut import BatchCut
from rowkind.service.verify.errors import NotComparedError
from rowkind.service.verify.lineage import origins
from rowkind.service.verify.possible import possible_rows
from rowkind.service.verify.relations import BatchStatement, statement
from rowkind.service.verify.unknown import UnknownColumn

_MOST_DIFFERENCES = 5
_MOST_SOURCES = 3
_RANDOM_FORMS = 16
"""How many random parts of the rows in doubt are tried for a difference, before it counts."""

Verdict = Literal["ok", "differs", "not compared"]


@dataclass(frozen=True)
class RowBehind:
    """A row of a source that has the key of a row that differs."""

    table: str
    topic: str
    partition: int
    offset: int
    row: dict[str, Any]


@dataclass(frozen=True)
class SinkAudit:
    """The audit of a sink.

    - `reason`: why the sink is not compared. `notes`: which of its rows are not compared, and why.
    - `compared`: the numbers of rows, and the first differences, each with its rows of the sources in `sources`.
    """

    sink: str
    topic: str
    verdict: Verdict
    reason: str = ""
    notes: tuple[str, ...] = ()
    compared: Compared = field(default_factory=lambda: Compared(0, 0, 0, 0))
    sources: tuple[tuple[RowBehind, ...], ...] = ()


@dataclass
class SinkJudge:
    """Judges sinks of a job whose topics and tables are folded."""

    job: Job
    topics: FoldedTopics
    part: AuditedPart
    known: dict[str, str] = field(default_factory=dict)

    def exact(
        self, sink: PhysicalSink, query: Query, tables: Mapping[str, FoldedTable], result: FoldedTable, cut: BatchCut
    ) -> SinkAudit:
        """Return the audit of a sink whose topic and tables are folded. Raises NotComparedError or duckdb.Error."""
        names = {table: quoted(table) for table in self.job.tables}
        plain = statement(query.root, names, _unknown_times(self.job))
        self._register(plain.functions)
        unknown = _not_compared_columns(sink, query, result, plain)
        timed = graph([sink]).timed_tables
        sure = {
            table: sure_rows(self.topics.connection, each, cut.batches, ttl_of(query, table), timed=table in timed)
            for table, each in tables.items()
        }
        if any(EXPIRED in each.reasons for each in sure.values()):
            check_retractions(query)
        final, waits = self._final(sink, query, tables, cut)
        several = self.job.sinks[sink.name].on_conflict != "refuse"
        doubted = bool(plain.ties) or any(each.reasons for each in sure.values())
        compared = compare(
            self.topics.connection,
            Sides(
                columns=result.columns,
                key=_key(sink, result),
                expected=plain.sql,
                sure=_forms(query, sure) if doubted else (),
                found=quoted(result.name),
                own=result.own,
                extra_unsure=doubted or several,
                limits=lambda: self._limits(query, tables, sure),
                unknown=unknown,
                final=final,
                several=several,
            ),
            self.part,
            _MOST_DIFFERENCES,
        )
        notes = [f"column {name} not compared: {with_place(self.job, why)}" for name, why in unknown.items()]
        return self._outcome(sink, query, result, compared, [*notes, *_notes(plain, sure, waits, compared)])

    def limited(
        self,
        sink: PhysicalSink,
        query: Query,
        tables: Mapping[str, FoldedTable],
        result: FoldedTable,
        error: NotComparedError,
    ) -> SinkAudit:
        """Return the audit of a sink whose result cannot be computed: only rows that no source explains are found.

        Raises the given error if no row is excluded by the sources, or duckdb.Error.
        """
        if (limits := self._limits(query, tables, {})) is None or not limits[1]:
            raise error
        names = ", ".join(result.columns[at] for at in limits[1])
        sides = Sides(
            columns=result.columns,
            key=_key(sink, result),
            expected=f"SELECT {', '.join(map(quoted, result.columns))} FROM {quoted(result.name)} LIMIT 0",
            sure=(),
            found=quoted(result.name),
            own=result.own,
            extra_unsure=True,
            limits=lambda: limits,
        )
        compared = compare(self.topics.connection, sides, self.part, _MOST_DIFFERENCES)
        why = with_place(self.job, error)
        note = f"only a row whose {names} no row of the sources gives would be reported"
        audit = self._outcome(sink, query, result, compared, [note])
        return audit if audit.verdict == "differs" else replace(audit, verdict="not compared", reason=why)

    def _register(self, functions: Iterable[PythonFunction]) -> None:
        for function in functions:
            make_known(self.topics.connection, self.known, function)

    def _limits(
        self, query: Query, tables: Mapping[str, FoldedTable], sure: Mapping[str, SureRows]
    ) -> tuple[str, Sequence[int]] | None:
        """Return a statement with all rows that may be right, and the positions of its known columns; None if none."""
        # The results of an expired row stay after the row has been updated.
        expired = (table for table, each in sure.items() if EXPIRED in each.reasons)
        ttl = (table for table in tables if not sure and ttl_of(query, table) is not None)
        if any(tables[table].source.mode != "append" for table in (*expired, *ttl)):
            return None
        names = {table: quoted(table) for table in self.job.tables}
        try:
            found = possible_rows(query.root, names, _unknown_times(self.job))
        except NotComparedError:
            return None
        self._register(found.functions)
        return found.sql, found.known

    def _outcome(
        self, sink: PhysicalSink, query: Query, result: FoldedTable, compared: Compared, notes: list[str]
    ) -> SinkAudit:
        broken = result.undecodable + result.overdrawn
        if result.undecodable:
            notes.append(f"records of the topic that cannot be decoded: {result.undecodable:,}")
        if result.overdrawn:
            notes.append(f"rows of the topic that were retracted more often than inserted: {result.overdrawn:,}")
        if compared.split:
            has = "has" if compared.split == 1 else "have"
            notes.append(
                f"{counted(compared.split, 'key')} {has} rows in several partitions of the topic. Which row counts "
                "depends on the consumer. Another program may have written the topic"
            )
        verdict: Verdict = "differs" if compared.different or broken else "ok"
        key = sink.key or sink.value.names
        sources = tuple(self._sources(query, key, each) for each in compared.first)
        compared = replace(compared, different=compared.different + broken)
        return SinkAudit(sink.name, sink.topic, verdict, "", tuple(notes), compared, sources)

    def _final(
        self, sink: PhysicalSink, query: Query, tables: Mapping[str, FoldedTable], cut: BatchCut
    ) -> tuple[str | None, bool]:
        """Return the condition that is true for rows that must have been written, and whether any row may wait."""
        timed = graph([sink]).timed_tables
        waits = any(isinstance(node, PhysicalTemporalFilter | PhysicalMatch) for node in walk(sink))
        if not waits and not (timed and (sink.mode == "append" or query.sink.emit == "final")):
            return None, False
        for column, time in event_times(query.root).items():
            marks = [
                watermark_at_least(self.topics.connection, tables[each.table], cut.batches)
                for each in time.origins
                if each.table in tables
            ]
            if len(marks) == len(time.origins) and None not in marks:
                least = min(mark for mark in marks if mark is not None)
                return f"epoch_us(CAST({quoted(column)} AS TIMESTAMP)) < {least - time.slack}", True
        return "FALSE", True

    def _sources(self, query: Query, key: Sequence[str], difference: Difference) -> tuple[RowBehind, ...]:
        """Return the first rows of the sources that have the key of a row that differs."""
        row = difference.expected or difference.found or {}
        root, by_table = extracted(query.root), dict[str, dict[str, Any]]()
        for name in key:
            for of, column in origins(root, name):
                by_table.setdefault(of, {})[column] = row.get(name)
        found = []
        for name, values in sorted(by_table.items()):
            table = self.topics.tables[name]
            where = " AND ".join(f"{quoted(column)} IS NOT DISTINCT FROM ?" for column in values)
            shown = ", ".join(map(quoted, [*table.own[:2], *table.columns]))
            rows = self.topics.connection.execute(
                f"SELECT {shown} FROM {quoted(name)} WHERE {where} LIMIT {_MOST_SOURCES}", list(values.values())
            ).fetchall()
            for partition, offset, *own in rows:
                values_of = dict(zip(table.columns, own, strict=True))
                found.append(RowBehind(name, table.source.topic, partition, offset, values_of))
        return tuple(found)


def _not_compared_columns(
    sink: PhysicalSink, query: Query, result: FoldedTable, plain: BatchStatement
) -> dict[str, UnknownColumn]:
    """Return the columns of a result that are not compared, and why. Raises NotComparedError if no row is known."""
    names = dict(zip(columns(extracted(query.root)), sink.value.names, strict=True))
    found = {names[each]: why for each, why in plain.unknown.items()}
    for name, why in found.items():
        if name in sink.key or len(found) == len(names):
            raise NotComparedError(why.reason, why.at)
    return {result.columns[sink.value.index(name)]: why for name, why in found.items()}


def _key(sink: PhysicalSink, result: FoldedTable) -> list[str]:
    """Return the columns that pair rows, in the topic of an upsert sink."""
    return [result.columns[sink.value.index(each)] for each in sink.key] if sink.mode == "upsert" else []


def _unknown_times(job: Job) -> dict[str, dict[str, UnknownColumn]]:
    """Return the columns of generated tables whose values count from the start of the job."""
    found = {}
    for name in job.tables:
        if (source := source_table(job, name)).generation is not None:
            why = UnknownColumn(f"the times of table {name} are generated from the time when the job first began")
            times = [each.name for each in source.declared.fields if re.search("TIME|DATE", each.type.sql)]
            found[name] = dict.fromkeys(times, why)
    return found


def _forms(query: Query, sure: Mapping[str, SureRows]) -> Iterator[str]:
    """Yield the statements that a row must be in to surely count.

    The first one has only what surely counts. The sum of rows in doubt may be 0, so the others have random parts of
    these rows, and random orders of tied rows.
    """
    yield statement(query.root, {table: each.relation for table, each in sure.items()}, certain=True).sql
    some = {table: each.some for table, each in sure.items()}
    yield from (statement(query.root, some, seed=seed).sql for seed in range(1, _RANDOM_FORMS + 1))


def _notes(plain: BatchStatement, sure: Mapping[str, SureRows], waits: bool, compared: Compared) -> list[str]:
    """Return what is not compared, and why."""
    notes = []
    if compared.unsure:
        reasons = [*plain.ties, *(f"{why} in table {table}" for table, each in sure.items() for why in each.reasons)]
        notes.append(
            f"{counted(compared.unsure, 'row')} not compared: "
            f"{'; '.join(reasons) or '`on_conflict` keeps one row of a key'}"
        )
    if waits and compared.pending:
        notes.append(
            f"{counted(compared.pending, 'row')} not compared, because the watermark may not have reached them"
        )
    return notes


def with_place(job: Job, error: NotComparedError | UnknownColumn) -> str:
    """Return the reason, with the position in the SQL."""
    found = enclosing_span(error.at)
    if found is None:
        return error.reason
    sql = texts(job)[found.origin]
    line = sql.count("\n", 0, found.first) + 1
    column = found.first - (sql.rfind("\n", 0, found.first) + 1) + 1
    return f"{error.reason} ({found.origin}, line {line}, column {column})"
