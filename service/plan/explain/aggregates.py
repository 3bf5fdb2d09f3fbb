"""Descriptions of aggregates for `explain`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rowkind.operators.aggregate.function import ARRIVALS, EXTREMES, GATHERED, MOMENTS, keeps_values
from rowkind.operators.join.facts import HAS_NULL
from rowkind.service.physical.aggregation import Aggregation, PhysicalAggregateCall
from rowkind.service.physical.operators import PhysicalAggregate
from rowkind.service.plan.explain.description import NodeDescription, StepState
from rowkind.service.plan.explain.state import called, comes_alive, for_long, until, values
from rowkind.service.plan.explain.values import Advice, AggregateValues, FactValues, NamedCall, StepValues
from rowkind.service.plan.scalar.scalars import resolved, show
from rowkind.service.python.function import PythonFunction


def aggregate(node: PhysicalAggregate) -> NodeDescription:
    """Describe an aggregate: its groups, its calls and the state that it keeps per group."""
    state = tuple(_state(node))
    title, said = _fact(node) if node.calc.key.constant is not None else _aggregate(node)
    return NodeDescription("aggregate", title, said, state=state, advice=tuple(_advice(node, state)))


def _fact(node: PhysicalAggregate) -> tuple[str, StepValues]:
    nulls = node.calc.key.constant == HAS_NULL
    title = f"whether {called(node.input)} has {'NULLs' if nulls else 'rows'}"
    return title, FactValues("nulls" if nulls else "rows")


def _aggregate(node: PhysicalAggregate) -> tuple[str, StepValues]:
    aggregation = node.aggregation
    by = [show(resolved(name)) for name in aggregation.group]
    said = AggregateValues(by, [NamedCall(call.name, _written(call)) for call in aggregation.calls])
    calls, group = ", ".join(map(_call, aggregation.calls)), ", ".join(by)
    if not calls:
        return f"DISTINCT {group}" if group else "one row, independent of the input", said
    return f"{calls} over all rows" if aggregation.is_global else f"{calls} GROUP BY {group}", said


def _call(call: PhysicalAggregateCall) -> str:
    return f"{_written(call)} AS {show(resolved(call.name))}"


def _written(call: PhysicalAggregateCall) -> str:
    # A count that the planner adds itself is not in the SQL.
    return "COUNT(*)" if call.function == "count" and not call.arguments and call.filter is None else call.text


def _state(node: PhysicalAggregate) -> Iterator[StepState]:
    aggregation, of = node.aggregation, called(node.input)
    yield _groups(node)
    ttl, kept = aggregation.ttl_ms, "as long as their group"
    for call in aggregation.calls:
        own = call.function
        if isinstance(own, PythonFunction) and own.views:
            texts = [f"{view.kind} {view.name}" for view in own.views]
            layout = f"the {' and the '.join(texts)} of {own.name} in each group, with an entry for each element"
            shown = values(node.input, "views", calls=[call.text])
            yield StepState("views", shown, of, layout, "the function stores them", ttl, kept)
    calls = [
        call
        for call in aggregation.calls
        if not isinstance(call.function, PythonFunction)
        and keeps_values(call.function, distinct=call.distinct, retracts=aggregation.retracts and not call.grows)
    ]
    if calls:
        texts = list(dict.fromkeys(call.text for call in calls))
        reasons = list(dict.fromkeys(map(_why_all, calls)))
        where = "" if aggregation.is_global else " in each group"
        layout = f"all distinct values for {', '.join(texts)}{where}"
        shown = values(node.input, "values", calls=texts)
        yield StepState("values", shown, of, layout, ", and ".join(reasons), ttl, kept)


def _groups(node: PhysicalAggregate) -> StepState:
    aggregation, of = node.aggregation, called(node.input)
    ttl, closing, ending = aggregation.ttl_ms, aggregation.closing, aggregation.ending
    shown = values(node.input, "one row per key", closing)
    if aggregation.is_global:
        what = f"one row with the aggregated values{_told_apart(aggregation)}"
        return StepState("groups", shown, of, what, None, None, "indefinitely")
    added = "the aggregated values" if aggregation.calls else "its row count"
    what = f"one row per group with {added}{_told_apart(aggregation)}"
    endless = ttl is None and closing is None and ending is None and not comes_alive(node.input)
    kept = for_long(ttl, node.input, closing) if ending is None else until(ending.clock, ending.at)
    return StepState("groups", shown, of, what, None, ttl, kept, endless=endless)


def _why_all(call: PhysicalAggregateCall) -> str:
    """Return the reason why the state contains all values of a call."""
    if call.function in ARRIVALS:
        return "the next row in order of arrival is needed if the row is retracted"
    if call.function in EXTREMES:
        return "the next value is needed if the value is retracted"
    if call.function in GATHERED:
        return "the result contains all of them, and is recomputed for each group that changes"
    return "DISTINCT needs the number of occurrences of each value"


def _told_apart(aggregation: Aggregation) -> str:
    """Return text about the special values in a group's row of state.

    These are each MIN and MAX for which one value is enough, with the reason, and exact sums of powers.
    """
    extremes = [call for call in aggregation.calls if call.function in EXTREMES]
    one = [call for call in extremes if not aggregation.retracts or call.grows]
    moments = [call for call in aggregation.calls if call.function in MOMENTS and not call.distinct]
    told = ""
    if one:
        why = (
            "a row is only replaced by a row with a better value"
            if aggregation.retracts
            else "the input has no retractions"
        )
        told += f"; one value for {_texts(one)}, because {why}"
    return told + (f"; exact sums of powers for {_texts(moments)}" if moments else "")


def _texts(calls: Sequence[PhysicalAggregateCall]) -> str:
    return ", ".join(dict.fromkeys(call.text for call in calls))


def _advice(node: PhysicalAggregate, state: Sequence[StepState]) -> Iterator[Advice]:
    kept = next((each for each in state if each.name == "values"), None)
    if kept is None:
        return
    text = f"{node.node} keeps {kept.layout}, because {kept.reason}."
    if not any(call.distinct or call.function in GATHERED for call in node.aggregation.calls):
        text += " If the input were an append table, none of them would be kept."
    if node.aggregation.is_global:
        text += " Without GROUP BY, all of them are in one shard."
    yield Advice(node.node, "all values kept", text)
