"""A plan for people: the tree from the sink down to the topics, and advice.

It says for every step what comes out of it, which kinds of changes, under which keys, and where there is state: how it
is laid out, for how long it is kept, and why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from avro.schema import Record
from service.job.duration import show
from service.plan.physical import Calc, Input, Join, Node, Scan, Sink, Traits, walk

_WIDTH = 100
_LABEL = 15
_TIED = "\u00a0"
_KINDS = {
    "append": "append: +I only",
    "retract": "retract: +I, -U, +U, -D",
    "upsert": "upsert: +I, +U, -D by key, without old rows",
}
_DELIVERIES = {"exactly_once": "exactly once", "at_least_once": "at least once"}


def explain(sink: Sink) -> str:
    """The plan as a tree, with advice below it."""
    key = f" on ({', '.join(sink.key)})" if sink.key else ""
    lines = [f"sink {sink.name}: {sink.mode}{key} into topic {sink.topic}, {_DELIVERIES[sink.delivery]}"]
    lines += _facts("│ ", _sink_facts(sink))
    lines += _tree(sink.input, "└─ ", "   ", None)
    if advice := list(_advice(sink)):
        lines += ["", "advice"]
        for each in advice:
            lines += _wrapped("- ", "  ", each)
    return "\n".join(lines)


def _sink_facts(sink: Sink) -> Iterator[tuple[str, str]]:
    yield "columns", _columns(sink.value)
    if sink.exchange:
        come = sink.input.traits.partition_key
        yield "shuffled", f"by the sink's key, because rows come partitioned {_by(come)}"


def _by(partition_key: Sequence[str]) -> str:
    return f"by {', '.join(partition_key)}" if partition_key else "as the topic's partitions have them"


def _tree(node: Node, first: str, rest: str, chosen: tuple[Join, Input] | None) -> list[str]:
    lines = [first + _title(node)]
    children = [(node.left, node.left_input), (node.right, node.right_input)] if isinstance(node, Join) else []
    facts = _join_facts(node) if isinstance(node, Join) else _scan_facts(node)
    lines += _facts(rest + ("│ " if children else "  "), [*facts, *_outcome(node, chosen), *_state(node, chosen)])
    for number, (child, side) in enumerate(children):
        last = number == len(children) - 1
        assert isinstance(node, Join), "only joins have inputs"
        lines += _tree(child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "), (node, side))
    return lines


def _title(node: Node) -> str:
    if isinstance(node, Scan):
        alias = "" if node.alias == node.table else f" AS {node.alias}"
        return f"{node.node}: table {node.table}{alias} from topic {node.topic}"
    if not node.left.calc.key.parts:
        return f"{node.node}: {node.kind.upper()} JOIN without an equal key"
    pairs = zip(node.left.calc.key.parts, node.right.calc.key.parts, node.left.calc.key.null_safe, strict=True)
    on = " AND ".join(f"{a.text} {'<=>' if null_safe else '='} {b.text}" for a, b, null_safe in pairs)
    return f"{node.node}: {node.kind.upper()} JOIN ON {on}"


def _scan_facts(node: Scan) -> Iterator[tuple[str, str]]:
    yield "reads", _columns(node.calc.input) or "no column, only how many rows there are"
    if node.mode != "append":
        key = f", replaced by ({', '.join(node.primary_key)})" if node.primary_key else ", no primary key"
        yield "table", f"{node.mode}{key}"


def _join_facts(node: Join) -> Iterator[tuple[str, str]]:
    if node.condition is not None:
        yield "and", node.condition.text


def _outcome(node: Node, chosen: tuple[Join, Input] | None) -> Iterator[tuple[str, str]]:
    calc, traits = node.calc, node.traits
    if calc.predicate is not None:
        swallows = "; a row that fails it goes on as a delete of its key" if calc.upsert else ""
        yield "filter", calc.predicate.text + swallows
    if calc.key.drop_null and any(part.type.nullable for part in calc.key.parts):
        yield "drops", "rows whose key is NULL: they match nothing"
    if computed := [_computed(calc, number) for number, each in enumerate(calc.columns) if each.column is None]:
        yield "computes", ", ".join(computed)
    if chosen is not None:
        yield "puts out", _columns(calc.output) or "no column"
    yield "changes", _KINDS[traits.mode] + _need(traits)
    yield "unique keys", ", ".join(f"({', '.join(key)})" for key in traits.unique_keys) or "none known"
    if traits.upsert_key and traits.mode != "append":
        yield "upsert key", f"({', '.join(traits.upsert_key)})"
    one_shard = isinstance(node, Join) and not traits.partition_key
    yield "partitioned", "all rows in one shard" if one_shard else _by(traits.partition_key)


def _computed(calc: Calc, number: int) -> str:
    return f"{calc.output.names[number]} = {calc.columns[number].text}"


def _need(traits: Traits) -> str:
    if traits.mode != "retract":
        return ""
    return "" if traits.needs_before else "; the consumer could do without -U"


def _state(node: Node, chosen: tuple[Join, Input] | None) -> Iterator[tuple[str, str]]:
    if chosen is None:
        return
    join, side = chosen
    yield "state", f"in {join.node}: {_layout(node, side)}"
    kept = f"{show(side.ttl_ms)} after it was last written" if side.ttl_ms else "for ever: there is no ttl"
    yield "kept", kept
    if side.by_seq:
        yield "order", "as it arrives: the last change of a key counts"


def _layout(node: Node, side: Input) -> str:
    match side.layout:
        case "one row per key":
            return "one row per key, because the join's key contains a unique key"
        case "unique key":
            return f"rows by join key and unique key ({', '.join([each.expression.text for each in node.calc.sub])})"
        case "multiset":
            return "a multiset, because no unique key is known: equal rows are counted"


def _advice(sink: Sink) -> Iterator[str]:
    joins = [node for node in walk(sink) if isinstance(node, Join)]
    for join in joins:
        for node, side in ((join.left, join.left_input), (join.right, join.right_input)):
            yield from _advice_on_input(join, node, side)
        if not join.left.calc.key.parts:
            yield (
                f"{join.node} has no equal key: all rows meet in one shard, and each change is compared with every row "
                f"of the other side. Add an equality to ON if there is one."
            )
    scan = sink.input
    if isinstance(scan, Scan) and scan.mode == "retract" and scan.primary_key and sink.mode == "retract":
        yield (
            f"the rows of {scan.table} reach the sink without a step that knows the old ones: each update must bring "
            f"its -U, or the row before it stays."
        )
    if sink.exchange and joins:
        yield (
            f"the sink's key ({', '.join(sink.key)}) is not what the rows come partitioned by, which costs one more "
            f"shuffle per batch."
        )
    if sink.mode == "retract" and not sink.key and (keys := sink.input.traits.unique_keys):
        yield (
            f"the sink has no key, so an update is written as -D and +I. With `key: [{', '.join(keys[0])}]` it is "
            f"written as -U and +U, and all changes of a row go to one partition."
        )


def _advice_on_input(join: Join, node: Node, side: Input) -> Iterator[str]:
    name = node.table if isinstance(node, Scan) else f"the result of {node.node}"
    if side.ttl_ms is None:
        yield f"{join.node} keeps every row of {name} for ever: set `ttl` if old rows may be forgotten."
    if not isinstance(node, Scan):
        return
    if side.layout == "multiset" and node.mode != "append" and not node.primary_key:
        yield f"{name} has no primary_key, so its rows are found by their whole content: give it one if there is one."
    if node.mode == "retract" and node.primary_key and node.traits.needs_before:
        columns = [part.text for part in node.calc.key.parts if not set(part.columns) <= set(node.primary_key)]
        if columns:
            yield (
                f"{name} is joined on {', '.join(columns)}, outside of its primary key: an update that changes it must "
                f"bring its -U, or the row stays under its old key as well."
            )


def _columns(record: Record) -> str:
    # A column stays on one line together with its type.
    return ", ".join(f"{field.name} {field.type}".replace(" ", _TIED) for field in record.fields)


def _facts(margin: str, facts: Sequence[tuple[str, str]] | Iterator[tuple[str, str]]) -> list[str]:
    lines = []
    for label, text in facts:
        lines += _wrapped(f"{margin}  {label:<{_LABEL}}", f"{margin}  {'':<{_LABEL}}", text)
    return lines


def _wrapped(first: str, rest: str, text: str) -> list[str]:
    """The text in lines of a readable width, broken at spaces outside of names and types."""
    lines, line = [], first
    for number, word in enumerate(text.split(" ")):
        if len(line) + len(word) + 1 > _WIDTH and number and line.strip("│ ") and line != rest:
            lines.append(line.rstrip())
            line = rest
        line += word if line in (first, rest) else f" {word}"
    return [each.replace(_TIED, " ") for each in (*lines, line.rstrip())]
