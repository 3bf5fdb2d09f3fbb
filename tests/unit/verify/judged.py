"""A job whose folded topics are filled by hand, and the audit of its sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rowkind.avro import codec
from rowkind.avro.schema import Record
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import Rows
from rowkind.service.client.consume import Chunk
from rowkind.service.client.external_table import readable_topic
from rowkind.service.client.folded_topics import FoldedTable, FoldedTopics
from rowkind.service.kafka.offsets import Offset
from rowkind.service.physical.source_table import SourceTable
from rowkind.service.plan.pipeline import logical, plan, source_table
from rowkind.service.verify.compare import AuditedPart
from rowkind.service.verify.cut import BatchCut
from rowkind.service.verify.errors import NotComparedError
from rowkind.service.verify.judgement import SinkAudit, SinkJudge

Row = dict[str, Any]

SECOND = 1_000_000
"""In µs, as event times are."""
SUMS = "SELECT k, SUM(v) AS s, COUNT(*) AS n FROM items GROUP BY k"
BY_MINUTE = (
    "SELECT k, window_start, SUM(v) AS s FROM TUMBLE(TABLE items, DESCRIPTOR(at), INTERVAL '1' MINUTE) "
    "GROUP BY k, window_start, window_end"
)
LATEST = (
    "SELECT k, SUM(v) AS s FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k, g ORDER BY at DESC) AS r FROM items) "
    "WHERE r = 1 GROUP BY k"
)
KEYED: Mapping[str, Any] = {"mode": "upsert", "key": "k"}
WATERMARK = {"watermark": {"column": "at", "delay": "2s"}}


@dataclass
class Case:
    """A job whose folded topics are filled by hand. `batches` has the number of rows of each batch, and its time."""

    topics: FoldedTopics
    batches: list[tuple[int, int]] = field(default_factory=list)
    part: AuditedPart = field(default_factory=AuditedPart)

    def audit(self, items: Sequence[Row], result: Sequence[Row], first: int = 0, *, limited: bool = False) -> SinkAudit:
        """Audit the sink. `first`: the number of the first recorded batch. `limited`: its result is not computed."""
        job = self.topics.job
        own, other = source_table(job, "items").declared, readable_topic(job, "result").declared
        return self.judge(packed(own, items), packed(other, result), first, limited=limited)

    def judge(self, items: Rows, result: Rows, first: int = 0, *, limited: bool = False) -> SinkAudit:
        """Audit the sink over changes."""
        job = self.topics.job
        query, sink = logical(job, "result"), plan(job, "result")
        batches, end = [], 0
        for number, (rows, now) in enumerate(self.batches or [(len(items), 1)]):
            begin, end = end, end + rows
            batches.append(Offset({("items", 0): end}, {}, {("items", 0): begin}, number, now))
        self.topics.tables.clear()
        tables = {"items": self._filled(source_table(job, "items"), "items", items)}
        found = self._filled(readable_topic(job, "result"), "sink:result", result, by_partition=True)
        cut = BatchCut({("items", 0): end}, {}, tuple(batches[first:]), proven=True)
        judge = SinkJudge(job, self.topics, self.part)
        if not limited:
            return judge.exact(sink, query, tables, found, cut)
        with pytest.raises(NotComparedError) as refused:
            judge.exact(sink, query, tables, found, cut)
        return judge.limited(sink, query, tables, found, refused.value)

    def _filled(self, source: SourceTable, name: str, rows: Rows, *, by_partition: bool = False) -> FoldedTable:
        table = self.topics.declare(source, name, by_partition=by_partition)
        # The records of results are a second apart.
        table.add(Chunk(rows, (), np.arange(len(rows)) * 1000))
        table.fold()
        return table


def packed(record: Record, rows: Sequence[Row]) -> Rows:
    """Return inserted rows, in order, in partition 0 of a topic."""
    columns = {each.name: pa.array([row[each.name] for row in rows], each.type.arrow) for each in record.fields}
    seq = ArrivalNumber.pack(np.arange(len(rows)), np.zeros(len(rows), np.int64))
    return Rows(np.full(len(rows), RowKind.INSERT, np.int8), seq, codec.encode(record, columns, len(rows)))


def item(k: str, v: int, at: float = 0.0, g: int = 0) -> Row:
    """Return a source row; `at` is in seconds."""
    return {"k": k, "g": g, "v": v, "at": round(at * SECOND)}


def total(k: str, *values: int) -> Row:
    """Return a row of SUMS."""
    return {"k": k, "s": sum(values), "n": len(values)}


def outcome(of: SinkAudit) -> tuple[str, int, int, int, int]:
    """Return the verdict and the numbers of equal, different, unsure and pending rows."""
    return of.verdict, of.compared.equal, of.compared.different, of.compared.unsure, of.compared.pending


Opened = Callable[..., Case]
