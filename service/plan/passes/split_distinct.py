"""Split the DISTINCT of a hot group by its values, so that the values spread over the shards.

    SELECT g, COUNT(DISTINCT x) … GROUP BY g     COUNT(x) by g over the rows of SELECT DISTINCT g, x

What else is asked of the group is added up by g and x first and then by g: not sums, which would be rounded twice or
not fit on the way, but accumulators (`operators.aggregate.stages`); extremes as what they are.

    SELECT g, COUNT(DISTINCT x), SUM(y) …        COUNT(x), and the sum of s, by g over s = what is added up of y by g, x

That is done for an aggregate without GROUP BY, whose one group is the hottest there is, if all calls are DISTINCT over
the same columns, and where the hint SPLIT_DISTINCT asks for it. (Flink's split-distinct option and its incremental
aggregate.)
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
    """Split an aggregate with DISTINCT into two steps where it pays.

    Raises Refusal for a hint that cannot be followed.

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
            f"SPLIT_DISTINCT splits a group by the values of one DISTINCT, and there are several: {written}. Join one "
            f"aggregate for each"
            if counted
            else "SPLIT_DISTINCT splits a group by the values of a DISTINCT, and there is none any more",
            node.at,
        )
    for call in node.calls.values():
        kept_whole = call.function in GATHERED or call.function in ("min_by", "max_by", "first", "last")
        if kept_whole:
            raise Refusal(
                f"SPLIT_DISTINCT cannot split {show(call.at)}, which needs the rows of the whole group: take it in an "
                f"aggregate of its own, and join the two",
                call.at,
            )


Steps = tuple[str, LogicalAggregateCall, LogicalAggregateCall]
"""A call by parts of a group, behind the column of its results, and one over these."""


def in_two_steps(name: str, call: LogicalAggregateCall, below: Mapping[str, Type]) -> Steps | None:
    """A call over rows with the columns `below` in two.

    None for what is not added up: it needs the rows of the whole group, or tells apart what it has met.
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
    """A second step over `partial` in two: one by larger parts, behind the column of its results, and one over it."""
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
                # A value counts where a row that has it does.
                first[partial] = LogicalAggregateCall("bool_or", (call.filter,), BOOLEAN.as_nullable(), at=call.at)
            second[name] = replace(call, distinct=False, filter=None if call.filter is None else partial)
        else:
            steps = in_two_steps(name, call, below)
            assert steps is not None, "what needs the rows of the whole group has been refused"
            partial, first[partial], second[name] = steps
    group = tuple(dict.fromkeys([*node.group, *values]))
    by_value = LogicalAggregate(node.input, group, first, is_global=False, at=node.at)
    return replace(node, input=LogicalInput(by_value), calls=second)
