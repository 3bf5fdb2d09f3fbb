"""Advice on a plan: what costs more than it may have to, and what grows for ever."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rowkind.service.physical.node import PhysicalNode, PhysicalSink
from rowkind.service.physical.operators import PhysicalAggregate, PhysicalJoin, PhysicalRank
from rowkind.service.physical.tree import walk
from rowkind.service.plan.explain.values import Advice
from rowkind.service.plan.operators import described


def advice(sink: PhysicalSink) -> Iterator[Advice]:
    """That of each node, in the order of the data; then what concerns several, and the sink."""
    for node in walk(sink.input):
        yield from described(node).advice
    yield from _on_time(sink)
    yield from _on_sink(sink)


def _on_time(sink: PhysicalSink) -> Iterator[Advice]:
    """One piece of advice for all state that only grows."""
    found: list[str] = []
    first = ""
    for node in walk(sink.input):
        endless = [each for each in described(node).state if each.endless]
        if endless:
            first = first or node.node
            found.append(f"{node.node} ({' and '.join(dict.fromkeys(each.of for each in endless))})")
    if found := list(dict.fromkeys(found)):
        shown = found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}"
        text = f"without a ttl rows are kept for ever in {shown}: set `ttl` if old rows may be forgotten."
        yield Advice(first, "no ttl", text)
    for node in walk(sink.input):
        if not isinstance(node, PhysicalJoin | PhysicalAggregate | PhysicalRank) or not node.unmarked:
            continue
        if any(each.endless for each in described(node).state):
            yield Advice(node.node, "no watermark", _unmarked(node.node, node.unmarked))


def _unmarked(name: str, columns: Sequence[str]) -> str:
    pairs = [column.rpartition(".") for column in columns]
    shown = " and ".join(f"`watermark: {{column: {column}, delay: 5s}}` on {table}" for table, _, column in pairs)
    return f"{name} would let go of its rows as time passes, without a ttl, with {shown}."


def _on_sink(sink: PhysicalSink) -> Iterator[Advice]:
    below = sink.input
    if sink.exchange and _stateful(below):
        yield Advice(
            sink.name,
            "shuffle to the sink",
            f"the sink's key ({', '.join(sink.key)}) is not what the rows come partitioned by, nor does it fix that "
            f"for good, which costs one more shuffle per batch. The primary_key of a table that only inserts fixes its "
            f"rows.",
        )
    if sink.mode == "retract" and not sink.key and (keys := below.traits.unique_keys) and keys[0]:
        yield Advice(
            sink.name,
            "sink without key",
            f"the sink has no key, so an update is written as -D and +I. With `key: [{', '.join(keys[0])}]` it is "
            f"written as -U and +U, and all changes of a row go to one partition.",
        )


def _stateful(node: PhysicalNode) -> bool:
    return any(described(each).state for each in walk(node))
