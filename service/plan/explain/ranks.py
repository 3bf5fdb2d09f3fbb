"""Descriptions of ranks and deduplications for `explain`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rowkind.service.physical.node import PhysicalNode
from rowkind.service.physical.operators import PhysicalRank
from rowkind.service.plan.explain.description import Fact, NodeDescription, StepState
from rowkind.service.plan.explain.hot_keys import hot_keys, salted, spreadable_values
from rowkind.service.plan.explain.state import called, rows, values
from rowkind.service.plan.explain.values import ABSENT, Advice, NumberColumn, RankDetails, RankValues, StateLayout
from rowkind.service.plan.scalar.scalars import resolved, show


def rank(node: PhysicalRank) -> NodeDescription:
    """Describe a rank or deduplication: its range, partition, order and strategy, and the rows in its state."""
    ranking, condition = node.ranking, node.condition
    bound = None if condition is None else condition.bound
    own = next((name for name, function in node.numbers.items() if function == ranking.function), None)
    numbers = [NumberColumn(name, function) for name, function in node.numbers.items()]
    others: Any = numbers if len(numbers) != (own is not None) else ABSENT
    return NodeDescription(
        "deduplicate" if ranking.takes_one else "rank",
        _deduplicate(node) if ranking.takes_one else _rank(node),
        RankValues(
            ranking.function, ranking.first, ranking.last, ranking.ties, own, others, node.partition, node.order
        ),
        RankDetails(
            ABSENT if condition is None else condition.expression.text,
            ABSENT if bound is None else show(resolved(bound)),
            ABSENT if node.ranking.settled is None else node.ranking.settled,
            node.ranking.strategy,
            node.reason,
            spreadable_values(_hot(node)),
        ),
        tuple(_facts(node)),
        (_state(node),),
        tuple(_advice(node)),
    )


def _rank(node: PhysicalRank) -> str:
    ranking = node.ranking
    numbers = str(ranking.first) if ranking.first == ranking.last else f"{ranking.first} to {ranking.last}"
    if ranking.last is None:
        numbers = "of every row" if ranking.first == 1 else f"{ranking.first} and above"
    partition = f" PARTITION BY {', '.join(node.partition)}" if node.partition else ""
    order = f" ORDER BY {', '.join(node.order)}" if node.order else ""
    names = (
        f"{'' if function == ranking.function else f'{function.upper()} '}AS {show(resolved(name))}"
        for name, function in node.numbers.items()
    )
    columns = f" {', '.join(names)}" if node.numbers else ""
    return f"{ranking.function.upper()} {numbers}{partition}{order}{columns}"


def _deduplicate(node: PhysicalRank) -> str:
    per = f" per {', '.join(node.partition)}" if node.partition else " overall"
    if len(node.order) != 1:
        by = f" by {', '.join(node.order)}" if node.order else ""
        return f"the first row{by}{per}"
    (order,) = node.order
    plain = order.removesuffix(" DESC")
    which = "first" if plain == order else "last"
    return f"the {which} row to arrive{per}" if plain == "arrival" else f"the {which} row by {plain}{per}"


def _hot(node: PhysicalRank) -> list[PhysicalNode]:
    """Return a list with the input if the hint SKEW could spread the input's partitions, otherwise an empty list."""
    spread = isinstance(node.input, PhysicalRank) and salted(node.input.input)
    return [node.input] if node.ranking.strategy == "retract" and node.ranking.last is not None and not spread else []


def _facts(node: PhysicalRank) -> Iterator[Fact]:
    if node.condition is not None:
        yield Fact("condition", node.condition.expression.text)
        if node.condition.bound is not None:
            bound = show(resolved(node.condition.bound))
            yield Fact("reads to", f"number {bound}, which is the same in all rows of a partition")
    if node.ranking.settled is not None:
        yield Fact("numbers", f"rank numbers above {node.ranking.settled} are not distinguished")
    yield Fact("strategy", node.ranking.strategy)
    if node.ranking.ties == "latest first":
        yield Fact("ties", "the latest arrival comes first")
    yield from hot_keys(_hot(node), "a partition is ranked in one shard")


def _state(node: PhysicalRank) -> StepState:
    kind: StateLayout = "one row per key" if node.ranking.takes_one else "top rows"
    if node.ranking.strategy == "retract":
        kind, layout = (
            "every row",
            "every row, in the order of its partition" if node.partition else "every row, in order",
        )
        if node.state.ttl_ms is None and node.ranking.function != "row_number" and not node.input.traits.unique_keys:
            layout += ", equal rows counted"
    elif node.ranking.takes_one:
        layout = "one row per partition" if node.partition else "one row"
    else:
        layout = (
            f"{'in each partition, ' if node.partition else ''}the rows with rank numbers up to {node.ranking.last}"
        )
    return rows(node, layout, node.reason, values(node.input, kind, node.state.closing))


def _advice(node: PhysicalRank) -> Iterator[Advice]:
    if not node.partition:
        text = f"{node.node} has no PARTITION BY: all its rows are in one shard, and one task processes them."
        yield Advice(node.node, "one shard", text)
    if node.ranking.strategy == "retract":
        text = f"{node.node} keeps every row of {called(node.input)}, because {node.reason}. {_with_less(node)}"
        yield Advice(node.node, "every row kept", text)


def _with_less(node: PhysicalRank) -> str:
    """Return a hint on how the rank could keep or read fewer rows, or on how many rows it reads for each change."""
    if node.ranking.last is not None:
        return "Over an append table, it would keep only rows that can still reach the range."
    if node.ranking.settled is not None:
        return f"A change reads a partition only up to rank number {node.ranking.settled}."
    if node.condition is not None and node.condition.bound is not None:
        return "A change reads a partition only up to its bound."
    return (
        "A change reads its whole partition. With an upper bound (n <= 10, or n <= c with column c in PARTITION "
        "BY), it would read only that many rows."
    )
