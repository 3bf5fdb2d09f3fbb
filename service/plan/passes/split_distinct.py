"""A hot group's DISTINCT is split by its values, so that they spread over the shards.

    SELECT g, COUNT(DISTINCT x) … GROUP BY g     COUNT(x) by g over the rows of SELECT DISTINCT g, x

That is done for an aggregate without GROUP BY, whose one group is the hottest there is, and where the hint
SPLIT_DISTINCT asks for it. All calls must be DISTINCT over the same argument. (Flink's split-distinct option.)
"""

from __future__ import annotations

from dataclasses import replace

from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical import LogicalAggregate, LogicalCall, LogicalInput, LogicalNode, Query, bottom_up


def split_distinct(query: Query) -> Query:
    """Aggregates in two steps where it pays. Raises Refusal for a hint that cannot be followed."""
    return replace(query, root=bottom_up(query.root, _visit))


def _visit(node: LogicalNode) -> LogicalNode:
    if not isinstance(node, LogicalAggregate):
        return node
    argument = _argument(node)
    if argument is None:
        if node.split_distinct:
            raise Refusal("SPLIT_DISTINCT needs calls that are all DISTINCT over one and the same column", node.at)
        return node
    if not (node.is_global or node.split_distinct):
        return node
    # MIN and MAX of different values are those of all, so their DISTINCT never mattered.
    values = LogicalAggregate(
        node.input, tuple(dict.fromkeys([*node.group, argument])), {}, is_global=False, at=node.at
    )
    calls = {name: replace(call, distinct=False) for name, call in node.calls.items()}
    return replace(node, input=LogicalInput(values), calls=calls)


def _argument(node: LogicalAggregate) -> str | None:
    """The one column that all calls are DISTINCT over."""

    def alone(call: LogicalCall) -> bool:
        return call.distinct and len(call.arguments) == 1 and call.filter is None

    if not node.calls or not all(map(alone, node.calls.values())):
        return None
    found = {call.arguments[0] for call in node.calls.values()}
    argument = found.pop()
    below = columns(node.input.input)
    return argument if not found and below[argument].orderable else None
