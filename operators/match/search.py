"""The search for matches of a row pattern in partitions of ordered rows.

From each starting row, the ways to match are tried in order of preference. The first way that succeeds is the match
(SQL:2016). If a way needs a row that has not arrived yet, the result is undecided, because this way may still succeed.
The search of the partition then stops, and the results for all earlier starting rows are final.

A way is abandoned if it reaches the same step, row and match state as an earlier way that failed. So if conditions
depend only on rows, the cost of a search from one row is at most the number of steps in the pattern times the number of
rows. If conditions use aggregates of the matched rows, ways may never coincide, and the cost has no such limit.

Conditions are evaluated column-wise although ways are tried one step at a time. A search that needs a condition's value
for a row pauses with a question; the questions of all partitions are then answered together. If a condition reads only
the row itself or rows at most `NEAR` rows before it, the first question evaluates the condition for all rows of the
batch. Any other condition is also evaluated for some of the following rows, on the assumption that they all satisfy the
condition. The number of following rows doubles with each question. If the question is about the first row of a match,
the condition is also evaluated for some following rows as possible first rows. So long runs of one variable need few
rounds of questions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from rowkind.operators.columns.changes import Indices, Int8s, Int64s
from rowkind.operators.errors import RowFailed
from rowkind.operators.match.calls import Navigation
from rowkind.operators.match.partial_match import CallResults, ConditionCalls, PartialMatch
from rowkind.operators.match.pattern import Instruction, Program, Skip, first_variables

NEAR = 4
"""The maximum number of rows that a condition may look back to be evaluated for all rows at once."""

_FEWEST, _MOST, _STARTS = 4, 4096, 256

_GO_ON = (
    "Change the pattern so that every match has such a row after its first row, or write TO NEXT ROW. Or set "
    "`on_error: dead_letter` or `on_error: null` in the job: the search then continues at the next row"
)

FALSE, TRUE, FAILED = 0, 1, 2
"""The value of a condition for a row: not true, true, or the evaluation failed."""


@dataclass(frozen=True)
class PatternSpec:
    """A pattern, its conditions, and where to continue after a match.

    - `conditions`: for each variable, the calls in its condition, which read the match so far; None if the condition is
      always true.
    - `within`: the exclusive limit, in microseconds, of the time between the first and the last row of a match. None if
      there is no limit.
    - `goes_on`: whether the search continues at the row after the first row of the match if the row to skip to is
      missing or is that first row. If not set, both cases are errors.
    """

    program: Program
    conditions: tuple[ConditionCalls | None, ...]
    skip: Skip = field(default_factory=Skip)
    within: int | None = None
    goes_on: bool = False


class PatternRows(Protocol):
    """The rows to search, accessed by row number."""

    def values(self, column: str) -> Sequence[Any]:
        """Return a column's values for all rows."""

    def test(self, variable: int, rows: Indices, arguments: Sequence[Sequence[Any] | Indices]) -> Int8s:
        """Return FALSE, TRUE or FAILED for each row: a variable's condition, given the values of its calls."""

    def fail(self, variable: int, row: int, arguments: CallResults) -> None:
        """Raise the error for a row whose condition FAILED."""


@dataclass(frozen=True)
class PatternMatch:
    """A match whose first row is `start`; `variables` contains the variable of each of its rows."""

    start: int
    variables: tuple[int, ...]


@dataclass(frozen=True)
class Searched:
    """A partition's matches, and the first row that is still undecided."""

    matches: list[PatternMatch]
    open_from: int


@dataclass(frozen=True)
class _Question:
    """A request to evaluate a condition for the row that is needed, and for rows that may be needed next."""

    variable: int
    rows: list[int]
    arguments: list[CallResults]
    near: tuple[int, ...] | None = None


@dataclass
class _Reach:
    """The limits of the search that starts at row `start`.

    The search reads the rows before `last`, which is at most `stop`. `waits` says whether more rows within the limits
    may arrive. `ahead` is the number of following rows that the next question includes.
    """

    start: int
    last: int
    stop: int
    waits: bool
    ahead: int = field(default_factory=lambda: _FEWEST)


_Way = tuple[int, int, Any, tuple[int, ...], Any]
"""A step, the next row, the state of the match, the rows in the mark slots, and the path to the step."""

_Undecided = Literal["undecided"]
_Search = Generator[_Question, None, "PatternMatch | _Undecided | None"]


