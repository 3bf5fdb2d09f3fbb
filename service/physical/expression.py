"""The computations of a calc over a row: a scalar expression, or an expansion into several rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from rowkind.avro.schema import Record, Type
from rowkind.operators.field_roles import ASIDE, COLUMN
from rowkind.service.python.function import PythonFunction

PLACE = -1
"""The part of an element that is its position in its row."""


@dataclass(frozen=True)
class Expression:
    """A scalar expression over the columns of a node's input.

    `sql` is DuckDB SQL. `columns` are the input columns that it reads, by name. `text` is the Spark SQL that the user
    wrote, qualified, for explain and errors. If the expression is a bare column, `column` is set: it is never
    evaluated, and its packed bytes are passed on. `ROW_DIGEST` is computed from the packed bytes of the whole input.
    `functions` are the job's own functions that it calls.
    """

    sql: str
    type: Type
    columns: tuple[str, ...] = field(metadata=COLUMN)
    text: str = field(metadata=ASIDE)
    column: str | None = field(default=None, metadata=COLUMN)
    functions: tuple[PythonFunction, ...] = ()


@dataclass(frozen=True)
class Expand:
    """Several rows from one: each row is repeated once per element of its `array`, with that element in it.

    Only rows for which `predicate` is true are expanded. The output has the columns `carried`, followed by those `made`
    from an element. `array` is an array or a map. `inline`: its elements are structs, whose fields become columns. A
    part of `made` is a number: 0 for the element, the key of a map or the first field, 1 for the next one, and `PLACE`
    for the position of the element in its row, counted from `first`. `outer`: a row without elements is emitted once,
    with NULLs. With a `condition` over the output columns, elements count only if it is true. `text` is what the user
    wrote. `finest`: the elements are grouping sets, the same for each row, and this is the position of the set with all
    columns. Rows in one group of that set are in one group of every other set.
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
