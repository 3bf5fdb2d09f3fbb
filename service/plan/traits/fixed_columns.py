"""Fixed columns: which columns have the same value in all rows that ever have the same key.

A unique key identifies at most one row at a time, and the next row with that key may differ in every other column.
Fixed columns concern all rows that ever exist, including retracted rows. A column can be fixed for only two reasons: a
row of an append table never changes, and a value that is computed from fixed columns is fixed. The rules:

    scan            an append table's primary key fixes the whole row; any other column fixes only itself
    filter, rank,   the columns that are fixed in the input, because these nodes emit rows of their input
    normalize
    project         the columns that are fixed in the input, and columns computed from them; a window's end fixes its
                    start
    expand          the columns that are fixed in the input, but not the columns of the elements
    inner join      the columns that either side fixes; columns of the other side that are equal to these columns; and
                    columns that the other side fixes by those equal columns
    outer join      the columns that either side fixes; on a null-padded side, only if the key distinguishes its rows
                    from null-padded rows
    semi, anti      the columns that the left side fixes
    aggregate       the group columns that are fixed in the input
    union           none, because the same key may come from two inputs

The producer of an append table promises that its primary key is unique. Two equal rows with the same key do no harm.
Two different rows with the same key may be in different shards. If both rows change the result in the same batch,
either of them may be written last to their key in the sink's topic; if rows are shuffled by that key, the row that
arrived later is written last. If the two rows change the result in different batches, the row of the later batch is
written last. In any case, the retraction of one row may delete the key although the other row still exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.service.plan.columns import columns, kept
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.logical.calc import LogicalProject, LogicalScan, LogicalUnion
from rowkind.service.plan.logical.grouping import LogicalAggregate, LogicalMatch
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.scalar import types
from rowkind.service.plan.scalar.conjuncts import reads
from rowkind.service.plan.traits.column_meanings import moved
from rowkind.service.plan.traits.unique_keys import key_columns
from rowkind.service.plan.tree import first


def fixed_columns(node: LogicalNode, key: AbstractSet[str]) -> frozenset[str]:
    """Return the columns that SQL considers equal in all rows that ever have the same `key`, including `key` itself."""
    return frozenset(key) | _fixed(node, key)


def told(node: LogicalProject, names: AbstractSet[str]) -> frozenset[str]:
    """Return the input columns that a projection's outputs `names` determine, as copies or as ends of windows."""
    outputs = (moved(node.outputs[name]) for name in names & node.outputs.keys())
    return frozenset(output.name for output in outputs if isinstance(output, exp.Column))


def _fixed(node: LogicalNode, key: AbstractSet[str]) -> frozenset[str]:
    match node:
        case LogicalScan():
            primary = frozenset(map(node.name, node.source.primary_key))
            never_changes = node.source.mode == "append" and primary and primary <= key
            return frozenset(columns(node)) if never_changes else frozenset()
        case LogicalProject():
            known, below = fixed_columns(node.input, told(node, key)), columns(node.input)
            return frozenset(name for name, output in node.outputs.items() if _follows(output, known, below))
        case LogicalJoin(keeps_left=False):
            return _joined(node, key)
        case LogicalAggregate():
            group = frozenset(node.group)
            return fixed_columns(node.input.input, key & group) & group
        case LogicalUnion() | LogicalMatch():
            return frozenset()
    # A lookup fixes only columns of its left side, because the right row that it finds may change.
    return fixed_columns(first(node), key)


def _joined(join: LogicalJoin, key: AbstractSet[str]) -> frozenset[str]:
    """Return the columns that the two sides fix. A side is examined again only if more of its columns are known."""
    known = frozenset(key)
    asked: dict[int, frozenset[str]] = {}
    while True:
        for number, (side, padded) in enumerate(((join.left, join.pads_right), (join.right, join.pads_left))):
            own = known & kept(side).keys()
            if own and own != asked.get(number):
                known |= _of_side(side, own, padded=padded)
                asked[number] = known & kept(side).keys()
        more = _equal(join, known) if join.kind == "inner" else known
        if more <= known:
            return known
        known |= more


def _of_side(side: LogicalInput, key: frozenset[str], *, padded: bool) -> frozenset[str]:
    # In a null-padded row, all columns of this side are NULL, even a key column that is never NULL in the side's rows.
    types_ = kept(side)
    tells = not padded or any(not types_[name].nullable for name in key)
    return fixed_columns(side.input, key) if tells else frozenset()


def _equal(join: LogicalJoin, known: AbstractSet[str]) -> frozenset[str]:
    """Return the columns of each side that are equal to a part of the join's key if the other side fixes that part."""
    found: frozenset[str] = frozenset()
    for key in join.keys:
        # Examine each key part alone: another part on the same column does not help one that compares it as DOUBLE.
        alone = replace(join, keys=(key,))
        for side, given, other in ((join.left, key.right, join.right), (join.right, key.left, join.left)):
            if _follows(given, known, columns(other.input)):
                found |= key_columns(alone, side)
    return found


def _follows(expression: exp.Expr, known: AbstractSet[str], below: Mapping[str, Type]) -> bool:
    """Whether an expression has equal values in any two rows with equal `known` columns.

    Equal floating-point columns may give different values: 0.0 = -0.0, but the two differ as text.
    """
    bare = expression.unnest()
    if isinstance(bare, exp.Column):
        return bare.name in known
    read = reads(expression)
    return read <= known and all(types.family(below[name]) not in (None, "float") for name in read)
