"""Parts of logical nodes: aggregate and window calls, conditions of pattern variables, and join keys."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.operators.field_roles import ASIDE
from rowkind.service.physical.aggregation import AggregateCall
from rowkind.service.physical.matching import CalledColumn
from rowkind.service.physical.over_call import WindowCall


@dataclass(frozen=True)
class LogicalAggregateCall(AggregateCall):
    """An aggregate call with its position in the SQL."""

    at: exp.Expr = field(kw_only=True, metadata=ASIDE)


@dataclass(frozen=True)
class LogicalWindowCall(WindowCall):
    """A window call with the position of its window in the SQL."""

    at: exp.Expr = field(kw_only=True, metadata=ASIDE)


@dataclass(frozen=True)
class LogicalDefine:
    """The condition of a pattern variable. It reads the row's columns and the results of calls on the match so far.

    `text` is the condition as the user wrote it.
    """

    text: str = field(metadata=ASIDE)
    conjuncts: tuple[exp.Expr, ...]
    calls: tuple[CalledColumn, ...]


@dataclass(frozen=True)
class EqualKey:
    """An equality `left = right` in a join.

    Both values are compared as `type`. `null_safe` is set for IS NOT DISTINCT FROM.
    """

    left: exp.Expr
    right: exp.Expr
    type: Type
    null_safe: bool
