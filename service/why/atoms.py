"""Conditions `expression IN (values)` on the rows of a plan's step, and how they reach the step's inputs.

    sink   payment_id IN (7)
    join_1 o.order_id = p.order_id
      left    no condition: the payment's order is found when the right side has been read
      right   p.payment_id IN (7)

A condition on an input never removes a row that a wanted row derives from. Values are compared by their comparable
bytes, which are equal if SQL considers the values equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro.order import comparable
from rowkind.avro.schema import Record, Type
from rowkind.avro.to_json import json_values
from rowkind.operators.columns.changes import Mask, Rows
from rowkind.service.execute.values import Values
from rowkind.service.physical.calc import Calc, is_internal
from rowkind.service.physical.expression import Expression
from rowkind.service.physical.node import (
    PhysicalBinary,
    PhysicalNode,
    PhysicalOperator,
    PhysicalScan,
    PhysicalUnion,
)
from rowkind.service.physical.operators import (
    PhysicalAggregate,
    PhysicalJoin,
    PhysicalLookup,
    PhysicalMatch,
    PhysicalOver,
    PhysicalRank,
    PhysicalSession,
)
from rowkind.service.physical.tree import without_unions
from rowkind.service.plan.explain.display_names import display_text

_MOST_SAID = 3
"""The number of values that the text of a condition lists."""


@dataclass(frozen=True)
class Atom:
    """A condition: the expression's value is among `values`, which are comparable bytes without duplicates.

    `said` is the second half of the condition for people, such as `= 7`. `null`: whether NULL is among the values.
    """

    expression: Expression
    values: pa.BinaryArray
    said: str
    null: bool = False

    @classmethod
    def of(cls, expression: Expression, columns: Sequence[pa.Array]) -> Atom:
        """Return the condition that the expression's value is in one of these columns."""
        values = pa.concat_arrays([comparable(each) for each in columns]).unique()
        first: list[Any] = []
        for column in columns:
            first += json_values(expression.type, column.unique()[: _MOST_SAID + 1])
        null = any(each.null_count for each in columns)
        texts = list(dict.fromkeys(map(_literal, first)))
        if len(values) == 1 and len(texts) == 1:
            return cls(expression, values, "IS NULL" if null else f"= {texts[0]}", null)
        more = ", …" if len(values) > _MOST_SAID else ""
        return cls(expression, values, f"IN ({', '.join(texts[:_MOST_SAID])}{more})", null)

    @property
    def text(self) -> str:
        """The condition for people."""
        return f"{display_text(self.expression.text)} {self.said}"


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def said(atoms: Atoms) -> str:
    """Return conditions as text."""
    return " AND ".join(dict.fromkeys(each.text for each in atoms)) or "any value"


Atoms = tuple[Atom, ...]
"""Conditions that all apply. An empty tuple means no condition."""

FeedingStep = PhysicalScan | PhysicalOperator
"""A step that feeds another step. Unions are replaced by their inputs."""


def column_of(name: str, type_: Type) -> Expression:
    """Return the expression for a bare column."""
    return Expression(name, type_, (name,), name, name)


def matching(atoms: Sequence[Atom], record: Record, rows: Rows) -> Mask:
    """Return a mask of the rows that satisfy all conditions. A condition on columns that `record` lacks is ignored."""
    found = np.ones(len(rows), np.bool_)
    readable = [each for each in atoms if set(each.expression.columns) <= set(record.names)]
    if not readable or not len(rows):
        return found
    values = Values(record, [each.expression for each in readable], rows, nulls=True)
    for each in readable:
        found &= _is_in(values.of(each.expression), each.values)
    return found


def _is_in(column: pa.Array, values: pa.BinaryArray) -> Mask:
    mask: Mask = pc.is_in(comparable(column), value_set=values).to_numpy(zero_copy_only=False)
    return mask


def before_calc(calc: Calc, atoms: Atoms) -> Atoms:
    """Return the conditions on a step's own rows that follow from conditions on the columns that its calc emits."""
    columns = dict(zip(calc.output.names, calc.columns, strict=True))
    made = []
    for each in atoms:
        source = columns.get(each.expression.column or "")
        if source is not None and source.columns and not any(map(is_internal, source.columns)):
            made.append(replace(each, expression=source))
    for expand in reversed(calc.expands):
        carried = dict(zip(expand.output.names, expand.carried, strict=False))
        made = [replace(each, expression=carried[_name(each)]) for each in made if _name(each) in carried]
    return tuple(made)


def _name(atom: Atom) -> str:
    return atom.expression.column or ""


def to_inputs(node: PhysicalOperator, atoms: Atoms, *, reading: bool) -> Iterator[tuple[FeedingStep, Atoms]]:
    """Yield each input of a step, with unions replaced by their inputs, and the conditions on the input's own rows.

    `atoms` are conditions on the step's own rows. With `reading`, a condition must also keep the rows that the step
    compares a wanted row with, such as the other rows of a rank's partition.
    """
    padded = _padded(node)
    sides = [
        (side, tuple(each for each in _of_side(node, side, atoms, reading=reading) if not (each.null and at in padded)))
        for at, side in enumerate(node.sides)
    ]
    for at, (side, own) in enumerate(sides):
        other = sides[1 - at] if isinstance(node, PhysicalBinary) else None
        for each in without_unions(side):
            more = () if other is None else implied(other[0], before_calc(other[0].calc, other[1]), each)
            yield each, (*before_calc(each.calc, own), *more)
    for each in without_unions(*(node.facts if isinstance(node, PhysicalJoin) else ())):
        yield each, ()


def _padded(node: PhysicalOperator) -> frozenset[int]:
    """Return the sides whose columns are NULL in null-padded rows, which come from no row of that side."""
    if isinstance(node, PhysicalLookup):
        return frozenset({1} if node.pads else ())
    kind = node.kind if isinstance(node, PhysicalJoin) else ""
    return frozenset({"left": (1,), "right": (0,), "full": (0, 1)}.get(kind, ()))


def _of_side(node: PhysicalOperator, side: PhysicalNode, atoms: Atoms, *, reading: bool) -> Atoms:
    """Return the conditions on the rows that a side's calc emits."""
    match node:
        case PhysicalAggregate():
            groups = set(node.aggregation.group)
            return tuple(each for each in atoms if _name(each) in groups)
        case PhysicalRank() | PhysicalOver() | PhysicalSession() | PhysicalMatch() if reading:
            return tuple(each for each in atoms if _name(each) in side.calc.output.names and _is_key(side, each))
        case _:
            return tuple(each for each in atoms if _name(each) in side.calc.output.names)


def _is_key(node: PhysicalNode, atom: Atom) -> bool:
    """Return whether a condition on a column that the node's calc emits is on a part of the consumer's key."""
    source = dict(zip(node.calc.output.names, node.calc.columns, strict=True))[_name(atom)]
    return any(_same(part, source) for part in node.calc.key.parts)


def _same(one: Expression, other: Expression) -> bool:
    return one == other or (one.column is not None and one.column == other.column)


def implied(node: PhysicalNode, own: Atoms, other: FeedingStep) -> Atoms:
    """Return the conditions on the rows of a join's `other` side that follow from conditions on the rows of `node`.

    Both are conditions before the calc. Rows match only if their keys are equal.
    """
    if isinstance(node, PhysicalUnion):
        return ()
    return tuple(
        replace(each, expression=there)
        for here, there in zip(node.calc.key.parts, other.calc.key.parts, strict=True)
        for each in own
        if _same(here, each.expression) and there.columns
    )
