"""FIRST and LAST over rows that may be taken back keep what tells the rows apart.

A retraction says which row goes, and not when that arrived: it is found among the values that are kept. By the value
alone the oldest of equal ones would go, whichever row it was of. So the unique key of the rows is kept with each value,
or where there is none all that they have. Rows that are equal in everything go in the order in which they came.
"""

from __future__ import annotations

from dataclasses import replace

from rowkind.operators.aggregate_function import ARRIVALS
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical import LogicalAggregate, LogicalFilter, LogicalNode, LogicalProject
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.traits.changelog_modes import produced
from rowkind.service.plan.traits.unique_keys import unique_keys
from rowkind.service.plan.tree import bottom_up


def tell_arrivals_apart(query: Query) -> Query:
    """Calls of FIRST and LAST with what identifies their rows among the arguments, where rows may be taken back."""
    return replace(query, root=bottom_up(query.root, _visit))


def _visit(node: LogicalNode) -> LogicalNode:
    if not isinstance(node, LogicalAggregate) or not any(call.function in ARRIVALS for call in node.calls.values()):
        return node
    if produced(node.input.input) == "append":
        return node
    rows, identity = _with_identity(node.input.input)
    calls = {
        name: replace(call, arguments=tuple(dict.fromkeys((*call.arguments, *identity))))
        if call.function in ARRIVALS
        else call
        for name, call in node.calls.items()
    }
    return replace(node, input=replace(node.input, input=rows), calls=calls)


def _with_identity(node: LogicalNode) -> tuple[LogicalNode, list[str]]:
    """The rows with the columns that tell them apart, and which these are."""
    if isinstance(node, LogicalFilter):
        below, identity = _with_identity(node.input)
        return replace(node, input=below), identity
    assert isinstance(node, LogicalProject), "what an aggregate with calls is computed from is a Project"
    keys = sorted(unique_keys(node.input), key=lambda key: (len(key), sorted(key)))
    identity = sorted(keys[0]) if keys else list(columns(node.input))
    return replace(node, outputs={name: resolved(name) for name in identity} | dict(node.outputs)), identity
