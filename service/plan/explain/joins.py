"""Descriptions of joins and lookups for `explain`."""

from __future__ import annotations

from collections.abc import Iterator

from rowkind.service.physical.join_kinds import JOIN_NAMES
from rowkind.service.physical.node import PhysicalInput, PhysicalNode, PhysicalScan
from rowkind.service.physical.operators import PhysicalJoin, PhysicalLookup
from rowkind.service.physical.time_match import TimeMatch
from rowkind.service.physical.tree import remade_inputs
from rowkind.service.plan.explain.description import Fact, NodeDescription, StepState
from rowkind.service.plan.explain.hot_keys import hot_keys, spreadable, spreadable_values
from rowkind.service.plan.explain.state import (
    by,
    called,
    comes_alive,
    equal_ones,
    for_long,
    is_evicted,
    moment,
    order,
    until,
    values,
)
from rowkind.service.plan.explain.values import ABSENT, Advice, JoinDetails, JoinValues, LookupValues
from rowkind.service.plan.scalar.scalars import resolved, show
from rowkind.service.plan.scalar.types import family

_JOINS = {"semi": "SEMI", "anti": "ANTI", "not in": "NULL-AWARE ANTI", "mark": "MARK", "in": "NULL-AWARE MARK"}


def join(node: PhysicalJoin) -> NodeDescription:
    """Describe a join: its kind, its keys, its condition, and how it stores the rows of both sides."""
    kind, on = _JOINS.get(node.kind, node.kind.upper()), _pairs(node)
    remade = tuple(name for name, _ in remade_inputs(node))
    return NodeDescription(
        JOIN_NAMES[node.kind],
        f"{kind} JOIN ON {' AND '.join(on)}" if on else f"{kind} JOIN without an equal key",
        JoinValues(node.kind, on),
        JoinDetails(
            ABSENT if node.condition is None else node.condition.text,
            remade or ABSENT,
            node.placed or ABSENT,
            spreadable_values(spreadable(node)),
        ),
        tuple(_join_facts(node)),
        tuple(_join_state(node)),
        tuple(_join_advice(node)),
    )


def lookup(node: PhysicalLookup) -> NodeDescription:
    """Describe a lookup or as-of join: its keys, how it compares times, and how it stores the rows of both sides."""
    on = [*_pairs(node), *_times(node)]
    what = f"{'LEFT ' * node.pads}{'LOOKUP' if node.match is None else 'ASOF JOIN'}"
    return NodeDescription(
        "lookup" if node.match is None else "asof_join",
        f"{what} ON {' AND '.join(on) or 'TRUE'}",
        LookupValues("left" if node.pads else "inner", on, node.match is not None and node.match.versions),
        state=tuple(_by_arrival(node) if node.match is None else _by_time(node, node.match)),
        advice=tuple(_lookup_advice(node)),
    )


def _pairs(node: PhysicalJoin | PhysicalLookup) -> list[str]:
    left, right = node.left.calc.key, node.right.calc.key
    pairs = zip(left.parts, right.parts, left.null_safe, strict=True)
    return [f"{a.text} {'<=>' if null_safe else '='} {b.text}" for a, b, null_safe in pairs]


def _times(node: PhysicalLookup) -> list[str]:
    """Return the comparison between the times of the two sides, or an empty list if times do not matter."""
    match = node.match
    return [] if match is None else [f"{show(resolved(match.left))} {match.comparison} {show(resolved(match.right))}"]


def _join_facts(node: PhysicalJoin) -> Iterator[Fact]:
    if node.condition is not None:
        yield Fact("condition", node.condition.text)
    for name, below in remade_inputs(node):
        text = f"{called(below)}, recomputed from the state of that step, which has the same key; no rows are kept here"
        yield Fact(f"reads {name}", text)
    if node.placed:
        yield Fact("not as written", node.placed)
    yield from hot_keys(spreadable(node), "all rows with the same key are in one shard")


def _join_state(node: PhysicalJoin) -> Iterator[StepState]:
    for name, below, chosen in (("left", node.left, node.left_input), ("right", node.right, node.right_input)):
        if chosen.remade:
            continue
        layout, reason = _layout(below, chosen)
        # NOT IN and IN keep all right rows: if one expired, the join would no longer know that its value exists.
        whole, ttl = node.kind in ("not in", "in") and name == "right", chosen.ttl_ms
        alive, kept = comes_alive(below), f"indefinitely: {node.kind.upper()} needs all of them"
        kept = kept if whole and not alive else for_long(ttl, below, chosen.closing)
        endless = ttl is None and not is_evicted(chosen.closing) and not whole and not alive
        sub_key = _sub_key(below) if chosen.layout == "unique key" else ABSENT
        of = values(below, chosen.layout, chosen.closing, sub_key=sub_key)
        yield StepState(name, of, called(below), layout, reason, ttl, kept, order(chosen), endless)
    if node.facts:
        layout = "on every shard, whether there are any rows and whether any value is NULL"
        reason = f"{node.kind.upper()} depends on it"
        yield StepState("facts", values(node.right, "facts"), called(node.right), layout, reason, None, "indefinitely")


