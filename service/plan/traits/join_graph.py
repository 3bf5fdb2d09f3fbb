"""Join graphs: which inputs of inner joins are connected by equalities, and how many rows their joins may have.

A plan contains unique keys, but no row counts. If an equality matches each row of one input with at most one row of
another input, as each order has one customer, the first input **determines** the second. This has two consequences.
First, a join has no more rows than its **grain**: the inputs that together determine all others. For example, order
lines joined with their orders and customers have no more rows than the order lines. Second, an input is assumed to have
more rows than the inputs that it determines, as is usual for references. An input's **height** is the length of the
longest chain of inputs that it determines.

    JoinSize(inputs=1, heights=(2,), unfiltered=1)    as many rows as one input, which refers to a second input, which
                                                      refers to a third; one input with a condition is not joined yet
    JoinSize(inputs=2, …)                             in the worst case, all pairs of rows of two inputs that do not
                                                      determine each other

Inputs are numbered, and a set of inputs is an integer used as a bit set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.logical.calc import LogicalFilter, LogicalProject, LogicalWindow
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.logical.subset import LogicalRank, LogicalTemporalFilter
from rowkind.service.plan.scalar import types
from rowkind.service.plan.scalar.conjuncts import reads
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.traits.unique_keys import UniqueKey

Inputs = int
"""A set of inputs, as a bit set."""


class JoinSize(NamedTuple):
    """An estimate of how many rows a join has. The greater its `order`, the more rows.

    `inputs` is the number of inputs in the grain, and `heights` are their heights, the greatest first. `unfiltered` is
    the number of inputs that have a condition of their own and are not joined yet. `grain` is the set of inputs that
    together determine all others.
    """

    inputs: int
    heights: tuple[int, ...]
    unfiltered: int
    grain: Inputs

    @property
    def order(self) -> tuple[int, tuple[int, ...], int]:
        """The values by which estimates are compared."""
        return self[:3]


@dataclass(frozen=True)
class Equality:
    """An equality between inputs: the expression on each side, and the inputs that each expression reads."""

    sides: tuple[exp.Expr, exp.Expr]
    inputs: tuple[Inputs, Inputs]


@dataclass(frozen=True)
class JoinGraph:
    """The inputs of inner joins, each with its unique keys, and the conditions between them, as written."""

    nodes: tuple[LogicalNode, ...]
    unique: tuple[frozenset[UniqueKey], ...]
    conditions: tuple[exp.Expr, ...]
    _sizes: dict[Inputs, JoinSize] = field(default_factory=dict, compare=False)

    @property
    def all(self) -> Inputs:
        """All inputs."""
        return (1 << len(self.nodes)) - 1

    @cached_property
    def types(self) -> Mapping[str, Type]:
        """The columns of all inputs and their types."""
        return {name: type_ for node in self.nodes for name, type_ in columns(node).items()}

    @cached_property
    def owners(self) -> Mapping[str, Inputs]:
        """The input to which each column belongs."""
        return {name: 1 << number for number, node in enumerate(self.nodes) for name in columns(node)}

    def inputs_of(self, condition: exp.Expr) -> Inputs:
        """Return the inputs that a condition reads."""
        found = 0
        for name in reads(condition):
            found |= self.owners[name]
        return found

    @cached_property
    def read(self) -> tuple[Inputs, ...]:
        """The inputs that each condition reads."""
        return tuple(map(self.inputs_of, self.conditions))

    @cached_property
    def equalities(self) -> tuple[Equality, ...]:
        """The conditions that are equalities between inputs."""
        found = []
        for each in self.conditions:
            bare = each.unnest()
            if isinstance(bare, exp.EQ | exp.NullSafeEQ):
                a, b = self.inputs_of(bare.left), self.inputs_of(bare.right)
                if a and b and not a & b:
                    found.append(Equality((bare.left, bare.right), (a, b)))
        return tuple(found)

    @cached_property
    def classes(self) -> tuple[tuple[str, ...], ...]:
        """Groups of columns that are equal in all joined rows, including by implied equalities, in input order.

        All columns of a group have the same type, so that equality is transitive.
        """
        found: list[set[str]] = []
        for each in self.conditions:
            bare = each.unnest()
            if not isinstance(bare, exp.EQ):
                continue
            a, b = bare.left.unnest(), bare.right.unnest()
            if isinstance(a, exp.Column) and isinstance(b, exp.Column) and self._alike(a.name, b.name):
                joined = {a.name, b.name}.union(*(one for one in found if one & {a.name, b.name}))
                found = [*(one for one in found if not one & joined), joined]
        order = {name: number for number, name in enumerate(self.types)}
        return tuple(tuple(sorted(each, key=order.__getitem__)) for each in found)

    def between(self, left: Inputs, right: Inputs) -> tuple[exp.Expr, ...]:
        """Return the conditions that join two sets of inputs: the written ones, and the equalities that those imply."""
        both = left | right
        own = [
            each
            for each, of in zip(self.conditions, self.read, strict=True)
            if not of & ~both and of & ~left and of & ~right
        ]
        told = [self._columns_of(each) for each in own]
        for class_ in self.classes:
            mine, theirs = ([name for name in class_ if self.owners[name] & side] for side in (left, right))
            if mine and theirs and not any(names and names <= set(class_) for names in told):
                own.append(exp.EQ(this=resolved(mine[0]), expression=resolved(theirs[0])))
        return tuple(own)

    def meet(self, left: Inputs, right: Inputs) -> bool:
        """Whether an equality connects two sets of inputs."""
        return any(
            (not a & ~left and not b & ~right) or (not b & ~left and not a & ~right)
            for each in self.equalities
            for a, b in [each.inputs]
        ) or any(
            any(self.owners[name] & left for name in one) and any(self.owners[name] & right for name in one)
            for one in self.classes
        )

    def determined(self, by: Inputs, among: Inputs) -> Inputs:
        """Return the inputs that the inputs `by` determine in a join of the inputs `among`, including `by`."""
        found, known = by, {name for name, owner in self.owners.items() if owner & by}
        while True:
            known = self._equal(known, among)
            more = [number for number in numbers(among & ~found) if self._is_known(number, known)]
            if not more:
                return found
            for number in more:
                found |= 1 << number
                known |= columns(self.nodes[number]).keys()

    @cached_property
    def heights(self) -> tuple[int, ...]:
        """The height of each input: the length of the longest chain of inputs that it determines."""
        below = [self.determined(1 << number, self.all) for number in range(len(self.nodes))]

        def height(number: int) -> int:
            others = (each for each in numbers(below[number]) if not below[each] >> number & 1)
            return max((height(each) + 1 for each in others), default=0)

        return tuple(height(number) for number in range(len(self.nodes)))

    @cached_property
    def filtered(self) -> Inputs:
        """The inputs that have a condition of their own."""
        return sum(1 << number for number, node in enumerate(self.nodes) if _leaves_out(node))

    def size(self, inputs: Inputs) -> JoinSize:
        """Return the estimate of how many rows a join of these inputs has."""
        if inputs not in self._sizes:
            self._sizes[inputs] = self._sized(inputs)
        return self._sizes[inputs]

    def _sized(self, inputs: Inputs) -> JoinSize:
        own, unfiltered = numbers(inputs), (self.filtered & ~inputs).bit_count()
        for count in range(1, len(own) + 1):
            grains = [
                (tuple(sorted((self.heights[each] for each in some), reverse=True)), sum(1 << each for each in some))
                for some in combinations(own, count)
                if self.determined(sum(1 << each for each in some), inputs) == inputs
            ]
            if grains:
                heights, grain = min(grains)
                return JoinSize(count, heights, unfiltered, grain)
        raise AssertionError("all inputs together determine all inputs")

    def _alike(self, a: str, b: str) -> bool:
        one, other = self.types[a].required, self.types[b].required
        return one == other and one.orderable and types.family(one) not in (None, "float")

    def _columns_of(self, condition: exp.Expr) -> set[str]:
        """Return the two columns that an equality compares; an empty set for any other condition."""
        bare = condition.unnest()
        sides = (bare.left.unnest(), bare.right.unnest()) if isinstance(bare, exp.EQ) else ()
        return {each.name for each in sides} if all(isinstance(each, exp.Column) for each in sides) else set()

    def _equal(self, known: set[str], among: Inputs) -> set[str]:
        """Return all columns whose values follow from the `known` columns in a join of the inputs `among`."""
        found = set(known)
        for one in self.classes:
            here = {name for name in one if self.owners[name] & among}
            found |= here if here & found else set()
        while True:
            before = len(found)
            for each in self.equalities:
                if (each.inputs[0] | each.inputs[1]) & ~among:
                    continue
                for given, told in (each.sides, each.sides[::-1]):
                    own = told.unnest()
                    if isinstance(own, exp.Column) and reads(given) <= found and self._is_told(given, own):
                        found.add(own.name)
            if len(found) == before:
                return found

    def _is_told(self, given: exp.Expr, column: exp.Column) -> bool:
        """Whether `given` determines the column that an equality compares with it.

        A column does so, unless the other column contains exact numbers that are cast to DOUBLE for the comparison.
        """
        of = {types.family(self.types[name]) for name in (*reads(given), column.name)}
        return isinstance(given.unnest(), exp.Column) and (
            "float" not in of or types.family(self.types[column.name]) == "float"
        )

    def _is_known(self, number: int, known: set[str]) -> bool:
        return any(key <= known for key in self.unique[number])


def numbers(inputs: Inputs) -> Sequence[int]:
    """Return the numbers of the inputs in a set."""
    return [number for number in range(inputs.bit_length()) if inputs >> number & 1]


def _leaves_out(node: LogicalNode) -> bool:
    """Whether an input removes rows by a condition, a semi or anti join, a rank or a temporal filter.

    The condition IS NOT NULL does not count.
    """
    while isinstance(node, LogicalProject):
        node = node.input
    if isinstance(node, LogicalFilter):
        return not all(_is_not_null(each) for each in node.conjuncts)
    if isinstance(node, LogicalJoin):
        return node.filters_left
    return isinstance(node, LogicalRank | LogicalTemporalFilter | LogicalWindow)


def _is_not_null(condition: exp.Expr) -> bool:
    bare = condition.unnest()
    inner = bare.this.unnest() if isinstance(bare, exp.Not) else None
    return isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null)
