"""Expressions as trees: the columns that they read, put in their place what defines them, taken apart at AND."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from rowkind.service.plan.scalar.scalars import resolved


def reads(node: exp.Expr) -> set[str]:
    """The columns that an expression reads."""
    return {column.name for column in node.find_all(exp.Column)}


def substitute(node: exp.Expr, definitions: Mapping[str, exp.Expr]) -> exp.Expr:
    """The expression with columns replaced by what defines them."""

    def define(each: exp.Expr) -> exp.Expr:
        if isinstance(each, exp.Column) and each.name in definitions:
            definition = definitions[each.name]
            if isinstance(definition, exp.Column):
                return resolved(definition.name, like=each)
            return exp.Paren(this=definition.copy())
        return each

    return node.transform(define)


def conjuncts(node: exp.Expr | None) -> tuple[exp.Expr, ...]:
    """A condition as the parts that AND holds together, those that are simply TRUE left out."""
    if node is None:
        return ()
    parts = node.flatten() if isinstance(node, exp.And) else [node]
    found: list[exp.Expr] = []
    for part in parts:
        bare = part.unnest()
        if isinstance(bare, exp.And):
            found += conjuncts(bare)
        elif not (isinstance(bare, exp.Boolean) and bare.this):
            found.append(bare)
    return tuple(found)
