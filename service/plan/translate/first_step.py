"""The local step of an aggregate or a rank: what each task does to its rows before they are shuffled or expanded."""

from __future__ import annotations

from dataclasses import replace

from rowkind.service.physical.aggregation import Aggregation
from rowkind.service.physical.calc import LocalTopK
from rowkind.service.physical.node import PhysicalNode, PhysicalScan, PhysicalUnion


def with_first_step(node: PhysicalNode, step: Aggregation | LocalTopK) -> PhysicalNode:
    """Return the input of an aggregate or a rank with the local step, if its rows are shuffled or expanded."""
    if isinstance(node, PhysicalUnion):
        return replace(node, inputs=tuple(with_first_step(each, step) for each in node.inputs))
    # The operator itself aggregates rows that are not shuffled, unless an expand multiplies them first.
    if not isinstance(node, PhysicalScan) and node.fused and not node.calc.expands:
        return node
    return replace(node, calc=replace(node.calc, partial=step))
