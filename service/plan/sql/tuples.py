"""Rewrites comparisons of rows, such as `(a, b) = (c, d)`, as comparisons of single columns."""

from __future__ import annotations

from sqlglot import exp

from rowkind.service.plan.errors import Refusal


def compared(node: exp.Expr) -> exp.Expr:
    """Rewrite comparisons of rows as comparisons of columns. Raises Refusal for rows of different lengths.

    Two rows are equal if all their columns are equal. Otherwise, the first column that differs determines which row is
    less.
    """
    return node.transform(_compared) if node.find(exp.Tuple) else node


def _compared(node: exp.Expr) -> exp.Expr:
    match node:
        case exp.In() if isinstance(node.this.unnest(), exp.Tuple) and node.expressions:
            one_by_one = [_compared(exp.EQ(this=node.this.copy(), expression=each.copy())) for each in node.expressions]
            return exp.Paren(this=exp.or_(*one_by_one, copy=False))
        case exp.Binary():
            left, right = node.left.unnest(), node.right.unnest()
            if isinstance(left, exp.Tuple) and isinstance(right, exp.Tuple):
                return _rows(node, left.expressions, right.expressions)
    return node


def _rows(node: exp.Binary, left: list[exp.Expr], right: list[exp.Expr]) -> exp.Expr:
    if len(left) != len(right):
        raise Refusal(f"rows with different numbers of columns, {len(left)} and {len(right)}, cannot be compared", node)

    def each(kind: type[exp.Binary], first: int = 0, last: int | None = None) -> list[exp.Expr]:
        pairs = list(zip(left, right, strict=True))[first:last]
        return [kind(this=a.copy(), expression=b.copy()) for a, b in pairs]

    match node:
        case exp.EQ() | exp.NullSafeEQ():
            return exp.Paren(this=exp.and_(*each(type(node)), copy=False))
        case exp.NEQ() | exp.NullSafeNEQ():
            return exp.Paren(this=exp.or_(*each(type(node)), copy=False))
        case exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            strict = exp.LT if isinstance(node, exp.LT | exp.LTE) else exp.GT
            last = len(left) - 1
            ways = [
                exp.and_(*each(exp.EQ, last=at), *each(strict if at < last else type(node), at, at + 1), copy=False)
                for at in range(len(left))
            ]
            return exp.Paren(this=exp.or_(*ways, copy=False))
    return node
