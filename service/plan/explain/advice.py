"""Advice on a plan: unnecessary costs, and state that grows without bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rowkind.service.physical.node import PhysicalNode, PhysicalSink
from rowkind.service.physical.operators import PhysicalAggregate, PhysicalJoin, PhysicalRank
from rowkind.service.physical.tree import walk
from rowkind.service.plan.explain.values import Advice
from rowkind.service.plan.operators import described


def advice(sink: PhysicalSink) -> Iterator[Advice]:
    """Yield the advice on each node, inputs first, then the advice on the whole plan and on the sink."""
    for node in walk(sink.input):
        yield from described(node).advice
    yield from _on_time(sink)
    yield from _on_sink(sink)


def _on_time(sink: PhysicalSink) -> Iterator[Advice]:
    """Yield one piece of advice on all unbounded state, and one per node whose state a watermark would limit."""
    found: list[str] = []
    first = ""
    for node in walk(sink.input):
        endless = [each for each in described(node).state if each.endless]
        if endless:
            first = first or node.node
            found.append(f"{node.node} ({' and '.join(dict.fromkeys(each.of for each in endless))})")
    if found := list(dict.fromkeys(found)):
        shown = found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}"
        text = f"without a ttl, rows are kept indefinitely in {shown}: set `ttl` if old rows may be dropped."
        yield Advice(first, "no ttl", text)
    for node in walk(sink.input):
        if not isinstance(node, PhysicalJoin | PhysicalAggregate | PhysicalRank) or not node.unmarked:
            continue
        if any(each.endless for each in described(node).state):
            yield Advice(node.node, "no watermark", _unmarked(node.node, node.unmarked))


def _unmarked(name: str, columns: Sequence[str]) -> str:
    pairs = [column.rpartition(".") for column in columns]
    shown = " and ".join(f"`watermark: {{column: {column}, delay: 5s}}` on {table}" for table, _, column in pairs)
    return f"{name} could evict old rows without a ttl if you set {shown}."


def _on_sink(sink: PhysicalSink) -> Iterator[Advice]:
    below = sink.input
    if sink.exchange and _stateful(below):
        yield Advice(
            sink.name,
            "shuffle to the sink",
            f"rows are not partitioned by the sink's key ({', '.join(sink.key)}), and the key does not "
            "determine the columns that they are partitioned by, so each batch needs one more shuffle. In an "
            "append table with a primary_key, the key determines all columns.",
        )
    if (
        sink.to == "topic"
        and sink.mode == "retract"
        and not sink.key
        and (keys := below.traits.unique_keys)
        and keys[0]
    ):
        yield Advice(
            sink.name,
            "sink without key",
            f"the sink has no key, so an update is written as -D and +I. With `key: [{', '.join(keys[0])}]`, an "
            "update is written as -U and +U, and all changes of a row go to one partition.",
        )


def _stateful(node: PhysicalNode) -> bool:
    return any(described(each).state for each in walk(node))
