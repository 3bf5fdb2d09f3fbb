"""The computations that a calc applies to a row: scalar expressions, and expansions into several rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from rowkind.avro.schema import Record, Type
from rowkind.operators.field_roles import ASIDE, COLUMN
from rowkind.service.python.function import PythonFunction

PLACE = -1
"""The number of the part that is an element's position in its array."""


@dataclass(frozen=True)
class Expression:
    """A scalar expression over the columns of a node's input.

    `sql` is DuckDB SQL. `columns` are the names of the input columns that the expression reads. `text` is the user's
    Spark SQL with qualified names, for explain and error messages. If the expression is a bare column, `column` is the
    column's name. The expression is then never evaluated: the column's packed bytes are passed on. `ROW_DIGEST` is
    computed from the packed bytes of the whole input row. `functions` are the job functions that the expression calls.
    """

    sql: str
    type: Type
    columns: tuple[str, ...] = field(metadata=COLUMN)
    text: str = field(metadata=ASIDE)
    column: str | None = field(default=None, metadata=COLUMN)
    functions: tuple[PythonFunction, ...] = ()


@dataclass(frozen=True)
class Expand:
    """An expansion of one row into several rows: one per element of the row's `array`, with the element added.

    - `array`: an array or a map. `inline`: whether its elements are structs, whose fields become columns.
    - `carried`: the columns of the row that are part of the output. The columns `made` from an element follow them.
    - `made`: which parts of an element become columns, by number. 0 is the element itself, the key of a map entry or
      the first field; 1 is the next part. `PLACE` is the element's position in its array, counted from `first`.
    - `outer`: whether a row without elements is emitted once, with NULLs.
    - `text`: the call as the user wrote it.
    - `predicate`: a condition over the input columns. Only rows that satisfy it are expanded.
    - `condition`: a condition over the output columns. Only output rows that satisfy it are emitted.
    - `finest`: the position of the grouping set with all columns, if the elements are grouping sets, which are the same
      for each row. Rows in the same group of that set are in the same group of every other set.
    """

    array: Expression
    carried: tuple[Expression, ...]
    made: tuple[int, ...]
    output: Record
    first: int
    inline: bool
    outer: bool
    text: str = field(metadata=ASIDE)
    predicate: Expression | None = None
    condition: Expression | None = None
    finest: int | None = None
