"""Changelog modes: what kinds of changes each node emits.

append {+I}, retract {+I, -U, +U, -D}, or upsert {+I, +U, -D} on a key, which only a table can bring: what an operator
emits is exact, and a sink drops the old rows that it has no use for.
"""

from __future__ import annotations

from rowkind.operators.changelog import ChangelogMode
from rowkind.service.plan.logical import (
    LogicalAggregate,
    LogicalExpand,
    LogicalFilter,
    LogicalJoin,
    LogicalLookup,
    LogicalMatch,
    LogicalNode,
    LogicalNormalize,
    LogicalOver,
    LogicalProject,
    LogicalRank,
    LogicalScan,
    LogicalSession,
    LogicalStamp,
    LogicalTemporalFilter,
    LogicalUnion,
    LogicalWindow,
)
from rowkind.service.plan.tree import walk


def produced(node: LogicalNode) -> ChangelogMode:
    """What a node emits."""
    match node:
        case LogicalScan():
            return node.source.mode
        case LogicalFilter() | LogicalProject() | LogicalExpand() | LogicalWindow():
            return produced(node.input)
        case LogicalJoin():
            only_added = node.kind in ("inner", "semi")
            return (
                "append" if only_added and all(produced(side.input) == "append" for side in node.sides) else "retract"
            )
        case LogicalLookup():
            # What is there when a row comes is not revised; what is nearest in time may be.
            return "append" if node.match is None and produced(node.left.input) == "append" else "retract"
        case LogicalAggregate():
            only_added = not node.calls and not node.is_global
            return "append" if only_added and produced(node.input.input) == "append" else "retract"
        case LogicalRank():
            return "append" if node.in_time else "retract"
        case LogicalOver():
            return "append" if node.ahead == 0 else "retract"
        case LogicalSession() | LogicalNormalize():
            return "retract"
        case LogicalMatch() | LogicalStamp():
            return "append"
        case LogicalTemporalFilter():
            stays = node.final or (node.ends is None and produced(node.input.input) == "append")
            return "append" if stays else "retract"
        case LogicalUnion():
            return "append" if all(produced(each) == "append" for each in node.inputs) else "retract"


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
