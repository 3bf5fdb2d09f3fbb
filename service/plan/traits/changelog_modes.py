"""Changelog modes: what kinds of changes each node emits.

append {+I}, retract {+I, -U, +U, -D}, or upsert {+I, +U, -D} on a key, which only a table can bring: what an operator
emits is exact, and a sink drops the old rows that it has no use for.
"""

from __future__ import annotations

from rowkind.operators.changelog import ChangelogMode
from rowkind.service.plan.logical.calc import LogicalExpand, LogicalFilter, LogicalProject, LogicalScan
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.logical.subset import LogicalTemporalFilter
from rowkind.service.plan.tree import inputs, walk


def produced(node: LogicalNode) -> ChangelogMode:
    """What a node emits."""
    return node.mode(*map(produced, inputs(node)))


def updating(node: LogicalNode) -> LogicalNode | None:
    """The lowest node that makes the result update or delete rows, None where nothing does."""
    if produced(node) == "append":
        return None
    return next(each for each in walk(node) if produced(each) != "append" and not _is_made_final(node, each))


def _is_made_final(node: LogicalNode, below: LogicalNode) -> bool:
    """Whether what is below comes out of a temporal filter in rows that do not change."""
    finals = (each for each in walk(node) if isinstance(each, LogicalTemporalFilter) and each.final)
    return any(below is part for each in finals for part in walk(each))


def base(node: LogicalNode) -> LogicalNode:
    """The scan or the operator below all that is part of its calc."""
    while isinstance(node, LogicalFilter | LogicalProject | LogicalExpand):
        node = node.input
    return node


def bare_scan(node: LogicalNode) -> LogicalScan | None:
    """The table whose rows come as they were sent, but for filters and columns; None where there is more between."""
    while isinstance(node, LogicalFilter | LogicalProject):
        node = node.input
    return node if isinstance(node, LogicalScan) else None
