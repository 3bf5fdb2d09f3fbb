"""Load a file of SQL tests and check it against its job. All problems are reported at once, each with its line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from itertools import pairwise
from pathlib import Path
from typing import Any

from rowkind.avro.json_rows import check_row, decode, encode
from rowkind.avro.schema import Record
from rowkind.avro.text_values import ValueProblem
from rowkind.operators.changelog import SYMBOLS
from rowkind.service.job import duration
from rowkind.service.job.errors import JobError, Problem
from rowkind.service.job.load import parsed, text_of
from rowkind.service.plan.sql.scope import near
from rowkind.service.query.trial import checked_change, clock_ms
from rowkind.service.testing.document import SuiteDocument, YamlPlace
from rowkind.service.testing.suite import (
    OP,
    ComparedRow,
    Cut,
    Expectation,
    GivenRow,
    JobUnderTest,
    SqlStep,
    SqlTest,
    Suite,
    op_key,
)

FIRST_CLOCK = clock_ms("2026-01-01T00:00:00Z")
"""The time of the clock until a step moves it, in ms."""

_STEP = ("at", "given", "restart", "cut", "end", "expect", "expect_late", "expect_error")
_TEST = ("name", "description", "sink", "steps")
_SINK_PARTS = ("rows", "changes")


class SuiteError(JobError):
    """The file of tests is not valid. Fix the lines that the message lists."""


def load_suite(file: Path, job: JobUnderTest) -> Suite:
    """Load the tests of a file. Raises SuiteError with all problems, or the errors of the job's plan."""
    return suite_of(text_of(file, "file of tests"), file, job)


def suite_of(text: str, file: Path, job: JobUnderTest) -> Suite:
    """Load the tests from a text; `file` need not exist. Raises the same errors as `load_suite`."""
    reading = _SuiteReading(job)
    tests = tuple(reading.tests(parsed(text, file, "tests")))
    if reading.problems:
        raise SuiteError(str(file), reading.problems)
    return Suite(file, tests)


@dataclass
class _Given:
    """The state of reading one test.

    `first`: whether this is the first step. `rows`: the number of rows so far. `live`: the last row of each primary
    key. `clock`: the time of the clock.
    """

    first: bool = True
    rows: int = 0
    live: dict[tuple[Any, ...], ComparedRow] = field(default_factory=dict)
    clock: int = FIRST_CLOCK


