"""The result of a job's text and changes, for the page of `rowkind play`.

    request   {"job": "job: …", "changes": "{…} {…}", "sink": "s" or null}
    result    {"sinks": ["s"], "sink": "s", "plan": "<ul…", "columns": ["v"], "changes": [{"batch": 0, "op": "+I", …}],
               "rows": [{"v": 1}], "batches": [{"lines": [1, 1], "steps": {"join_1": [1, 0]}}], "notes": [],
               "error": {"of": "changes", "line": 3, "text": "…"} or null}

The result has all parts up to the first error. The text may come from a link that another person has sent. It
therefore cannot run Python code and cannot make Rowkind connect to another server.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from rowkind.avro.json_rows import decode
from rowkind.errors import RowkindError
from rowkind.operators.changelog import SYMBOLS
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.batch import Batch
from rowkind.quantities import counted
from rowkind.service.job.errors import JobError, Problem
from rowkind.service.job.load import loaded
from rowkind.service.job.model import Job
from rowkind.service.physical.graph import Exit
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.plan.errors import PlanError
from rowkind.service.plan.explain.describe import describe
from rowkind.service.plan.explain.description import Step
from rowkind.service.plan.explain.display_names import with_display_names
from rowkind.service.plan.explain.html import advised, anchor, tree
from rowkind.service.plan.pipeline import plan
from rowkind.service.query import trial

MOST_CHANGES = 10_000
"""A request may have this many lines of changes."""

MOST_SECONDS = 4
"""A run is stopped after this many seconds. Its result so far is shown."""

_MOST_BATCHES = 200
"""Up to this many lines, each line is a batch. More lines are divided into this many batches, for speed."""

_MOST_SHOWN = 1_000
"""The page shows this many changes and rows of the result."""

_MOST_NOTES = 20
"""The page shows this many notes of a run."""

_LINE = re.compile(r"[^\n:]*:(\d+): (.*)", re.DOTALL)
"""A message that begins with a file and a line."""


@dataclass
class _Result:
    sinks: Sequence[str] = ()
    sink: str = ""
    plan: str = ""
    columns: Sequence[str] = ()
    changes: list[Mapping[str, Any]] = field(default_factory=list)
    rows: Sequence[Mapping[str, Any]] = ()
    batches: Sequence[Mapping[str, Any]] = ()
    notes: list[str] = field(default_factory=list)
    error: Mapping[str, Any] | None = None

    def fail(self, of: Literal["job", "changes", "run"], line: int, text: str) -> None:
        self.error = {"of": of, "line": line, "text": text}


def tried(request: Mapping[str, Any], file: Path) -> Mapping[str, Any]:
    """Return the result of a request, whose job is read as if it were the content of `file`."""
    result = _Result()
    text, changes, sink = str(request.get("job", "")), str(request.get("changes", "")), request.get("sink")
    try:
        job = loaded(text, file)
        _check_harmless(job)
        result.sinks = tuple(job.sinks)
        result.sink = sink if sink in job.sinks else result.sinks[0]
        planned = plan(job, result.sink)
        result.plan = _drawn(job, planned)
        result.columns = [column.name for column in planned.value.fields]
        _run(job, planned, changes.splitlines(), result)
    except JobError as error:
        first, *others = error.problems
        more = "".join(f"\nline {each.line}: {_text(each)}" for each in others)
        result.fail("job", first.line, f"{_text(first)}{more}")
    except PlanError as error:
        result.fail("job", *_split(str(error)))
    except trial.InputError as error:
        result.fail("changes", *_split(str(error)))
    except RowkindError as error:
        result.fail("run", 0, str(error))
    return vars(result)


def _check_harmless(job: Job) -> None:
    """Raise JobError if the job would run Python code or ask a registry."""
    problems = []
    if job.functions:
        why = "Python functions are not supported on this page, because a link could carry code: use `rowkind try`"
        problems.append(Problem(job.line("functions"), "functions", why))
    for name, table in job.tables.items():
        if table.columns is None and table.schema_file is None:
            why = "the columns are missing: this page does not ask a registry. Set `columns` in the table"
            problems.append(Problem(job.line("tables", name), f"tables.{name}", why))
    if problems:
        raise JobError(str(job.file), problems)


def _drawn(job: Job, sink: PhysicalSink) -> str:
    """Return a sink's plan as HTML. Each step has a place for the numbers of the batch that the user chooses."""

    def emitted(step: Step) -> str:
        return f'<p class="emitted" data-step="{anchor(step.name)}"></p>'

    described = with_display_names(describe(sink.name, [sink], {sink.name: job.sinks[sink.name].sql})).sinks[0]
    return tree(described, emitted) + advised(described)


