"""Plans subqueries that read the outer query in any clause: computes their rows for each distinct outer value.

A subquery that reads the outer query only in equalities `own = outer` in its WHERE clause is computed once and joined.
Any other subquery is first joined with its *domain*: the distinct values of the outer columns that it reads. The
subquery's expressions then read these values from its own columns, and its result is joined with the outer query on
these columns (Neumann and Kemper, Unnesting Arbitrary Queries, 2015). If some of these columns cannot be compared, such
as an array that the subquery unnests, a unique key of the outer rows is used in their place.
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
    """The distinct values of outer columns, as a relation in the subquery.

    `names` maps each outer column to its name in the subquery. `links` are the conditions by which the subquery's rows
    match an outer row.
    """

    node: LogicalNode
    names: dict[str, str]
    links: tuple[exp.Expr, ...]


def domain(context: Context, path: str, at: exp.Expr) -> Domain:
    """Return the domain of the subquery in `context`; `path` is the prefix of its columns' names. Raises Refusal."""
    assert context.around is not None, "only a query inside another one has a domain"
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
    """Return the unique key of the outer rows that replaces the columns `read` if one of them cannot be compared.

    Return an empty key if all of the columns can be compared. Raises Refusal.
    """
    types = columns(around)
    apart = [name for name in read if not types[name].orderable]
    if not apart:
        return ()
    for key in in_order(unique_keys(around), around):
        if all(types[name].orderable for name in key):
            return key
    spelled, type_ = apart[0].rpartition(".")[2], types[apart[0]].sql
    raise Refusal(
        f"a subquery cannot read {spelled} of type {type_} from rows without a key, because such values cannot "
        "be compared: give the table a primary key, or select the column's fields in a derived table",
        at,
    )
