"""A job's query in the in-memory engine under a clock that the test drives, and that may be restarted at any moment."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from rowkind.avro.json_rows import decode
from rowkind.operators.arrangement.arrangement import StateSize
from rowkind.operators.columns.changes import Changes, Rows
from rowkind.service.execute.watermarks import Watermarks
from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.plan.pipeline import plan
from rowkind.service.query.memory import NOT_TRUNCATED, MemoryEngine, MemoryState
from rowkind.service.query.trial import read

Line = tuple[str, str, Mapping[str, Any]]
"""A table, a row kind's symbol, a row."""

Shown = tuple[tuple[str, Any], ...]
"""A row of the result, by its columns."""


def job_of(folder: Path, text: str) -> Job:
    """The job that this YAML says."""
    (folder / "job.yaml").write_text(text)
    return load(folder / "job.yaml", {})


@dataclass(frozen=True)
class Committed:
    """What a batch left behind for whoever goes on after it."""

    state: MemoryState
    watermarks: pa.Buffer
    sizes: Mapping[str, StateSize]


@dataclass(frozen=True)
class Done:
    """A batch that was done: what was there before it, what it took and what it gave."""

    before: Committed
    rows: Mapping[str, Rows]
    now: int
    ended: bool
    given: Mapping[str, Changes]


class Restartable(MemoryEngine):
    """An engine that remembers its last batch."""

    def __init__(self, sink: PhysicalSink, committed: Committed | None = None) -> None:
        super().__init__(sink)
        self.last: Done | None = None
        if committed is not None:
            self._state = committed.state.copy()
            self._watermarks = Watermarks.from_blob(committed.watermarks)
            self.state = dict(committed.sizes)

    def batch(
        self, rows: Mapping[str, Rows], now: int, *, ended: bool = False, truncated: Mapping[str, int] = NOT_TRUNCATED
    ) -> dict[str, Changes]:
        """As the engine's."""
        before = self.committed()
        given = super().batch(rows, now, ended=ended, truncated=truncated)
        self.last = Done(before, rows, now, ended, given)
        return given

    def committed(self) -> Committed:
        """What there is now, as it is kept."""
        return Committed(self._state.copy(), self._watermarks.to_blob(), dict(self.state))


@dataclass
class Clocked:
    """A query with all that it has emitted so far: `view` has how often each row is in the folded result.

    A row that is taken back without being there is in it less than never.
    """

    job: Job
    sink: PhysicalSink
    engine: Restartable
    view: Counter[Shown] = field(default_factory=Counter)
    lines: int = 0

    @classmethod
    def of(cls, job: Job) -> Clocked:
        """The query of the sink `result`."""
        sink = plan(job, "result")
        return cls(job, sink, Restartable(sink))

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

    def restart(self) -> None:
        """Begin anew with what there was before the last batch, do that once more, and go on after its commit.

        It gives the same again, in the same order, and leaves the same behind.
        """
        done = self.engine.last
        assert done is not None, "a batch has been done"
        again = Restartable(self.sink, done.before)
        given = again.batch(done.rows, done.now, ended=done.ended)
        assert all(_columns(given[name]) == _columns(changes) for name, changes in done.given.items())
        left, expected = again.committed(), self.engine.committed()
        assert _blobs(left.state) == _blobs(expected.state)
        assert left.watermarks == expected.watermarks
        self.engine = Restartable(self.sink, left)

    def _take(self, changes: Changes) -> None:
        for row, weight in zip(decode(self.sink.value, changes.payload), changes.weight.tolist(), strict=True):
            self.view[tuple(row.items())] += weight
        self.view = Counter({row: count for row, count in self.view.items() if count})

    @property
    def result(self) -> list[dict[str, Any]]:
        """The folded result."""
        return [dict(row) for row in self.view.elements()]


def _blobs(state: MemoryState) -> dict[str, dict[str, pa.Buffer | None]]:
    return {name: {blob: store.get(blob) for blob in store} for name, store in state.items()}


def _columns(changes: Changes) -> list[list[Any]]:
    numbers = (changes.kind, changes.seq)
    return [*(each.tolist() for each in numbers), changes.key.to_pylist(), changes.payload.to_pylist()]
