"""The columns of logical nodes with their types, including whether each column may be NULL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from rowkind.avro.schema import Field, Type
from rowkind.service.physical.calc import ARRIVAL, ROW_DIGEST
from rowkind.service.physical.memoized import memoized
from rowkind.service.plan.logical.binary import LogicalJoin, LogicalLookup
from rowkind.service.plan.logical.calc import (
    LogicalExpand,
    LogicalFilter,
    LogicalProject,
    LogicalScan,
    LogicalUnion,
    LogicalWindow,
)
from rowkind.service.plan.logical.node import LogicalCalc, LogicalInput, LogicalNode, LogicalUnary
from rowkind.service.plan.scalar.scalars import Columns, resolved, type_of
from rowkind.service.plan.scalar.types import BIGINT, BINARY, BOOLEAN, INT, STRING, with_null
from rowkind.service.plan.traits.null_rejection import rejects


@memoized
def columns(node: LogicalNode) -> dict[str, Type]:
    """Return the columns that a node emits, with their types."""
    match node:
        case LogicalScan():
            found = {node.name(column): node.source.declared.type(column) for column in node.source.declared.names}
            found |= {node.name(ROW_DIGEST): BINARY} if node.digested else {}
            return found | ({node.name(ARRIVAL): BIGINT} if node.numbered else {})
        case LogicalCalc():
            return _above(node, columns(node.input), passed=not _replaces(node.input))
        case LogicalUnary():
            return node.emits(_without_null(kept(node.input), node.conditions))
        case LogicalJoin():
            return _joined(node)
        case LogicalLookup():
            return _looked_up(node)
        case LogicalUnion():
            return _united([columns(each) for each in node.inputs])
    raise AssertionError(f"{type(node).__name__} is not a known logical node")


def _above(node: LogicalCalc, below: dict[str, Type], *, passed: bool) -> dict[str, Type]:
    """Return a node's columns, given its input's columns `below`. If `passed` is set, all rows satisfy the filters."""
    match node:
        case LogicalFilter():
            return _without_null(below, node.conjuncts) if passed else below
        case LogicalProject():
            return _computed(node, below, _conditions(node.input) if passed else ())
        case LogicalExpand():
            return below | _made(node)
        case LogicalWindow():
            return below | {node.number: INT}
    raise AssertionError(f"{type(node).__name__} is not a known logical node")


def _united(every: Sequence[dict[str, Type]]) -> dict[str, Type]:
    return {
        name: type_.as_nullable() if any(each[name].nullable for each in every) else type_
        for first in every[:1]
        for name, type_ in first.items()
    }


def kept(side: LogicalInput) -> dict[str, Type]:
    """Return the columns of the rows that an operator stores for one of its inputs.

    Stored rows satisfy all filters below the operator. `columns` cannot assume the same for an upsert scan, because a
    delete may represent a row that no longer satisfies them.
    """
    return _passed(side.input)


@memoized
def _passed(node: LogicalNode) -> dict[str, Type]:
    if isinstance(node, LogicalFilter | LogicalProject | LogicalExpand):
        return _above(node, _passed(node.input), passed=True)
    return columns(node)


def parts_of(type_: Type, *, inline: bool) -> tuple[Field, ...]:
    """Return the parts of an element of an array or map as fields, with the names that Spark uses."""
    element = type_.element
    if type_.kind == "map":
        return Field("key", STRING), Field("value", element)
    if not inline:
        return (Field("col", element),)
    missing = element.nullable
    return tuple(replace(field, type=with_null(field.type, missing or field.type.nullable)) for field in element.fields)


def _made(node: LogicalExpand) -> dict[str, Type]:
    array = type_of(node.array, by_name(columns(node.input)))
    parts = parts_of(array, inline=node.inline)
    made = {node.place: INT} | {name: parts[part].type for name, part in node.elements.items()}
    return {name: type_.as_nullable() for name, type_ in made.items()} if node.outer else made


def _replaces(node: LogicalNode) -> bool:
    while isinstance(node, LogicalFilter | LogicalProject | LogicalExpand):
        node = node.input
    return isinstance(node, LogicalScan) and node.source.replaces


def _without_null(types: dict[str, Type], conditions: Iterable[exp.Expr]) -> dict[str, Type]:
    """Return the columns of rows that satisfy all conditions. A column is NOT NULL if a condition excludes NULL."""
    conditions = tuple(conditions)
    return {
        name: type_.required if type_.nullable and any(rejects(each, {name}) for each in conditions) else type_
        for name, type_ in types.items()
    }


def _conditions(node: LogicalNode) -> tuple[exp.Expr, ...]:
    return node.conjuncts if isinstance(node, LogicalFilter) else ()


def _computed(node: LogicalProject, below: dict[str, Type], conditions: Iterable[exp.Expr]) -> dict[str, Type]:
    """Return a projection's columns. `conditions` are filters on its outputs, rewritten to read its input."""
    named = by_name(below)
    found = {name: type_of(output, named) for name, output in node.outputs.items()}
    return {
        name: type_.required
        if type_.nullable and any(_rejects_null(each, node.outputs[name].unnest()) for each in conditions)
        else type_
        for name, type_ in found.items()
    }


def _rejects_null(condition: exp.Expr, value: exp.Expr) -> bool:
    """Return whether a condition is never true for a row in which the expression `value` is NULL."""
    if isinstance(value, exp.Column):
        return False
    told = condition.transform(lambda each: resolved("#") if each.unnest() == value else each)
    return rejects(told, {"#"})


def _joined(node: LogicalJoin) -> dict[str, Type]:
    left, right = kept(node.left), kept(node.right)
    if node.kind in ("inner", "semi"):
        equal = [exp.EQ(this=key.left, expression=key.right) for key in node.keys if not key.null_safe]
        left, right = (_without_null(types, [*equal, *node.condition]) for types in (left, right))
    if node.answer is not None:
        return left | {node.answer: BOOLEAN.as_nullable() if node.kind == "in" else BOOLEAN}
    if node.filters_left:
        return left
    if node.pads_right:
        left = {name: type_.as_nullable() for name, type_ in left.items()}
    if node.pads_left:
        right = {name: type_.as_nullable() for name, type_ in right.items()}
    return left | right


def _looked_up(node: LogicalLookup) -> dict[str, Type]:
    left, right = kept(node.left), kept(node.right)
    if node.pads:
        return left | {name: type_.as_nullable() for name, type_ in right.items()}
    equal = [exp.EQ(this=key.left, expression=key.right) for key in node.keys if not key.null_safe]
    return _without_null(left, equal) | _without_null(right, equal)


def by_name(types: Mapping[str, Type]) -> Columns:
    """Return the columns in the form that `scalars` expects, keyed by their names in the plan."""
    return {name: (name, type_) for name, type_ in types.items()}
