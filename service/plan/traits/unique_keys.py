"""Unique keys: sets of columns that identify at most one live row of a node's output.

Unique keys determine how an operator stores its input, and by which key a sink may replace rows. `explain` shows them.
The rules:

    scan            the primary key
    filter          the input's keys
    project         the input's keys whose columns are all selected, unchanged or, for times, shifted by a fixed length
    expand          the input's keys, each with the element's position, the map key, or an element that occurs once
    join            a side's keys if each of its rows matches at most one row of the other side; otherwise one key of
                    each side, combined. The equal columns of an inner join are interchangeable.
    outer join      as for a join, unless the NULLs of a null-padded row could be mistaken for another row
    semi, anti,     the left side's keys
    mark
    lookup          the left side's keys if each left row finds at most one right row; otherwise one key of each side,
                    combined
    aggregate       the group columns, or fewer of them if these are unique in the input; without GROUP BY the empty
                    key, because there is only one row; either the start or the end of a window is enough
    session         the input's keys
    rank            the input's keys; with ROW_NUMBER also the partition columns and the number, or the partition
                    columns alone if the rank emits one row; either the start or the end of a window is enough
    union           none, because the same key may come from two inputs
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice, permutations, product
from typing import Any

from sqlglot import exp

from rowkind.operators.match.calls import MatchNumber
from rowkind.service.physical.memoized import memoized
from rowkind.service.plan.columns import by_name, columns
from rowkind.service.plan.logical.binary import LogicalJoin, LogicalLookup
from rowkind.service.plan.logical.calc import LogicalExpand, LogicalProject, LogicalScan, LogicalUnion
from rowkind.service.plan.logical.grouping import LogicalAggregate, LogicalMatch
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode, LogicalUnary
from rowkind.service.plan.logical.subset import LogicalRank
from rowkind.service.plan.scalar import types
from rowkind.service.plan.scalar.conjuncts import reads
from rowkind.service.plan.scalar.scalars import type_of
from rowkind.service.plan.traits.column_meanings import moved, telling
from rowkind.service.plan.tree import first, rule_for

UniqueKey = frozenset[str]
_MOST = 16
_MOST_VARIANTS = 256
"""The maximum number of keys that differ only in which of several equal columns they name.

Each pair of equal columns doubles the number of keys.
"""


@memoized
def unique_keys(node: LogicalNode) -> frozenset[UniqueKey]:
    """Return the minimal unique keys that can be inferred for a node's rows."""
    rule = rule_for(node, _RULES)
    if isinstance(node, LogicalUnary) and node.has_one_row:
        return frozenset([frozenset()])
    return unique_keys(first(node)) if rule is None else rule(node)


def in_order(keys: Iterable[UniqueKey], node: LogicalNode) -> tuple[tuple[str, ...], ...]:
    """Return unique keys with their columns in the node's order, the shortest key first."""
    order = {name: number for number, name in enumerate(columns(node))}
    return tuple(
        sorted(
            (tuple(sorted(key, key=order.__getitem__)) for key in keys),
            key=lambda key: (len(key), *map(order.get, key)),
        )
    )


def key_columns(join: LogicalJoin | LogicalLookup, side: LogicalInput) -> UniqueKey:
    """Return the columns of one side that the join's key determines, because they are unchanged parts of the key.

    An exact number that is compared as DOUBLE is not included: two different numbers may be equal as DOUBLE.
    """
    below = columns(side.input)
    return frozenset(
        own.name
        for key in join.keys
        if isinstance(own := (key.left if side is join.left else key.right).unnest(), exp.Column)
        and (types.family(key.type) != "float" or types.family(below[own.name]) == "float")
    )


def matches_one(join: LogicalJoin | LogicalLookup, side: LogicalInput) -> bool:
    """Whether each value of the join's key matches at most one row of this side."""
    return any(unique <= key_columns(join, side) for unique in unique_keys(side.input))


def meets_one(lookup: LogicalLookup) -> bool:
    """Whether each left row finds at most one right row. The lookup's equalities need not be keys yet."""
    below = by_name(columns(lookup.left.input) | (theirs := columns(lookup.right.input)))
    bare = set()
    for each in lookup.condition:
        for own, other in permutations((each.unnest().this.unnest(), each.unnest().expression)):
            if isinstance(own, exp.Column) and own.name in theirs:
                found = type_of(other, below)
                bare |= {own.name} if types.family(found) == types.family(theirs[own.name]) else set()
    by_key = any(key <= bare for key in unique_keys(lookup.right.input))
    return lookup.match is not None or by_key or matches_one(lookup, lookup.right)


def keeps_key(join: LogicalJoin | LogicalLookup, side: LogicalInput) -> bool:
    """Whether no update on this side changes a row's join key, because the join key is computed from unique keys."""
    unique = frozenset[str]().union(*unique_keys(side.input))
    return all(reads(key.left if side is join.left else key.right) <= unique for key in join.keys)


