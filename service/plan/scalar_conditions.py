"""Conditions: three-valued logic, comparisons, IN, BETWEEN and LIKE."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from service.plan.errors import Refusal
from service.plan.scalar_compiler import Compiler, Rule
from service.plan.typed import Typed, nullable, quoted, text_literal
from service.plan.types import BOOLEAN

_COMPARISONS: Mapping[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_BOTH = ("this", "expression")


def _both(compiler: Compiler, node: exp.Connector) -> Typed:
    left, right = compiler.condition(node.left), compiler.condition(node.right)
    word = "AND" if isinstance(node, exp.And) else "OR"
    return Typed(f"({left.sql} {word} {right.sql})", nullable(BOOLEAN, left, right))


def _negated(compiler: Compiler, node: exp.Not) -> Typed:
    inner = compiler.condition(node.this)
    return Typed(f"(NOT {inner.sql})", inner.type)


def _compare(compiler: Compiler, node: exp.Binary) -> Typed:
    (left, right), _ = compiler.united(node, [node.left, node.right])
    return Typed(f"({left.sql} {_COMPARISONS[type(node)]} {right.sql})", nullable(BOOLEAN, left, right))


def _distinct_from(compiler: Compiler, node: exp.Binary) -> Typed:
    (left, right), _ = compiler.united(node, [node.left, node.right])
    word = "IS NOT DISTINCT FROM" if isinstance(node, exp.NullSafeEQ) else "IS DISTINCT FROM"
    return Typed(f"({left.sql} {word} {right.sql})", BOOLEAN)


def _is(compiler: Compiler, node: exp.Is) -> Typed:
    if isinstance(node.expression, exp.Null):
        inner = node.this.unnest()
        if isinstance(inner, exp.Column):
            # Whether a column is NULL can be said of every type; DuckDB is shown the column all the same.
            name, _type = compiler.columns[inner.name]
            return Typed(f"({quoted(name)} IS NULL)", BOOLEAN)
        return Typed(f"({compiler.compile(inner).sql} IS NULL)", BOOLEAN)
    if isinstance(node.expression, exp.Boolean):
        word = "TRUE" if node.expression.this else "FALSE"
        return Typed(f"({compiler.condition(node.this).sql} IS NOT DISTINCT FROM {word})", BOOLEAN)
    raise Refusal("IS takes NULL, TRUE or FALSE", node)


def _in(compiler: Compiler, node: exp.In) -> Typed:
    if node.args.get("query"):
        raise Refusal("IN with a subquery is not supported yet: write it as a JOIN", node)
    values, _ = compiler.united(node, [node.this, *node.expressions])
    listed = ", ".join(value.sql for value in values[1:])
    return Typed(f"({values[0].sql} IN ({listed}))", nullable(BOOLEAN, *values))


def _between(compiler: Compiler, node: exp.Between) -> Typed:
    (value, low, high), _ = compiler.united(node, [node.this, node.args["low"], node.args["high"]])
    return Typed(f"({value.sql} BETWEEN {low.sql} AND {high.sql})", nullable(BOOLEAN, value, low, high))


def _like(compiler: Compiler, node: exp.Like | exp.Escape) -> Typed:
    escape = "\\"
    if isinstance(node, exp.Escape):
        if not isinstance(node.this, exp.Like) or not isinstance(node.expression, exp.Literal):
            raise Refusal("this form of LIKE is not supported yet", node)
        node, escape = node.this, str(node.expression.this)
    value, pattern = compiler.string(node.this), compiler.string(node.expression)
    if pattern.literal is None:
        raise Refusal("LIKE takes a pattern written out as text, so that it can be checked beforehand", node)
    if len(escape) != 1 or _badly_escaped(pattern.literal, escape):
        raise Refusal(f"in the pattern of LIKE, {escape} must stand before %, _ or itself", node)
    word = "NOT LIKE" if node.args.get("negate") else "LIKE"
    return Typed(f"({value.sql} {word} {pattern.sql} ESCAPE {text_literal(escape)})", nullable(BOOLEAN, value))


def _badly_escaped(pattern: str, escape: str) -> bool:
    at = 0
    while at < len(pattern):
        if pattern[at] == escape:
            if pattern[at + 1 : at + 2] not in ("%", "_", escape):
                return True
            at += 1
        at += 1
    return False


RULES: Mapping[type[exp.Expr], Rule] = {
    exp.And: (_both, _BOTH),
    exp.Or: (_both, _BOTH),
    exp.Not: (_negated, ("this",)),
    **dict.fromkeys(_COMPARISONS, (_compare, _BOTH)),
    exp.NullSafeEQ: (_distinct_from, _BOTH),
    exp.NullSafeNEQ: (_distinct_from, _BOTH),
    exp.Is: (_is, _BOTH),
    exp.In: (_in, ("this", "expressions", "query")),
    exp.Between: (_between, ("this", "low", "high")),
    exp.Like: (_like, ("this", "expression", "negate")),
    exp.Escape: (_like, _BOTH),
}
