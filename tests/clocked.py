"""A job's query in the in-memory engine, under a clock that the test drives, with a restart at any point."""

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
"""The table, the symbol of the row kind, and the row."""

Shown = tuple[tuple[str, Any], ...]
"""A row of the result as pairs of column and value."""


def job_of(folder: Path, text: str) -> Job:
    """Return the job in this YAML text."""
    (folder / "job.yaml").write_text(text)
    return load(folder / "job.yaml", {})


@dataclass(frozen=True)
class Committed:
    """The state that a batch left behind for its successor."""

    state: MemoryState
    watermarks: pa.Buffer
    sizes: Mapping[str, StateSize]


@dataclass(frozen=True)
class Done:
    """A finished batch: the state before it, its input and its output."""

    before: Committed
    rows: Mapping[str, Rows]
    now: int
    ended: bool
    given: Mapping[str, Changes]


class Restartable(MemoryEngine):
    """An engine that keeps its last batch, so that the batch can be repeated."""

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
        """Process a batch as the engine does, and keep it."""
        before = self.committed()
        given = super().batch(rows, now, ended=ended, truncated=truncated)
        self.last = Done(before, rows, now, ended, given)
        return given

    def committed(self) -> Committed:
        """Return the current state in its stored form."""
        return Committed(self._state.copy(), self._watermarks.to_blob(), dict(self.state))


@dataclass
class Clocked:
    """A query with all its output so far: `view` has how often each row is in the folded result.

    A row that is retracted without being in the result has a negative count.
    """

    job: Job
    sink: PhysicalSink
    engine: Restartable
    view: Counter[Shown] = field(default_factory=Counter)
    lines: int = 0

    @classmethod
    def of(cls, job: Job) -> Clocked:
        """Return the query of the sink `result`."""
        sink = plan(job, "result")
        return cls(job, sink, Restartable(sink))

    def rows(self, *lines: Line) -> dict[str, Rows]:
        """Return the lines as rows of their tables, with arrival numbers after those of all earlier lines."""
        if not lines:
            return {}
        texts = (json.dumps({"table": table, "op": op, "row": row}) for table, op, row in lines)
        (batch,) = read(self.job, texts, "changes", len(lines))
        before, self.lines = self.lines << 16, self.lines + len(lines)
        return {table: replace(rows, seq=rows.seq + before) for table, rows in batch.items()}

    def batch(self, now: int, *lines: Line) -> None:
        """Run one batch at time `now`, in ms."""
        self._take(self.engine.batch(self.rows(*lines), now)[self.sink.name])

    def end(self, now: int = 0) -> None:
        """End the input."""
        self._take(self.engine.batch({}, now, ended=True)[self.sink.name])

    def restart(self) -> None:
        """Restart from the state before the last batch, repeat the batch, and continue from its commit.

        Assert that the repetition emits the same changes in the same order and leaves the same state.
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
        """Return the folded result."""
        return [dict(row) for row in self.view.elements()]


def _blobs(state: MemoryState) -> dict[str, dict[str, pa.Buffer | None]]:
    return {name: {blob: store.get(blob) for blob in store} for name, store in state.items()}


def _columns(changes: Changes) -> list[list[Any]]:
    numbers = (changes.kind, changes.seq)
    return [*(each.tolist() for each in numbers), changes.key.to_pylist(), changes.payload.to_pylist()]
