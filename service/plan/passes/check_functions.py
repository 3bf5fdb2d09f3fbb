"""A function of the job's that gives another value each time is for rows that are never taken back.

A retraction goes through the same expressions as the row that it takes back, and must come out as the same row.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical import (
    LogicalAggregate,
    LogicalExpand,
    LogicalFilter,
    LogicalJoin,
    LogicalLookup,
    LogicalMatch,
    LogicalNode,
    LogicalProject,
)
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.job_functions import function_of
from rowkind.service.plan.traits.changelog_modes import produced
from rowkind.service.plan.tree import walk
from rowkind.service.python.function import PythonFunction


def check_functions(query: Query) -> Query:
    """The query unchanged. Raises Refusal for a function that is not deterministic where it would have to be."""
    for node in walk(query.root):
        match node:
            case LogicalFilter():
                _check(node.conjuncts, node.input)
            case LogicalProject():
                _check(tuple(node.outputs.values()), node.input)
            case LogicalExpand():
                _check((node.array, *node.condition), node.input)
            case LogicalJoin():
                _check((*node.condition, *(each for key in node.keys for each in (key.left, key.right))), None)
            case LogicalLookup():
                _check(tuple(each for key in node.keys for each in (key.left, key.right)), None)
            case LogicalMatch():
                conditions = (part for each in node.conditions if each is not None for part in each.conjuncts)
                _check(tuple(conditions), None, "a search for a pattern computes it again")
            case LogicalAggregate():
                _check_calls(node)
    return query


def _check_calls(aggregate: LogicalAggregate) -> None:
    """An aggregate function over rows that may be taken back must be able to take them back."""
    for call in aggregate.calls.values():
        function = call.function
        if not isinstance(function, PythonFunction) or produced(aggregate.input.input) == "append":
            continue
        if not function.retracts:
            raise Refusal(
                f"{function.name} has no method `retract`, and these rows may be taken back: write one, or aggregate "
                f"where rows only come",
                call.at,
            )
        if not function.deterministic:
            raise Refusal(
                f"{function.name} is not deterministic, and these rows may be taken back, where it would give "
                f"something else: say `deterministic: true` if the same rows always give the same",
                call.at,
            )


def _check(expressions: Sequence[exp.Expr], rows: LogicalNode | None, why: str = "a join computes it again") -> None:
    """Expressions over some rows; in a join they are computed again whenever the other side changes."""
    for expression in expressions:
        for call in expression.find_all(exp.Anonymous):
            function = function_of(call)
            if function is None or function.deterministic or (rows is not None and produced(rows) == "append"):
                continue
            again = why if rows is None else "these rows may be taken back"
            raise Refusal(
                f"{function.name} is not deterministic, and {again}, where it would give something else: say "
                f"`deterministic: true` if the same arguments always give the same, or call it where rows only come",
                call,
            )
