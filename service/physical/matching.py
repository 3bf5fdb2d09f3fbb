"""The pattern and the output columns of a MATCH_RECOGNIZE clause, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from rowkind.avro.schema import Type
from rowkind.operators.field_roles import ASIDE, COLUMN, NO_FACT, fact
from rowkind.operators.match.calls import MatchAggregate, MatchCall
from rowkind.operators.match.pattern import Program, Skip
from rowkind.service.physical.expression import Expression


@dataclass(frozen=True)
class SoughtPattern:
    """A pattern with its variable names, its time limit, and the position at which matching resumes after a match.

    `text` is the pattern as the user wrote it. `within` is the time limit in microseconds, or None if there is no
    limit. `skip_text` is the text after SKIP. `all_rows` says whether a match emits all of its rows instead of one row.
    """

    text: str = field(metadata={**ASIDE, **fact("pattern")})
    names: tuple[str, ...] = field(metadata=NO_FACT)
    program: Program = field(metadata=NO_FACT)
    skip: Skip = field(metadata=NO_FACT)
    skip_text: str = field(metadata={**ASIDE, **fact("skip")})
    within: int | None = field(metadata=fact("within", empty="any time"))
    all_rows: bool = field(metadata=fact("rows", "all", empty="one"))


@dataclass(frozen=True)
class CalledColumn:
    """A column with a call's result. The call's navigations refer to input columns. `text` is the user's SQL."""

    name: str = field(metadata=ASIDE)
    call: MatchCall
    type: Type
    text: str = field(metadata=ASIDE)

    @property
    def fallible(self) -> bool:
        """Whether the call fails if the result does not fit the result's type."""
        exact = isinstance(self.call, MatchAggregate) and self.call.function in ("sum", "avg")
        return exact and self.type.kind != "double"


@dataclass(frozen=True)
class DefinedVariable:
    """A pattern variable's condition. It reads a row's columns and the results of `calls`. `text` is the user's SQL."""

    text: str = field(metadata=ASIDE)
    condition: Expression
    calls: tuple[CalledColumn, ...]


@dataclass(frozen=True)
class Matching:
    """A pattern, the conditions of its variables, and the output columns.

    A condition is None if every row satisfies it. The output contains the input columns `carried`, followed by one
    column per call.
    """

    sought: SoughtPattern
    conditions: tuple[DefinedVariable | None, ...] = field(metadata=NO_FACT)
    carried: tuple[str, ...] = field(metadata={**COLUMN, **NO_FACT})
    calls: tuple[CalledColumn, ...] = field(metadata=fact("measures", empty="none"))
