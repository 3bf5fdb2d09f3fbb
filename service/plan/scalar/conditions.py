"""Compiles conditions: three-valued logic, comparisons, IN, BETWEEN and LIKE."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sqlglot import exp

from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar.clock_conditions import ClockCondition, moved_column
from rowkind.service.plan.scalar.compiler import Compiler, Rule
from rowkind.service.plan.scalar.exact_decimals import compared
from rowkind.service.plan.scalar.job_functions import functions_in
from rowkind.service.plan.scalar.time_windows import NODES as TIME_WINDOWS
from rowkind.service.plan.scalar.typed import Typed, nullable, quoted, text_literal
from rowkind.service.plan.scalar.types import BOOLEAN, failure

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
    parts = list(node.flatten())
    return joined("AND" if isinstance(node, exp.And) else "OR", [(compiler.condition(part), part) for part in parts])


def joined(word: str, operands: Sequence[tuple[Typed, exp.Expr]]) -> Typed:
    """Join conditions with AND or OR. Each condition is paired with the expression from which it was compiled.

    As in Spark, if a condition decides the result, the conditions after it are not evaluated, and so cannot fail.
    """
    *before, (found, _) = operands
    for index, (condition, _) in reversed(list(enumerate(before))):
        both = f"({condition.sql} {word} {found.sql})"
        if any(may_fail(node) for _, node in operands[index + 1 :]):
            decides = "FALSE" if word == "AND" else "TRUE"
            both = f"(CASE WHEN {condition.sql} IS NOT DISTINCT FROM {decides} THEN {decides} ELSE {both} END)"
        found = Typed(both, nullable(BOOLEAN, condition, found))
    return found


_SAFE = (
    exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Connector, exp.Not, exp.Paren, exp.Is, exp.In,
    exp.Between, exp.Like, exp.ILike, exp.Coalesce, exp.Nullif, exp.Case, exp.If, exp.Predicate, exp.Escape,
    exp.NullSafeEQ, exp.NullSafeNEQ, exp.Dot, exp.Trim, exp.Substring, exp.DPipe, exp.Concat, exp.Interval, exp.Var,
    *TIME_WINDOWS,
)  # fmt: skip
_SAFE_CALLS = (
    "UPPER", "UCASE", "LOWER", "LCASE", "LENGTH", "TRIM", "LTRIM", "RTRIM", "NVL", "IFNULL", "NVL2", "ISNULL",
    "ISNOTNULL", "EQUAL_NULL", "ISNAN", "STARTSWITH", "ENDSWITH", "CONTAINS", "CONCAT",
)  # fmt: skip


class Possible(exp.Expression, exp.Func):
    """A test whether a condition is true for a row or fails on the row. Only the planner creates this node."""

    arg_types = {"this": True}  # noqa: RUF012 -- sqlglot's convention


def may_fail(node: exp.Expr) -> bool:
    """Return whether an expression may fail on a row, for example by a division, a cast or an overflow.

    A function may fail unless it is known to be safe. An expression that may fail must not be evaluated for rows that
    an earlier condition has removed, so no pass may move it before that condition.
    """
    if isinstance(node, ClockCondition):
        # A constant is added to the column's time outside of SQL, so this cannot fail.
        return moved_column(node.this) is None and may_fail(node.this)
    parts = node.walk(prune=lambda each: isinstance(each, Possible))
    return not all(isinstance(each, (*_SAFE, Possible)) or _is_safe_call(each) for each in parts)


def may_move(condition: exp.Expr) -> bool:
    """Return whether a condition may be evaluated on rows other than those on which the query evaluates it.

    This is the case if the condition cannot fail and does not call a nondeterministic function.
    """
    return not may_fail(condition) and all(function.deterministic for function in functions_in(condition))


def _is_safe_call(node: exp.Expr) -> bool:
    if isinstance(node, exp.Anonymous) and node.name.upper() != "MOD":
        return node.name.upper() in _SAFE_CALLS
    operands = node.expressions if isinstance(node, exp.Anonymous) else [*node.iter_expressions()]
    by = operands[-1].unnest() if isinstance(node, exp.Mod | exp.Anonymous) and operands else None
    return isinstance(by, exp.Literal) and by.is_int and int(by.name) > 0


def _possible(compiler: Compiler, node: Possible) -> Typed:
    condition = compiler.condition(node.this)
    return Typed(f"(TRY(CASE WHEN {condition.sql} THEN TRUE ELSE FALSE END) IS DISTINCT FROM FALSE)", BOOLEAN)


def _negated(compiler: Compiler, node: exp.Not) -> Typed:
    inner = compiler.condition(node.this)
    return Typed(f"(NOT {inner.sql})", inner.type)


def _compare(compiler: Compiler, node: exp.Binary) -> Typed:
    left, right = compared([compiler.compile(each) for each in (node.left, node.right)], node)
    return Typed(f"({left.sql} {_COMPARISONS[type(node)]} {right.sql})", nullable(BOOLEAN, left, right))


def _distinct_from(compiler: Compiler, node: exp.Binary) -> Typed:
    left, right = compared([compiler.compile(each) for each in (node.left, node.right)], node)
    word = "IS NOT DISTINCT FROM" if isinstance(node, exp.NullSafeEQ) else "IS DISTINCT FROM"
    return Typed(f"({left.sql} {word} {right.sql})", BOOLEAN)


def _is(compiler: Compiler, node: exp.Is) -> Typed:
    if isinstance(node.expression, exp.Null):
        inner = node.this.unnest()
        if isinstance(inner, exp.Column):
            # IS NULL accepts columns of any type, even types that other expressions cannot use, because DuckDB can
            # read such columns.
            name, _type = compiler.columns[inner.name]
            return Typed(f"({quoted(name)} IS NULL)", BOOLEAN)
        return Typed(f"({compiler.compile(inner).sql} IS NULL)", BOOLEAN)
    if isinstance(node.expression, exp.Boolean):
        word = "TRUE" if node.expression.this else "FALSE"
        return Typed(f"({compiler.condition(node.this).sql} IS NOT DISTINCT FROM {word})", BOOLEAN)
    raise Refusal("IS must be followed by NULL, TRUE or FALSE", node)


def _in(compiler: Compiler, node: exp.In) -> Typed:
    if node.args.get("query"):
        raise Refusal("IN with a subquery is not supported: write it as a JOIN", node)
    values = compared([compiler.compile(each) for each in (node.this, *node.expressions)], node)
    listed = ", ".join(value.sql for value in values[1:])
    return Typed(f"({values[0].sql} IN ({listed}))", nullable(BOOLEAN, *values))


def _between(compiler: Compiler, node: exp.Between) -> Typed:
    parts = (node.this, node.args["low"], node.args["high"])
    value, low, high = compared([compiler.compile(each) for each in parts], node)
    return Typed(f"({value.sql} BETWEEN {low.sql} AND {high.sql})", nullable(BOOLEAN, value, low, high))


def _like(compiler: Compiler, node: exp.Like | exp.ILike | exp.Escape) -> Typed:
    escape = "\\"
    if isinstance(node, exp.Escape):
        if not isinstance(node.this, exp.Like | exp.ILike) or not isinstance(node.expression, exp.Literal):
            raise Refusal("this form of LIKE is not supported: write x LIKE 'pattern' ESCAPE '!'", node)
        node, escape = node.this, str(node.expression.this)
    value = compiler.string(node.this)
    patterns = node.expression
    if isinstance(patterns, exp.Any | exp.All):
        listed = patterns.this.expressions if isinstance(patterns.this, exp.Tuple) else [patterns.this.unnest()]
        found = [_like_one(compiler, node, value, pattern, escape) for pattern in listed]
        word = " OR " if isinstance(patterns, exp.Any) else " AND "
        return Typed(f"({word.join(each.sql for each in found)})", nullable(BOOLEAN, *found))
    return _like_one(compiler, node, value, patterns, escape)


def _like_one(compiler: Compiler, node: exp.Expr, value: Typed, written: exp.Expr, escape: str) -> Typed:
    pattern, flaw = compiler.string(written), f"in the pattern of LIKE, {escape} must be followed by %, _ or itself"
    if len(escape) != 1 or (pattern.literal is not None and _badly_escaped(pattern.literal, escape)):
        raise Refusal(flaw, node)
    literal, text, sql = pattern.literal, pattern.sql, value.sql
    if isinstance(node, exp.ILike):
        literal, text, sql = literal and literal.lower(), f"spark_lower({text})", f"spark_lower({sql})"
    text = text if literal is None else text_literal(literal)
    word = "NOT LIKE" if node.args.get("negate") else "LIKE"
    found = f"({sql} {word} {text} ESCAPE {text_literal(escape)})"
    if pattern.literal is None:
        well = text_literal(f"(?s)([^{re.escape(escape)}]|{re.escape(escape)}[%_{re.escape(escape)}])*")
        fails = failure(f"CONCAT({text_literal(f'{flaw}: ')}, {pattern.sql})", "BOOLEAN")
        # If the pattern is NULL, so is the result.
        found = f"CASE WHEN NOT REGEXP_FULL_MATCH({pattern.sql}, {well}) THEN {fails} ELSE {found} END"
    return Typed(found, nullable(BOOLEAN, value, pattern))


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
    Possible: (_possible, ("this",)),
    **dict.fromkeys(_COMPARISONS, (_compare, _BOTH)),
    exp.NullSafeEQ: (_distinct_from, _BOTH),
    exp.NullSafeNEQ: (_distinct_from, _BOTH),
    exp.Is: (_is, _BOTH),
    exp.In: (_in, ("this", "expressions", "query")),
    exp.Between: (_between, ("this", "low", "high")),
    **dict.fromkeys((exp.Like, exp.ILike), (_like, ("this", "expression", "negate"))),
    exp.Escape: (_like, _BOTH),
}
