"""Replaces a view of each key's last row with its history, which contains every row that was the last row at some time.

    SELECT currency, rate, since
    FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY currency ORDER BY since DESC) AS n FROM history) WHERE n = 1

At any time, the view contained each key's row with the greatest time up to that time. Flink calls this a versioned
view.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.calc import LogicalFilter, LogicalProject, LogicalWindow
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.scalar.conjuncts import substitute
from rowkind.service.plan.scalar.scalars import resolved


@dataclass(frozen=True)
class History:
    """All rows that a view contained over time, with the view's columns.

    `key` are the PARTITION BY columns. `time` is the time in ORDER BY.
    """

    rows: LogicalProject
    key: frozenset[str]
    time: exp.Expr


def history(view: LogicalNode) -> History | None:
    """Return the history of a view that selects each key's last row by a time, or None for any other view."""
    outputs: Mapping[str, exp.Expr] = {name: resolved(name) for name in columns(view)}
    conditions: list[exp.Expr] = []
    node = view
    while isinstance(node, LogicalProject | LogicalFilter):
        if isinstance(node, LogicalProject):
            outputs = {name: substitute(output, node.outputs) for name, output in outputs.items()}
            conditions = [substitute(each, node.outputs) for each in conditions]
        else:
            conditions += node.conjuncts
        node = node.input
    if not isinstance(node, LogicalWindow) or node.function != "row_number" or len(node.order) != 1:
        return None
    (order,) = node.order
    if order.column is None or not order.descending or not _is_first(conditions, node.number):
        return None
    one = exp.cast(exp.Literal.number(1), exp.DataType.build("INT"))
    rows = LogicalProject(node.input, {name: substitute(each, {node.number: one}) for name, each in outputs.items()})
    names = {each.name: name for name, each in rows.outputs.items() if isinstance(each, exp.Column)}
    if not {*node.partition, order.column} <= names.keys():
        return None
    return History(rows, frozenset(names[each] for each in node.partition), resolved(names[order.column]))


def _is_first(conditions: list[exp.Expr], number: str) -> bool:
    """Return whether the conditions consist of only one, which selects row number 1."""
    if len(conditions) != 1:
        return False
    node = conditions[0].unnest()
    if not isinstance(node, exp.EQ | exp.LTE):
        return False
    column, one = node.this.unnest(), node.expression.unnest()
    return isinstance(column, exp.Column) and column.name == number and one == exp.Literal.number(1)
