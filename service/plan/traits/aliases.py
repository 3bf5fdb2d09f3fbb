"""Aliases of tables and derived tables, which hints use to name the inputs of operators."""

from __future__ import annotations

import itertools

from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.calc import LogicalScan
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.logical.per_row import LogicalStamp
from rowkind.service.plan.logical.subset import LogicalNormalize, LogicalTemporalFilter
from rowkind.service.plan.traits.changelog_modes import base


def source(node: LogicalNode) -> LogicalNode:
    """Return the scan or operator that produces a node's rows.

    Normalize nodes, temporal filters and stamps are skipped, because they pass on the rows of their inputs.
    """
    while isinstance(node := base(node), LogicalNormalize | LogicalTemporalFilter | LogicalStamp):
        node = node.input.input
    return node


def alias(node: LogicalNode) -> str:
    """Return an input's aliases, separated by dots: those of the enclosing derived tables, then the table's own.

    If the input is the output of an operator, only the aliases of the enclosing derived tables are returned; without
    enclosing derived tables, the result is an empty string.
    """
    below = source(node)
    if isinstance(below, LogicalScan):
        return below.path.lower()
    paths = [name.split(".")[:-1] for name in columns(node)]
    shared = itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
    return ".".join(parts[0] for parts in shared).lower()


def means(name: str, found: str) -> bool:
    """Whether a hint for `name` refers to the input with the aliases `found`, or to an enclosing derived table."""
    return f"{found}.".startswith(f"{name}.")
