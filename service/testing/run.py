"""Run a test in memory: its steps as written, and again with other cuts, which must not change the result."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from rowkind.avro.json_rows import decode, encode
from rowkind.errors import RowkindError
from rowkind.operators.changelog import SYMBOLS
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import Changes
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.query.trial import TrialBatch, fill, fold_of, reporting_engine, row_order
from rowkind.service.testing.differences import Differences, differences, out_of_order, row_text
from rowkind.service.testing.suite import (
    OP,
    ComparedRow,
    Cut,
    Expectation,
    GivenRow,
    JobUnderTest,
    SqlStep,
    SqlTest,
)
from rowkind.service.testing.suite_file import FIRST_CLOCK

_CUTS: Mapping[Cut, str] = {"each": "each row in its own batch", "one": "all rows at one time in one batch"}
"""The cuts that every test runs besides its own, and their names in messages."""

_OBJECTS = 100_000
"""The number of new objects after which Python looks for unreachable ones; some 30 MB."""


@dataclass(frozen=True)
class SqlTestFailure:
    """One reason why a test failed.

    `fixed` is the expectation that `--update` may replace, with the rows that were found.
    """

    line: int
    text: str
    differences: Differences | None = None
    labels: tuple[str, str] = ("expected", "actual")
    fixed: tuple[Expectation, Sequence[ComparedRow]] | None = None


@dataclass(frozen=True)
class SqlTestResult:
    """The result of a test: its failures, notes about dropped rows, and the run time in seconds."""

    test: SqlTest
    failures: tuple[SqlTestFailure, ...]
    notes: tuple[str, ...]
    seconds: float


@dataclass
class _StepResult:
    """The result of a step: per sink all rows, and the changes if they are compared; the late rows; the error.

    `payloads`: the rows in packed form, in the order of their bytes. `had_late`: whether a row of this step or an
    earlier one was late.
    """

    payloads: dict[str, list[bytes]] = field(default_factory=dict)
    changes: dict[str, list[ComparedRow]] = field(default_factory=dict)
    late: list[GivenRow] = field(default_factory=list)
    had_late: bool = False
    error: RowkindError | None = None


class _TestRun:
    """One run of the sinks of a test, under the clock of its steps."""

    def __init__(self, job: JobUnderTest, test: SqlTest) -> None:
        self._job = job
        self._sinks = [job.sink(name) for name in test.sinks]
        self._folds = {sink.name: fold_of(sink) for sink in self._sinks}
        self.notes: list[str] = []
        self._late: set[int] = set()
        self._had_late = False
        self._engine = reporting_engine(job.job, self._sinks, self.notes.append, self._take_late)
        self._clock = FIRST_CLOCK

    def _take_late(self, _node: str, changes: Changes) -> None:
        self._late |= {ArrivalNumber.of(seq).offset for seq in changes.seq.tolist()}

    def step(self, step: SqlStep, cut: Cut) -> _StepResult:
        """Run a step, its rows divided into batches by the cut."""
        wanted = {each.name: list[ComparedRow]() for each in step.expected if each.of == "changes"}
        found, self._late = _StepResult(changes=wanted), set()
        if step.clock is not None:
            self._clock = step.clock
        if step.restarts:
            self._engine.restart()
        try:
            for batch in self._batches(step, cut):
                if step.late is not None:
                    self._find_late(batch)
                for name, changes in self._engine.batch(batch, self._clock, ended=batch.ended).items():
                    self._folds[name].apply(changes)
                    if name in found.changes:
                        found.changes[name] += self._changes(name, changes)
        except RowkindError as error:
            found.error = error
            return found
        for sink in self._sinks:
            found.payloads[sink.name] = sorted(self._folds[sink.name].payloads)
        found.late = [row for row in step.given if row.change.number in self._late]
        found.had_late = self._had_late = self._had_late or bool(self._late)
        return found

    def _batches(self, step: SqlStep, cut: Cut) -> list[TrialBatch]:
        size = 1 if cut == "each" else max(1, len(step.given)) if cut == "one" else cut
        # A step without rows is one empty batch, in which its time passes.
        batches = [TrialBatch() for _ in range(-(-len(step.given) // size) or not step.ends)]
        changes = [(number // size, row.change) for number, row in enumerate(step.given)]
        fill(self._job.job, self._job.records, batches, changes)
        if step.ends:
            batches.append(TrialBatch())
            batches[-1].ended = True
        return batches

    def _find_late(self, batch: TrialBatch) -> None:
        """Find the rows of a batch that are late. Rows that are added up before an operator are reported as one row."""
        for table, rows in batch.items():
            for at in range(len(rows)):
                with suppress(RowkindError):  # The batch itself reports errors.
                    self._engine.copy(self._take_late).batch({table: rows.take(np.array([at]))}, self._clock)

    def _changes(self, sink: str, changes: Changes) -> Iterator[ComparedRow]:
        rows = decode(self._job.sink(sink).value, changes.payload)
        return ({OP: SYMBOLS[kind], **row} for kind, row in zip(changes.kind.tolist(), rows, strict=True))


@contextmanager
def few_collections() -> Iterator[None]:
    """Let Python look for unreachable objects rarely inside the block.

    The plans and the parsed YAML, which stay reachable, made each search long: a tenth of the time of a test.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_OBJECTS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def run_test(job: JobUnderTest, test: SqlTest) -> SqlTestResult:
    """Run a test. Errors of the job's rows are failures of the test. Raises the errors of the job's plan."""
    began = time.perf_counter()
    run, written, failures = _TestRun(job, test), list[_StepResult](), list[SqlTestFailure]()
    for number, step in enumerate(test.steps):
        name = f"step {number + 1}: " if len(test.steps) > 1 else ""
        written.append(run.step(step, "one" if step.cut is None else step.cut))
        failures += [replace(each, text=f"{name}{each.text}") for each in _compared(job, step, written[-1])]
        if written[-1].error is not None:
            break
    if not failures and not test.cut:
        failures = list(_other_cuts(job, test, written))
    return SqlTestResult(test, tuple(failures), tuple(dict.fromkeys(run.notes)), time.perf_counter() - began)


