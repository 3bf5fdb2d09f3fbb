"""The columns of a query whose values batch SQL cannot know, although it knows the rows.

    SELECT id, PROCTIME() AS seen FROM clicks        seen: PROCTIME() is the time at which a row was processed

An unknown value makes each value that is computed from it unknown. If the set of the rows depends on an unknown value,
as below a filter or a GROUP BY, the query has no exact form in batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.binary import LogicalJoin, LogicalLookup
from rowkind.service.plan.logical.calc import (
    LogicalExpand,
    LogicalFilter,
    LogicalProject,
    LogicalScan,
    LogicalWindow,
)
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.logical.per_row import LogicalOver, LogicalSession, LogicalStamp
from rowkind.service.plan.scalar.conjuncts import reads
from rowkind.service.plan.tree import inputs
from rowkind.service.verify.aggregates import aggregate
from rowkind.service.verify.errors import NotComparedError
from rowkind.service.verify.translation import OF_CLOCK, clocked

OF_ARRIVAL = "PROCTIME() is the time at which a row was processed"


@dataclass(frozen=True)
class UnknownColumn:
    """Why the values of a column are unknown, and the part of the SQL that is the cause, if it is known."""

    reason: str
    at: Any = None


Unknown = Mapping[str, UnknownColumn]


def unknown_columns(node: LogicalNode, tables: Mapping[str, Unknown]) -> Unknown:
    """Return the unknown columns of a node. `tables` has those of the job's tables.

    Raises NotComparedError if it is unknown which rows the node has.
    """
    below: dict[str, UnknownColumn] = {}
    for each in inputs(node):
        below |= unknown_columns(each, tables)
    match node:
        case LogicalScan():
            return {node.name(name): why for name, why in tables.get(node.source.table, {}).items()}
        case LogicalProject():
            found = {name: _cause(output, below) for name, output in node.outputs.items()}
            return {name: why for name, why in found.items() if why is not None}
        case LogicalFilter():
            _require(node.conjuncts, below)
        case LogicalExpand():
            _require([node.array, *node.condition], below)
        case LogicalJoin() | LogicalLookup():
            _require([*(side for key in node.keys for side in (key.left, key.right)), *node.condition], below)
            if isinstance(node, LogicalLookup) and node.match is not None:
                _require_columns([node.match.left, node.match.right], below)
        case LogicalAggregate():
            return _of_aggregate(node, below)
        case LogicalStamp():
            return {**below, node.time: UnknownColumn(OF_ARRIVAL, node.at)}
        case LogicalWindow() | LogicalOver():
            ordered = [*node.partition, *(each.column for each in node.order if each.column is not None)]
            causes = [below[name] for name in [*ordered, *getattr(node, "reads", ())] if name in below]
            added = [node.number] if isinstance(node, LogicalWindow) else list(node.calls)
            return {**below, **(dict.fromkeys(added, causes[0]) if causes else {})}
        case LogicalSession():
            _require_columns([*node.partition, node.time], below)
    return {name: why for name, why in below.items() if name in columns(node)}


def _of_aggregate(node: LogicalAggregate, below: Unknown) -> Unknown:
    _require_columns(node.group, below)
    types, found = columns(node.input.input), {}
    for name, call in node.calls.items():
        causes = [below[read] for read in call.reads if read in below]
        if causes:
            found[name] = causes[0]
            continue
        try:
            aggregate(call, types, certain=False, seed=0)
        except NotComparedError as error:
            found[name] = UnknownColumn(error.reason, error.at)
    return found


def _cause(expression: Any, below: Unknown) -> UnknownColumn | None:
    """Return why the value of an expression is unknown, or None."""
    if clocked(expression):
        return UnknownColumn(OF_CLOCK, expression)
    return next((below[name] for name in sorted(reads(expression)) if name in below), None)


def _require(expressions: Iterable[Any], below: Unknown) -> None:
    for each in expressions:
        if (why := _cause(each, below)) is not None:
            raise NotComparedError(why.reason, why.at)


def _require_columns(names: Iterable[str], below: Unknown) -> None:
    for each in names:
        if (why := below.get(each)) is not None:
            raise NotComparedError(why.reason, why.at)
