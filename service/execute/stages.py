"""Stages: which operators of a plan run in one place, and what reaches them there.

A stage is an operator with all the operators below it that are fused to it, directly or through others. It runs in one
stateful task per shard. Its members are handed their changes in memory, and only what comes from outside is shuffled.

    sink ◀─ [ rank ◀─ join ◀─ aggregate ]  ◀─ scan
                          ◀──────────────  ◀─ scan
                          ◀──────────────  ◀─ [ another stage ]

What comes from outside says in its side which member it is for (`service.execute.members`), and a side has few bits.
Where there are more members than that, the rest of them become stages of their own, which costs a shuffle and changes
nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from rowkind.operators.columns.changes import binary
from rowkind.operators.columns.hashing import hash64
from rowkind.service.execute.members import MOST_MEMBERS
from rowkind.service.physical import (
    PhysicalAggregate,
    PhysicalNode,
    PhysicalOperator,
    PhysicalScan,
    PhysicalSink,
    PhysicalUnion,
    inputs,
    walk,
)


@dataclass(frozen=True)
class StageMember:
    """An operator of a stage; `feeds` is the place of the member that takes its rows in, None for the last one."""

    node: PhysicalOperator
    feeds: int | None


@dataclass(frozen=True)
class Inflow:
    """A scan or an operator whose rows come from outside, and the place of the member that takes them in."""

    node: PhysicalScan | PhysicalOperator
    member: int


@dataclass(frozen=True)
class Stage:
    """The members, each before the one that it feeds, and what reaches them from outside, left before right."""

    members: tuple[StageMember, ...]
    inflows: tuple[Inflow, ...]

    @property
    def name(self) -> str:
        """That of its last member, which is what the stage emits."""
        return self.members[-1].node.node

    @property
    def has_one_shard(self) -> bool:
        """Whether no input has a key, so that all changes belong to the shard of the empty key."""
        keyless = {
            not below.calc.key.parts
            for member in self.members
            for below in without_unions(*inputs(member.node))
            if below.calc.key.constant is None
        }
        assert len(keyless) == 1, f"what is fused to {self.name} is partitioned otherwise"
        return keyless.pop()


def stage(last: PhysicalOperator) -> Stage:
    """The stage that ends with this operator."""
    consumers: dict[int, PhysicalOperator] = {}
    found: list[PhysicalOperator] = []
    outside: list[tuple[PhysicalScan | PhysicalOperator, PhysicalOperator]] = []
    queue = deque([last])
    while queue:
        node = queue.popleft()
        found.append(node)
        for below in without_unions(*inputs(node)):
            if not isinstance(below, PhysicalScan) and below.fused and len(found) + len(queue) < MOST_MEMBERS:
                consumers[id(below)] = node
                queue.append(below)
            else:
                outside.append((below, node))
    found.reverse()
    places = {id(node): place for place, node in enumerate(found)}
    members = tuple(StageMember(node, places[id(consumers[id(node)])] if node is not last else None) for node in found)
    return Stage(members, tuple(Inflow(node, places[id(consumer)]) for node, consumer in outside))


def without_unions(*nodes: PhysicalNode) -> Iterator[PhysicalScan | PhysicalOperator]:
    """The nodes, each union replaced by what it unites."""
    for node in nodes:
        if isinstance(node, PhysicalUnion):
            yield from without_unions(*node.inputs)
        else:
            yield node


def stateful(sink: PhysicalSink) -> list[PhysicalOperator]:
    """All operators of a plan, inputs first."""
    return [node for node in walk(sink) if not isinstance(node, PhysicalSink | PhysicalScan | PhysicalUnion)]


def always_runs(node: PhysicalOperator) -> bool:
    """Whether an operator has something to say without changes: a global aggregate, that there are no rows."""
    return isinstance(node, PhysicalAggregate) and node.aggregation.is_global


def shard_without_key(shards: int) -> int:
    """The shard of the empty key."""
    return int(hash64(binary([b""]))[0] % shards)