def _run(job: Job, sink: PhysicalSink, lines: Sequence[str], result: _Result) -> None:
    """Run the plan over lines of changes. Raises InputError."""
    if len(lines) > MOST_CHANGES:
        raise trial.InputError(f"changes:{MOST_CHANGES + 1}: this page accepts at most {MOST_CHANGES:,} lines")
    batch_rows = max(1, -(-len(lines) // _MOST_BATCHES))
    batches = trial.read(job, lines, "changes", batch_rows)
    if batch_rows > 1:
        result.notes.append(f"there are many changes, so each batch has {batch_rows} of them")
    trial.end(sink, batches)
    result.notes += [f"the query does not read table {each}" for each in trial.unread(sink, batches)]
    fold, steps, total, end = trial.fold_of(sink), _StepCounts(batches), 0, time.monotonic() + MOST_SECONDS
    try:
        for number, changes in enumerate(
            trial.in_memory(partial(_note, result, steps), steps.watch)(job, sink, batches)
        ):
            fold.apply(changes)
            steps.end_batch()
            total += len(changes)
            shown = changes.kind.tolist()[: _MOST_SHOWN - len(result.changes)]
            rows = decode(sink.value, changes.payload[: len(shown)])
            result.changes += [
                {"batch": number, "op": SYMBOLS[kind], "row": row} for kind, row in zip(shown, rows, strict=True)
            ]
            if time.monotonic() > end and number + 1 < len(batches):
                cut = f"the run was stopped after {MOST_SECONDS} s, in batch {number + 1} of {len(batches)}"
                result.fail("changes", steps.line, f"{cut}: use fewer changes, or `rowkind try`")
                break
    except RowkindError as error:
        result.fail("changes", steps.line, str(error))
    result.batches = steps.done
    _finish(sink, result, trial.in_order(sink, fold), total)


@dataclass
class _StepCounts:
    """The numbers of inserted and retracted rows that each step emits in each batch."""

    batches: Sequence[trial.TrialBatch]
    done: list[Mapping[str, Any]] = field(default_factory=list)
    _now: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def line(self) -> int:
        """The first line of the current batch, or of the last one if the run has ended; 0 if it has no line."""
        lines = _lines(self.batches[min(len(self.done), len(self.batches) - 1)])
        return lines[0] if lines else 0

    def watch(self, way: Exit, batch: Batch) -> None:
        """Count a batch that leaves a step. Consumers get the same rows or fewer, so the largest numbers count."""
        inserted = int(batch.changes.weight.clip(min=0).sum())
        retracted = inserted - int(batch.changes.weight.sum())
        if inserted or retracted:
            before = self._now.get(anchor(way.node), (0, 0))
            self._now[anchor(way.node)] = max(before[0], inserted), max(before[1], retracted)

    def end_batch(self) -> None:
        """Begin the next batch."""
        self.done.append({"lines": _lines(self.batches[len(self.done)]), "steps": self._now})
        self._now = {}


def _note(result: _Result, steps: _StepCounts, text: str) -> None:
    result.notes.append(f"line {steps.line}: {text}" if steps.line else text)


def _finish(sink: PhysicalSink, result: _Result, payloads: pa.BinaryArray, total: int) -> None:
    """Add the remaining rows, and say what is not shown."""
    more = len(result.notes) - _MOST_NOTES
    if more > 0:
        result.notes[_MOST_NOTES:] = [f"and {counted(more, 'more note')}"]
    result.rows = decode(sink.value, payloads[:_MOST_SHOWN])
    for number, noun in ((total, "change"), (len(payloads), "row")):
        if number > _MOST_SHOWN:
            result.notes.append(f"the result has {counted(number, noun)}; the first {_MOST_SHOWN:,} are shown")


def _lines(batch: trial.TrialBatch) -> tuple[int, int] | None:
    """Return the first and the last line of a batch; None if it has no change."""
    numbers = [ArrivalNumber.of(int(seq)).offset for rows in batch.values() for seq in (rows.seq[0], rows.seq[-1])]
    return (min(numbers), max(numbers)) if numbers else None


def _text(problem: Problem) -> str:
    return f"{problem.field}: {problem.text}" if problem.field else problem.text


def _split(message: str) -> tuple[int, str]:
    """Return the line of a message that begins with a file and a line, and the rest; line 0 if it has none."""
    found = _LINE.fullmatch(message)
    return (int(found[1]), found[2]) if found else (0, message)
