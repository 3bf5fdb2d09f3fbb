"""The calc at the exit of a scan or operator, as plain, picklable values."""

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
"""The name of a column that a scan can add: a digest of the whole row. No table column can have this name.

Rows of a table without a key are distinguished by all their columns, including columns that the query does not read.
The digest keeps rows distinct if the first operator stores only some columns and a retraction may refer to a row that
was never sent. It takes 17 bytes per row, regardless of the number of columns.
"""


ARRIVAL = "#arrival"
"""The name of a column that a scan or a Normalize can add: the row's arrival number, BIGINT.

Operators that order equal rows by arrival carry this column. If a row is written again with the same values, operators
between the scan and those operators therefore see two different rows. No table column can have this name.
"""


def is_internal(name: str) -> bool:
    """Return whether the planner has added a column, such as `ROW_DIGEST`. Queries cannot refer to these columns."""
    return name.rpartition(".")[2].startswith("#")


@dataclass(frozen=True)
class LocalTopK:
    """The first step of a rank, before the shuffle. It passes on only rows that may be in the range of `ranking`.

    `identity` contains the columns of the unique key under which rows only improve. It is empty if rows are only
    inserted.
    """

    ranking: Ranking
    identity: tuple[str, ...] = field(default=(), metadata=COLUMN)


@dataclass(frozen=True)
class Calc:
    """The computation at the exit of a scan or operator: filter, projection, and the consumer's key and sub-key.

    - `expands` run first, each over the previous expand's output. All other parts of the calc run over the last
      expand's output.
    - `arrival`: the expression for the rows' arrival numbers. If None, rows keep their existing numbers.
    - `replaced_by`: the key columns, if a row replaces the previous row with the same key without a retraction;
      otherwise empty. The predicate must not drop a replacing row, because this row still ends the row that it
      replaces.
    - `upsert`: whether deletes carry only the columns `replaced_by`. For these deletes, nothing else is computed except
      `delete_time`.
    - `delete_time`: the input column in which a delete by key gets a time, if the consumer asks for it.
    - `nets`: whether every update in the input has its `-U`, so that equal +1 and -1 changes of one batch cancel here.
    - `partial`: the step that each task applies to its rows before the shuffle. It pre-aggregates the rows by group, or
      drops rows that cannot enter a rank's range.
    - `refreshes`: whether rows that were written again unchanged are emitted as refreshes, because a downstream
      operator has a TTL. Refreshes come from the operator to which the calc belongs, and from rows that the calc
      cancels.
    - `on_error`: the policy for a row on which an expression fails. The query fails, the row becomes a dead letter, or
      the expression is NULL if its type allows NULL.
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
        """The record of the rows from which the filter, the projection and the key are computed."""
        return self.expands[-1].output if self.expands else self.input

    @property
    def expressions(self) -> Iterator[Expression]:
        """All expressions that the calc computes."""
        for expand in self.expands:
            conditions = (expand.predicate, expand.condition)
            yield from (expand.array, *expand.carried, *(each for each in conditions if each is not None))
        yield from (*self.columns, *self.key.parts, *(each.expression for each in self.sub_key))
        yield from (each for each in (self.predicate, self.arrival) if each is not None)
