"""Costs of the orders in which inner joins can run, and a search for the cheapest order.

An order joins one input after the other to the result so far. The best order for a set of inputs is derived from the
best orders for the sets with one input fewer (Selinger et al., Access Path Selection, 1979), separately for each way in
which rows may be partitioned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlglot import exp

from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.binary import LogicalJoin, LogicalLookup
from rowkind.service.plan.logical.calc import LogicalScan, LogicalUnion, LogicalWindow
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.passes.extract_equal_keys import equal_sides, extracted
from rowkind.service.plan.passes.normalize_inputs import leaves_out_old_rows
from rowkind.service.plan.scalar.conditions import may_move
from rowkind.service.plan.scalar.conjuncts import reads
from rowkind.service.plan.sql.hints import is_ordered
from rowkind.service.plan.traits.changelog_modes import base
from rowkind.service.plan.traits.join_graph import Inputs, JoinGraph, JoinSize, numbers
from rowkind.service.plan.traits.partitioning import partitioning

Parts = tuple[frozenset[str], ...] | None
"""How rows are partitioned: the columns that contain each part of the key; None if there is no key."""


class Cost(NamedTuple):
    """The cost of an order; lower is better.

    `crosses` counts joins without an equality. `rows` are the sizes of the stored intermediate results, the largest
    first. `restless` counts intermediate results that contain groups or ranks, which change with most rows. `shuffles`
    counts the inputs that must be shuffled.
    """

    crosses: int
    rows: tuple[JoinSize, ...]
    restless: int
    shuffles: int

    @property
    def order(self) -> tuple[object, ...]:
        """The values by which costs are compared."""
        return self.crosses, tuple(each.order for each in self.rows), self.restless, self.shuffles


@dataclass(frozen=True)
class Wanted:
    """The partitioning that a consumer needs: by these columns in this order or, if `by_any` is set, by any of them."""

    columns: tuple[str, ...]
    by_any: bool = False

    def takes(self, parts: Parts) -> bool:
        """Whether rows that are partitioned by `parts` need no shuffle."""
        if parts is None:
            return False
        if self.by_any:
            return all(part & set(self.columns) for part in parts)
        return len(parts) == len(self.columns) and all(map(frozenset.__contains__, parts, self.columns))


def is_free(node: LogicalNode) -> bool:
    """Whether a node is a join that may be reordered with other such joins."""
    return (
        isinstance(node, LogicalJoin)
        and node.kind == "inner"
        and isinstance(node.at, exp.Join)
        and not is_ordered(node.at)
        and all(map(may_move, node.condition))
    )


def by_columns(keys: Sequence[exp.Expr]) -> Wanted | None:
    """Return the partitioning by these expressions; None if one of them is not a column."""
    return Wanted(tuple(each.unnest().name for each in keys)) if keys and all(map(is_column, keys)) else None


def is_column(expression: exp.Expr) -> bool:
    """Whether an expression is a column."""
    return isinstance(expression.unnest(), exp.Column)


def told(cost: Cost, wanted: Wanted | None, parts: Parts) -> Cost:
    """Return the cost, plus one shuffle if the consumer needs a different partitioning."""
    return cost._replace(shuffles=cost.shuffles + (wanted is not None and not wanted.takes(parts)))


@dataclass(frozen=True)
class Search:
    """A search for the best order of a join graph, built from the best order for each set of inputs."""

    graph: JoinGraph

    def of_tree(self, node: LogicalNode, inputs: Iterator[int]) -> tuple[Cost, Parts, Inputs]:
        """Return the cost of joins as they are written, how their rows are partitioned, and which inputs they join."""
        if not is_free(node):
            number = next(inputs)
            return Cost(0, (), 0, 0), self._parts(number), 1 << number
        assert isinstance(node, LogicalJoin), "a free node is a join"
        left, right = self.of_tree(node.left.input, inputs), self.of_tree(node.right.input, inputs)
        return self._joined(left, right, node.condition)

    def best(self, before: Cost, wanted: Wanted | None) -> tuple[Cost, tuple[int, ...]]:
        """Return the cost of the best order, and the order itself.

        The best order has no more shuffles than the written order, whose cost is `before`, unless it has fewer crosses.
        """
        count = len(self.graph.nodes)
        ways: dict[Inputs, dict[tuple[Parts, int], tuple[Cost, tuple[int, ...]]]] = {
            1 << number: {(self._parts(number), 0): (Cost(0, (), 0, 0), (number,))} for number in range(count)
        }
        for size in range(1, count):
            for inside in [each for each in ways if each.bit_count() == size]:
                outside = [number for number in range(count) if not inside >> number & 1]
                near = [number for number in outside if self.graph.meet(inside, 1 << number)]
                for number in near or outside:
                    self._go_on(ways, inside, number)
        ends = [(told(cost, wanted, parts), order) for (parts, _), (cost, order) in ways[self.graph.all].items()]
        fit = [(cost, order) for cost, order in ends if cost.shuffles <= before.shuffles]
        fewer = [(cost, order) for cost, order in ends if cost.crosses < before.crosses]
        return min(fewer or fit or ends, key=lambda each: (each[0].order, each[1]))

    def _go_on(
        self,
        ways: dict[Inputs, dict[tuple[Parts, int], tuple[Cost, tuple[int, ...]]]],
        inside: Inputs,
        number: int,
    ) -> None:
        own = 1 << number
        condition = self.graph.between(inside, own)
        there = ways.setdefault(inside | own, {})
        for (parts, _), (before, order) in ways[inside].items():
            right = Cost(0, (), 0, 0), self._parts(number), own
            cost, joined, _ = self._joined((before, parts, inside), right, condition)
            found, kept = (cost, (*order, number)), there.get((joined, cost.shuffles))
            if kept is None or (found[0].order, found[1]) < (kept[0].order, kept[1]):
                there[joined, cost.shuffles] = found

    def _joined(
        self,
        left: tuple[Cost, Parts, Inputs],
        right: tuple[Cost, Parts, Inputs],
        condition: Sequence[exp.Expr],
    ) -> tuple[Cost, Parts, Inputs]:
        """Return the cost of a join of two parts, how its rows are partitioned, and the inputs that it joins."""
        mine, theirs = self._columns(left[2]), self._columns(right[2])
        pairs = [sides for each in condition if (sides := equal_sides(each, mine, theirs)) is not None]
        rows = [*left[0].rows, *right[0].rows]
        shuffles = left[0].shuffles + right[0].shuffles
        parts = [_names(sides) for sides in pairs]
        for (_, below, inputs), keys in zip(
            (left, right), zip(*pairs, strict=True) if pairs else ((), ()), strict=True
        ):
            taken = (by := by_columns(keys)) is not None and by.takes(below)
            shuffles += not taken
            if taken and below is not None:
                # Rows are already partitioned by an equal key, so its columns also contain the parts of the join key.
                parts = [one | other for one, other in zip(parts, below, strict=True)]
            if inputs.bit_count() == 1 and self._needs_old_rows(inputs, keys):
                # The input needs a Normalize, which has its own stage.
                rows.append(self.graph.size(inputs))
                shuffles += 1
        both = left[2] | right[2]
        restless = left[0].restless + right[0].restless
        if both != self.graph.all:
            rows.append(self.graph.size(both))
            restless += any(_is_restless(self.graph.nodes[number]) for number in numbers(both))
        rows.sort(key=lambda each: each.order, reverse=True)
        crosses = left[0].crosses + right[0].crosses + (not pairs)
        return Cost(crosses, tuple(rows), restless, shuffles), tuple(parts), both

    def _columns(self, inputs: Inputs) -> set[str]:
        return set().union(*(columns(self.graph.nodes[number]) for number in numbers(inputs)))

    def _needs_old_rows(self, one: Inputs, keys: Sequence[exp.Expr]) -> bool:
        """Whether an input leaves out old rows, and a join by these keys cannot find the old rows itself."""
        node = self.graph.nodes[one.bit_length() - 1]
        unique = frozenset[str]().union(*self.graph.unique[one.bit_length() - 1])
        return leaves_out_old_rows(node) and not all(reads(each) <= unique for each in keys)

    def _parts(self, number: int) -> Parts:
        node = self.graph.nodes[number]
        if isinstance(base(node), LogicalWindow):
            return None
        parts = partitioning(extracted(node))
        return None if parts is None else tuple(part.columns for part in parts)


def _names(sides: tuple[exp.Expr, exp.Expr]) -> frozenset[str]:
    return frozenset(each.unnest().name for each in sides if is_column(each))


def _is_restless(node: LogicalNode) -> bool:
    return not isinstance(base(node), LogicalScan | LogicalJoin | LogicalLookup | LogicalUnion)
