"""The calc at the exit of a scan or an operator, as plain values that pickle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from rowkind.avro.schema import Record
from rowkind.operators.field_roles import ASIDE, COLUMN, NO_FACT, fact
from rowkind.operators.rank.ranking import Ranking
from rowkind.service.physical.aggregation import Aggregation
from rowkind.service.physical.expression import Expand, Expression
from rowkind.service.physical.keys import Key, SubKeyPart

OnError = Literal["fail", "dead_letter", "null"]

ROW_DIGEST = "#row"
"""Column that a scan can emit besides its table's columns: a digest of the whole row. No table can have this name.

Rows of a table without a key are distinguished by all their columns, whichever columns the query reads. If the first
operator keeps only some columns, and a retraction may be of a row that was never sent, the digest keeps different rows
different. It takes 17 bytes per row, however many columns the table has.
"""


ARRIVAL = "#arrival"
"""Column that the exit of a scan or of a Normalize can emit: the arrival number of a row, BIGINT.

Operators that order equal rows by arrival carry this column. A row that is written again with the same values is then a
different row to all operators in between. No table can have a column of this name.
"""


def is_internal(name: str) -> bool:
    """Whether the plan made this column, such as `ROW_DIGEST` and `ARRIVAL`. No query can name such a column."""
    return name.rpartition(".")[2].startswith("#")


@dataclass(frozen=True)
class LocalTopK:
    """A rank's first step before the shuffle: of all rows, keep those that may be in the `ranking`'s range.

    `identity` are the columns of the unique key under which rows only get better. It is empty if rows are only
    inserted.
    """

    ranking: Ranking
    identity: tuple[str, ...] = field(default=(), metadata=COLUMN)


@dataclass(frozen=True)
class Calc:
    """Predicate, projection and next key and sub-key, run at the exit of a scan or an operator.

    `arrival` is the column whose values become the arrival numbers of the rows. If None, rows keep their own.

    `expands` run first, each over the output of the one before. Everything else runs over the output of the last one.

    `replaced_by` are the input columns by which rows replace each other without a retraction; empty if they do not. No
    predicate may drop such a row, because the row still ends the one before it. `upsert`: deletes carry these columns
    only. Of a row known by its key alone nothing else is computed, except `delete_time`: the input column in which such
    a delete gets a time, if the consumer asks for it.

    `nets`: every update in the input has its `-U`, so equal +1 and -1 changes of one batch cancel here.

    `partial` is the step that each task applies to the rows before the shuffle. It pre-aggregates them by group, or
    drops rows that cannot reach the range of a rank.

    `refreshes`: a downstream operator has a TTL, so rows that were written again unchanged are emitted as refreshes.
    The refreshes come from the operator that the calc belongs to, and from rows that the calc itself cancels.

    `on_error` says what happens to a row on which an expression fails: the query fails, the row becomes a dead letter,
    or the expression is NULL if its type allows it.
    """

    input: Record = field(metadata=ASIDE)
    output: Record = field(metadata=NO_FACT)
    columns: tuple[Expression, ...] = field(metadata=fact("columns"))
    key: Key = field(default_factory=Key, metadata=fact("key"))
    sub_key: tuple[SubKeyPart, ...] = field(default=(), metadata=fact("sub-key", empty="none"))
    predicate: Expression | None = field(default=None, metadata=fact("filter", empty="none"))
    side: int = field(default=0, metadata=fact("side"))
    replaced_by: tuple[str, ...] = field(default=(), metadata={**COLUMN, **NO_FACT})
    upsert: bool = field(default=False, metadata=NO_FACT)
    delete_time: str | None = field(default=None, metadata={**COLUMN, **NO_FACT})
    nets: bool = field(default=False, metadata=NO_FACT)
    partial: Aggregation | LocalTopK | None = field(default=None, metadata=NO_FACT)
    refreshes: bool = field(default=False, metadata=ASIDE)
    on_error: OnError = field(default="fail", metadata=NO_FACT)
    expands: tuple[Expand, ...] = field(default=(), metadata=fact("expands"))
    arrival: Expression | None = field(default=None, metadata=fact("arrival"))

    @property
    def expanded(self) -> Record:
        """The rows that predicate, projection and key are computed over."""
        return self.expands[-1].output if self.expands else self.input

    @property
    def expressions(self) -> Iterator[Expression]:
        """All expressions that the calc computes."""
        for expand in self.expands:
            conditions = (expand.predicate, expand.condition)
            yield from (expand.array, *expand.carried, *(each for each in conditions if each is not None))
        yield from (*self.columns, *self.key.parts, *(each.expression for each in self.sub_key))
        yield from (each for each in (self.predicate, self.arrival) if each is not None)
