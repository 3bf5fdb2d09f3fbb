"""Partitioning: which of a node's columns determine each row's shard.

An operator emits a row in the shard in which it has processed the row, which is the shard of the row's key. If the
downstream operator partitions rows by the same columns, rows are not shuffled, and the two operators run in one stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.service.physical.calc import is_internal
from rowkind.service.physical.memoized import memoized
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.binary import LogicalJoin, LogicalLookup
from rowkind.service.plan.logical.calc import LogicalProject, LogicalScan, LogicalUnion
from rowkind.service.plan.logical.node import LogicalBinary, LogicalCalc, LogicalInput, LogicalNode, LogicalUnary
from rowkind.service.plan.logical.per_row import LogicalStamp
from rowkind.service.plan.logical.subset import LogicalNormalize, LogicalRank, LogicalTemporalFilter
from rowkind.service.plan.scalar import types
from rowkind.service.plan.traits.fixed_columns import fixed_columns, told
from rowkind.service.plan.traits.unique_keys import key_columns
from rowkind.service.plan.tree import sides


@dataclass(frozen=True)
class KeyPart:
    """One part of a key: the columns that still contain its value, if any, and the type as which it is hashed."""

    columns: frozenset[str]
    type: Type

    def decides(self, expression: exp.Expr, type_: Type) -> bool:
        """Whether an expression that is hashed as `type_` always has the same hash as this part of the key."""
        bare = expression.unnest()
        if not (isinstance(bare, exp.Column) and bare.name in self.columns):
            return False
        # Equal numbers of the same type family have equal bytes, except decimals of different scales.
        family = types.family(self.type)
        same = self.type.required == type_.required
        return same or (family is not None and family != "decimal" and family == types.family(type_))


@memoized
def partitioning(node: LogicalNode) -> tuple[KeyPart, ...] | None:
    """Return the parts of the key that determines each row's shard.

    An empty tuple means that there is only one shard; None means that there is no key.
    """
    match node:
        case LogicalScan() | LogicalUnion():
            return None
        case LogicalProject():
            parts = partitioning(node.input)
            return None if parts is None else tuple(_renamed(part, node) for part in parts)
        case LogicalCalc():
            return partitioning(node.input)
        case LogicalBinary() | LogicalRank() if any(side.spread > 1 for side in sides(node)):
            # Rows with the same key are spread over several shards.
            return None
        case LogicalJoin() | LogicalLookup():
            return tuple(KeyPart(_holders(node, number), key.type) for number, key in enumerate(node.keys))
        case LogicalTemporalFilter() | LogicalStamp() if _stays(node):
            return partitioning(node.input.input)
        case LogicalUnary():
            below = columns(node.input.input)
            return tuple(KeyPart(frozenset([name]), below[name]) for name in shard_key(node))
    raise AssertionError(f"{type(node).__name__} has no known shape")


def _stays(node: LogicalTemporalFilter | LogicalStamp) -> bool:
    """Whether the node leaves rows in the shard in which it receives them."""
    return node.partition is None and partitioning(node.input.input) is not None


def shard_key(node: LogicalUnary) -> tuple[str, ...]:
    """Return the input columns whose values determine the shard in which an operator processes a row.

    If the operator requires no particular columns, rows that come from another operator remain in their shards. These
    shards are identified by the columns of that operator's key that the rows still contain. All other rows are
    partitioned by every column that can be part of a key.
    """
    if node.shards_by is not None:
        return node.shards_by
    below = columns(node.input.input)
    if isinstance(node, LogicalNormalize):
        return tuple(name for name in node.input.carried if below[name].orderable and not is_internal(name))
    if (parts := partitioning(node.input.input)) is not None:
        return tuple(min(part.columns) for part in parts if part.columns)
    return tuple(name for name, type_ in below.items() if type_.orderable and not is_internal(name))


def already_partitioned(node: LogicalNode, key: Sequence[tuple[exp.Expr, Type]]) -> bool:
    """Whether all rows with the same key are already in the shard that the key's hash selects."""
    parts = partitioning(node)
    if parts is None or len(parts) != len(key):
        return False
    return all(part.decides(*wanted) for part, wanted in zip(parts, key, strict=True))


def together(node: LogicalNode, key: AbstractSet[str]) -> bool:
    """Whether all rows that ever have the same values in the columns `key` are in the same shard.

    This is true if `key` contains or fixes each part of the key by which the last operator partitions its rows. Then
    one task sees all changes with the same `key`, in order.
    """
    if isinstance(node, LogicalCalc):
        return together(node.input, told(node, key) if isinstance(node, LogicalProject) else key)
    parts, fixed = partitioning(node), fixed_columns(node, key)
    return parts is not None and all(part.columns & fixed for part in parts)


def _holders(join: LogicalJoin | LogicalLookup, number: int) -> frozenset[str]:
    """Return the output columns that contain the part `number` of a join's key in every row."""
    key = join.keys[number]
    kind = join.kind if isinstance(join, LogicalJoin) else "left" if join.pads else "inner"
    found = set[str]()
    for side, expression, kinds in (
        (join.left, key.left, ("inner", "left", "semi", "anti", "not in", "mark", "in")),
        (join.right, key.right, ("inner", "right")),
    ):
        bare = expression.unnest()
        if kind not in kinds or not isinstance(bare, exp.Column) or bare.name not in key_columns(join, side):
            continue
        # Rows whose key is NULL are either dropped or spread over shards by their content.
        if kind in ("inner", "semi") or key.null_safe or not columns(side.input)[bare.name].nullable:
            found |= {bare.name, *_holders_below(side, number, bare.name)}
    return frozenset(found)


def _holders_below(side: LogicalInput, number: int, name: str) -> frozenset[str]:
    """Return the columns that contain part `number` of the key by which the input is already partitioned.

    Returns an empty set unless the column `name` is one of them.
    """
    below = partitioning(side.input) or ()
    held = below[number].columns if number < len(below) else frozenset[str]()
    return held if name in held else frozenset()


def _renamed(part: KeyPart, project: LogicalProject) -> KeyPart:
    names = {
        name
        for name, output in project.outputs.items()
        if isinstance(bare := output.unnest(), exp.Column) and bare.name in part.columns
    }
    return replace(part, columns=frozenset(names))
