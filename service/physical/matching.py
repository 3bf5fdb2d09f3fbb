"""The pattern and the output columns of a MATCH_RECOGNIZE, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from rowkind.avro.schema import Type
from rowkind.operators.field_roles import ASIDE, COLUMN, NO_FACT, fact
from rowkind.operators.match.calls import MatchAggregate, MatchCall
from rowkind.operators.match.pattern import Program, Skip
from rowkind.service.physical.expression import Expression


@dataclass(frozen=True)
class SoughtPattern:
    """A pattern with the names of its variables, where matching resumes after a match, and its time limit.

    `text` is the pattern as written. `within` is in microseconds, None for no limit. `skip_text` is the text after
    SKIP. `all_rows`: a match emits all its rows instead of one.
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
    """The result of a call as a column. Navigations name columns of the input. `text` is as written."""

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
    """The condition of a variable, over the columns of a row and its calls. `text` is as written."""

    text: str = field(metadata=ASIDE)
    condition: Expression
    calls: tuple[CalledColumn, ...]


@dataclass(frozen=True)
class Matching:
    """A pattern, the conditions of its variables (None for always true), and the output columns.

    The output has the input columns `carried`, followed by one column per call.
    """

    sought: SoughtPattern
    conditions: tuple[DefinedVariable | None, ...] = field(metadata=NO_FACT)
    carried: tuple[str, ...] = field(metadata={**COLUMN, **NO_FACT})
    calls: tuple[CalledColumn, ...] = field(metadata=fact("measures", empty="none"))
