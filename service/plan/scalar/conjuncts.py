"""Helpers for expressions: list the columns that they read, substitute columns, and split a condition at AND."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from rowkind.service.plan.scalar.scalars import resolved


def reads(node: exp.Expr) -> set[str]:
    """Return the columns that an expression reads."""
    return {column.name for column in node.find_all(exp.Column)}


def substitute(node: exp.Expr, definitions: Mapping[str, exp.Expr]) -> exp.Expr:
    """Return an expression in which each column with a definition is replaced by its definition."""

    def define(each: exp.Expr) -> exp.Expr:
        if isinstance(each, exp.Column) and each.name in definitions:
            definition = definitions[each.name]
            if isinstance(definition, exp.Column):
                return resolved(definition.name, like=each)
            return exp.Paren(this=definition.copy())
        return each

    return node.transform(define)


def conjuncts(node: exp.Expr | None) -> tuple[exp.Expr, ...]:
    """Return the operands of a condition's ANDs, except the constant TRUE."""
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
