"""How hints call the inputs of operators: by the alias of a table or a derived table."""

from __future__ import annotations

import itertools

from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.calc import LogicalScan
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.logical.per_row import LogicalStamp
from rowkind.service.plan.logical.subset import LogicalNormalize, LogicalTemporalFilter
from rowkind.service.plan.traits.changelog_modes import base


def source(node: LogicalNode) -> LogicalNode:
    """The scan or operator below whose rows these are.

    A Normalize hands on the rows of its input, and so do a filter that delays them and a stamp.
    """
    while isinstance(node := base(node), LogicalNormalize | LogicalTemporalFilter | LogicalStamp):
        node = node.input.input
    return node


def alias(node: LogicalNode) -> str:
    """The aliases that lead to this input: the table's own, behind those of derived tables around it.

    What comes out of an operator has the alias of the derived table that it is in, or none.
    """
    below = source(node)
    if isinstance(below, LogicalScan):
        return below.path.lower()
    paths = [name.split(".")[:-1] for name in columns(node)]
    shared = itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
    return ".".join(parts[0] for parts in shared).lower()


def means(name: str, found: str) -> bool:
    """Whether a hint for `name` is for this input: the table, or a derived table that is nothing but this table."""
    return f"{found}.".startswith(f"{name}.")
