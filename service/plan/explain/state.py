"""Where a plan keeps rows: which, how, why, and for how long."""

from __future__ import annotations

from collections.abc import Iterator

from rowkind.operators.aggregate_spec import ORDERED, keeps_values
from rowkind.service.job.duration import show
from rowkind.service.physical import (
    PhysicalAggregate,
    PhysicalInput,
    PhysicalJoin,
    PhysicalNode,
    PhysicalNormalize,
    PhysicalRank,
    PhysicalScan,
    PhysicalUnion,
)
from rowkind.service.plan.explain.description import StepState


def kept(node: PhysicalNode) -> tuple[StepState, ...]:
    """What a node keeps; nothing for scans and unions."""
    match node:
        case PhysicalScan() | PhysicalUnion():
            return ()
        case PhysicalJoin():
            return tuple(_join(node))
        case PhysicalAggregate():
            return tuple(_aggregate(node))
        case PhysicalRank():
            return (_rank(node),)
        case PhysicalNormalize():
            return (_normalize(node),)


def called(node: PhysicalNode) -> str:
    """What an operator's input is, in a sentence."""
    match node:
        case PhysicalScan():
            return node.source.table
        case PhysicalNormalize():
            return called(node.input)
        case _:
            return f"the result of {node.node}"


def _join(node: PhysicalJoin) -> Iterator[StepState]:
    for name, below, chosen in (("left", node.left, node.left_input), ("right", node.right, node.right_input)):
        layout, reason = _layout(below, chosen)
        # Of a row that has expired nobody could say whether it is in there.
        whole = node.kind == "not in" and name == "right"
        ttl = chosen.ttl_ms
        kept = "for ever: NOT IN has to know all of them" if whole else _for_long(ttl)
        yield StepState(
            name, called(below), layout, reason, ttl, kept, _order(chosen), endless=ttl is None and not whole
        )
    if node.facts:
        layout = "on every shard, whether there is a row at all and whether one of them is NULL"
        yield StepState("facts", called(node.right), layout, "NOT IN depends on it", None, "for ever")


def _layout(below: PhysicalNode, chosen: PhysicalInput) -> tuple[str, str | None]:
    match chosen.layout:
        case "one row per key":
            return "one row per key", "the join's key contains a unique key"
        case "unique key":
            return (
                f"rows by join key and unique key ({', '.join(each.expression.text for each in below.calc.sub_key)})",
                None,
            )
        case "multiset":
            return "rows by join key, equal ones counted", "no unique key is known"


def _aggregate(node: PhysicalAggregate) -> Iterator[StepState]:
    of, ttl = called(node.input), node.aggregation.ttl_ms
    if node.aggregation.is_global:
        yield StepState("groups", of, "one row, with what has been added up so far", None, None, "for ever")
    else:
        what = "one row per group"
        what += ", with what has been added up so far" if node.aggregation.calls else ", with how many rows it has"
        yield StepState("groups", of, what, None, ttl, _for_long(ttl), endless=ttl is None)
    retracts = node.aggregation.retracts
    calls = [
        call
        for call in node.aggregation.calls
        if keeps_values(call.function, distinct=call.distinct, retracts=retracts)
    ]
    if calls:
        shown = ", ".join(dict.fromkeys(call.text for call in calls))
        ordered = any(call.function in ORDERED for call in calls)
        counted = any(call.distinct and call.function in ("count", "sum", "avg") for call in calls)
        reasons = ["the value may be taken back, and then the next one is needed"] if ordered else []
        reasons += ["DISTINCT has to know how often each value is there"] if counted else []
        where = "" if node.aggregation.is_global else " in each group"
        layout = f"all different values for {shown}{where}"
        yield StepState("values", of, layout, ", and ".join(reasons), ttl, "as long as their group")


def _rank(node: PhysicalRank) -> StepState:
    if node.strategy == "retract":
        layout = "every row, in the order of its partition" if node.partition else "every row, in order"
    elif node.deduplicates:
        layout = "one row per partition" if node.partition else "one row"
    else:
        layout = f"{'of each partition ' if node.partition else ''}the rows whose number is up to {node.last}"
    ttl = node.state.ttl_ms
    return StepState(
        "rows", called(node.input), layout, node.reason, ttl, _for_long(ttl), _order(node.state), ttl is None
    )


def _normalize(node: PhysicalNormalize) -> StepState:
    if node.state.layout == "one row per key":
        layout = f"the last row of each ({', '.join(part.text for part in node.input.calc.key.parts)})"
    else:
        layout = "all rows, equal ones counted"
    ttl = node.state.ttl_ms
    reason = "that is where old rows are found"
    return StepState("rows", called(node.input), layout, reason, ttl, _for_long(ttl), _order(node.state), ttl is None)


def _for_long(ttl_ms: int | None) -> str:
    return "for ever: there is no ttl" if ttl_ms is None else f"each for {show(ttl_ms)} after its last change"


def _order(chosen: PhysicalInput) -> str:
    if not chosen.by_seq:
        return ""
    keyed = chosen.layout != "multiset"
    return "the last change of a key counts" if keyed else "changes count in the order of arrival"
