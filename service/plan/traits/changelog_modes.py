"""Changelog modes: the kinds of changes that each node emits.

The modes are append {+I}, retract {+I, -U, +U, -D}, and upsert {+I, +U, -D} on a key. Only tables can have mode
upsert: every operator emits old rows, and a sink drops the old rows that it does not need.
"""

from __future__ import annotations

from rowkind.operators.changelog import ChangelogMode
from rowkind.service.plan.logical.calc import LogicalExpand, LogicalFilter, LogicalProject, LogicalScan
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.logical.subset import LogicalTemporalFilter
from rowkind.service.plan.tree import inputs, walk


def produced(node: LogicalNode) -> ChangelogMode:
    """Return the changelog mode of a node's output."""
    return node.mode(*map(produced, inputs(node)))


def updating(node: LogicalNode) -> LogicalNode | None:
    """Return the lowest node that causes updates or deletes in the result; None if there is no such node."""
    if produced(node) == "append":
        return None
    return next(each for each in walk(node) if produced(each) != "append" and not _is_made_final(node, each))


def _is_made_final(node: LogicalNode, below: LogicalNode) -> bool:
    """Whether a temporal filter between `below` and `node` makes the rows of `below` final."""
    finals = (each for each in walk(node) if isinstance(each, LogicalTemporalFilter) and each.final)
    return any(below is part for each in finals for part in walk(each))


def base(node: LogicalNode) -> LogicalNode:
    """Return the scan or operator below a node's filters, projections and expansions."""
    while isinstance(node, LogicalFilter | LogicalProject | LogicalExpand):
        node = node.input
    return node


def bare_scan(node: LogicalNode) -> LogicalScan | None:
    """Return the scan below a node's filters and projections; None if the node below them is not a scan."""
    while isinstance(node, LogicalFilter | LogicalProject):
        node = node.input
    return node if isinstance(node, LogicalScan) else None
