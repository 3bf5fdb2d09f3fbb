"""What nodes of a logical plan say of columns: calls over several rows, orders, conditions of patterns, equal keys."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.operators.aggregate.function import AggregateFunction, Stage
from rowkind.operators.field_roles import ASIDE, COLUMN
from rowkind.operators.over.framing import Frame, OverFunction
from rowkind.service.physical.matching import CalledColumn
from rowkind.service.python.function import PythonFunction


@dataclass(frozen=True)
class OrderColumn:
    """One column of ORDER BY. `column` None stands for arrival, which the SQL calls PROCTIME()."""

    column: str | None = field(metadata=COLUMN)
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class LogicalCall:
    """One call of an aggregate function over columns of the aggregate's input.

    `arguments` is empty for COUNT(*); it is more than one column for COUNT(DISTINCT a, b), for a value and what it is
    by, for y and x, and for a value by arrival with what tells its row apart. `filter` is a boolean column: a row
    counts where it is true. `at` is the call in the SQL. `order` is that of the values that are gathered, `constants`
    what else is written out: a separator, or the numbers of a percentile.

    `grows` says that the extreme is never taken back without a better one. Of a call in two steps the `stage` says
    which one this is, and `types` in the second one what the arguments of the first were. It `tries`: a result that
    does not fit its type is NULL.
    """

    function: AggregateFunction | PythonFunction
    arguments: tuple[str, ...] = field(metadata=COLUMN)
    type: Type
    at: exp.Expr = field(metadata=ASIDE)
    filter: str | None = field(default=None, metadata=COLUMN)
    distinct: bool = False
    order: tuple[OrderColumn, ...] = ()
    constants: tuple[str, ...] = ()
    grows: bool = False
    stage: Stage = "whole"
    types: tuple[Type, ...] = ()
    tries: bool = False

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that it is computed from."""
        ordered = (each.column for each in self.order if each.column is not None)
        return (*self.arguments, *ordered, *([self.filter] if self.filter is not None else []))


@dataclass(frozen=True)
class LogicalOverCall:
    """One window function over columns of its input, as in `physical.over_call`. `at` is the window in the SQL."""

    function: OverFunction
    arguments: tuple[str, ...] = field(metadata=COLUMN)
    type: Type
    frame: Frame
    at: exp.Expr = field(metadata=ASIDE)
    filter: str | None = field(default=None, metadata=COLUMN)
    nth: int = 1
    skips: bool = False
    tries: bool = False

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that it is computed from."""
        return (*self.arguments, *([self.filter] if self.filter is not None else []))


@dataclass(frozen=True)
class LogicalDefine:
    """The condition of a variable of a pattern, over columns of a row and those of calls on the match so far.

    `text` is as written.
    """

    text: str = field(metadata=ASIDE)
    conjuncts: tuple[exp.Expr, ...]
    calls: tuple[CalledColumn, ...]


@dataclass(frozen=True)
class EqualKey:
    """One `left = right` of a join, compared as `type`; `null_safe` for IS NOT DISTINCT FROM."""

    left: exp.Expr
    right: exp.Expr
    type: Type
    null_safe: bool
