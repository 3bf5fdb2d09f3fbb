"""Functions that traverse a physical plan, or return a node's inputs, level or clock."""

from __future__ import annotations

from collections.abc import Iterator

from rowkind.operators.field_roles import children
from rowkind.service.physical.clocks import Clock
from rowkind.service.physical.node import PhysicalNode, PhysicalOperator, PhysicalScan, PhysicalSink, PhysicalUnion
from rowkind.service.physical.operators import (
    PhysicalAggregate,
    PhysicalJoin,
    PhysicalNormalize,
    PhysicalTemporalFilter,
)


def inputs(node: PhysicalSink | PhysicalNode) -> tuple[PhysicalNode, ...]:
    """Return a node's direct inputs: left before right, and facts last."""
    return tuple(children(node))


def without_unions(*nodes: PhysicalNode) -> Iterator[PhysicalScan | PhysicalOperator]:
    """Yield the nodes, with each union replaced by its inputs."""
    for node in nodes:
        if isinstance(node, PhysicalUnion):
            yield from without_unions(*node.inputs)
        else:
            yield node


def level(node: PhysicalScan | PhysicalOperator) -> int:
    """Return an operator's level in a graph, which is at least 1. Return 0 for a scan."""
    return max((level(each) + (not fused(each)) for each in without_unions(*inputs(node))), default=0)


def fused(node: PhysicalScan | PhysicalOperator) -> bool:
    """Return whether a node runs in its consumer's stage."""
    return not isinstance(node, PhysicalScan) and node.fused


def remade_inputs(node: PhysicalNode) -> Iterator[tuple[str, PhysicalJoin]]:
    """Yield the name and the node of each input of a join whose rows are recomputed instead of stored."""
    if isinstance(node, PhysicalJoin):
        sides = ("left", node.left, node.left_input), ("right", node.right, node.right_input)
        yield from ((name, below) for name, below, chosen in sides if chosen.remade and isinstance(below, PhysicalJoin))


def clock(node: PhysicalOperator) -> Clock | None:
    """Return the clock that an operator follows, or None if the operator only uses the batch time."""
    if isinstance(node, PhysicalTemporalFilter):
        return node.clock
    if isinstance(node, PhysicalNormalize) and node.takes_back:
        return Clock()
    if isinstance(node, PhysicalAggregate) and node.aggregation.ending is not None:
        return node.aggregation.ending.clock
    return next((closing.clock for closing in node.closings if closing is not None), None)


def walk(plan: PhysicalSink | PhysicalNode) -> Iterator[PhysicalNode]:
    """Yield the nodes of a plan, inputs first, left before right."""
    for below in inputs(plan):
        yield from walk(below)
    if not isinstance(plan, PhysicalSink):
        yield plan
