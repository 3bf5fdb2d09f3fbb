"""What each task does to the rows of an operator before they are shuffled, or before many are made of few."""

from __future__ import annotations

from dataclasses import replace

from rowkind.service.physical.aggregation import Aggregation
from rowkind.service.physical.calc import LocalTopK
from rowkind.service.physical.node import PhysicalNode, PhysicalScan, PhysicalUnion


def with_first_step(node: PhysicalNode, step: Aggregation | LocalTopK) -> PhysicalNode:
    """The input of an aggregate or a rank with what is done to its rows before they are shuffled, if they are."""
    if isinstance(node, PhysicalUnion):
        return replace(node, inputs=tuple(with_first_step(each, step) for each in node.inputs))
    # What is not shuffled is added up by the operator itself, but not before each row has become many.
    if not isinstance(node, PhysicalScan) and node.fused and not node.calc.expands:
        return node
    return replace(node, calc=replace(node.calc, partial=step))
