"""Advice on a plan: what costs more than it may have to, and what grows for ever."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rowkind.operators.aggregate_function import GATHERED
from rowkind.service.physical import (
    PhysicalAggregate,
    PhysicalJoin,
    PhysicalLookup,
    PhysicalMatch,
    PhysicalNode,
    PhysicalNormalize,
    PhysicalRank,
    PhysicalScan,
    PhysicalSink,
    PhysicalTemporalFilter,
)
from rowkind.service.physical_tree import walk
from rowkind.service.plan.explain.description import Advice
from rowkind.service.plan.explain.state import called, kept
from rowkind.service.plan.scalar.scalars import resolved, show
from rowkind.service.plan.scalar.types import family


def advice(sink: PhysicalSink) -> Iterator[Advice]:
    """In the order of the data, the sink last."""
    for node in walk(sink):
        match node:
            case PhysicalJoin():
                yield from _on_join(node)
            case PhysicalLookup():
                yield from _on_lookup(node)
            case PhysicalAggregate():
                yield from _on_aggregate(node)
            case PhysicalRank():
                yield from _on_rank(node)
            case PhysicalTemporalFilter():
                yield from _on_filter(node)
            case PhysicalNormalize(takes_back=False):
                yield from _on_normalize(node)
            case PhysicalMatch():
                yield from _on_match(node)
            case _:
                continue
    yield from _on_time(sink)
    yield from _on_sink(sink)


def _on_join(join: PhysicalJoin) -> Iterator[Advice]:
    if not join.left.calc.key.parts:
        text = (
            f"{join.node} has no equal key: all rows meet in one shard, and each change is compared with every row of "
            f"the other side. Add an equality to ON if there is one."
        )
        yield Advice(join.node, "no equal key", text)
    if join.facts:
        negated, effect = ("NOT ", "empties the result") if join.kind == "not in" else ("", "makes FALSE NULL")
        word = f"{negated}IN"
        text = (
            f"{join.node} is {word} over columns that may be NULL: a single NULL among {called(join.right)} {effect}, "
            f"so two counts of all its rows are kept besides, and all rows are looked at when one of them leaves or "
            f"reaches 0. {negated}EXISTS costs none of that, nor does {word} over columns that are NOT NULL."
        )
        yield Advice(join.node, "not in with nulls", text)
    for node, side in ((join.left, join.left_input), (join.right, join.right_input)):
        if (
            isinstance(node, PhysicalScan)
            and side.layout == "multiset"
            and node.source.mode != "append"
            and not node.source.primary_key
        ):
            flaw = f"{node.source.table} has no primary_key, so its rows are found by their whole content"
            yield Advice(join.node, "no primary key", f"{flaw}: give it one if there is one.")


def _on_lookup(lookup: PhysicalLookup) -> Iterator[Advice]:
    match = lookup.match
    if not lookup.left.calc.key.parts:
        yield Advice(lookup.node, "no equal key", f"{lookup.node} has no equal key: all rows meet in one shard.")
    if match is None or lookup.left_input.closing is not None:
        return
    kept = "one row of each key" if match.looks_back else "what has not met the row that comes next"
    by_number = family(lookup.left.calc.output.type(match.left)) == "integer"
    rows, any_ = called(lookup.right), "number" if by_number else "time"
    text = f"{lookup.node} keeps every row of {rows} for ever, because a left row of any {any_} may come."
    if not by_number:
        text += (
            f" If {show(resolved(match.left))} and {show(resolved(match.right))} are times of tables with a "
            f"`watermark`, it keeps {kept} before it."
        )
    yield Advice(lookup.node, "no watermark", text)


def _on_aggregate(aggregate: PhysicalAggregate) -> Iterator[Advice]:
    values = next((state for state in kept(aggregate) if state.name == "values"), None)
    if values is None:
        return
    text = f"{aggregate.node} keeps {values.layout}, because {values.reason}."
    if not any(call.distinct or call.function in GATHERED for call in aggregate.aggregation.calls):
        text += " Over a table that only inserts it would keep none of them."
    if aggregate.aggregation.is_global:
        text += " Without GROUP BY all of them are in one shard."
    yield Advice(aggregate.node, "all values kept", text)


def _on_rank(rank: PhysicalRank) -> Iterator[Advice]:
    if not rank.partition:
        yield Advice(
            rank.node,
            "one shard",
            f"{rank.node} has no PARTITION BY: all its rows are in one shard, which one task has to deal with.",
        )
    if rank.strategy == "retract":
        yield Advice(
            rank.node,
            "every row kept",
            f"{rank.node} keeps every row of {called(rank.input)}, because {rank.reason}. {_with_less(rank)}",
        )


def _on_filter(node: PhysicalTemporalFilter) -> Iterator[Advice]:
    if node.order:
        text = (
            f"{node.node} puts all rows in one order: they are in one shard, which one task has to deal with, and one "
            f"task writes them. A topic with several partitions has them in order in each."
        )
        yield Advice(node.node, "one shard", text)


def _with_less(rank: PhysicalRank) -> str:
    """When a rank that keeps every row would keep fewer, or read fewer."""
    if rank.ranking.last is not None:
        return "Over a table that only inserts it would keep those that can still reach the range."
    if rank.settled is not None:
        return f"A change reads a partition up to its number {rank.settled} only."
    if rank.condition is not None and rank.condition.bound is not None:
        return "A change reads a partition up to its bound only."
    return (
        "A change reads its whole partition: with an upper bound, n <= 10, or n <= c with column c in PARTITION BY, "
        "it would read that many rows."
    )


def _on_normalize(normalize: PhysicalNormalize) -> Iterator[Advice]:
    scan = normalize.input
    if not isinstance(scan, PhysicalScan):
        return
    text = f"{normalize.node} keeps every row of {scan.source.table} besides, because {normalize.reason}."
    if scan.source.exact:
        pass
    elif scan.source.debezium:
        text += " That cannot be avoided: a snapshot of Debezium's may bring rows that are there already."
    elif scan.source.mode == "retract":
        text += (
            f" If its producer sends -U with every update, and takes back only what it has sent, say `exact: true` of "
            f"{scan.source.table}: then this is not needed."
        )
    else:
        text += (
            f" If its producer can send -U with every update, make {scan.source.table} a retract table with "
            f"`exact: true`: then this is not needed."
        )
    yield Advice(normalize.node, "old rows kept", text)


def _on_match(match: PhysicalMatch) -> Iterator[Advice]:
    if not match.partition:
        text = f"{match.node} has no PARTITION BY: all its rows are in one shard, which one task has to deal with."
        yield Advice(match.node, "one shard", text)
    if match.matching.sought.within is None:
        text = (
            f"{match.node} has no WITHIN: a match that has begun, and neither ends nor fails, keeps its rows for ever, "
            f"and lets no other begin behind it. Say behind PATTERN in what time it must be, as in "
            f"WITHIN INTERVAL '1' HOUR."
        )
        yield Advice(match.node, "no within", text)


def _on_time(sink: PhysicalSink) -> Iterator[Advice]:
    """One piece of advice for all state that only grows."""
    found: list[str] = []
    first = ""
    for node in walk(sink):
        endless = [] if isinstance(node, PhysicalSink) else [each for each in kept(node) if each.endless]
        if endless and not isinstance(node, PhysicalSink):
            first = first or node.node
            found.append(f"{node.node} ({' and '.join(dict.fromkeys(each.of for each in endless))})")
    if found := list(dict.fromkeys(found)):
        shown = found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}"
        text = f"without a ttl rows are kept for ever in {shown}: set `ttl` if old rows may be forgotten."
        yield Advice(first, "no ttl", text)
    for node in walk(sink):
        if not isinstance(node, PhysicalJoin | PhysicalAggregate | PhysicalRank) or not node.unmarked:
            continue
        if any(each.endless for each in kept(node)):
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
    return any(not isinstance(each, PhysicalSink) and kept(each) for each in walk(node))
