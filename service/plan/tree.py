"""Walks over a logical plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from rowkind.operators.field_roles import children, roles
from rowkind.service.plan.logical import LogicalInput, LogicalNode


def inputs(node: LogicalNode) -> tuple[LogicalNode, ...]:
    """The nodes right below."""
    return tuple(below.input if isinstance(below, LogicalInput) else below for below in children(node))


def sides(node: LogicalNode) -> tuple[LogicalInput, ...]:
    """The inputs of an operator, left before right; none of a node that keeps nothing."""
    return tuple(below for below in children(node) if isinstance(below, LogicalInput))


def with_inputs(node: LogicalNode, change: Callable[[LogicalNode], LogicalNode]) -> LogicalNode:
    """The node over changed inputs."""
    below = {name: _over(getattr(node, name), change) for name, role in roles(type(node)) if role == "child"}
    return replace(node, **below) if below else node


def _over(below: Any, change: Callable[[LogicalNode], LogicalNode]) -> Any:
    """What a field of nodes below holds, over changed nodes."""
    if isinstance(below, tuple):
        return tuple(map(change, below))
    return replace(below, input=change(below.input)) if isinstance(below, LogicalInput) else change(below)


def bottom_up(node: LogicalNode, change: Callable[[LogicalNode], LogicalNode]) -> LogicalNode:
    """The tree with every node changed, each over its changed inputs."""
    return change(with_inputs(node, lambda below: bottom_up(below, change)))


def walk(node: LogicalNode) -> Iterator[LogicalNode]:
    """The node and everything below it, inputs first, left before right."""
    for child in inputs(node):
        yield from walk(child)
    yield node
