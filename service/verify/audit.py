# ruff: noqa: S608 - every name in a statement is quoted
"""`rowkind verify`: audit the result topics of a job against DuckDB.

    a cut                      the offsets of sources and results after the same batch (`cut`)
    expected rows              the sources folded up to the cut, and the sink's query over them (`relations`)
    rows in doubt              expired, late or tied rows do not count against the job (`certainty`)
    differences                rows of the topic that are not expected, and expected rows that it lacks (`compare`)

If a sink differs and the job has gone on meanwhile, all is repeated at a later cut, and only what differs there is
reported. A difference that is not real, such as one in the middle of a batch, is gone then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import duckdb

from rowkind.quantities import counted
from rowkind.service.client.external_table import JobFile, opened, readable_topic
from rowkind.service.client.folded_topics import FoldedTable, FoldedTopics
from rowkind.service.execute.job_functions import make_known
from rowkind.service.execute.kernels import register
from rowkind.service.job.model import Job
from rowkind.service.kafka.cluster import Cluster
from rowkind.service.physical.graph import graph
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.physical.operators import PhysicalMatch, PhysicalTemporalFilter
from rowkind.service.physical.source_table import Start
from rowkind.service.physical.tree import walk
from rowkind.service.plan.errors import Refusal, enclosing_span
from rowkind.service.plan.passes.extract_equal_keys import extracted
from rowkind.service.plan.pipeline import check_sink, logical, plan, source_table, texts
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.typed import quoted
from rowkind.service.plan.traits.event_times import event_times
from rowkind.service.verify.certainty import (
    EXPIRED,
    SureRows,
    check_retractions,
    sure_rows,
    ttl_of,
    watermark_at_least,
)
from rowkind.service.verify.compare import AuditedPart, Compared, Difference, Sides, compare
from rowkind.service.verify.cut import BatchCut, NoCutError, find_cut, progress_of_sinks
from rowkind.service.verify.errors import NotComparedError
from rowkind.service.verify.lineage import origins
from rowkind.service.verify.relations import BatchStatement, statement

Verdict = Literal["ok", "differs", "not compared"]

_MOST_DIFFERENCES = 5
_MOST_SOURCES = 3
_RANDOM_FORMS = 16
"""How many random parts of the rows in doubt are tried for a difference, before it counts."""

_LOOKS = 3
"""How often a sink that differs is compared, if the job goes on meanwhile."""


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


def audit(
    job: JobFile, sinks: Sequence[str] = (), part: AuditedPart | None = None, memory: str = "1GB"
) -> Iterator[SinkAudit]:
    """Audit the sinks of these names, or all. `memory`: the limit of DuckDB's memory; more is spilled to disk.

    Raises OutsideError, JobError, PlanError, RegistryError or ChangelogError.
    """
    job = opened(job)
    for name in sinks:
        check_sink(job, name)
    found = progress_of_sinks(job.brokers, job.name)
    by_query: dict[str, list[str]] = {}
    for name in sinks or job.sinks:
        if (to := job.sinks[name].to) != "topic":
            yield _not_compared(job, name, f"it has no topic (`to: {to}`)")
        elif name in found:
            by_query.setdefault(found[name][0], []).append(name)
        else:
            yield _not_compared(job, name, "the job has not written a batch of it yet")
    with FoldedTopics(job, memory=memory) as topics:
        topics.connection.execute("SET disabled_optimizers = 'common_subexpressions'")
        register(topics.connection)
        for progress_topic, names in by_query.items():
            yield from QueryAudit(job, topics, progress_topic, part or AuditedPart()).audits(names)


def _not_compared(job: Job, sink: str, reason: str) -> SinkAudit:
    return SinkAudit(sink, job.sinks[sink].topic, "not compared", reason)


@dataclass
class QueryAudit:
    """The audit of the sinks of one query, which share a cut."""

    job: Job
    topics: FoldedTopics
    progress_topic: str
    part: AuditedPart
    known: dict[str, str] = field(default_factory=dict)

    def audits(self, names: Sequence[str]) -> Iterator[SinkAudit]:
        """Yield the audits, in order. Raises ChangelogError."""
        cut, found = None, dict[str, SinkAudit]()
        for _ in range(_LOOKS):
            again = [name for name in names if name not in found or found[name].verdict == "differs"]
            try:
                later = self._cut(names)
            except NoCutError as error:
                # A difference at a cut that is not proven may be a part of a batch.
                unknown = again if cut is None or not cut.proven else [name for name in again if name not in found]
                found |= {name: _not_compared(self.job, name, str(error)) for name in unknown}
                break
            if cut is not None and (later.sources, later.results) == (cut.sources, cut.results):
                break
            cut = later
            found |= {name: self.look(name, cut) for name in again}
            if not any(each.verdict == "differs" for each in found.values()):
                break
        yield from (found[name] for name in names)

    def _cut(self, names: Sequence[str]) -> BatchCut:
        written = [self.job.sinks[name].topic for name in names]
        # Without transactions, rows are written after the progress.
        idle = any(self.job.sinks[name].delivery == "at_least_once" for name in names)
        return find_cut(self.job.brokers, self.progress_topic, written, idle=idle)

    def look(self, name: str, cut: BatchCut) -> SinkAudit:
        """Return the audit of a sink at a cut. Raises ChangelogError."""
        try:
            return self._compared(name, cut)
        except NotComparedError as error:
            return _not_compared(self.job, name, _with_place(self.job, error))
        except duckdb.Error as error:
            return _not_compared(self.job, name, f"DuckDB cannot compute the query: {str(error).splitlines()[0]}")

    def _compared(self, name: str, cut: BatchCut) -> SinkAudit:
        try:
            query = logical(self.job, name)
        except Refusal as refusal:
            raise NotComparedError(refusal.text, refusal.at) from None
        plain = statement(query.root, {table: quoted(table) for table in self.job.tables})
        tables = {table: self._table(table, cut) for table in sorted(plain.tables)}
        sink = plan(self.job, name)
        ends = {at: end for at, end in cut.results.items() if at[0] == sink.topic}
        result = self.topics.fold(readable_topic(self.job, name), f"sink:{name}", ends)
        return self.judge(sink, query, tables, result, cut)

    def judge(
        self, sink: PhysicalSink, query: Query, tables: Mapping[str, FoldedTable], result: FoldedTable, cut: BatchCut
    ) -> SinkAudit:
        """Return the audit of a sink whose topic and tables are folded. Raises NotComparedError or duckdb.Error."""
        plain = statement(query.root, {table: quoted(table) for table in self.job.tables})
        for function in plain.functions:
            make_known(self.topics.connection, self.known, function)
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
                key=[result.columns[sink.value.index(each)] for each in sink.key] if sink.mode == "upsert" else (),
                expected=plain.sql,
                sure=_forms(query, sure) if doubted else (),
                found=quoted(result.name),
                written=result.own[2],
                extra_unsure=doubted or several,
                final=final,
                several=several,
            ),
            self.part,
            _MOST_DIFFERENCES,
        )
        return self._outcome(sink, query, result, compared, _notes(plain, sure, waits, compared))

    def _outcome(
        self, sink: PhysicalSink, query: Query, result: FoldedTable, compared: Compared, notes: list[str]
    ) -> SinkAudit:
        broken = result.undecodable + result.overdrawn
        if result.undecodable:
            notes.append(f"records of the topic that cannot be decoded: {result.undecodable:,}")
        if result.overdrawn:
            notes.append(f"rows of the topic that were retracted more often than inserted: {result.overdrawn:,}")
        verdict: Verdict = "differs" if compared.different or broken else "ok"
        key = sink.key or sink.value.names
        sources = tuple(self._sources(query, key, each) for each in compared.first)
        compared = replace(compared, different=compared.different + broken)
        return SinkAudit(sink.name, sink.topic, verdict, "", tuple(notes), compared, sources)

    def _table(self, name: str, cut: BatchCut) -> FoldedTable:
        """Fold a table up to the cut. Raises NotComparedError if its rows cannot be known, or ChangelogError."""
        source = replace(source_table(self.job, name), start=Start())
        if source.generation is not None:
            raise NotComparedError(f"table {name} is generated by the job, so it has no topic")
        ends = {at: end for at, end in cut.sources.items() if at[0] == source.topic}
        earliest = Cluster(self.job.brokers).earliest(ends)
        for at, first in earliest.items():
            begin = cut.begin.get(at, 0)
            if first > begin:
                raise NotComparedError(f"records of topic {at[0]} before offset {first} have been deleted")
            if first < begin or (not cut.begin and self.job.tables[name].start.physical().at != "earliest"):
                raise NotComparedError(f"the job has not read topic {at[0]} from its first record")
        table = self.topics.fold(source, name, ends)
        if table.columns != tuple(source.declared.names):
            raise NotComparedError(f"columns of table {name} differ only in case")
        if table.undecodable and source.on_bad_update != "keep":
            raise NotComparedError(f"table {name} has bad updates, and `on_bad_update: {source.on_bad_update}`")
        if table.overdrawn or self._breaks_key(table):
            raise NotComparedError(f"table {name} retracts rows that were not sent, or repeats its primary key")
        return table

    def _breaks_key(self, table: FoldedTable) -> bool:
        if table.source.mode != "retract" or not table.source.primary_key:
            return False
        key = ", ".join(map(quoted, table.source.primary_key))
        found = self.topics.connection.execute(
            f"SELECT 1 FROM {quoted(table.name)} GROUP BY {key} HAVING count(*) > 1 LIMIT 1"
        )
        return bool(found.fetchall())

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


def _with_place(job: Job, error: NotComparedError) -> str:
    """Return the reason, with the position in the SQL."""
    found = enclosing_span(error.at)
    if found is None:
        return error.reason
    sql = texts(job)[found.origin]
    line = sql.count("\n", 0, found.first) + 1
    column = found.first - (sql.rfind("\n", 0, found.first) + 1) + 1
    return f"{error.reason} ({found.origin}, line {line}, column {column})"
