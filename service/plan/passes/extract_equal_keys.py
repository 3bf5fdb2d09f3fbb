"""Make each `left = right` in a join's condition a part of the join's key.

Both sides are cast to the type in which Spark SQL compares them, so that equal values have equal key bytes: 1 = 1L, and
1.0 = 1.00 for decimals. The remaining conditions are evaluated on pairs of rows.

A key is computed for every row of its side. If the computation may fail, as in `ON l.k <> 0 AND 10 / l.k = r.x`, the
conditions before the equality guard it: the key is NULL for rows on which these conditions are not true. Conditions
that read both sides cannot guard a key; the equality is then evaluated on pairs of rows as well.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.service.plan.calls import EqualKey
from rowkind.service.plan.columns import by_name, columns
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.binary import LogicalJoin, LogicalLookup
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar import types
from rowkind.service.plan.scalar.conditions import may_fail
from rowkind.service.plan.scalar.conjuncts import reads
from rowkind.service.plan.scalar.exact_decimals import Digits, too_wide
from rowkind.service.plan.scalar.scalars import Columns, type_of
from rowkind.service.plan.scalar.types import STRING
from rowkind.service.plan.tree import bottom_up

_Keyed = TypeVar("_Keyed", LogicalJoin, LogicalLookup)


def extract_equal_keys(query: Query) -> Query:
    """Move the equalities in each join's condition into the join's keys.

    Raises Refusal for types that cannot be compared.

    >>> example(extract_equal_keys, '''
    ...     SELECT o.order_id, p.paid FROM orders o JOIN payments p ON o.order_id = p.order_id AND p.paid < o.amount''')
    Join inner condition=[o.order_id = p.order_id AND p.paid < o.amount]
      Scan orders o
      Scan payments p
    becomes
    Join inner condition=[p.paid < o.amount] keys=[o.order_id = p.order_id]
      Scan orders o
      Scan payments p
    """
    return replace(query, root=extracted(query.root))


def extracted(node: LogicalNode) -> LogicalNode:
    """Return the node with the equalities of its joins as keys. Raises Refusal for types that cannot be compared."""
    return bottom_up(node, _visit)


def _visit(node: LogicalNode) -> LogicalNode:
    if isinstance(node, LogicalJoin):
        return with_keys(node)
    return with_keys(node) if isinstance(node, LogicalLookup) else node


def with_keys(node: _Keyed) -> _Keyed:
    """Return the join with its equalities as keys. Raises Refusal for types that cannot be compared."""
    left, right = columns(node.left.input), columns(node.right.input)
    below = by_name(left | right)
    keys: list[EqualKey] = []
    rest: list[exp.Expr] = []
    for each in node.condition:
        sides = equal_sides(each, set(left), set(right))
        null_safe = isinstance(each.unnest(), exp.NullSafeEQ)
        guarded = None if sides is None else _guarded(sides, rest, (set(left), set(right)), null_safe=null_safe)
        if sides is None or guarded is None:
            rest.append(each)
        else:
            keys.append(_key(each, *guarded, below, null_safe=null_safe))
    assert isinstance(node, LogicalJoin) or not rest, "a lookup has only equalities, and no guards"
    return replace(node, keys=tuple(keys), condition=tuple(rest))


def _key(condition: exp.Expr, left: exp.Expr, right: exp.Expr, below: Columns, *, null_safe: bool) -> EqualKey:
    """Return the equality as a key, with the type to which both sides are cast for the comparison."""
    if too_wide([type_of(side, below) for side in (left, right)]):
        return EqualKey(Digits(this=left.copy()), Digits(this=right.copy()), STRING, null_safe)
    return EqualKey(left, right, _type(condition, left, right, below), null_safe)


def _guarded(
    sides: tuple[exp.Expr, exp.Expr],
    guards: list[exp.Expr],
    columns_: tuple[set[str], set[str]],
    *,
    null_safe: bool,
) -> tuple[exp.Expr, exp.Expr] | None:
    """Return an equality's operands, guarded by the conditions before it; None if they cannot be keys."""
    found: list[exp.Expr] = []
    for operand, own in zip(sides, columns_, strict=True):
        if not guards or not may_fail(operand):
            found.append(operand)
        elif null_safe or not all(reads(guard) <= own for guard in guards):
            return None
        else:
            test = exp.and_(*(guard.copy() for guard in guards), copy=False)
            found.append(exp.Case(ifs=[exp.If(this=test, true=operand.copy())]))
    left, right = found
    return left, right


def equal_sides(condition: exp.Expr, left: set[str], right: set[str]) -> tuple[exp.Expr, exp.Expr] | None:
    """Return the two operands of an equality between the sides, left first; None for any other condition."""
    condition = condition.unnest()
    if not isinstance(condition, exp.EQ | exp.NullSafeEQ):
        return None
    for a, b in ((condition.left, condition.right), (condition.right, condition.left)):
        if reads(a) and reads(b) and reads(a) <= left and reads(b) <= right:
            return a, b
    return None


def _type(condition: exp.Expr, left: exp.Expr, right: exp.Expr, below: Columns) -> Type:
    a, b = type_of(left, below), type_of(right, below)
    if a.required == b.required and a.orderable:
        return a.required
    for side, type_ in ((left, a), (right, b)):
        if types.family(type_) is None:
            raise Refusal(f"{type_.sql} cannot be compared with another type", side)
    common = types.common(a, b)
    if common is None:
        raise Refusal(f"{a.sql} and {b.sql} cannot be compared here: write a CAST on one of them", condition)
    return common
