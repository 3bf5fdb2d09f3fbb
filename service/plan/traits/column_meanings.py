"""Column meanings: the expressions that compute columns from the columns below all filters and projections."""

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
    """Return an expression rewritten over the columns below all filters and projections, or over the nearest view's."""
    if isinstance(node, LogicalProject) and node.view is None:
        return meaning(node.input, substitute(expression, node.outputs))
    return meaning(node.input, expression) if isinstance(node, LogicalFilter) else expression.unnest()


def moved(expression: exp.Expr) -> exp.Expr:
    """Return the time from which a window's end or window time is computed; return any other expression unchanged.

    The returned time and the given expression determine each other.
    """
    node = expression.unnest()
    while isinstance(node, WindowEnd | WindowTime):
        node = node.this.unnest()
    return node


def telling(node: LogicalNode, names: Iterable[str]) -> list[frozenset[str]]:
    """Return the columns `names`, grouped into sets whose columns determine each other, as a window's start and end do.

    The start and end of a session determine each other only within a partition. So they are grouped only if the
    partition columns are also among `names`.
    """
    meanings = {name: meaning(node, resolved(name)) for name in names}
    begins = _begins(node, set(meanings.values()))
    found: dict[exp.Expr, set[str]] = {}
    for name, meant in meanings.items():
        time = moved(meant)
        found.setdefault(begins.get(time, time), set()).add(name)
    return [frozenset(each) for each in found.values()]


def _begins(node: LogicalNode, known: AbstractSet[exp.Expr]) -> Mapping[exp.Expr, exp.Expr]:
    """Return a mapping from the end column of the sessions below to their start column.

    The mapping is empty if there are no sessions with an end column, or if a partition column is not `known`.
    """
    while isinstance(node, LogicalFilter | LogicalProject) and not (isinstance(node, LogicalProject) and node.view):
        node = node.input
    if not isinstance(node, LogicalSession) or node.end is None or not known >= set(map(resolved, node.partition)):
        return {}
    return {resolved(node.end): resolved(node.start)}
