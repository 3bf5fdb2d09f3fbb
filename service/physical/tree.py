"""Walks over a physical plan: its nodes below each, and by whose time each goes."""

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
    """The nodes right below, left before right, facts last."""
    return tuple(children(node))


def without_unions(*nodes: PhysicalNode) -> Iterator[PhysicalScan | PhysicalOperator]:
    """The nodes, each union replaced by what it unites."""
    for node in nodes:
        if isinstance(node, PhysicalUnion):
            yield from without_unions(*node.inputs)
        else:
            yield node


def level(node: PhysicalScan | PhysicalOperator) -> int:
    """How deep an operator lies in a graph, from 1; 0 for a scan."""
    return max((level(each) + (not fused(each)) for each in without_unions(*inputs(node))), default=0)


def fused(node: PhysicalScan | PhysicalOperator) -> bool:
    """Whether a node runs in its consumer's stage."""
    return not isinstance(node, PhysicalScan) and node.fused


def remade_inputs(node: PhysicalNode) -> Iterator[tuple[str, PhysicalJoin]]:
    """The inputs of a join whose rows are not kept, and what their state would be called."""
    if isinstance(node, PhysicalJoin):
        sides = ("left", node.left, node.left_input), ("right", node.right, node.right_input)
        yield from ((name, below) for name, below, chosen in sides if chosen.remade and isinstance(below, PhysicalJoin))


def clock(node: PhysicalOperator) -> Clock | None:
    """The time that an operator goes by where time alone moves rows; None where it only is that of the batch."""
    if isinstance(node, PhysicalTemporalFilter):
        return node.clock
    if isinstance(node, PhysicalNormalize) and node.takes_back:
        return Clock()
    if isinstance(node, PhysicalAggregate) and node.aggregation.ending is not None:
        return node.aggregation.ending.clock
    return next((closing.clock for closing in node.closings if closing is not None), None)


def walk(plan: PhysicalSink | PhysicalNode) -> Iterator[PhysicalNode]:
    """The nodes of a plan, inputs first, left before right."""
    for below in inputs(plan):
        yield from walk(below)
    if not isinstance(plan, PhysicalSink):
        yield plan
