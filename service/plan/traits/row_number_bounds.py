"""Bounds that conditions set on a row's number, which is an integer of at least 1 and never NULL.

n <= 3, n BETWEEN 2 AND 3, n IN (1, 3), n <> 1, n < 2 OR n = 5     the same numbers are admitted for every row
n <= c, n = c + 1, n BETWEEN 1 AND c                               the row's other columns bound the number
CASE WHEN n = 1 THEN 'first' ELSE 'other' END                      numbers above 1 are not distinguished
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from fractions import Fraction

from sqlglot import exp

from rowkind.service.plan.scalar.conjuncts import reads

Ranges = tuple[tuple[int, float], ...]
"""Ranges of numbers in ascending order, with gaps in between. Both ends are included; the last may be infinite."""

EVERY: Ranges = ((1, math.inf),)
_LARGEST = 2**31 - 1
_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
}
_WHOLE = (exp.DataType.Type.INT, exp.DataType.Type.BIGINT)


def admitted(condition: exp.Expr, number: str) -> Ranges | None:
    """Return the values of column `number` for which a condition is true.

    Returns None if the condition reads other columns, or has an unsupported form.
    """
    node = condition.unnest()
    match node:
        case exp.And() | exp.Or():
            left, right = admitted(node.left, number), admitted(node.right, number)
            if left is None or right is None:
                return None
            return intersection(left, right) if isinstance(node, exp.And) else _union([*left, *right])
        case exp.Not():
            inner = admitted(node.this, number)
            return None if inner is None else _others(inner)
        case exp.Between() if _is_number(node.this, number):
            low, high = (_range(kind, node.args[end]) for kind, end in ((exp.GTE, "low"), (exp.LTE, "high")))
            return None if low is None or high is None else intersection(low, high)
        case exp.In() if _is_number(node.this, number) and node.expressions:
            points = [_range(exp.EQ, each) for each in node.expressions]
            found = [each for each in points if each is not None]
            return _union([one for each in found for one in each]) if len(found) == len(points) else None
        case exp.Binary() if type(node) in _FLIPPED:
            if _is_number(node.left, number):
                return _range(type(node), node.right)
            return _range(_FLIPPED[type(node)], node.left) if _is_number(node.right, number) else None
    return None


def intersection(left: Ranges, right: Ranges) -> Ranges:
    """Return the numbers that are in both `left` and `right`."""
    pairs = ((max(a[0], b[0]), min(a[1], b[1])) for a in left for b in right)
    return tuple(sorted(pair for pair in pairs if pair[0] <= pair[1]))


def told_apart(expression: exp.Expr, number: str) -> float:
    """Return the largest value of column `number` that an expression distinguishes from larger values.

    Returns infinity if the expression may distinguish all numbers.
    """
    largest = 0.0
    for column in expression.find_all(exp.Column):
        if column.name != number:
            continue
        node: exp.Expr | None = column.parent
        while isinstance(node, exp.Paren):
            node = node.parent
        ranges = None
        if node is not None and column is not expression.unnest():
            ranges = _cases(node, number) if isinstance(node, exp.Case) else admitted(node, number)
        if ranges is None:
            return math.inf
        ends = [end for first, last in ranges for end in (first - 1, last)]
        largest = max([largest, *(end for end in ends if end < math.inf)])
    return largest


def _cases(node: exp.Case, number: str) -> Ranges | None:
    """Return the numbers for which CASE n WHEN … has a branch; None for any other CASE."""
    if node.this is None or not _is_number(node.this, number):
        return None
    values = [each.this for each in node.args["ifs"]]
    return admitted(exp.In(this=node.this.copy(), expressions=[each.copy() for each in values]), number)


def row_bound(condition: exp.Expr, numbers: AbstractSet[str]) -> exp.Expr | None:
    """Return the upper bound that a condition sets on one of the `numbers`, in terms of the row's other columns.

    Returns None if the condition sets no such bound.
    """
    node = condition.unnest()
    found: exp.Expr | None = None
    if isinstance(node, exp.Between) and _is_one(node.this, numbers):
        found = node.args["high"]
    elif isinstance(node, exp.LT | exp.LTE | exp.EQ) and _is_one(node.left, numbers):
        found = node.right
    elif isinstance(node, exp.GT | exp.GTE | exp.EQ) and _is_one(node.right, numbers):
        found = node.left
    return None if found is None or reads(found) & numbers else found


def _is_one(node: exp.Expr, numbers: AbstractSet[str]) -> bool:
    return any(_is_number(node, each) for each in numbers)


def _is_number(node: exp.Expr, number: str) -> bool:
    node = node.unnest()
    return isinstance(node, exp.Column) and node.name == number


def _range(kind: type[exp.Expr], node: exp.Expr) -> Ranges | None:
    """Return the numbers that satisfy a comparison with a constant; None if `node` is not a constant."""
    limit = _constant(node)
    if limit is None:
        return None
    equal: Ranges = ((int(limit), int(limit)),) if limit.denominator == 1 and limit >= 1 else ()
    if kind is exp.EQ:
        return _union(equal)
    if kind is exp.NEQ:
        return _others(_union(equal))
    if kind in (exp.LT, exp.LTE):
        last = math.floor(limit) if kind is exp.LTE else math.ceil(limit) - 1
        return ((1, last),) if last >= 1 else ()
    return ((max(1, math.ceil(limit) if kind is exp.GTE else math.floor(limit) + 1), math.inf),)


def _union(ranges: Iterable[tuple[int, float]]) -> Ranges:
    found: list[tuple[int, float]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def _others(ranges: Ranges) -> Ranges:
    found, start = [], 1
    for first, last in ranges:
        if first > start:
            found.append((start, float(first - 1)))
        if last == math.inf:
            return tuple(found)
        start = int(last) + 1
    return (*found, (start, math.inf))


def _constant(node: exp.Expr) -> Fraction | None:
    """Return the value of an expression over literals; None if it is not constant or may overflow."""
    node = node.unnest()
    value: Fraction | None = None
    match node:
        case exp.Literal() if not node.is_string:
            value = Fraction(node.name)
        case exp.Neg():
            value = _constant(node.this)
            value = None if value is None else -value
        case exp.Cast() if not isinstance(node, exp.TryCast) and node.to.this in _WHOLE:
            value = _constant(node.this)
            value = value if value is not None and value.denominator == 1 else None
        case exp.Add() | exp.Sub() | exp.Mul():
            left, right = _constant(node.left), _constant(node.right)
            if left is not None and right is not None:
                sign = -1 if isinstance(node, exp.Sub) else 1
                value = left * right if isinstance(node, exp.Mul) else left + sign * right
    return value if value is not None and abs(value) <= _LARGEST else None