def _by_arrival(node: PhysicalLookup) -> Iterator[StepState]:
    left, right = node.left_input, node.right_input
    if node.left.traits.mode != "append" or node.calc.refreshes:
        layout, reason = "every row with the rows that it matched", "a retraction must equal the row that was emitted"
        of, kept = values(node.left, "every row"), "until it is retracted"
        yield StepState("left", of, called(node.left), layout, reason, None, kept, order(left))
    layout, _ = _layout(node.right, right)
    reason, ttl, of = (
        "a left row matches the rows that are present when it arrives",
        right.ttl_ms,
        values(node.right, right.layout),
    )
    kept, endless = for_long(ttl, node.right), ttl is None and not comes_alive(node.right)
    yield StepState("right", of, called(node.right), layout, reason, ttl, kept, order(right), endless)


def _by_time(node: PhysicalLookup, match: TimeMatch) -> Iterator[StepState]:
    left, right, closing = node.left_input, node.right_input, node.left_input.closing
    layout, reason = "every row by key, in order of time", "its nearest right row may change"
    ttl, kept, of = left.ttl_ms, for_long(left.ttl_ms, node.left, closing), values(node.left, "every row")
    if closing is not None and not match.looks_back:
        kept = f"each until {by(closing.clock)} passes its right row, indefinitely if there is none"
        kept += f"; late once it passes {moment(closing.late)}"
    endless = ttl is None and closing is None and not comes_alive(node.left)
    yield StepState("left", of, called(node.left), layout, reason, ttl, kept, order(left), endless)
    what = "version" if match.versions else "row"
    kept = "indefinitely: no watermark guarantees that no earlier left row follows"
    if closing is not None and match.looks_back:
        kept = f"each until {by(closing.clock)} passes the next {what} of its key"
    elif right.closing is not None and right.closing.kept is not None:
        kept = until(right.closing.clock, right.closing.kept)
    layout, reason = f"every {what} by key, in order of time", "a left row matches the nearest one"
    of = values(node.right, "versions" if match.versions else "every row")
    yield StepState("right", of, called(node.right), layout, reason, None, kept, order(right))


def _layout(below: PhysicalNode, chosen: PhysicalInput) -> tuple[str, str | None]:
    match chosen.layout:
        case "one row per key":
            return "one row per key", "the join's key contains a unique key"
        case "unique key":
            return f"rows by join key and unique key ({', '.join(_sub_key(below))})", None
        case "multiset":
            return f"rows by join key, equal rows {equal_ones(chosen)}", "no unique key is known"


def _sub_key(below: PhysicalNode) -> list[str]:
    return [each.expression.text for each in below.calc.sub_key]


def _join_advice(node: PhysicalJoin) -> Iterator[Advice]:
    if not node.left.calc.key.parts:
        text = (
            f"{node.node} has no equal key: all rows are in one shard, and each change is compared with every "
            "row of the other side. Add an equality to ON if possible."
        )
        yield Advice(node.node, "no equal key", text)
    if node.facts:
        negated, effect = ("NOT ", "empties the result") if node.kind == "not in" else ("", "turns FALSE into NULL")
        word = f"{negated}IN"
        text = (
            f"{node.node} is {word} over columns that may be NULL. A single NULL in {called(node.right)} {effect}. "
            "The step therefore also keeps two counts over all its rows, and reads all rows when one of the counts "
            f"reaches or leaves 0. {negated}EXISTS avoids this, and so does {word} over columns that are NOT NULL."
        )
        yield Advice(node.node, "not in with nulls", text)
    for below, chosen in ((node.left, node.left_input), (node.right, node.right_input)):
        source = below.source if isinstance(below, PhysicalScan) and chosen.layout == "multiset" else None
        if source is not None and source.mode != "append" and not source.primary_key:
            flaw = f"{source.table} has no primary_key, so its rows are found by comparing all columns"
            yield Advice(node.node, "no primary key", f"{flaw}: set primary_key if the table has one.")


def _lookup_advice(node: PhysicalLookup) -> Iterator[Advice]:
    match = node.match
    if not node.left.calc.key.parts:
        yield Advice(node.node, "no equal key", f"{node.node} has no equal key: all rows are in one shard.")
    if match is None or node.left_input.closing is not None:
        return
    kept = "one row of each key" if match.looks_back else "only left rows whose next right row has not arrived"
    by_number = family(node.left.calc.output.type(match.left)) == "integer"
    rows, any_ = called(node.right), "number" if by_number else "time"
    text = f"{node.node} keeps every row of {rows} indefinitely, because a left row with any {any_} may follow."
    if not by_number:
        text += (
            f" If {show(resolved(match.left))} and {show(resolved(match.right))} are times of tables with a "
            f"`watermark`, the step keeps only {kept} from before the watermark."
        )
    yield Advice(node.node, "no watermark", text)
