"""The local step of an aggregate or rank. Each task applies it to its rows before the operator receives them."""

from __future__ import annotations

from dataclasses import replace

from rowkind.service.physical.aggregation import Aggregation
from rowkind.service.physical.calc import LocalTopK
from rowkind.service.physical.node import PhysicalNode, PhysicalScan, PhysicalUnion


def with_first_step(node: PhysicalNode, step: Aggregation | LocalTopK) -> PhysicalNode:
    """Add the local step to the input of an aggregate or rank if its rows are shuffled or expanded."""
    if isinstance(node, PhysicalUnion):
        return replace(node, inputs=tuple(with_first_step(each, step) for each in node.inputs))
    # The operator itself aggregates rows that are not shuffled, unless an expand multiplies them first.
    if not isinstance(node, PhysicalScan) and node.fused and not node.calc.expands:
        return node
    return replace(node, calc=replace(node.calc, partial=step))
