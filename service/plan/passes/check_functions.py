"""Check that the job's nondeterministic functions are called only on rows that are never retracted.

A retraction passes through the same expressions as the row that it retracts, and must yield the same row.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.grouping import LogicalAggregate, LogicalMatch
from rowkind.service.plan.logical.node import LogicalCalc, LogicalNode
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.job_functions import function_of
from rowkind.service.plan.traits.changelog_modes import produced
from rowkind.service.plan.tree import expressions, walk
from rowkind.service.python.function import PythonFunction


def check_functions(query: Query) -> Query:
    """Check that the job's functions are deterministic wherever rows may be retracted. Raises Refusal if one is not.

    >>> example(check_functions, "SELECT order_id, roll(customer_id) AS points FROM orders",
    ...     code="def roll(sides): ...",
    ...     functions={"roll": {"python": "dice:roll", "arguments": ["INT"], "returns": "INT", "deterministic": False}})
    Refusal: roll is not deterministic, and could return another value when a row is retracted: set
    `deterministic: true` if equal arguments always give equal results, or call it only on rows that are never
    retracted
    """
    for node in walk(query.root):
        if isinstance(node, LogicalAggregate):
            _check_calls(node)
        rows = node.input if isinstance(node, LogicalCalc) else None
        _check(expressions(node), rows, _AGAIN[isinstance(node, LogicalMatch)])
    return query


_AGAIN = {False: "a join computes it again", True: "MATCH_RECOGNIZE computes it again"}


def _check_calls(aggregate: LogicalAggregate) -> None:
    """Check that the job's aggregate functions can retract rows wherever their input may retract rows.

    Raises Refusal for a function that has no `retract` or is not deterministic.
    """
    for call in aggregate.calls.values():
        function = call.function
        if not isinstance(function, PythonFunction) or produced(aggregate.input.input) == "append":
            continue
        if not function.retracts:
            raise Refusal(
                f"{function.name} has no method `retract`, but these rows may be retracted: add that method, or "
                f"aggregate rows that are never retracted",
                call.at,
            )
        if not function.deterministic:
            raise Refusal(
                f"{function.name} is not deterministic, and could return another value when a row is retracted: set "
                f"`deterministic: true` if equal rows always give equal results",
                call.at,
            )


def _check(expressions: Sequence[exp.Expr], rows: LogicalNode | None, why: str) -> None:
    """Check that expressions over `rows` call only deterministic functions if rows may be retracted.

    `rows` is None in a join or a row pattern, which evaluates expressions again even if rows are only inserted. `why`
    is that reason, for the message. Raises Refusal for a function that is not deterministic.
    """
    for expression in expressions:
        for call in expression.find_all(exp.Anonymous):
            function = function_of(call)
            if function is None or function.deterministic or (rows is not None and produced(rows) == "append"):
                continue
            again = why if rows is None else "a row is retracted"
            raise Refusal(
                f"{function.name} is not deterministic, and could return another value when {again}: set "
                f"`deterministic: true` if equal arguments always give equal results, or call it only on rows that "
                f"are never retracted",
                call,
            )