def _scanned(node: LogicalScan) -> frozenset[UniqueKey]:
    return frozenset([frozenset(map(node.name, node.source.primary_key))] if node.source.primary_key else [])


def _projected(node: LogicalProject) -> frozenset[UniqueKey]:
    names: dict[str, list[str]] = {}
    for name, output in node.outputs.items():
        bare = moved(output)
        if isinstance(bare, exp.Column):
            names.setdefault(bare.name, []).append(name)
    found: set[UniqueKey] = set()
    for key in unique_keys(node.input):
        variants: list[UniqueKey] = [frozenset()]
        for column in key:
            variants = [variant | {name} for variant in variants for name in names.get(column, [])][:_MOST_VARIANTS]
        found.update(variants)
    return _minimal(found)


def _expanded(node: LogicalExpand) -> frozenset[UniqueKey]:
    array = type_of(node.array, by_name(columns(node.input)))
    once = {name for name, part in node.elements.items() if part == 0 and (node.distinct or array.kind == "map")}
    telling = once if node.distinct else {node.place, *once}
    return _minimal(key | {name} for key in unique_keys(node.input) for name in telling)


def _grouped(node: LogicalAggregate) -> frozenset[UniqueKey]:
    below, group = node.input.input, frozenset(node.group)
    groups = islice(product(*telling(below, node.group)), _MOST_VARIANTS)
    return _minimal([*map(frozenset, groups), *(key for key in unique_keys(below) if key <= group)])


def _matched(node: LogicalMatch) -> frozenset[UniqueKey]:
    numbers = [each.name for each in node.calls if isinstance(each.call, MatchNumber)]
    whole = not node.sought.all_rows
    return frozenset(frozenset([*node.partition, name]) for name in numbers if whole)


def _ranked(node: LogicalRank) -> frozenset[UniqueKey]:
    found = set(unique_keys(node.input.input))
    # If a partition is spread over shards, each shard numbers its own rows.
    if node.ranking.function == "row_number" and node.input.spread == 1:
        partitions = map(frozenset, product(*telling(node.input.input, node.partition)))
        if node.ranking.first == node.ranking.last:
            found.update(partitions)
        elif node.ranking.settled is None:
            own = [name for name, function in node.numbers.items() if function == "row_number"]
            found.update(partition | {name} for partition in partitions for name in own)
    return _minimal(found)


def _looked_up(node: LogicalLookup) -> frozenset[UniqueKey]:
    left = unique_keys(node.left.input)
    return left if meets_one(node) else _minimal(a | b for a, b in product(left, unique_keys(node.right.input)))


def _joined(node: LogicalJoin) -> frozenset[UniqueKey]:
    if node.keeps_left:
        return unique_keys(node.left.input)
    left, right = unique_keys(node.left.input), unique_keys(node.right.input)
    found: set[UniqueKey] = set()
    if matches_one(node, node.right) and not node.pads_right:
        found |= left
    if matches_one(node, node.left) and not node.pads_left:
        found |= right
    required = {name for side in node.sides for name, type_ in columns(side.input).items() if not type_.nullable}
    for a in left:
        for b in right:
            # In a FULL JOIN, a null-padded row of either side must differ from every other row, so one of the two keys
            # needs a column that is never NULL.
            if node.kind != "full" or ((a | b) & required):
                found.add(a | b)
    if node.kind == "inner":
        found |= _with_equal_columns(node, found)
    return _minimal(found)


def _with_equal_columns(node: LogicalJoin, keys: set[UniqueKey]) -> set[UniqueKey]:
    more: set[UniqueKey] = set(keys)
    for key in node.keys:
        if len(more) > _MOST_VARIANTS:
            break
        # Examine each key part alone: another part on the same column does not help one that compares it as DOUBLE.
        alone = replace(node, keys=(key,))
        pair = (key.left.unnest().name, key.right.unnest().name)
        if (key_columns(alone, node.left) | key_columns(alone, node.right)).issuperset(pair):
            for a, b in (pair, pair[::-1]):
                more |= {unique - {a} | {b} for unique in more if a in unique}
    return more


def _minimal(keys: Iterable[UniqueKey]) -> frozenset[UniqueKey]:
    """Return the keys that contain no other key, but at most the `_MOST` shortest ones."""
    kept: list[UniqueKey] = []
    for key in sorted(set(keys), key=lambda each: (len(each), sorted(each))):
        if not any(other <= key for other in kept):
            kept.append(key)
    return frozenset(kept[:_MOST])


_RULES: Mapping[type[Any], Callable[[Any], frozenset[UniqueKey]]] = {
    LogicalScan: _scanned,
    LogicalProject: _projected,
    LogicalExpand: _expanded,
    LogicalJoin: _joined,
    LogicalLookup: _looked_up,
    LogicalAggregate: _grouped,
    LogicalRank: _ranked,
    LogicalMatch: _matched,
    LogicalUnion: lambda _: frozenset(),
}
"""Rules for nodes that do not have the unique keys of their first input."""
