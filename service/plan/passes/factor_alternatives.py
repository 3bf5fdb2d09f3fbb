"""Factor out the conditions that all alternatives of an OR have in common.

    (l.k = r.k AND l.v = 1) OR (l.k = r.k AND r.v > 2)      l.k = r.k AND (l.v = 1 OR r.v > 2)

Then an equality that is written in every branch can become a join key, and a filter on one side can be pushed down.
This is the distributive law, which is also valid with NULLs. A condition that may fail stays where it is, because the
conditions before it guard it.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.clock_conditions import reads_clock
from rowkind.service.plan.scalar.conditions import may_move
from rowkind.service.plan.scalar.conjuncts import conjuncts
from rowkind.service.plan.tree import Conditions, with_conditions


def factor_alternatives(query: Query) -> Query:
    """Move the conditions that all alternatives of an OR have in common out of the OR, in front of it.

    >>> example(factor_alternatives, '''
    ...     SELECT o.order_id, p.paid FROM orders o, payments p
    ...     WHERE (o.order_id = p.order_id AND o.amount > 5) OR (o.order_id = p.order_id AND p.paid > 2)''')
    Filter (o.order_id = p.order_id AND o.amount > 5) OR (o.order_id = p.order_id AND p.paid > 2)
      Join inner
    becomes
    Filter o.order_id = p.order_id AND (o.amount > 5 OR p.paid > 2)
      Join inner
    """
    return replace(query, root=with_conditions(query.root, _all_factored))


def _all_factored(conditions: Conditions) -> Conditions:
    return tuple(part for each in conditions for part in _factored(each))


def _factored(condition: exp.Expr) -> tuple[exp.Expr, ...]:
    bare = condition.unnest()
    if not isinstance(bare, exp.Or):
        return (condition,)
    branches = [conjuncts(each) for each in bare.flatten()]
    common = [
        each for each in dict.fromkeys(branches[0]) if _may_go_first(each) and all(each in rest for rest in branches)
    ]
    if not common:
        return (condition,)
    rests = [[each for each in branch if each not in common] for branch in branches]
    if not all(rests):
        # One of the alternatives has no other condition, so nothing is left of the OR.
        return tuple(common)
    return (*common, exp.or_(*(exp.and_(*(each.copy() for each in rest)) for rest in rests)))


def _may_go_first(part: exp.Expr) -> bool:
    return may_move(part) and not reads_clock(part)
