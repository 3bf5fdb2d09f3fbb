"""The columns of the sources from which a column of a result comes unchanged."""

from __future__ import annotations

from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.logical.calc import LogicalProject, LogicalScan
from rowkind.service.plan.logical.grouping import LogicalAggregate, LogicalMatch
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.tree import inputs

ColumnOrigin = tuple[str, str]
"""A table of the job, and one of its columns."""


def origins(node: LogicalNode, column: str) -> frozenset[ColumnOrigin]:
    """Return the table columns that have the value of a node's column, in the rows behind it."""
    match node:
        case LogicalScan():
            own = {node.name(name): name for name in node.source.declared.names}
            return frozenset([(node.source.table, own[column])] if column in own else [])
        case LogicalProject():
            output = node.outputs.get(column)
            output = None if output is None else output.unnest()
            plain = output is not None and output.key == "column"
            return origins(node.input, output.name) if output is not None and plain else frozenset()
        case LogicalAggregate() if column not in node.group:
            return frozenset()
        case LogicalMatch() if column not in node.partition:
            return frozenset()
    found = frozenset[ColumnOrigin]()
    for name in {column, *(_equal(node, column) if isinstance(node, LogicalJoin) else ())}:
        for below in inputs(node):
            if name in columns(below):
                found |= origins(below, name)
    return found


def _equal(join: LogicalJoin, column: str) -> set[str]:
    """Return the columns that a join's keys make equal to a column."""
    pairs = [(key.left.unnest().name, key.right.unnest().name) for key in join.keys]
    return {two if one == column else one for one, two in pairs if column in (one, two)} - {""}