class _SuiteReading(SuiteDocument):
    """The conversion of a document to tests. It collects all problems."""

    def __init__(self, job: JobUnderTest) -> None:
        super().__init__()
        self._tested = job
        self._job = job.job

    def tests(self, document: Any) -> Iterator[SqlTest]:
        """Yield the tests that are valid."""
        names: set[str] = set()
        for each, at in self.attempt(self._list, document, YamlPlace(1)) or ():
            test = self.attempt(self._test, each, at)
            if test is None:
                continue
            if test.name in names:
                self.wrong(at, f"there are two tests named {test.name!r}: give each its own name")
            names.add(test.name)
            yield test

    def _list(self, document: Any, place: YamlPlace) -> list[tuple[Any, YamlPlace]]:
        found = [each for _, node, at in self.members(document, place, ("tests",)) for each in self.entries(node, at)]
        if not found:
            raise self.error(place, "tests is missing or empty: a list of tests, each with a name")
        return found

    def _test(self, node: Any, place: YamlPlace) -> SqlTest:
        before = len(self.problems)
        found = {name: (value, at) for name, value, at in self.members(node, place, (*_TEST, *_STEP))}
        name = found.pop("name", (None, place))[0]
        if not isinstance(name, str) or not name.strip():
            raise self.error(place, "name is missing: a sentence that says what the test shows")
        description = str(found.pop("description", ("", place))[0] or "")
        sole = self._sole_sink(found.pop("sink", None))
        common = {key: found.pop(key) for key in ("cut",) if "steps" in found and key in found}
        given, steps = _Given(), list[SqlStep]()
        if "steps" in found:
            nodes, at = found.pop("steps")
            if found:
                raise self.error(place, f"{next(iter(found))} belongs to a step here, because the test has steps")
            for each, where in self.entries(nodes, at):
                members = {key: (value, at) for key, value, at in self.members(each, where, _STEP)}
                steps.append(self._step(common | members, where, given, sole))
        else:
            steps.append(self._step(found, place, given, sole))
        for step, after in pairwise(steps):
            if step.ends or step.error is not None:
                what = "end" if step.ends else "expect_error"
                self.problems.append(Problem(after.line, "", f"no step may follow a step with `{what}`"))
        sinks = dict.fromkeys(each.name for step in steps for each in step.expected)
        if sole is not None:
            sinks[sole] = None
        if not sinks and len(self.problems) == before:
            raise self.error(place, f"set `sink`: the test names none of the sinks {', '.join(self._job.sinks)}")
        return SqlTest(" ".join(name.split()), description.strip(), place.line, tuple(sinks), tuple(steps))

    def _sole_sink(self, said: tuple[Any, YamlPlace] | None) -> str | None:
        """Return the test's `sink` or the job's only sink."""
        if said is None:
            return next(iter(self._job.sinks)) if len(self._job.sinks) == 1 else None
        if said[0] not in self._job.sinks:
            raise self.error(said[1], f"there is no sink {said[0]!r}{near(str(said[0]), self._job.sinks)}")
        return str(said[0])

    def _step(
        self, members: Mapping[str, tuple[Any, YamlPlace]], place: YamlPlace, given: _Given, sole: str | None
    ) -> SqlStep:
        step = SqlStep(place.line)
        for name, (value, at) in members.items():
            match name:
                case "at":
                    step = replace(step, clock=self._clock(value, at, given))
                case "restart" | "end" if not isinstance(value, bool):
                    self.wrong(at, f"found {value!r}: expected true or false")
                case "restart":
                    step = replace(step, restarts=value)
                case "end":
                    step = replace(step, ends=value)
                case "cut":
                    step = replace(step, cut=self._cut(value, at))
                case "expect":
                    step = replace(step, expected=tuple(self._expect(value, at, sole)))
                case "expect_late":
                    step = replace(step, late=tuple(self._late(value, at)))
                case "expect_error":
                    step = replace(step, error=str(value or ""))
        if "given" in members:
            step = replace(step, given=tuple(self._given(*members["given"], given)))
        given.first = False
        if step.error is not None and (step.expected or step.late is not None):
            self.wrong(place, "a step with `expect_error` has no result, so it cannot have `expect` or `expect_late`")
        return step

    def _clock(self, value: Any, place: YamlPlace, given: _Given) -> int | None:
        if type(value) is date:
            value = datetime.combine(value, time())
        try:
            if isinstance(value, str) and value.startswith("+"):
                clock = given.clock + duration.parse(value[1:])
            else:
                clock = clock_ms(value)
        except ValueError as problem:
            self.wrong(place, f"{problem}; a step forward is `+5m`")
            return None
        if clock < given.clock and not given.first:
            self.wrong(place, "the clock must not go back; without `at` in the first step, it begins on 2026-01-01")
        given.clock = clock
        return clock

    def _cut(self, value: Any, place: YamlPlace) -> Cut | None:
        match value:
            case "each" | "one":
                return "each" if value == "each" else "one"
            case int() if value > 0 and not isinstance(value, bool):
                return int(value)
        self.wrong(place, f"found {value!r}: expected each, one, or a number of rows per batch")
        return None

    # ---- Given rows ------------------------------------------------------------------------------------------------

    def _given(self, node: Any, place: YamlPlace, given: _Given) -> Iterator[GivenRow]:
        for table, rows, at in self.members(node, place, tuple(self._job.tables), "there is no table"):
            record = self._tested.table(table)
            for row, where in self.rows(rows, at, record, empty=False):
                found = self.attempt(self._given_row, (table, record, row, given), where)
                if found is not None:
                    yield found

    def _given_row(self, what: tuple[str, Record, dict[str, Any], _Given], place: YamlPlace) -> GivenRow:
        table, record, row, given = what
        op = row.pop(op_key(record), "+I")
        self._check_columns(row, record, place)
        key = self._key(table, record, row, place)
        retracts = op in ("-U", "-D")
        base = given.live.get(key, {}) if retracts else {}
        whole = {**self._tested.blank(table), **base, **row}
        given.rows += 1
        try:
            change = checked_change(self._job, table, record, given.rows, (op, whole))
        except ValueProblem as problem:
            raise self.error(place, _with_advice(problem, row)) from None
        if len(key) > 1 and not retracts:
            given.live[key] = whole
        return GivenRow(change, place.line)

    def _key(self, table: str, record: Record, row: ComparedRow, place: YamlPlace) -> tuple[Any, ...]:
        """Return the table's name and the row's primary key."""
        names = self._job.tables[table].primary_key
        for name in names:
            if row.get(name) is None:
                raise self.error(place, f"{name} is missing: a row of {table} needs its primary key")
        try:
            return table, *(str(each) for each in check_row(record.select(names), {n: row[n] for n in names}).values())
        except ValueProblem as problem:
            raise self.error(place, _with_advice(problem, row)) from None

    # ---- Expectations ----------------------------------------------------------------------------------------------

    def _expect(self, node: Any, place: YamlPlace, sole: str | None) -> Iterator[Expectation]:
        sinks = self._job.sinks
        if not isinstance(node, Mapping) or (not set(node) <= set(sinks) and set(node) <= set(_SINK_PARTS)):
            if sole is None:
                text = "these rows belong to no sink: set `sink` in the test, or write them below the name of a sink"
                raise self.error(place, f"{text}: {', '.join(sinks)}")
            yield from self._expect_of(sole, node, place)
            return
        for sink, value, at in self.members(node, place, tuple(sinks), "there is no sink"):
            yield from self._expect_of(sink, value, at)

    def _expect_of(self, sink: str, node: Any, place: YamlPlace) -> Iterator[Expectation]:
        record = self._tested.sink(sink).value
        if not isinstance(node, Mapping):
            rows = None if node is None else self._expected_rows(node, place, record)
            yield Expectation("rows", sink, rows, place.line, place.path)
            return
        for name, value, at in self.members(node, place, _SINK_PARTS):
            changes = name == "changes"
            rows = None if value is None else self._expected_rows(value, at, record, changes=changes)
            yield Expectation("changes" if changes else "rows", sink, rows, at.line, at.path)

    def _late(self, node: Any, place: YamlPlace) -> Iterator[Expectation]:
        for table, value, at in self.members(node, place, tuple(self._job.tables), "there is no table"):
            yield Expectation(
                "late", table, self._expected_rows(value, at, self._tested.table(table)), at.line, at.path
            )

    def _expected_rows(
        self, node: Any, place: YamlPlace, record: Record, *, changes: bool = False
    ) -> list[ComparedRow]:
        found: list[ComparedRow] = []
        for row, at in self.rows(node, place, record, empty=True):
            expected = self.attempt(self._expected_row, (row, record, changes), at)
            if expected is None:
                continue
            if found and not changes and set(found[0]) != set(expected):
                names = ", ".join(found[0])
                self.wrong(at, f"all rows of a result must name the same columns; the first row names {names}")
            found.append(expected)
        return found

    def _expected_row(self, what: tuple[dict[str, Any], Record, bool], place: YamlPlace) -> ComparedRow:
        row, record, changes = what
        key = op_key(record)
        op = {OP: row.pop(key, None)} if changes else {}
        if changes and op[OP] not in SYMBOLS:
            raise self.error(place, f"{key} is missing: the row kind of the change, {', '.join(SYMBOLS)}")
        self._check_columns(row, record, place)
        if not row:
            raise self.error(place, "the row names no column")
        only = record.select([name for name in record.names if name in row])
        try:
            return op | decode(only, encode(only, [check_row(only, row)]))[0]
        except ValueProblem as problem:
            raise self.error(place, _with_advice(problem, row)) from None

    def _check_columns(self, row: ComparedRow, record: Record, place: YamlPlace) -> None:
        for name in row:
            if name not in record.names:
                raise self.error(place, f"there is no column {name!r}; the columns are {', '.join(record.names)}")


def _with_advice(problem: ValueProblem, row: ComparedRow) -> str:
    """Return the text of a problem. A date or time without quotes is not text, which YAML does not show."""
    if " is not STRING" in str(problem) and any(isinstance(each, date | datetime) for each in row.values()):
        return f"{problem}: put the text in quotes"
    return str(problem)
