"""Empty nodes: nodes that never emit a row, because one of their filters is FALSE."""

from __future__ import annotations

from sqlglot import exp

from rowkind.service.plan.logical.calc import LogicalFilter, LogicalProject
from rowkind.service.plan.logical.node import LogicalNode


def is_empty(node: LogicalNode) -> bool:
    """Whether one of a node's filters is FALSE, so that no row passes."""
    while isinstance(node, LogicalFilter | LogicalProject):
        if isinstance(node, LogicalFilter) and any(_is_false(each) for each in node.conjuncts):
            return True
        node = node.input
    return False


def _is_false(condition: exp.Expr) -> bool:
    bare = condition.unnest()
    return isinstance(bare, exp.Boolean) and not bare.this
