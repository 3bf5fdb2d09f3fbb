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
    """A pattern with the names of its variables, its time limit, and where matching resumes after a match.

    `text` is the pattern as the user wrote it. `within` is in microseconds; None if there is no limit. `skip_text` is
    the text after SKIP. `all_rows` says that a match emits all its rows instead of one.
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
    """A column with the result of a call. Navigations refer to input columns. `text` is the SQL that the user wrote."""

    name: str = field(metadata=ASIDE)
    call: MatchCall
    type: Type
    text: str = field(metadata=ASIDE)

    @property
    def fallible(self) -> bool:
        """Whether the call fails on a result that does not fit its type."""
        exact = isinstance(self.call, MatchAggregate) and self.call.function in ("sum", "avg")
        return exact and self.type.kind != "double"


@dataclass(frozen=True)
class DefinedVariable:
    """A variable's condition over the columns of a row and the results of `calls`. `text` is the user's SQL."""

    text: str = field(metadata=ASIDE)
    condition: Expression
    calls: tuple[CalledColumn, ...]


@dataclass(frozen=True)
class Matching:
    """A pattern, the conditions of its variables, and the output columns.

    A condition is None if it is always true. The output has the input columns `carried`, followed by one column per
    call.
    """

    sought: SoughtPattern
    conditions: tuple[DefinedVariable | None, ...] = field(metadata=NO_FACT)
    carried: tuple[str, ...] = field(metadata={**COLUMN, **NO_FACT})
    calls: tuple[CalledColumn, ...] = field(metadata=fact("measures", empty="none"))
