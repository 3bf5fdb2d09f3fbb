"""Walks over a logical plan: every node knows its inputs here, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from rowkind.service.plan.logical import (
    LogicalExpand,
    LogicalFilter,
    LogicalJoin,
    LogicalLookup,
    LogicalNode,
    LogicalProject,
    LogicalScan,
    LogicalUnion,
    LogicalWindow,
)


def inputs(node: LogicalNode) -> tuple[LogicalNode, ...]:
    """The nodes right below."""
    match node:
        case LogicalScan():
            return ()
        case LogicalJoin() | LogicalLookup():
            return node.left.input, node.right.input
        case LogicalUnion():
            return node.inputs
        case LogicalFilter() | LogicalProject() | LogicalExpand() | LogicalWindow():
            return (node.input,)
        case _:
            # An operator with one input.
            return (node.input.input,)


def with_inputs(node: LogicalNode, change: Callable[[LogicalNode], LogicalNode]) -> LogicalNode:
    """The node over changed inputs."""
    match node:
        case LogicalScan():
            return node
        case LogicalJoin() | LogicalLookup():
            left = replace(node.left, input=change(node.left.input))
            return replace(node, left=left, right=replace(node.right, input=change(node.right.input)))
        case LogicalUnion():
            return replace(node, inputs=tuple(map(change, node.inputs)))
        case LogicalFilter() | LogicalProject() | LogicalExpand() | LogicalWindow():
            return replace(node, input=change(node.input))
        case _:
            return replace(node, input=replace(node.input, input=change(node.input.input)))


def bottom_up(node: LogicalNode, change: Callable[[LogicalNode], LogicalNode]) -> LogicalNode:
    """The tree with every node changed, each over its changed inputs."""
    return change(with_inputs(node, lambda below: bottom_up(below, change)))


def walk(node: LogicalNode) -> Iterator[LogicalNode]:
    """The node and everything below it, inputs first, left before right."""
    for child in inputs(node):
        yield from walk(child)
    yield node
