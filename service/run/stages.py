"""Stages: which operators of a plan run in one place, and what reaches them there.

A stage is an operator with all the operators below it that are fused to it, directly or through others. It runs in one
stateful task per shard. Its members are handed their changes in memory, and only what comes from outside is shuffled.

    sink ◀─ [ rank ◀─ join ◀─ aggregate ]  ◀─ scan
                          ◀──────────────  ◀─ scan
                          ◀──────────────  ◀─ [ another stage ]

What comes from outside says in its side which member it is for (`service.spark.members`), and a side has few bits.
Where there are more members than that, the rest of them become stages of their own, which costs a shuffle and changes
nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from operators.changes import binary
from operators.hashing import hash64
from service.plan.physical import Aggregate, Node, Operator, Scan, Sink, Union, inputs, walk
from service.spark.members import MOST_MEMBERS


@dataclass(frozen=True)
class Member:
    """An operator of a stage; `feeds` is the place of the member that takes its rows in, None for the last one."""

    node: Operator
    feeds: int | None


@dataclass(frozen=True)
class Inflow:
    """A scan or an operator whose rows come from outside, and the place of the member that takes them in."""

    node: Scan | Operator
    member: int


@dataclass(frozen=True)
class Stage:
    """The members, each before the one that it feeds, and what reaches them from outside, left before right."""

    members: tuple[Member, ...]
    inflows: tuple[Inflow, ...]

    @property
    def name(self) -> str:
        """That of its last member, which is what the stage puts out."""
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


def stage(last: Operator) -> Stage:
    """The stage that ends with this operator."""
    consumers: dict[int, Operator] = {}
    found: list[Operator] = []
    outside: list[tuple[Scan | Operator, Operator]] = []
    queue = deque([last])
    while queue:
        node = queue.popleft()
        found.append(node)
        for below in without_unions(*inputs(node)):
            if not isinstance(below, Scan) and below.fused and len(found) + len(queue) < MOST_MEMBERS:
                consumers[id(below)] = node
                queue.append(below)
            else:
                outside.append((below, node))
    found.reverse()
    places = {id(node): place for place, node in enumerate(found)}
    members = tuple(Member(node, places[id(consumers[id(node)])] if node is not last else None) for node in found)
    return Stage(members, tuple(Inflow(node, places[id(consumer)]) for node, consumer in outside))


def without_unions(*nodes: Node) -> Iterator[Scan | Operator]:
    """The nodes, each union replaced by what it unites."""
    for node in nodes:
        if isinstance(node, Union):
            yield from without_unions(*node.inputs)
        else:
            yield node


def stateful(sink: Sink) -> list[Operator]:
    """All operators of a plan, inputs first."""
    return [node for node in walk(sink) if not isinstance(node, Sink | Scan | Union)]


def always_runs(node: Operator) -> bool:
    """Whether an operator has something to say without changes: a global aggregate, that there are no rows."""
    return isinstance(node, Aggregate) and node.aggregation.is_global


def shard_without_key(shards: int) -> int:
    """The shard of the empty key."""
    return int(hash64(binary([b""]))[0] % shards)
