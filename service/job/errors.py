"""Errors in a job file.

A JobError has one or more problems. Each has its line and field, and says what is expected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rowkind.errors import REFUSED, RowkindError


@dataclass(frozen=True, order=True)
class Problem:
    """One problem: the line in the file (from 1, or 0 if unknown), the dotted path of the field, and the message."""

    line: int
    field: str
    text: str


class JobError(RowkindError):
    """The job file is not valid. Fix the lines that the message lists. The message contains no secrets."""

    exit_code = REFUSED

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        self.file = file
        self.problems = tuple(sorted(problems))
        super().__init__("\n".join(self._line(problem) for problem in self.problems))

    def _line(self, problem: Problem) -> str:
        place = f"{self.file}:{problem.line}" if problem.line else self.file
        return f"{place}: {problem.field}: {problem.text}" if problem.field else f"{place}: {problem.text}"

    def __reduce__(self) -> tuple[type[JobError], tuple[str, tuple[Problem, ...]]]:
        return type(self), (self.file, self.problems)
