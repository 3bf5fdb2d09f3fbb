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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import duckdb

from rowkind.service.client.external_table import JobFile, opened, readable_topic
from rowkind.service.client.folded_topics import FoldedTable, FoldedTopics
from rowkind.service.execute.kernels import register
from rowkind.service.job.model import Job
from rowkind.service.kafka.cluster import Cluster
from rowkind.service.physical.source_table import Start
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.calc import LogicalScan
from rowkind.service.plan.pipeline import check_sink, logical, plan, source_table
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.typed import quoted
from rowkind.service.plan.tree import walk as nodes
from rowkind.service.verify.compare import AuditedPart
from rowkind.service.verify.cut import BatchCut, NoCutError, find_cut, progress_of_sinks
from rowkind.service.verify.errors import NotComparedError
from rowkind.service.verify.judgement import SinkAudit, SinkJudge, with_place

_LOOKS = 3
"""How often a sink that differs is compared, if the job goes on meanwhile."""


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

    @cached_property
    def judge(self) -> SinkJudge:
        """The judge of the sinks."""
        return SinkJudge(self.job, self.topics, self.part)

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
            return _not_compared(self.job, name, with_place(self.job, error))
        except duckdb.Error as error:
            return _not_compared(self.job, name, f"DuckDB cannot compute the query: {str(error).splitlines()[0]}")

    def _compared(self, name: str, cut: BatchCut) -> SinkAudit:
        try:
            query = logical(self.job, name)
        except Refusal as refusal:
            raise NotComparedError(refusal.text, refusal.at) from None
        tables = {table: self._table(table, cut) for table in sorted(_read_tables(query))}
        sink = plan(self.job, name)
        ends = {at: end for at, end in cut.results.items() if at[0] == sink.topic}
        result = self.topics.fold(readable_topic(self.job, name), f"sink:{name}", ends, by_partition=True)
        try:
            return self.judge.exact(sink, query, tables, result, cut)
        except NotComparedError as error:
            return self.judge.limited(sink, query, tables, result, error)

    def _table(self, name: str, cut: BatchCut) -> FoldedTable:
        """Fold a table up to the cut. Raises NotComparedError if its rows cannot be known, or ChangelogError."""
        source = replace(source_table(self.job, name), start=Start())
        ends = {at: end for at, end in cut.sources.items() if at[0] == source.topic}
        if source.generation is not None:
            return self.topics.fold(source, name, ends)
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


def _read_tables(query: Query) -> set[str]:
    """Return the tables of the job that a query reads."""
    return {node.source.table for node in nodes(query.root) if isinstance(node, LogicalScan)}