class PatternSearch:
    """A search in partitions of `rows`; `times` contains the rows' times, in microseconds.

    `passed` is the time, in microseconds, up to which no more rows can arrive; None if no rows can arrive at all.
    Raises `RowFailed`, with the first row of the match, if the search cannot continue after a match.
    """

    def __init__(self, spec: PatternSpec, rows: PatternRows, times: Int64s, passed: int | None) -> None:
        self._spec, self._rows = spec, rows
        self._times: list[int] = times.tolist()
        self._passed = passed
        self._so_far = PartialMatch([calls or () for calls in spec.conditions], rows.values)
        self._looks_near = [all(isinstance(call, Navigation) for call in calls or ()) for calls in spec.conditions]
        self._near: dict[tuple[int, tuple[int, ...]], bytes] = {}
        self._known: dict[tuple[int, int, CallResults], int] = {}
        self._begins = self._where_matches_may_begin()

    def run(self, partitions: Sequence[tuple[int, int]]) -> list[Searched]:
        """Search the partitions, each given by its first row and the row after its last row."""
        searches = [self._partition(begin, stop) for begin, stop in partitions]
        found: dict[int, Searched] = {}
        asked: dict[int, _Question] = {}
        ahead = list(range(len(searches)))
        while ahead:
            for number in ahead:
                try:
                    asked[number] = next(searches[number])
                except StopIteration as done:
                    asked.pop(number, None)
                    found[number] = done.value
            self._answer(list(asked.values()))
            ahead = list(asked)
        return [found[number] for number in range(len(searches))]

    def _where_matches_may_begin(self) -> bytes | None:
        """Return a mask, as bytes, of the rows that can begin a match.

        Return None if this does not depend on single rows alone.
        """
        count, first = len(self._times), first_variables(self._spec.program)
        if any(self._spec.conditions[variable] != () for variable in first):
            return None
        rows, true = np.arange(count), np.zeros(count, np.bool_)
        for variable in first:
            held = self._rows.test(variable, rows, ())
            self._near[variable, ()] = held.tobytes()
            true |= held != FALSE
        return true.tobytes()

    def _partition(self, begin: int, stop: int) -> Generator[_Question, None, Searched]:
        matches: list[PatternMatch] = []
        row = begin
        while row < stop:
            if self._begins is not None:
                row = self._begins.find(b"\1", row, stop)
                if row < 0:
                    return Searched(matches, stop)
            found = yield from self._from(row, stop)
            if found == "undecided":
                return Searched(matches, row)
            if found is None:
                row += 1
                continue
            assert isinstance(found, PatternMatch), "results other than a match are handled above"
            matches.append(found)
            row = self._next(found)
        return Searched(matches, stop)

    def _next(self, found: PatternMatch) -> int:
        """Return the row at which the search continues after a match."""
        skip = self._spec.skip
        match skip.to:
            case "past last row":
                return found.start + len(found.variables)
            case "next row":
                return found.start + 1
            case _:
                own = [place for place, variable in enumerate(found.variables) if variable in skip.variables]
                place = 0 if not own else own[0] if skip.to == "first" else own[-1]
                if not place and not self._spec.goes_on:
                    leads = (
                        "the row to skip to is the first row of the match, so the search would never advance"
                        if own
                        else "there is no row to skip to"
                    )
                    why = "" if own else ", because the match has no row of that variable"
                    raise RowFailed(f"AFTER MATCH SKIP TO {skip.to.upper()}: {leads}{why}", found.start, advice=_GO_ON)
                return found.start + max(place, 1)

    def _from(self, start: int, stop: int) -> _Search:
        """Return the preferred match that starts at row `start`.

        Return None if there is no match, or "undecided" if more rows must arrive first.
        """
        program, conditions, so_far_of = self._spec.program, self._spec.conditions, self._so_far
        reach = self._reach(start, stop)
        known = set[tuple[int, int, Any, Any]]()
        ways: list[_Way] = [(0, start, so_far_of.begun, (), None)]
        while ways:
            at, row, so_far, marks, path = ways.pop()
            while True:
                step = program[at]
                if step.operation == "row":
                    if row == reach.last:
                        if reach.waits:
                            return "undecided"
                        break
                    after = so_far_of.after(so_far, step.a, row)
                    if conditions[step.a] is not None:
                        held = self._held(step.a, row, so_far_of.arguments(step.a, after))
                        # If the condition's value is unknown, it is requested; if it is FAILED, the error is raised.
                        if held != TRUE and (
                            held == FALSE or (yield from self._asked(step.a, row, after, reach)) != TRUE
                        ):
                            break
                    so_far, path, row, at = after, (path, step.a), row + 1, at + 1
                elif step.operation == "split":
                    here = (at, row, so_far, marks)
                    if here in known:
                        break
                    known.add(here)
                    ways.append((step.b, row, so_far, marks, path))
                    at = step.a
                elif step.operation == "accept":
                    return PatternMatch(start, _spelled(path))
                elif (moved := _moved_on(step, at, row, marks)) is None:
                    break
                else:
                    at, marks = moved
        return None

    def _reach(self, start: int, stop: int) -> _Reach:
        """Return the limits of a match that starts at a row."""
        within = self._spec.within
        if within is None:
            return _Reach(start, stop, stop, waits=self._passed is not None)
        over = self._times[start] + within
        last = bisect_left(self._times, over, start, stop)
        waits = self._passed is not None and last == stop and (self._passed or 0) < over - 1
        return _Reach(start, last, stop, waits=waits)

    def _asked(self, variable: int, row: int, so_far: Any, reach: _Reach) -> Generator[_Question, None, int]:
        """Request a condition's value for a row until it is known. Raises RowFailed if it FAILED."""
        arguments = self._so_far.arguments(variable, so_far)
        held = self._held(variable, row, arguments)
        while held is None:
            question = self._question(variable, row, arguments, so_far, min(row + reach.ahead, reach.last))
            if row == reach.start:
                self._ask_of_other_starts(question, reach.stop)
            yield question
            reach.ahead = min(2 * reach.ahead, _MOST)
            held = self._held(variable, row, arguments)
        if held == FAILED:
            self._rows.fail(variable, row, arguments)
        return held

    def _held(self, variable: int, row: int, arguments: CallResults) -> int | None:
        """Return a condition's value for a row; None if the value is not known yet."""
        if self._looks_near[variable]:
            near = _distances(row, arguments)
            if near is not None:
                column = self._near.get((variable, near))
                return None if column is None else column[row]
        return self._known.get((variable, row, arguments))

    def _question(self, variable: int, row: int, arguments: CallResults, so_far: Any, stop: int) -> _Question:
        near = _distances(row, arguments) if self._looks_near[variable] else None
        rows, asked = [row], [arguments]
        for each in range(row + 1, stop) if near is None else ():
            so_far = self._so_far.after(so_far, variable, each)
            rows.append(each)
            asked.append(self._so_far.arguments(variable, so_far))
        return _Question(variable, rows, asked, near)

    def _ask_of_other_starts(self, question: _Question, stop: int) -> None:
        """Add the following rows to the question as possible first rows, in case no match starts at its first row."""
        first = question.rows[0]
        for row in range(first + 1, min(first + _STARTS, stop) if question.near is None else first):
            question.rows.append(row)
            question.arguments.append(
                self._so_far.arguments(
                    question.variable, self._so_far.after(self._so_far.begun, question.variable, row)
                )
            )

    def _answer(self, questions: Sequence[_Question]) -> None:
        for variable, near in dict.fromkeys((each.variable, each.near) for each in questions):
            if near is not None and (variable, near) not in self._near:
                rows = np.arange(len(self._times))
                # Row numbers before the first row become -1; the values for these rows are never used.
                columns = [np.maximum(rows - far, -1) if far >= 0 else np.full(len(rows), -1) for far in near]
                self._near[variable, near] = self._rows.test(variable, rows, columns).tobytes()
        for variable in dict.fromkeys(each.variable for each in questions if each.near is None):
            own = [each for each in questions if each.variable == variable and each.near is None]
            asked = dict.fromkeys(
                (row, given) for each in own for row, given in zip(each.rows, each.arguments, strict=True)
            )
            answers = self._rows.test(
                variable,
                np.array([row for row, _ in asked], np.int64),
                list(zip(*(given for _, given in asked), strict=True)),
            )
            for (row, given), answer in zip(asked, answers.tolist(), strict=True):
                self._known[variable, row, given] = answer


def _moved_on(step: Instruction, at: int, row: int, marks: tuple[int, ...]) -> tuple[int, tuple[int, ...]] | None:
    """Return the step and the marks after a jump, mark or moved instruction; None if the way fails."""
    match step.operation:
        case "jump":
            return step.a, marks
        case "mark":
            return at + 1, (*marks[: step.a], *(0,) * (step.a - len(marks)), row, *marks[step.a + 1 :])
        case _:
            return None if marks[step.a] == row else (at + 1, marks)


def _distances(row: int, arguments: CallResults) -> tuple[int, ...] | None:
    """Return how many rows back each of a condition's calls reads, -1 for no row; None if a distance exceeds `NEAR`."""
    distances = tuple([row - each if each >= 0 else -1 for each in arguments])
    return distances if all(far <= NEAR for far in distances) else None


def _spelled(path: Any) -> tuple[int, ...]:
    """Return the variables of a match's rows, from first to last."""
    found = []
    while path is not None:
        path, variable = path
        found.append(variable)
    return tuple(reversed(found))
