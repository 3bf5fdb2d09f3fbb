"""A function of the job's that gives another value each time is for rows that are never taken back.

A retraction goes through the same expressions as the row that it takes back, and must come out as the same row.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical import (
    LogicalExpand,
    LogicalFilter,
    LogicalJoin,
    LogicalNode,
    LogicalProject,
    Query,
    walk,
)
from rowkind.service.plan.scalar.job_functions import function_of
from rowkind.service.plan.traits.changelog_modes import produced


def check_functions(query: Query) -> Query:
    """The query unchanged. Raises Refusal for a function that is not deterministic where it would have to be."""
    for node in walk(query.root):
        match node:
            case LogicalFilter():
                _check(node.conjuncts, node.input)
            case LogicalProject():
                _check(tuple(node.outputs.values()), node.input)
            case LogicalExpand():
                _check((node.array,), node.input)
            case LogicalJoin():
                _check((*node.condition, *(each for key in node.keys for each in (key.left, key.right))), None)
    return query


def _check(expressions: Sequence[exp.Expr], rows: LogicalNode | None) -> None:
    """Expressions over some rows; in a join they are computed again whenever the other side changes."""
    for expression in expressions:
        for call in expression.find_all(exp.Anonymous):
            function = function_of(call)
            if function is None or function.deterministic or (rows is not None and produced(rows) == "append"):
                continue
            again = "a join computes it again" if rows is None else "these rows may be taken back"
            raise Refusal(
                f"{function.name} is not deterministic, and {again}, where it would give something else: say "
                f"`deterministic: true` if the same arguments always give the same, or call it where rows only come",
                call,
            )