def _compared(job: JobUnderTest, step: SqlStep, found: _StepResult) -> Iterator[SqlTestFailure]:
    """Yield the failures of a step."""
    if found.error is not None or step.error is not None:
        yield from _error_failure(step, found.error)
        return
    for each in step.expected:
        sink = job.sink(each.name)
        actual = found.changes[each.name] if each.of == "changes" else _rows(sink, found.payloads[each.name])
        where = f"the {each.of} of sink {each.name}"
        yield from _expectation_failure(each, actual, where, sink.value.names, sink.key)
    if step.late is not None:
        of = {each.name: each for each in step.late}
        names = dict.fromkeys([*of, *(row.change.table for row in found.late)])
        for name in names:
            record = job.table(name)
            rows = [_row(job, row) for row in found.late if row.change.table == name]
            expected = of.get(name) or Expectation("late", name, (), step.line, ())
            yield from _expectation_failure(expected, rows, f"the late rows of table {name}", record.names, ())


def _error_failure(step: SqlStep, error: RowkindError | None) -> Iterator[SqlTestFailure]:
    if error is None:
        yield SqlTestFailure(step.line, f"the step succeeded; expected an error with the text: {step.error}")
    elif step.error is None:
        yield SqlTestFailure(step.line, f"the job failed: {error}")
    elif step.error not in str(error):
        yield SqlTestFailure(step.line, f"expected an error with the text: {step.error}\nThe error is: {error}")


def _expectation_failure(
    expected: Expectation, actual: Sequence[ComparedRow], what: str, columns: Sequence[str], key: Sequence[str]
) -> Iterator[SqlTestFailure]:
    if expected.rows is None:
        text = f"{what}: nothing is expected yet: --update writes the rows"
        yield SqlTestFailure(expected.line, text, fixed=(expected, actual))
        return
    differs = differences(expected.rows, actual, columns, key)
    if differs is not None:
        yield SqlTestFailure(expected.line, f"{what}: {differs.summary}", differs, fixed=(expected, actual))
    elif expected.of == "changes" and (swapped := out_of_order(expected.rows, actual, key)) is not None:
        first, second = map(row_text, swapped)
        text = f"{what}: the order differs: {first} was emitted before {second}"
        yield SqlTestFailure(expected.line, text, fixed=(expected, actual))


def _rows(sink: PhysicalSink, payloads: Sequence[bytes]) -> list[ComparedRow]:
    """Return rows of a sink as JSON values, ordered by their columns from the left."""
    return sorted(decode(sink.value, pa.array(payloads, pa.binary())), key=row_order)


def _row(job: JobUnderTest, given: GivenRow) -> ComparedRow:
    """Return a given row as JSON values."""
    record = job.table(given.change.table).select(list(given.change.row))
    return decode(record, encode(record, [given.change.row]))[0]


def _other_cuts(job: JobUnderTest, test: SqlTest, written: Sequence[_StepResult]) -> Iterator[SqlTestFailure]:
    """Yield the first difference between the results as written and with each other cut."""
    for cut, name in _CUTS.items():
        steps = list(_joined(test.steps)) if cut == "one" else list(enumerate(test.steps))
        if all(len(step.given) < 2 for _, step in steps) if cut == "each" else len(steps) == len(test.steps):
            continue  # The batches are the same as before.
        run = _TestRun(job, test)
        for number, step in steps:
            found = run.step(step, cut)
            if found.had_late or written[number].had_late:
                break  # Which rows are late depends on the cut.
            failure = _cut_failure(job, step, written[number], found, name)
            if failure is not None:
                at = f"step {number + 1}: " if len(test.steps) > 1 else ""
                yield replace(failure, text=f"{at}{failure.text}")
                break


def _joined(steps: Sequence[SqlStep]) -> Iterator[tuple[int, SqlStep]]:
    """Yield the steps with all rows that arrive at one time in one step, each with the index of its last step."""
    before: SqlStep | None = None
    for number, step in enumerate(steps):
        if before is not None and step.clock is None:
            before = replace(step, given=before.given + step.given, clock=before.clock, restarts=before.restarts)
        else:
            if before is not None:
                yield number - 1, before
            before = step
    if before is not None:
        yield len(steps) - 1, before


_ADVICE = "If the query depends on the batches by intention, as with PROCTIME(), set `cut: one` in the test."


def _cut_failure(
    job: JobUnderTest, step: SqlStep, written: _StepResult, found: _StepResult, cut: str
) -> SqlTestFailure | None:
    """Return the failure of a step whose result depends on the cut, or None."""
    if step.error is not None:
        failure = next(_error_failure(step, found.error), None)
        return None if failure is None else replace(failure, text=f"with {cut}, {failure.text}")
    if found.error is not None:
        return SqlTestFailure(step.line, f"with {cut}, the job failed: {found.error}")
    for name, payloads in written.payloads.items():
        if payloads == found.payloads[name]:
            continue  # Equal bytes are equal rows. Decoding them would take a tenth of the time of a test.
        sink = job.sink(name)
        rows, others = _rows(sink, payloads), _rows(sink, found.payloads[name])
        differs = differences(rows, others, sink.value.names, sink.key)
        if differs is not None:
            text = f"with {cut}, the rows of sink {name} are not those of one batch per step\n{_ADVICE}"
            return SqlTestFailure(step.line, text, differs, ("one batch per step", "this cut"))
    return None
