"""A job's query in the in-memory engine under a clock that the test drives."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rowkind.avro.json_rows import decode
from rowkind.operators.columns.changes import Changes, Rows
from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.physical import PhysicalSink
from rowkind.service.plan.pipeline import plan
from rowkind.service.run.memory import MemoryEngine
from rowkind.service.run.trial import read

Line = tuple[str, str, Mapping[str, Any]]
"""A table, a row kind's symbol, a row."""

Shown = tuple[tuple[str, Any], ...]
"""A row of the result, by its columns."""


def job_of(folder: Path, text: str) -> Job:
    """The job that this YAML says."""
    (folder / "job.yaml").write_text(text)
    return load(folder / "job.yaml", {})


@dataclass
class Clocked:
    """A query with all that it has emitted so far: `view` has how often each row is in the folded result.

    A row that is taken back without being there is in it less than never.
    """

    job: Job
    sink: PhysicalSink
    engine: MemoryEngine
    view: Counter[Shown] = field(default_factory=Counter)
    lines: int = 0

    @classmethod
    def of(cls, job: Job) -> Clocked:
        """The query of the sink `result`."""
        sink = plan(job, "result")
        return cls(job, sink, MemoryEngine(sink))

    def rows(self, *lines: Line) -> dict[str, Rows]:
        """The lines as rows of their tables, with arrival numbers behind those of all lines before."""
        if not lines:
            return {}
        texts = (json.dumps({"table": table, "op": op, "row": row}) for table, op, row in lines)
        (batch,) = read(self.job, texts, "changes", len(lines))
        before, self.lines = self.lines << 16, self.lines + len(lines)
        return {table: replace(rows, seq=rows.seq + before) for table, rows in batch.items()}

    def batch(self, now: int, *lines: Line) -> None:
        """One batch at time `now`, in ms."""
        self._take(self.engine.batch(self.rows(*lines), now)[self.sink.name])

    def end(self, now: int = 0) -> None:
        """The input has ended."""
        self._take(self.engine.batch({}, now, ended=True)[self.sink.name])

    def _take(self, changes: Changes) -> None:
        for row, weight in zip(decode(self.sink.value, changes.payload), changes.weight.tolist(), strict=True):
            self.view[tuple(row.items())] += weight
        self.view = Counter({row: count for row, count in self.view.items() if count})

    @property
    def result(self) -> list[dict[str, Any]]:
        """The folded result."""
        return [dict(row) for row in self.view.elements()]
