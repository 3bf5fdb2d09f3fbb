"""Column meanings: the expressions that columns stand for, over the columns below all filters and projections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from sqlglot import exp

from rowkind.service.plan.logical.calc import LogicalFilter, LogicalProject
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.logical.per_row import LogicalSession
from rowkind.service.plan.scalar.conjuncts import substitute
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.scalar.time_windows import WindowEnd, WindowTime


def meaning(node: LogicalNode, expression: exp.Expr) -> exp.Expr:
    """Return an expression in terms of the columns below all filters and projections, or of the first view below."""
    if isinstance(node, LogicalProject) and node.view is None:
        return meaning(node.input, substitute(expression, node.outputs))
    return meaning(node.input, expression) if isinstance(node, LogicalFilter) else expression.unnest()


def moved(expression: exp.Expr) -> exp.Expr:
    """Return the time from which a window's end, or its window time, is computed. Each determines the other."""
    node = expression.unnest()
    while isinstance(node, WindowEnd | WindowTime):
        node = node.this.unnest()
    return node


def telling(node: LogicalNode, names: Iterable[str]) -> list[frozenset[str]]:
    """Return sets of these columns in which each column determines the others, such as a window's start and end.

    For sessions, this is true only within a partition, so the partition's columns must be among `names`.
    """
    meanings = {name: meaning(node, resolved(name)) for name in names}
    begins = _begins(node, set(meanings.values()))
    found: dict[exp.Expr, set[str]] = {}
    for name, meant in meanings.items():
        time = moved(meant)
        found.setdefault(begins.get(time, time), set()).add(name)
    return [frozenset(each) for each in found.values()]


def _begins(node: LogicalNode, known: AbstractSet[exp.Expr]) -> Mapping[exp.Expr, exp.Expr]:
    """Return the start column of the sessions below by their end column, if their partition's columns are `known`."""
    while isinstance(node, LogicalFilter | LogicalProject) and not (isinstance(node, LogicalProject) and node.view):
        node = node.input
    if not isinstance(node, LogicalSession) or node.end is None or not known >= set(map(resolved, node.partition)):
        return {}
    return {resolved(node.end): resolved(node.start)}
