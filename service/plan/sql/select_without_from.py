"""SELECT without FROM: plans a single row, which is emitted in the first batch.

The row comes from an aggregate without GROUP BY, which has a row even if there is nothing to aggregate. Its input is a
table that the query reads anyway, filtered by FALSE.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.calc import LogicalFilter, LogicalProject, LogicalScan, LogicalUnion
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.sql.context import Queries
from rowkind.service.plan.tree import bottom_up, walk


def one_row(at: exp.Expr) -> LogicalNode:
    """Return a node with one row and no columns. Its input is missing until `over_a_table` adds it."""
    return LogicalAggregate(LogicalInput(LogicalUnion((), at)), (), {}, is_global=True, at=at)


def over_a_table(root: LogicalProject, queries: Queries) -> LogicalProject:
    """Add a table as input to each node from `one_row` in a whole query, and return the query.

    Raises Refusal for a query that reads no table.
    """
    scans = [node for node in walk(root) if isinstance(node, LogicalScan)]

    def fed(node: LogicalNode) -> LogicalNode:
        if not isinstance(node, LogicalUnion) or node.inputs:
            return node
        if not scans:
            raise Refusal("the query reads no table: its result would never change, so it needs no job", node.at)
        scan = replace(scans[0], path=queries.invent("", "row").rstrip("."))
        return LogicalProject(LogicalFilter(scan, (exp.Boolean(this=False),)), {})

    changed = bottom_up(root, fed)
    assert isinstance(changed, LogicalProject), "the root is still a projection"
    return changed
