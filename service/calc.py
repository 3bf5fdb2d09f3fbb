"""What happens to rows at the exit of a scan or an operator, as plain values that pickle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from rowkind.avro.schema import Record
from rowkind.operators.ranking import Ranking
from rowkind.service.aggregation import Aggregation
from rowkind.service.expression import Expand, Expression
from rowkind.service.keys import Key, SubKeyPart

OnError = Literal["fail", "dead_letter", "null"]

ROW_DIGEST = "#row"
"""What a scan can emit besides its table's columns: a digest of the whole row, as a column that no table can have.

Rows of a table without a key are told apart by all of their columns, whichever of them the query reads. So where the
first operator keeps only some of them, and a retraction may be of a row that was never sent, this keeps different rows
different: 17 bytes a row, where all columns could be any number.
"""


def is_digest(name: str) -> bool:
    """Whether a column of the plan is the `ROW_DIGEST` of a scan."""
    return name.rpartition(".")[2] == ROW_DIGEST


@dataclass(frozen=True)
class Contest:
    """What a rank keeps of its input: of all rows, those that may be in the `ranking`'s range.

    `identity` are the columns of the unique key under which rows only get better, empty where rows only come.
    """

    ranking: Ranking
    identity: tuple[str, ...] = ()


@dataclass(frozen=True)
class Calc:
    """Predicate, projection and next key and sub-key, run at the exit of a scan or an operator.

    `expands` come first, each over the rows of the one before; all else is over what comes out of the last.
    `replaced_by` are the columns of the input by which its rows replace each other without being taken back; empty
    where they do not. No predicate may swallow such a row: it still ends the one before. `upsert` says that deletes
    bring these columns only. Of what is known by its key alone, nothing else is computed.
    `nets` says that the input has no `-U`-less updates, so that equal +1 and -1 of one batch cancel here.
    `partial` is what each task does to the rows before they are shuffled, where they are to be added up by group, or
    all but a few could not reach the range of a rank.
    `refreshes` says that somebody further down has a TTL, and so must be told of rows that are written again and stay
    the same: by the operator that the calc belongs to, and by the calc of what it cancels.
    `on_error` says what becomes of a row on which an expression fails: of the query, or of the row, or else that the
    expression is NULL there if it may be.
    """

    input: Record
    output: Record
    columns: tuple[Expression, ...]
    key: Key = field(default_factory=Key)
    sub_key: tuple[SubKeyPart, ...] = ()
    predicate: Expression | None = None
    side: int = 0
    replaced_by: tuple[str, ...] = ()
    upsert: bool = False
    nets: bool = False
    partial: Aggregation | Contest | None = None
    refreshes: bool = False
    on_error: OnError = "fail"
    expands: tuple[Expand, ...] = ()

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
        yield from [self.predicate] if self.predicate else []
