"""Helper functions for the translation of all kinds of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from sqlglot import exp

from rowkind.avro.schema import Record, Type
from rowkind.service.physical.aggregation import OrderColumn
from rowkind.service.physical.calc import Calc, OnError
from rowkind.service.physical.keys import Salt
from rowkind.service.physical.node import PhysicalInput, PhysicalNode, Traits
from rowkind.service.plan.calcs import Edge
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.logical.subset import LogicalRank
from rowkind.service.plan.scalar.scalars import Columns, resolved, show
from rowkind.service.plan.traits.changelog_modes import bare_scan, produced
from rowkind.service.plan.traits.unique_keys import in_order, unique_keys
from rowkind.service.plan.tree import sides


class Nodes(Protocol):
    """The methods of the plan walk that the translation of a node uses."""

    on_error: OnError

    def node(self, top: LogicalNode, edge: Edge, record: str = "Row") -> PhysicalNode:
        """Translate `top` and everything below it to a physical node whose calc meets the requirements of `edge`."""
        ...

    def input(self, side: LogicalInput, edge: Edge) -> PhysicalNode:
        """Return the node that feeds an operator. The node runs in the operator's stage if no shuffle is needed."""
        ...

    def calc(self, top: LogicalNode, edge: Edge, input_: Record, below: Columns, record: str) -> Calc:
        """Return the calc of a node whose columns are `below`."""
        ...

    def name(self, word: str, node: LogicalNode) -> str:
        """Return a unique name for a node. The name begins with `word`."""
        ...


def named(record: Record) -> Columns:
    """Return a record's columns, keyed by their names in the plan."""
    return {each.name: (each.name, each.type) for each in record.fields}


def carried(side: LogicalInput) -> Mapping[str, Type]:
    """Return the input columns that the operator carries, with their types."""
    below = columns(side.input)
    return {name: below[name] for name in side.carried}


def input_state(side: LogicalInput) -> PhysicalInput:
    """Return how the plan stores the rows of an input."""
    scan = bare_scan(side.input)
    if scan is None:
        return PhysicalInput(side.layout, side.ttl_ms, by_seq=False, closing=side.closing, remade=side.remade)
    source = scan.source
    return PhysicalInput(
        side.layout,
        side.ttl_ms,
        by_seq=source.ordered,
        exact=source.replaces and source.exact,
        closing=side.closing,
    )


def salt(side: LogicalInput) -> Salt | None:
    """Return how rows with the same key are spread over shards, or None if they are in one shard."""
    if side.copies > 1:
        return Salt(side.copies, "copies")
    if side.spread > 1:
        return Salt(side.spread, "by sub-key" if side.layout == "unique key" else "by row")
    return None


def salts(node: LogicalJoin | LogicalRank) -> tuple[str, ...]:
    """Return the additional part of a node's partition key if rows with the same key are spread over several shards."""
    return ("salt",) if any(side.spread > 1 for side in sides(node)) else ()


def refreshes(side: LogicalInput, edge: Edge) -> bool:
    """Return whether an operator needs TTL refreshes from an input. `edge` leads to the operator's consumer."""
    return side.ttl_ms is not None or edge.refreshes


def traits(node: LogicalNode, partition_key: tuple[str, ...], needs_before: bool) -> Traits:
    """Return the traits of the rows that a node emits."""
    keys = in_order(unique_keys(node), node)
    return Traits(produced(node), keys, keys[0] if keys else (), partition_key, needs_before)


def shown(expressions: Iterable[exp.Expr]) -> tuple[str, ...]:
    """Return expressions as the user wrote them."""
    return tuple(map(show, expressions))


def ordered(order: OrderColumn) -> str:
    """Return an ORDER BY column as the user wrote it."""
    column = "arrival" if order.column is None else show(resolved(order.column))
    nulls = (
        ""
        if order.column is None or order.nulls_first != order.descending
        else (" NULLS FIRST" if order.nulls_first else " NULLS LAST")
    )
    return f"{column}{' DESC' if order.descending else ''}{nulls}"
