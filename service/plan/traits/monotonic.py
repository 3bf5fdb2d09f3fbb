"""Monotonic columns: which columns of a row only grow, or only shrink, when the row is replaced.

Over an append input, a group's COUNT and MAX only grow, its MIN only shrinks, and no group ever disappears. The same is
true of MAX over a column that only grows when a row is replaced, and of MIN over a column that only shrinks, if the
replacement remains in the row's group. A rank ordered by a monotonic column need not store rows that have dropped out
of its range, because a dropped row can return only with an update that improves it. An expression over constant columns
has the same value for a row and its replacement: a filter passes both or neither, and both are in the same windows.
(Flink infers the same monotonicity for its UpdateFastStrategy.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from rowkind.service.physical.aggregation import OrderColumn
from rowkind.service.plan.calls import LogicalAggregateCall
from rowkind.service.plan.logical.calc import LogicalExpand, LogicalFilter, LogicalProject
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.scalar.conjuncts import reads
from rowkind.service.plan.traits.changelog_modes import produced
from rowkind.service.python.function import PythonFunction

Direction = Literal["constant", "increasing", "decreasing"]


@dataclass(frozen=True)
class Monotonic:
    """Facts about rows that are replaced by `key` and never deleted.

    `key` is None if the rows do not contain all of its columns. `directions` contains the directions of the columns
    that are known to be monotonic. A column in `from_null` may be NULL at first, but is never NULL again once it has a
    value.
    """

    key: tuple[str, ...] | None
    directions: Mapping[str, Direction]
    from_null: frozenset[str]

    def improves(self, order: OrderColumn) -> bool:
        """Whether a row's replacement is never further back in the order by this column than the row."""
        direction = self.directions.get(order.column or "")
        if direction == "constant":
            return True
        if order.column in self.from_null and order.nulls_first:
            return False
        return direction == ("increasing" if order.descending else "decreasing")


def monotonic(node: LogicalNode) -> Monotonic | None:
    """Return what is known about a node's rows; None if rows may be deleted or do not contain their key."""
    known = progress(node)
    return known if known is not None and known.key is not None else None


def progress(node: LogicalNode) -> Monotonic | None:
    """Return what is known about a node's rows, which need not contain their key; None if rows may be deleted."""
    match node:
        case LogicalProject():
            below = progress(node.input)
            return _renamed(node, below) if below is not None else None
        case LogicalFilter():
            below = progress(node.input)
            return below if below is not None and _stay(below, *node.conjuncts) else None
        case LogicalExpand():
            below = progress(node.input)
            if below is None or not _stay(below, node.array, *node.condition):
                return None
            made: dict[str, Direction] = dict.fromkeys([*node.elements, node.place], "constant")
            return Monotonic(None, {**below.directions, **made}, below.from_null)
        case LogicalAggregate() if node.calls:
            return _of_groups(node)
    return None


def grows(call: LogicalAggregateCall, known: Monotonic) -> bool:
    """Whether a MIN or MAX changes only to a better value, over rows that never leave their group."""
    if call.filter is not None and known.directions.get(call.filter) != "constant":
        return False
    if isinstance(call.function, PythonFunction):
        return False
    wanted = {"max": "increasing", "min": "decreasing", "any_value": "decreasing"}.get(call.function)
    return wanted is not None and known.directions.get(call.arguments[0]) in (wanted, "constant")


def stays_in_groups(node: LogicalAggregate, known: Monotonic) -> bool:
    """Whether a row's replacement is always in the same group as the row."""
    return all(known.directions.get(name) == "constant" for name in node.group)


def _of_groups(node: LogicalAggregate) -> Monotonic | None:
    below = None if produced(node.input.input) == "append" else progress(node.input.input)
    if produced(node.input.input) != "append" and (below is None or not stays_in_groups(node, below)):
        return None
    growing: dict[str, Direction] = dict.fromkeys(node.group, "constant")
    for name, call in node.calls.items():
        if call.stage in ("first", "between") or (below is not None and not grows(call, below)):
            continue
        if call.function in ("count", "max"):
            growing[name] = "increasing"
        elif call.function == "min":
            growing[name] = "decreasing"
    nullable = frozenset(name for name, call in node.calls.items() if call.type.nullable)
    return Monotonic(node.group, growing, nullable)


def _stay(known: Monotonic, *expressions: exp.Expr) -> bool:
    """Whether the expressions have the same values for a row and its replacement."""
    return all(known.directions.get(name) == "constant" for each in expressions for name in reads(each))


def _renamed(node: LogicalProject, below: Monotonic) -> Monotonic:
    names: dict[str, str] = {}
    for name, output in node.outputs.items():
        if isinstance(bare := output.unnest(), exp.Column):
            names.setdefault(bare.name, name)
    key = below.key if below.key is not None and names.keys() >= set(below.key) else None
    directions = {names[column]: direction for column, direction in below.directions.items() if column in names}
    from_null = frozenset(names[column] for column in below.from_null if column in names)
    return Monotonic(None if key is None else tuple(names[column] for column in key), directions, from_null)
