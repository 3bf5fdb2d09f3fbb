"""What a calc computes of a row: a value, or several rows of one."""

from __future__ import annotations

from dataclasses import dataclass, field

from rowkind.avro.schema import Record, Type
from rowkind.operators.field_roles import ASIDE, COLUMN
from rowkind.service.python.function import PythonFunction

PLACE = -1
"""The part of an element that says where it stands in its row."""


@dataclass(frozen=True)
class Expression:
    """A scalar expression over the columns of a node's input.

    `sql` is DuckDB SQL; `columns` are the input columns that it reads, by name; `text` is what the user wrote (Spark
    SQL, qualified), for explain and errors. A bare column is an expression whose `column` is set; it is never
    evaluated, its packed bytes are handed on; `ROW_DIGEST` is made of the packed bytes of the whole input. `functions`
    are those of the job's own that it calls.
    """

    sql: str
    type: Type
    columns: tuple[str, ...] = field(metadata=COLUMN)
    text: str = field(metadata=ASIDE)
    column: str | None = field(default=None, metadata=COLUMN)
    functions: tuple[PythonFunction, ...] = ()


@dataclass(frozen=True)
class Expand:
    """Several rows of one: each row as often as its `array` has elements, with one of them in each.

    Of the rows for which `predicate` is true, those that come out have the columns `carried` and behind them those
    `made` of an element. `array` is an array or a map; `inline` says that it has structs, whose fields are columns.
    A part of `made` is a number: 0 for the element, or for the key of a map or the first field, 1 for the next one;
    `PLACE` for the number of the element in its row, from `first` on. `outer` says that a row without elements comes
    out once, with NULLs. With `condition`, over the columns that come out, elements count only if it is true. `text` is
    what the user wrote. `finest` says that the elements are grouping sets, the same for each row, and is the place of
    the one with all columns: rows that are of one group in it are so in every other.
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
