"""Null rejection: which conditions are never true for a row in which certain columns are all NULL.

Above an outer join, such a condition removes the null-padded rows: each row that passes it has a value in at least one
of these columns.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from sqlglot import exp

_STRICT = (
    exp.EQ,
    exp.NEQ,
    exp.LT,
    exp.LTE,
    exp.GT,
    exp.GTE,
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Neg,
    exp.Paren,
    exp.Cast,
    exp.TryCast,
    exp.Like,
    exp.Escape,
    exp.Between,
    exp.Upper,
    exp.Lower,
    exp.Trim,
    exp.Length,
    exp.Substring,
    exp.DPipe,
    exp.Concat,
)
"""Operations that return NULL if any operand is NULL. (BETWEEN may also return FALSE; conditions treat both alike.)"""


def rejects(condition: exp.Expr, padded: AbstractSet[str]) -> bool:
    """Whether the condition is never true for a row in which all `padded` columns are NULL."""
    match condition.unnest():
        case exp.And() as node:
            return rejects(node.left, padded) or rejects(node.right, padded)
        case exp.Or() as node:
            return rejects(node.left, padded) and rejects(node.right, padded)
        case exp.Not() as node:
            inner = node.this.unnest()
            if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
                return _null(inner.this, padded)
            return _null(inner, padded)
        case exp.Is() as node:
            return isinstance(node.expression, exp.Boolean) and bool(node.expression.this) and _null(node.this, padded)
        case node:
            return _null(node, padded)


def _null(node: exp.Expr, padded: AbstractSet[str]) -> bool:
    """Whether an expression is NULL, or a condition is not true, if all `padded` columns are NULL."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        return node.name in padded
    if isinstance(node, exp.In):
        return _null(node.this, padded)
    if isinstance(node, exp.Between):
        return _null(node.this, padded)
    if isinstance(node, _STRICT):
        return any(_null(each, padded) for each in node.iter_expressions() if not isinstance(each, exp.DataType))
    return False
