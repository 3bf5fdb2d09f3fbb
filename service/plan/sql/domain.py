"""Subqueries that read the query around them in any place: their rows for each value that there is around.

A subquery whose WHERE says `own = outer`, and nothing else of the query around it, is computed once and joined. Any
other one is joined with the *domain* first, the distinct values of the columns that it reads: what it says of them is
then about columns of its own, and its result is joined by them (Neumann and Kemper, Unnesting Arbitrary Queries, 2015).
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical import LogicalNode, LogicalProject
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.sql.context import Context
from rowkind.service.plan.sql.grouping import without_duplicates
from rowkind.service.plan.traits.unique_keys import unique_keys


@dataclass(frozen=True)
class Domain:
    """The distinct values of columns of the query around a subquery, and what each column is called as one of its own.

    `links` say which of the subquery's rows belong to a row around it.
    """

    node: LogicalNode
    names: dict[str, str]
    links: tuple[exp.Expr, ...]


def domain(context: Context, path: str, at: exp.Expr) -> Domain:
    """The domain that a subquery's place asks for, as a relation with this path. Raises Refusal."""
    assert context.around is not None, "there is a domain only where there is a query around"
    types = columns(context.around)
    names = {name: f"{path}{name}" for name in context.domain}
    project = LogicalProject(context.around, {own: resolved(name, like=at) for name, own in names.items()})
    node = project if unique_keys(project) else without_duplicates(project, at)
    links = [
        (exp.NullSafeEQ if types[name].nullable else exp.EQ)(this=resolved(name, like=at), expression=resolved(own))
        for name, own in names.items()
    ]
    return Domain(node, names, tuple(links))
