"""The aliases of tables and derived tables, by which hints name operator inputs."""

from __future__ import annotations

import itertools

from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.calc import LogicalScan
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.logical.per_row import LogicalStamp
from rowkind.service.plan.logical.subset import LogicalNormalize, LogicalTemporalFilter
from rowkind.service.plan.traits.changelog_modes import base


def source(node: LogicalNode) -> LogicalNode:
    """Return the scan or operator from which a node's rows come.

    A Normalize, a temporal filter or a stamp is not that operator, because it passes on the rows of its input.
    """
    while isinstance(node := base(node), LogicalNormalize | LogicalTemporalFilter | LogicalStamp):
        node = node.input.input
    return node


def alias(node: LogicalNode) -> str:
    """Return the aliases of an input, separated by dots: those of the derived tables around it, then the table's own.

    An operator's output has the aliases of the derived tables that contain it, or none.
    """
    below = source(node)
    if isinstance(below, LogicalScan):
        return below.path.lower()
    paths = [name.split(".")[:-1] for name in columns(node)]
    shared = itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
    return ".".join(parts[0] for parts in shared).lower()


def means(name: str, found: str) -> bool:
    """Whether a hint for `name` refers to the input with the aliases `found`, or to a derived table around it."""
    return f"{found}.".startswith(f"{name}.")
