"""Aliases by which hints name the inputs of operators: those of tables and of derived tables."""

from __future__ import annotations

import itertools

from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.calc import LogicalScan
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.logical.per_row import LogicalStamp
from rowkind.service.plan.logical.subset import LogicalNormalize, LogicalTemporalFilter
from rowkind.service.plan.traits.changelog_modes import base


def source(node: LogicalNode) -> LogicalNode:
    """Return the scan or operator whose rows these are.

    A Normalize, a temporal filter and a stamp pass on the rows of their input.
    """
    while isinstance(node := base(node), LogicalNormalize | LogicalTemporalFilter | LogicalStamp):
        node = node.input.input
    return node


def alias(node: LogicalNode) -> str:
    """Return the aliases that lead to this input: those of the derived tables around it, then the table's own.

    The output of an operator has the alias of the derived table that contains it, or none.
    """
    below = source(node)
    if isinstance(below, LogicalScan):
        return below.path.lower()
    paths = [name.split(".")[:-1] for name in columns(node)]
    shared = itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
    return ".".join(parts[0] for parts in shared).lower()


def means(name: str, found: str) -> bool:
    """Whether a hint for `name` refers to this input: to the table, or to a derived table that is only this table."""
    return f"{found}.".startswith(f"{name}.")
