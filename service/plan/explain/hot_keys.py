"""Descriptions of hot keys for `explain`. A hot key is a key with very many rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rowkind.service.physical.join_kinds import MAY_BE_SPREAD
from rowkind.service.physical.node import PhysicalNode
from rowkind.service.physical.operators import PhysicalJoin
from rowkind.service.plan.explain.description import Fact
from rowkind.service.plan.explain.state import alias, called
from rowkind.service.plan.explain.values import ABSENT


def spreadable(join: PhysicalJoin) -> list[PhysicalNode]:
    """Return the join inputs that the hint SKEW could spread: those that may have several rows per key.

    If an input is already spread, return an empty list.
    """
    sides = (join.left, join.left_input), (join.right, join.right_input)
    if any(salted(node) for node, _ in sides):
        return []
    may = zip(sides, MAY_BE_SPREAD[join.kind], strict=True)
    return [node for (node, chosen), spread in may if spread and chosen.layout != "one row per key"]


def salted(node: PhysicalNode) -> bool:
    """Return whether rows with the same key are already spread over several shards."""
    return node.calc.key.salt is not None


def spreadable_values(nodes: Sequence[PhysicalNode]) -> Any:
    """Return the names of the given inputs in the hint SKEW, or `ABSENT` if no input remains to be spread."""
    return [alias(node) or called(node) for node in nodes if not salted(node)] or ABSENT


def hot_keys(nodes: Sequence[PhysicalNode], how: str) -> Iterator[Fact]:
    """Yield a fact about inputs in which a hot key may force one task to process the whole batch.

    The fact contains the SKEW hint that spreads each input.
    """
    if spread := [(alias(node), called(node)) for node in nodes if not salted(node)]:
        hints = (f"SKEW('{name}') spreads {of}" if name else f"SKEW with its alias spreads {of}" for name, of in spread)
        yield Fact("hot keys", f"{how}: {', '.join(hints)}")
