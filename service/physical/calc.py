"""What happens to rows at the exit of a scan or an operator, as plain values that pickle."""

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
"""What a scan can emit besides its table's columns: a digest of the whole row, as a column that no table can have.

Rows of a table without a key are told apart by all of their columns, whichever of them the query reads. So where the
first operator keeps only some of them, and a retraction may be of a row that was never sent, this keeps different rows
different: 17 bytes a row, where all columns could be any number.
"""


ARRIVAL = "#arrival"
"""The arrival number of a row as a column, BIGINT, that the exit of a scan or of a Normalize can emit.

Operators that order equal rows by arrival carry it, so that a row which is written again, with the same values, is
another row to all operators in between. No table can have a column of this name.
"""


def is_internal(name: str) -> bool:
    """Whether the plan made a column of this name, such as `ROW_DIGEST` and `ARRIVAL`: no query can name it."""
    return name.rpartition(".")[2].startswith("#")


@dataclass(frozen=True)
class LocalTopK:
    """What a rank keeps of its input: of all rows, those that may be in the `ranking`'s range.

    `identity` are the columns of the unique key under which rows only get better, empty where rows only come.
    """

    ranking: Ranking
    identity: tuple[str, ...] = field(default=(), metadata=COLUMN)


@dataclass(frozen=True)
class Calc:
    """Predicate, projection and next key and sub-key, run at the exit of a scan or an operator.

    `arrival` is the column whose values become the arrival numbers of the rows; None where they keep their own.
    `expands` come first, each over the rows of the one before; all else is over what comes out of the last.
    `replaced_by` are the columns of the input by which its rows replace each other without being taken back; empty
    where they do not. No predicate may swallow such a row: it still ends the one before. `upsert` says that deletes
    bring these columns only. Of what is known by its key alone, nothing else is computed, but for `delete_time`: the
    column of the input in which such a delete gets a time, if the consumer asks for it.
    `nets` says that the input has no `-U`-less updates, so that equal +1 and -1 of one batch cancel here.
    `partial` is what each task does to the rows before they are shuffled, where they are to be added up by group, or
    all but a few could not reach the range of a rank.
    `refreshes` says that somebody further down has a TTL, and so must be told of rows that are written again and stay
    the same: by the operator that the calc belongs to, and by the calc of what it cancels.
    `on_error` says what becomes of a row on which an expression fails: of the query, or of the row, or else that the
    expression is NULL there if it may be.
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
        """The rows that predicate, projection and key are over."""
        return self.expands[-1].output if self.expands else self.input

    @property
    def expressions(self) -> Iterator[Expression]:
        """All that is computed."""
        for expand in self.expands:
            conditions = (expand.predicate, expand.condition)
            yield from (expand.array, *expand.carried, *(each for each in conditions if each is not None))
        yield from (*self.columns, *self.key.parts, *(each.expression for each in self.sub_key))
        yield from (each for each in (self.predicate, self.arrival) if each is not None)
