"""Row patterns, and the programs that try all ways to match a pattern, in order of preference.

A pattern is a regular expression over variables. A program is a list of instructions for a backtracking matcher; a
split instruction says which of two ways is tried first. So the ways are tried in SQL:2016's order of preference.
Alternatives are tried from left to right. A greedy quantifier first tries one more iteration, and a reluctant
quantifier first tries no further iteration. (This is Thompson's construction, as in the programs of Pike and RE2, with
ordered splits.)

An iteration beyond a quantifier's minimum must consume a row; otherwise there could be infinitely many empty
iterations. If the repeated part can match no rows, the program marks where the iteration starts, to check that it has
consumed a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class PatternVariable:
    """One row that satisfies the condition of a variable, which is given by its number."""

    number: int


@dataclass(frozen=True)
class PatternSequence:
    """All parts, one after the other. A sequence without parts is the empty pattern."""

    parts: tuple[Pattern, ...]


@dataclass(frozen=True)
class PatternChoice:
    """One of the parts; earlier parts are preferred."""

    parts: tuple[Pattern, ...]


@dataclass(frozen=True)
class PatternRepeat:
    """A part that is repeated `least` to `most` times; `most` is None if there is no maximum.

    More repetitions are preferred or, if `reluctant` is set, fewer.
    """

    part: Pattern
    least: int
    most: int | None
    reluctant: bool = False


Pattern = PatternVariable | PatternSequence | PatternChoice | PatternRepeat

Operation = Literal["row", "split", "jump", "mark", "moved", "accept"]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One step of a program.

    - row: assign the next row to variable `a`.
    - split: continue at `a` and, if that fails, at `b`.
    - jump: continue at `a`.
    - mark: store the current row in slot `a`.
    - moved: fail if the current row is still the row in slot `a`.
    - accept: the pattern has matched.
    """

    operation: Operation
    a: int = 0
    b: int = 0


Program = tuple[Instruction, ...]


def can_be_empty(pattern: Pattern) -> bool:
    """Return whether a pattern can match no rows."""
    match pattern:
        case PatternVariable():
            return False
        case PatternSequence():
            return all(map(can_be_empty, pattern.parts))
        case PatternChoice():
            return any(map(can_be_empty, pattern.parts))
        case PatternRepeat():
            return pattern.least == 0 or can_be_empty(pattern.part)


def steps(pattern: Pattern) -> int:
    """Return the approximate number of instructions in a pattern's program."""
    match pattern:
        case PatternVariable():
            return 1
        case PatternSequence() | PatternChoice():
            return 2 * len(pattern.parts) + sum(map(steps, pattern.parts))
        case PatternRepeat():
            return (4 + steps(pattern.part)) * max(pattern.least + 1, pattern.most or 0)


def program(pattern: Pattern) -> Program:
    """Return the program that matches a pattern."""
    made = _Made([])
    made.add(pattern)
    made.write("accept")
    return tuple(made.instructions)


@dataclass
class _Made:
    instructions: list[Instruction]
    slots: int = 0

    def write(self, operation: Operation, a: int = 0, b: int = 0) -> int:
        self.instructions.append(Instruction(operation, a, b))
        return len(self.instructions) - 1

    @property
    def here(self) -> int:
        return len(self.instructions)

    def add(self, pattern: Pattern) -> None:
        match pattern:
            case PatternVariable():
                self.write("row", pattern.number)
            case PatternSequence():
                for part in pattern.parts:
                    self.add(part)
            case PatternChoice():
                self._choice(pattern.parts)
            case PatternRepeat():
                self._repeat(pattern)

    def _choice(self, parts: Sequence[Pattern]) -> None:
        ends = []
        for part in parts[:-1]:
            split = self.write("split")
            self.add(part)
            ends.append(self.write("jump"))
            self.instructions[split] = Instruction("split", split + 1, self.here)
        self.add(parts[-1])
        for end in ends:
            self.instructions[end] = Instruction("jump", self.here)

    def _repeat(self, repeat: PatternRepeat) -> None:
        for _ in range(repeat.least):
            self.add(repeat.part)
        if repeat.most is None:
            split = self.write("split")
            self._time(repeat.part)
            self.write("jump", split)
            self._decide(split, repeat)
            return
        splits = []
        for _ in range(repeat.most - repeat.least):
            splits.append(self.write("split"))
            self._time(repeat.part)
        for split in splits:
            self._decide(split, repeat)

    def _time(self, part: Pattern) -> None:
        """Add an iteration that must consume a row."""
        if not can_be_empty(part):
            self.add(part)
            return
        slot, self.slots = self.slots, self.slots + 1
        self.write("mark", slot)
        self.add(part)
        self.write("moved", slot)

    def _decide(self, split: int, repeat: PatternRepeat) -> None:
        once_more, enough = split + 1, self.here
        ways = (enough, once_more) if repeat.reluctant else (once_more, enough)
        self.instructions[split] = Instruction("split", *ways)


@dataclass(frozen=True)
class Skip:
    """Where the search continues after a match.

    If `to` is "first" or "last", the search skips to the first or last row of the `variables`.
    """

    to: Literal["past last row", "next row", "first", "last"] = "past last row"
    variables: tuple[int, ...] = ()


def first_variables(steps_: Program) -> frozenset[int]:
    """Return the variables to which the first row of a match may be assigned."""
    return frozenset(steps_[at].a for at in _reached(steps_, 0) if steps_[at].operation == "row")


@dataclass(frozen=True)
class Resumed:
    """What can happen if a search continues at the first or last row of the given variables.

    - `missing`: a match may have no row of these variables.
    - `first`: the row may be the first row of the match.
    - `possible`: at least one match has such a row after the first row of the match.

    The first two are errors, because the search must continue after the first row of the match.
    """

    missing: bool
    first: bool
    possible: bool


def resumed(steps_: Program, variables: frozenset[int], *, last: bool) -> Resumed:
    """Return what can happen if a search skips to the variables' first row or, if `last` is set, to their last row."""
    found, begun = set[str](), (0, "empty")
    known, ahead = {begun}, [begun]
    while ahead:
        at, so_far = ahead.pop()
        for reached in _reached(steps_, at):
            step = steps_[reached]
            if step.operation == "accept":
                found.add(so_far)
            if step.operation != "row":
                continue
            after = (reached + 1, _after(so_far, of_them=step.a in variables, last=last))
            if after not in known:
                known.add(after)
                ahead.append(after)
    return Resumed(bool(found & {"empty", "none"}), "first" in found, "later" in found)


def _after(so_far: str, *, of_them: bool, last: bool) -> str:
    if not of_them:
        return "none" if so_far == "empty" else so_far
    match so_far:
        case "empty":
            return "first"
        case "first":
            return "later" if last else "first"
        case _:
            return "later"


def _reached(steps_: Program, at: int) -> Iterator[int]:
    """Yield the row and accept instructions that can be reached from `at` without consuming a row."""
    known, ahead = {at}, [at]
    while ahead:
        here = ahead.pop()
        step = steps_[here]
        match step.operation:
            case "row" | "accept":
                yield here
                continue
            case "split":
                ways = [step.a, step.b]
            case "jump":
                ways = [step.a]
            case _:
                ways = [here + 1]
        ahead += [each for each in ways if each not in known]
        known.update(ways)
