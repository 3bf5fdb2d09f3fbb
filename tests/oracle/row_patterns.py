"""Test support for row patterns: random patterns and conditions, and SQL:2016's definition of their matches.

Rows are (id, partition, value, time in `UNIT` microseconds). For each starting row, the definition enumerates all ways
to match the pattern in order of preference and takes the first. It raises `Undecided` if a way depends on a row that
may still arrive.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from rowkind.operators.columns.changes import Indices, Int8s, Int64s, binary
from rowkind.operators.match.calls import Classifier, MatchAggregate, MatchCall, MatchNumber, Navigation
from rowkind.operators.match.output import CallColumn
from rowkind.operators.match.partial_match import CallResults, ConditionCalls
from rowkind.operators.match.pattern import (
    Pattern,
    PatternChoice,
    PatternRepeat,
    PatternSequence,
    PatternVariable,
    Skip,
    can_be_empty,
    program,
    resumed,
)
from rowkind.operators.match.recognize import MatchSpec
from rowkind.operators.match.search import PatternSpec
from tests.changelogs import Row, pack, unpack

UNIT = 500
NAMES = ("A", "B", "C")
VALUE, ID = "2", "0"
"""Columns are named by their positions."""


@dataclass(frozen=True)
class Condition:
    """The condition of a variable: a function of the row's value and of the results of the calls.

    `sql` is the same condition for a variable {0} and another variable {1}.
    """

    sql: str
    calls: ConditionCalls | None
    holds: Callable[[int, Sequence[Any]], bool] = lambda _value, _given: True


def conditions(variable: int) -> list[Condition]:
    """Return the conditions that a variable may have."""
    own, other = (variable,), ((variable + 1) % len(NAMES),)
    return [
        Condition("true", None),
        Condition("{0}.v % 2 = 0", (), lambda value, _: value % 2 == 0),
        Condition("{0}.v < 3", (), lambda value, _: value < 3),
        Condition("false", (), lambda _, __: False),
        Condition(
            "LAST({0}.v, 1) IS NULL OR {0}.v < LAST({0}.v, 1)",
            (Navigation(own, VALUE, offset=1),),
            lambda value, given: given[0] is None or value < given[0],
        ),
        Condition(
            "{0}.v >= COALESCE({1}.v, 0)", (Navigation(other, VALUE),), lambda value, given: value >= (given[0] or 0)
        ),
        Condition("{0}.v <> FIRST(v)", (Navigation((), VALUE, first=True),), lambda value, given: value != given[0]),
        Condition(
            "(FIRST(v, 1) IS NULL OR FIRST(v, 1) <> {0}.v) AND LAST({0}.v, 0) = v",
            (Navigation((), VALUE, first=True, offset=1), Navigation(own, VALUE)),
            lambda value, given: given[0] != value and given[1] == value,
        ),
        Condition("SUM({0}.v) < 9", (MatchAggregate("sum", own, VALUE),), lambda _, given: given[0] < 9),
        Condition("COUNT(*) <= 4", (MatchAggregate("count", (), None),), lambda _, given: given[0] <= 4),
        Condition(
            "{0}.v >= AVG(v) - 1 AND (MAX({1}.v) IS NULL OR {0}.v <> MAX({1}.v))",
            (MatchAggregate("avg", (), VALUE), MatchAggregate("max", other, VALUE)),
            lambda value, given: value >= given[0] - 1 and (given[1] is None or value != given[1]),
        ),
    ]


@dataclass(frozen=True)
class Sought:
    """A pattern with its conditions, skip mode, time limit and measures."""

    pattern: Pattern
    conditions: tuple[Condition, ...]
    skip: Skip
    within: int | None
    all_rows: bool
    calls: tuple[MatchCall, ...]

    def __str__(self) -> str:
        return self.sql

    @property
    def sql(self) -> str:
        """Return the same pattern as SQL over rows (id, k, v, ts)."""
        skip = {"past last row": "PAST LAST ROW", "next row": "TO NEXT ROW"}.get(self.skip.to)
        if skip is None:
            skip = f"TO {self.skip.to.upper()} {NAMES[self.skip.variables[0]]}"
        define = [
            f"{name} AS {of.sql.format(name, NAMES[(number + 1) % len(NAMES)])}"
            for number, (name, of) in enumerate(zip(NAMES, self.conditions, strict=True))
        ]
        measures = [f"{MEASURES[call]} AS m{number}" for number, call in enumerate(self.calls)]
        within = "" if self.within is None else f"WITHIN INTERVAL '{self.within}' MICROSECOND"
        return (
            f"SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES {', '.join(measures)} "
            f"{'ALL ROWS' if self.all_rows else 'ONE ROW'} PER MATCH AFTER MATCH SKIP {skip} "
            f"PATTERN ({spelled(self.pattern)}) {within} SUBSET U = (A, C), W = (B, C) DEFINE {', '.join(define)}) AS m"
        )

    @property
    def variables(self) -> set[int]:
        """Return the variables of the pattern."""
        return {NAMES.index(letter) for letter in spelled(self.pattern) if letter in NAMES}

    @property
    def spec(self) -> MatchSpec:
        """Return the same pattern for the operator."""
        return MatchSpec(
            PatternSpec(
                program(self.pattern),
                tuple(each.calls for each in self.conditions),
                self.skip,
                self.within,
                goes_on=True,
            ),
            times,
            lambda payloads: TestedRows(self, [unpack(each) for each in payloads.to_pylist()]),
            self.calls,
            self.all_rows,
            numbered=any(isinstance(call, MatchNumber) for call in self.calls),
        )


def times(payloads: pa.BinaryArray) -> Int64s:
    """Return the times of packed rows."""
    return np.array([UNIT * (unpack(each)[3] or 0) for each in payloads.to_pylist()], np.int64)


@dataclass(frozen=True)
class TestedRows:
    """Rows in the form in which the operator reads them."""

    __test__ = False
    of: Sought
    rows: list[Row]

    def values(self, column: str) -> Sequence[Any]:
        """Return a column."""
        return [row[int(column)] for row in self.rows]

    def test(self, variable: int, rows: Indices, arguments: Sequence[Sequence[Any] | Indices]) -> Int8s:
        """Return whether each row satisfies the condition of a variable."""
        of = self.of.conditions[variable]
        given = [self._values(call, column) for call, column in zip(of.calls or (), arguments, strict=True)]
        found = [of.holds(self.rows[row][2] or 0, [each[at] for each in given]) for at, row in enumerate(rows)]
        return np.array(found, np.int8)

    def fail(self, variable: int, row: int, arguments: CallResults) -> None:  # noqa: ARG002 -- the operator's interface
        """Fail the test: no condition of these tests raises an error."""
        raise AssertionError

    def packed(self, rows: Indices, calls: Sequence[CallColumn]) -> pa.BinaryArray:
        """Return the partition (or, with ALL ROWS, the whole row) and the results of the calls, packed."""
        columns = [self._values(call, column) for call, column in zip(self.of.calls, calls, strict=True)]
        return binary(
            pack(shown(self.of, self.rows[row], [column[at] for column in columns])) for at, row in enumerate(rows)
        )

    def _values(self, call: MatchCall, column: CallColumn) -> list[Any]:
        if isinstance(call, Navigation):
            values = self.values(call.column)
            return [values[row] if row >= 0 else None for row in column]
        return column.tolist() if isinstance(column, np.ndarray) else list(column)


def shown(of: Sought, row: Row, called: Sequence[Any]) -> Row:
    """Return an output row in which every value is a number."""
    numbers = [round(1000 * each) if isinstance(each, float) else each for each in called]
    return (*(row if of.all_rows else row[1:2]), *(ord(each) if isinstance(each, str) else each for each in numbers))


def spelled(pattern: Pattern) -> str:
    """Return a pattern as SQL writes it."""
    match pattern:
        case PatternVariable():
            return NAMES[pattern.number]
        case PatternSequence():
            return f"({' '.join(map(spelled, pattern.parts))})"
        case PatternChoice():
            return f"({' | '.join(map(spelled, pattern.parts))})"
        case PatternRepeat():
            most = "" if pattern.most is None else pattern.most
            part = f"({spelled(pattern.part)})" if isinstance(pattern.part, PatternRepeat) else spelled(pattern.part)
            return f"{part}{{{pattern.least},{most}}}{'?' * pattern.reluctant}"


def sought(generator: random.Random) -> Sought:
    """Return a random pattern that cannot match empty, with conditions and a skip mode that may be possible."""
    while True:
        pattern = _pattern(generator, 3)
        if not can_be_empty(pattern):
            break
    skips = [Skip(), Skip("next row")]
    for variable in range(len(NAMES)):
        for to in ("first", "last"):
            if resumed(program(pattern), frozenset([variable]), last=to == "last").possible:
                skips += [Skip(to, (variable,))] * 3  # type: ignore[arg-type]
    return Sought(
        pattern,
        tuple(generator.choice(conditions(variable)) for variable in range(len(NAMES))),
        generator.choice(skips),
        generator.choice([None, UNIT * 3, UNIT * 6, 20 * UNIT + 1]),
        generator.random() < 0.4,
        tuple(generator.sample(list(MEASURES), generator.randint(1, 5))),
    )


MEASURES: dict[MatchCall, str] = {
    Navigation((), ID): "LAST(id)",
    Navigation((), ID, first=True): "FIRST(id)",
    Navigation((0,), ID, offset=1): "LAST(A.id, 1)",
    Navigation((1,), VALUE, final=True): "FINAL LAST(B.v)",
    Navigation((0, 2), VALUE, first=True, offset=1, final=True): "FINAL FIRST(U.v, 1)",
    MatchAggregate("count", (), None): "COUNT(*)",
    MatchAggregate("count", (1,), VALUE, final=True): "FINAL COUNT(B.v)",
    MatchAggregate("sum", (0,), VALUE): "RUNNING SUM(A.v)",
    MatchAggregate("min", (), VALUE, final=True): "FINAL MIN(v)",
    MatchAggregate("max", (1, 2), VALUE): "MAX(W.v)",
    MatchAggregate("avg", (), VALUE): "AVG(v)",
    Classifier(NAMES): "CLASSIFIER()",
    Classifier(NAMES, final=True): "FINAL CLASSIFIER()",
    MatchNumber(): "MATCH_NUMBER()",
}
"""The measures, and how SQL writes each."""


def _pattern(generator: random.Random, depth: int) -> Pattern:
    kind = generator.choice(["variable", "sequence", "choice", "repeat"] if depth else ["variable"])
    match kind:
        case "sequence":
            return PatternSequence(tuple(_pattern(generator, depth - 1) for _ in range(generator.randint(2, 3))))
        case "choice":
            return PatternChoice(tuple(_pattern(generator, depth - 1) for _ in range(generator.randint(2, 3))))
        case "repeat":
            least = generator.choice([0, 0, 1, 1, 2])
            most = generator.choice([None, None, max(1, least), least + 2])
            return PatternRepeat(_pattern(generator, depth - 1), least, most, generator.random() < 0.4)
        case _:
            return PatternVariable(generator.randrange(len(NAMES)))


class Undecided(Exception):  # noqa: N818 -- a state, not an error
    """The preferred match depends on rows that may still arrive."""


@dataclass
class Definition:
    """SQL:2016's matches of one partition, whose rows are in order.

    `passed` is the time in microseconds up to which all rows have arrived; None if no more rows can arrive.
    """

    of: Sought
    rows: Sequence[Row]
    passed: int | None
    matches: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    undecided: int = 0

    def run(self) -> Definition:
        """Find the matches."""
        row = 0
        while row < len(self.rows):
            try:
                found = next(self._ways(self.of.pattern, row, ()), None)
            except Undecided:
                self.undecided = len(self.rows) - row
                break
            if found is None:
                row += 1
                continue
            self.matches.append((row, found))
            row = self._next(row, found)
        return self

    def _next(self, row: int, found: tuple[int, ...]) -> int:
        skip = self.of.skip
        if skip.to == "past last row":
            return row + len(found)
        if skip.to == "next row":
            return row + 1
        own = [at for at, variable in enumerate(found) if variable in skip.variables]
        # If the variable has no row, or its row is the starting row, the search continues from the next row.
        return row + max(1, (min(own) if skip.to == "first" else max(own)) if own else 0)

    def _ways(self, pattern: Pattern, start: int, so_far: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Yield all ways to continue with a pattern after the rows so far, as the variables of all rows."""
        match pattern:
            case PatternVariable():
                if self._takes(start, so_far, pattern.number):
                    yield (*so_far, pattern.number)
            case PatternSequence():
                yield from self._in_order(pattern.parts, start, so_far)
            case PatternChoice():
                for part in pattern.parts:
                    yield from self._ways(part, start, so_far)
            case PatternRepeat():
                yield from self._times(pattern, 0, start, so_far)

    def _in_order(self, parts: Sequence[Pattern], start: int, so_far: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if not parts:
            yield so_far
            return
        for way in self._ways(parts[0], start, so_far):
            yield from self._in_order(parts[1:], start, way)

    def _times(
        self, repeat: PatternRepeat, done: int, start: int, so_far: tuple[int, ...]
    ) -> Iterator[tuple[int, ...]]:
        if done >= repeat.least and repeat.reluctant:
            yield so_far
        if repeat.most is None or done < repeat.most:
            for way in self._ways(repeat.part, start, so_far):
                if done < repeat.least or len(way) > len(so_far):
                    yield from self._times(repeat, done + 1, start, way)
        if done >= repeat.least and not repeat.reluctant:
            yield so_far

    def _takes(self, start: int, so_far: tuple[int, ...], variable: int) -> bool:
        at, over = start + len(so_far), None
        if self.of.within is not None:
            over = UNIT * (self.rows[start][3] or 0) + self.of.within
        if at == len(self.rows):
            if self.passed is not None and (over is None or self.passed + 1 < over):
                raise Undecided
            return False
        row, condition = self.rows[at], self.of.conditions[variable]
        if over is not None and UNIT * (row[3] or 0) >= over:
            return False
        given = [self.called(call, start, (*so_far, variable), 0) for call in condition.calls or ()]
        return condition.holds(row[2] or 0, given)

    def called(self, call: MatchCall, start: int, variables: tuple[int, ...], number: int) -> Any:
        """Return the result of a call for a match with these variables."""
        match call:
            case Classifier():
                return NAMES[variables[-1]]
            case MatchNumber():
                return number
        rows = [
            self.rows[start + at]
            for at, variable in enumerate(variables)
            if not call.variables or variable in call.variables
        ]
        if isinstance(call, Navigation):
            rows = rows if call.first else rows[::-1]
            return rows[call.offset][int(call.column)] if call.offset < len(rows) else None
        values = [each for row in rows if (each := 1 if call.column is None else row[int(call.column)]) is not None]
        if call.function == "count":
            return len(values)
        made: dict[str, Callable[[list[int]], Any]] = {
            "sum": sum, "min": min, "max": max, "avg": lambda them: sum(them) / len(them),
        }  # fmt: skip
        return made[call.function](values) if values else None

    def result(self) -> Iterator[Row]:
        """Yield the output rows as numbers."""
        for row, called in self.outputs():
            yield shown(self.of, row, called)

    def outputs(self) -> Iterator[tuple[Row, list[Any]]]:
        """Yield the output rows with the results of the calls."""
        for number, (start, variables) in enumerate(self.matches, 1):
            for at in range(len(variables)) if self.of.all_rows else [len(variables) - 1]:
                called = [
                    self.called(call, start, variables if call.final else variables[: at + 1], number)
                    for call in self.of.calls
                ]
                yield self.rows[start + at], called
