"""Split the DISTINCT aggregates of a hot group by their values, so that the values are spread over the shards.

    SELECT g, COUNT(DISTINCT x) … GROUP BY g     COUNT(x) by g over the rows of SELECT DISTINCT g, x

Other calls are aggregated by g and x first and then by g. The first step emits accumulators, because sums would be
rounded twice or could overflow in between (`operators.aggregate.stages`). It emits minimum and maximum values
unchanged.

    SELECT g, COUNT(DISTINCT x), SUM(y) …        COUNT(x) and the sum of s by g, where s is the accumulator of y by g, x

The pass applies wherever the hint SPLIT_DISTINCT asks for it. It also applies to an aggregate without GROUP BY, whose
single group receives every row, if all calls are DISTINCT over the same column. (Compare Flink's split-distinct option
and its incremental aggregate.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rowkind.avro.schema import Type
from rowkind.operators.aggregate.function import EXTREMES, GATHERED
from rowkind.service.plan.calls import LogicalAggregateCall
from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.scalars import show
from rowkind.service.plan.scalar.types import BINARY, BOOLEAN
from rowkind.service.plan.tree import bottom_up

_EXTREMES = ("min", "max", "any_value")


def split_distinct(query: Query) -> Query:
    """Split an aggregate with DISTINCT into two steps where it pays off.

    Raises Refusal for a hint that cannot be applied.

    >>> example(split_distinct, '''
    ...     SELECT /*+ SPLIT_DISTINCT */ status, COUNT(DISTINCT customer_id) AS n FROM orders GROUP BY status''')
    Aggregate group=[orders.status] calls=[n: count(orders.customer_id) distinct]
      Project …
    becomes
    Aggregate group=[orders.status] calls=[n: count(orders.customer_id)]
      Aggregate group=[orders.status, orders.customer_id]
        Project …
    """
    return replace(query, root=bottom_up(query.root, _visit))


def _visit(node: LogicalNode) -> LogicalNode:
    if not isinstance(node, LogicalAggregate):
        return node
    if node.split_distinct:
        _check(node)
        return _split(node)
    plain = node.is_global and node.calls and all(_alone(call) for call in node.calls.values())
    return _split(node) if plain and len({call.arguments for call in node.calls.values()}) == 1 else node


def _alone(call: LogicalAggregateCall) -> bool:
    return call.distinct and len(call.arguments) == 1 and call.filter is None and call.function not in GATHERED


def _check(node: LogicalAggregate) -> None:
    counted = {call.arguments for call in node.calls.values() if call.distinct}
    if len(counted) != 1:
        written = ", ".join(show(call.at) for call in node.calls.values() if call.distinct)
        raise Refusal(
            f"SPLIT_DISTINCT splits a group by the values of one DISTINCT, but there are several: {written}. Compute "
            f"each in an aggregate of its own, and join the aggregates"
            if counted
            else "SPLIT_DISTINCT splits a group by the values of a DISTINCT, but none is left after optimization: "
            "remove the hint",
            node.at,
        )
    for call in node.calls.values():
        kept_whole = call.function in GATHERED or call.function in ("min_by", "max_by", "first", "last")
        if kept_whole:
            raise Refusal(
                f"SPLIT_DISTINCT cannot split {show(call.at)}, which needs all rows of the group: compute it in an "
                f"aggregate of its own, and join the two",
                call.at,
            )


Steps = tuple[str, LogicalAggregateCall, LogicalAggregateCall]
"""The column with results for parts of a group, the call that computes them, and the call that combines them."""


def in_two_steps(name: str, call: LogicalAggregateCall, below: Mapping[str, Type]) -> Steps | None:
    """Return the two steps of a call over rows with the columns `below`.

    Returns None if the call cannot be split, because it needs all rows of the group or is DISTINCT.
    """
    partial = f"{name}#first"
    if call.function in _EXTREMES:
        return partial, call, replace(call, arguments=(partial,), filter=None)
    if call.distinct or call.function in {*GATHERED, *EXTREMES}:
        return None
    types = tuple(below[argument] for argument in call.arguments)
    second = replace(call, arguments=(partial,), filter=None, stage="second", types=types)
    return partial, replace(call, type=BINARY, stage="first"), second


def between(partial: str, second: LogicalAggregateCall) -> tuple[str, LogicalAggregateCall, LogicalAggregateCall]:
    """Split the second step over the column `partial` in two: one for larger parts, and one that combines these parts.

    Returns the name of the column with the results for the larger parts, and the two steps.
    """
    name = f"{partial.removesuffix('#first')}#between"
    if second.stage == "whole":
        return name, second, replace(second, arguments=(name,))
    return name, replace(second, type=BINARY, stage="between"), replace(second, arguments=(name,))


def _split(node: LogicalAggregate) -> LogicalAggregate:
    below = columns(node.input.input)
    values = next(call.arguments for call in node.calls.values() if call.distinct)
    first: dict[str, LogicalAggregateCall] = {}
    second: dict[str, LogicalAggregateCall] = {}
    for name, call in node.calls.items():
        partial = f"{name}#first"
        if call.distinct:
            if call.filter is not None:
                # A value counts if any row with this value passes the filter.
                first[partial] = LogicalAggregateCall("bool_or", (call.filter,), BOOLEAN.as_nullable(), at=call.at)
            second[name] = replace(call, distinct=False, filter=None if call.filter is None else partial)
        else:
            steps = in_two_steps(name, call, below)
            assert steps is not None, "calls that need the rows of the whole group are refused"
            partial, first[partial], second[name] = steps
    group = tuple(dict.fromkeys([*node.group, *values]))
    by_value = LogicalAggregate(node.input, group, first, is_global=False, at=node.at)
    return replace(node, input=LogicalInput(by_value), calls=second)
