"""Subqueries that read the query around them in any place: their rows for each value that there is around.

A subquery whose WHERE says `own = outer`, and nothing else of the query around it, is computed once and joined. Any
other one is joined with the *domain* first, the distinct values of the columns that it reads: what it says of them is
then about columns of its own, and its result is joined by them (Neumann and Kemper, Unnesting Arbitrary Queries, 2015).
Where some of these cannot be compared, as an array that it takes apart, a key of the rows around stands for them.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.calc import LogicalProject
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.sql.context import Context
from rowkind.service.plan.sql.grouping import without_duplicates
from rowkind.service.plan.traits.unique_keys import in_order, unique_keys


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
    key = _key(context.around, context.domain, at)
    names = {name: f"{path}{name}" for name in dict.fromkeys((*key, *context.domain))}
    project = LogicalProject(context.around, {own: resolved(name, like=at) for name, own in names.items()})
    node = project if unique_keys(project) else without_duplicates(project, at)
    links = [
        (exp.NullSafeEQ if types[name].nullable else exp.EQ)(
            this=resolved(name, like=at), expression=resolved(names[name])
        )
        for name in key or names
    ]
    return Domain(node, names, tuple(links))


def _key(around: LogicalNode, read: tuple[str, ...], at: exp.Expr) -> tuple[str, ...]:
    """The unique key that stands for columns of which some cannot be compared, empty if all can. Raises Refusal."""
    types = columns(around)
    apart = [name for name in read if not types[name].orderable]
    if not apart:
        return ()
    for key in in_order(unique_keys(around), around):
        if all(types[name].orderable for name in key):
            return key
    spelled, type_ = apart[0].rpartition(".")[2], types[apart[0]].sql
    raise Refusal(
        f"a subquery cannot read {spelled}, a {type_}, of rows without a key, as such values cannot be compared: give "
        f"the table a primary key, or select fields of it in a derived table",
        at,
    )
