"""The matches of a row pattern in partitions of rows, which stand in order.

From a row on, the ways to match are tried in the order of preference, and the first that comes to its end is the match
(SQL:2016). Where a way needs a row that has not come yet, nothing is known: it may still turn out to be the one. So
the search of a partition ends there, and what comes before that row has been decided for good.

A way that comes where another has failed before it, at the same step, row and knowledge of the match so far, is not
gone again. So a pattern whose conditions are about rows alone costs no more than its steps times the rows, from one
row on; where conditions ask for sums of what was matched, ways may differ for ever, and cost what they cost.

Conditions are tested in columns although ways are gone one step at a time. A search that needs to know whether a row
fulfils a condition stops and asks; what all partitions ask for is computed at once. Of a condition on rows that are at
most `NEAR` rows away, or on the row alone, it is computed for all rows of the batch when somebody asks for one. Of any
other, for the rows that follow as well, as if they all were to fulfil it: twice as many each time; and if it is about
the first row of a match, for some that follow as if they were that. So the number of such rounds is small for long
stretches of one variable.
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
"""How many rows back a condition may look to be computed for all rows."""

_FEWEST, _MOST, _STARTS = 4, 4096, 256

_GO_ON = (
    "Let the pattern have such a row behind its first one, or write TO NEXT ROW, or say `on_error: dead_letter` or "
    "`on_error: null` in the job, by which the search goes on at the next row then"
)

FALSE, TRUE, FAILED = 0, 1, 2
"""What a condition is for a row: not true, true, or not to be computed."""


@dataclass(frozen=True)
class PatternSpec:
    """A pattern and when it matches.

    - `conditions`: of each variable, what its condition asks of the match so far; None for one that is always true.
    - `within`: the time in microseconds in which all rows of a match lie, less than that apart; None for any time.
    - `goes_on`: behind a match whose row to skip to is its first one, or not there, the search goes on at the next row;
      else that is an error.
    """

    program: Program
    conditions: tuple[ConditionCalls | None, ...]
    skip: Skip = field(default_factory=Skip)
    within: int | None = None
    goes_on: bool = False


class PatternRows(Protocol):
    """The rows that are searched, by their numbers."""

    def values(self, column: str) -> Sequence[Any]:
        """The values of a column, of all rows."""

    def test(self, variable: int, rows: Indices, arguments: Sequence[Sequence[Any] | Indices]) -> Int8s:
        """Whether each of these rows fulfils a variable's condition, by what its calls come to: FALSE, TRUE, FAILED."""

    def fail(self, variable: int, row: int, arguments: CallResults) -> None:
        """Raise what is wrong with a row whose condition FAILED."""


@dataclass(frozen=True)
class PatternMatch:
    """The rows of a match: from `start` on, each of a variable."""

    start: int
    variables: tuple[int, ...]


@dataclass(frozen=True)
class Searched:
    """The matches of a partition, and the row from which on nothing is decided."""

    matches: list[PatternMatch]
    open_from: int


@dataclass(frozen=True)
class _Question:
    """Whether rows fulfil a condition: the one that is asked for, and those that may be asked for next."""

    variable: int
    rows: list[int]
    arguments: list[CallResults]
    near: tuple[int, ...] | None = None


@dataclass
class _Reach:
    """How far the search from a row on goes: to before `last`, which comes by `stop`; whether more rows may come.

    `ahead` is how many rows on the next question is about.
    """

    start: int
    last: int
    stop: int
    waits: bool
    ahead: int = field(default_factory=lambda: _FEWEST)


_Way = tuple[int, int, Any, tuple[int, ...], Any]
"""A step, the row that it comes to, the match so far, the rows at marks, and the path to it."""

_Undecided = Literal["undecided"]
_Search = Generator[_Question, None, "PatternMatch | _Undecided | None"]


class PatternSearch:
    """A search in partitions of `rows`, which have these `times`, in microseconds.

    `passed` is the time, in microseconds, up to which no row can come any more; None where none can at all. Raises
    RowFailed with the first row of a match behind which it cannot go on.
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
        """What is found in partitions, each from a row to before another."""
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
        """For each row whether the first row of a match can fulfil its condition; None where every row does."""
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
            assert isinstance(found, PatternMatch), "what is no match has been seen to"
            matches.append(found)
            row = self._next(found)
        return Searched(matches, stop)

    def _next(self, found: PatternMatch) -> int:
        """The row behind a match from which on the search goes on."""
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
                    leads = "to the first row of the match, which would be found again for ever" if own else "nowhere"
                    why = "" if own else ", as the match has no row of this variable"
                    raise RowFailed(
                        f"AFTER MATCH SKIP TO {skip.to.upper()} leads {leads}{why}", found.start, advice=_GO_ON
                    )
                return found.start + max(place, 1)

    def _from(self, start: int, stop: int) -> _Search:
        """The preferred match from a row on, None for none; "undecided" where that depends on rows to come."""
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
                        # What is not known is asked for, and what FAILED is raised.
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
        """How far a match from a row on may go."""
        within = self._spec.within
        if within is None:
            return _Reach(start, stop, stop, waits=self._passed is not None)
        over = self._times[start] + within
        last = bisect_left(self._times, over, start, stop)
        waits = self._passed is not None and last == stop and (self._passed or 0) < over - 1
        return _Reach(start, last, stop, waits=waits)

    def _asked(self, variable: int, row: int, so_far: Any, reach: _Reach) -> Generator[_Question, None, int]:
        """What a condition is for a row, asked for until it is known. Raises where it FAILED."""
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
        """What a condition is for a row; None where that is not known yet."""
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
        """Ask of the rows that follow as well whether they could be the first, in case this one is not."""
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
                # Before the first row there is none; nobody will ask.
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
    """The step and the marks behind a jump, a mark or the check of one, which takes no row; None for no way on."""
    match step.operation:
        case "jump":
            return step.a, marks
        case "mark":
            return at + 1, (*marks[: step.a], *(0,) * (step.a - len(marks)), row, *marks[step.a + 1 :])
        case _:
            return None if marks[step.a] == row else (at + 1, marks)


def _distances(row: int, arguments: CallResults) -> tuple[int, ...] | None:
    """How far back the rows are that a condition asks for, -1 for none; None where one of them is not near."""
    distances = tuple([row - each if each >= 0 else -1 for each in arguments])
    return distances if all(far <= NEAR for far in distances) else None


def _spelled(path: Any) -> tuple[int, ...]:
    """The variables of the rows of a match, from the first on."""
    found = []
    while path is not None:
        path, variable = path
        found.append(variable)
    return tuple(reversed(found))
