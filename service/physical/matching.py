"""What a MATCH_RECOGNIZE looks for and what comes out of it, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from rowkind.avro.schema import Type
from rowkind.operators.field_roles import ASIDE, COLUMN, NO_FACT, fact
from rowkind.operators.match.calls import MatchAggregate, MatchCall
from rowkind.operators.match.pattern import Program, Skip
from rowkind.service.physical.expression import Expression


@dataclass(frozen=True)
class SoughtPattern:
    """A pattern with the names of its variables, where to go on behind a match, and in what time it must be.

    `text` is the pattern as written. `within` is in microseconds, None for any time; `skip_text` stands behind SKIP.
    `all_rows`: all rows of a match come out, and not one.
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
    """What a call comes to, as a column; navigations go by names of the input's columns. `text` is as written."""

    name: str = field(metadata=ASIDE)
    call: MatchCall
    type: Type
    text: str = field(metadata=ASIDE)

    @property
    def fallible(self) -> bool:
        """Whether a row fails whose result does not fit its type."""
        exact = isinstance(self.call, MatchAggregate) and self.call.function in ("sum", "avg")
        return exact and self.type.kind != "double"


@dataclass(frozen=True)
class DefinedVariable:
    """The condition of a variable, over the columns of a row and those of its calls; `text` is as written."""

    text: str = field(metadata=ASIDE)
    condition: Expression
    calls: tuple[CalledColumn, ...]


@dataclass(frozen=True)
class Matching:
    """A pattern, the conditions of its variables, None for one that is always true, and what comes out.

    That is columns of the row, `carried`, and behind them those of the calls.
    """

    sought: SoughtPattern
    conditions: tuple[DefinedVariable | None, ...] = field(metadata=NO_FACT)
    carried: tuple[str, ...] = field(metadata={**COLUMN, **NO_FACT})
    calls: tuple[CalledColumn, ...] = field(metadata=fact("measures", empty="none"))
