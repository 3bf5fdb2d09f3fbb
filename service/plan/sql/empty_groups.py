"""Aggregates without GROUP BY in subqueries. They must return a row even if no input row matches the outer row.

The subquery's rows are grouped by the columns that link the subquery to the outer query, so an empty group has no row.
If the aggregate is joined directly with the outer query, a LEFT JOIN adds the missing row (`sql.subqueries`). If there
is another operation in between, the aggregate is first joined with the domain.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.logical.calc import LogicalProject
from rowkind.service.plan.logical.node import LogicalInput
from rowkind.service.plan.scalar.conjuncts import reads, substitute
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.sql.context import Context, Queries, Selected
from rowkind.service.plan.sql.correlations import beyond
from rowkind.service.plan.sql.domain import domain


def in_each_group(inner: Selected, context: Context, queries: Queries, at: exp.Expr) -> Selected:
    """Return a subquery with the rows of empty groups added. Raises Unreachable."""
    if inner.empty is None or not inner.links:
        return inner
    own = columns(inner.input)
    around = {} if context.around is None else columns(context.around)
    read = set[str]().union(*map(reads, inner.links)) - own.keys()
    if not read <= around.keys():
        raise beyond(inner.links, own.keys())
    place = replace(context, domain=tuple(name for name in around if name in read))
    found = domain(place, queries.invent(context.path, "around"), at)
    values = {name: resolved(column) for name, column in found.names.items()}
    links = tuple(substitute(link, values) for link in inner.links)
    both = LogicalJoin(LogicalInput(found.node), LogicalInput(inner.input), links, "left", at)
    groups = {name: inner.empty.get(name, resolved(name)) for name in own}
    node = LogicalProject(both, {name: resolved(name) for name in found.names.values()} | groups)
    return Selected(node, inner.outputs, found.links, single=inner.single)
