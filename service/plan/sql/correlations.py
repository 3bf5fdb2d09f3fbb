"""Helpers for links, which are a subquery's conditions that read columns of the outer query."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from sqlglot import exp

from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.calc import LogicalProject
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.scalar.conjuncts import reads
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.sql.context import Names
from rowkind.service.plan.sql.scope import Unreachable


@dataclass(frozen=True)
class Correlation:
    """An equality between an expression over the outer query and an expression over the subquery."""

    outer: exp.Expr
    own: exp.Expr
    null_safe: bool
    at: exp.Expr

    def over(self, column: str) -> exp.Expr:
        """Return the equality with the subquery's expression replaced by a column."""
        kind = exp.NullSafeEQ if self.null_safe else exp.EQ
        return kind(this=self.outer.copy(), expression=resolved(column, like=self.own))


def beyond(links: Sequence[exp.Expr], own: AbstractSet[str]) -> Unreachable:
    """Return the error for links that cannot be join conditions. The subquery needs a domain for their columns."""
    read = set[str]().union(*map(reads, links)) - own
    return Unreachable("a subquery cannot read these columns of an outer query: write a JOIN", links[0], read)


def equal_correlations(links: Sequence[exp.Expr], own: AbstractSet[str]) -> list[Correlation]:
    """Return a subquery's links as equalities, so that the subquery's rows can be grouped by the inner sides.

    Raises Unreachable if a link is not an equality between the outer query and the subquery.
    """
    found = []
    for each in links:
        bare = each.unnest()
        sides = [(bare.left, bare.right), (bare.right, bare.left)] if isinstance(bare, exp.EQ | exp.NullSafeEQ) else []
        for outer, inner in sides:
            if reads(inner) and reads(inner) <= own and not reads(outer) & own:
                found.append(Correlation(outer, inner, isinstance(bare, exp.NullSafeEQ), each))
                break
        else:
            raise beyond(links, own)
    return found


def correlated_columns(
    links: Sequence[exp.Expr], node: LogicalNode, names: Names
) -> tuple[LogicalNode, tuple[str, ...], tuple[exp.Expr, ...]]:
    """Add a column for each link's inner side; return the rows, the added columns, and the links over these columns.

    Rows with equal values in the added columns match the same outer rows. Raises Unreachable.
    """
    below = columns(node)
    found: dict[str, exp.Expr] = {}
    over: list[exp.Expr] = []
    for link in equal_correlations(links, below.keys()):
        name = link.own.name if isinstance(link.own, exp.Column) else names.fresh("link")
        found[name] = link.own
        over.append(link.over(name))
    if not found.keys() <= below.keys():
        node = LogicalProject(node, {name: resolved(name) for name in below} | found)
    return node, tuple(found), tuple(over)
