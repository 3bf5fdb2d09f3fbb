"""What each node of a plan does, in one line of SQL words."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rowkind.operators.facts import HAS_NULL
from rowkind.service.aggregation import AggregateCall
from rowkind.service.physical import (
    PhysicalAggregate,
    PhysicalJoin,
    PhysicalLookup,
    PhysicalMatch,
    PhysicalNode,
    PhysicalNormalize,
    PhysicalOver,
    PhysicalRank,
    PhysicalScan,
    PhysicalSession,
    PhysicalStamp,
    PhysicalTemporalFilter,
    PhysicalUnion,
)
from rowkind.service.plan.explain.matches import match_title, match_values
from rowkind.service.plan.explain.state import by, called, moment
from rowkind.service.plan.scalar.scalars import resolved, show
from rowkind.service.plan.scalar.time_windows import interval

_JOINS = {"semi": "SEMI", "anti": "ANTI", "not in": "NULL-AWARE ANTI", "mark": "MARK", "in": "NULL-AWARE MARK"}


def title(node: PhysicalNode) -> str:
    """The line behind the node's name."""
    match node:
        case PhysicalScan():
            alias = "" if node.alias == node.source.table else f" AS {node.alias}"
            return f"table {node.source.table}{alias} from topic {node.source.topic}"
        case PhysicalJoin():
            kind = _JOINS.get(node.kind, node.kind.upper())
            on = " AND ".join(_pairs(node))
            return f"{kind} JOIN ON {on}" if on else f"{kind} JOIN without an equal key"
        case PhysicalAggregate():
            return _fact(node) if node.calc.key.constant is not None else _aggregate(node)
        case PhysicalRank():
            return _deduplicate(node) if node.ranking.takes_one else _rank(node)
        case PhysicalSession():
            partition = f" PARTITION BY {', '.join(node.partition)}" if node.partition else ""
            return f"SESSION of {node.order} with a gap of {_gap(node)}{partition}"
        case PhysicalOver():
            return ", ".join(f"{call.text} AS {_own(call.name)}" for call in node.calls)
        case PhysicalLookup():
            what = f"{'LEFT ' * node.pads}{'LOOKUP' if node.match is None else 'ASOF JOIN'}"
            return f"{what} ON {' AND '.join([*_pairs(node), *_times(node)]) or 'TRUE'}"
        case PhysicalNormalize():
            return f"{'rows alive' if node.takes_back else 'exact changes'} of {called(node.input)}"
        case PhysicalTemporalFilter():
            return _passing(node)
        case PhysicalStamp():
            return "rows with the time at which they are processed"
        case PhysicalMatch():
            return match_title(node)
        case PhysicalUnion():
            return f"UNION ALL of {len(node.inputs)} inputs"


def titled_values(node: PhysicalNode) -> dict[str, Any]:
    """What the title says, for programs."""
    match node:
        case PhysicalScan():
            return {
                "table": node.source.table,
                "topic": node.source.topic,
                "alias": node.alias,
                "table_mode": node.source.mode,
                "primary_key": list(node.source.primary_key),
                "exact": node.source.exact,
            }
        case PhysicalJoin():
            return {"join": node.kind, "on": _pairs(node)}
        case PhysicalAggregate() if node.calc.key.constant is not None:
            return {"fact": "nulls" if node.calc.key.constant == HAS_NULL else "rows"}
        case PhysicalAggregate():
            calls = [{"name": call.name, "sql": _written(call)} for call in node.aggregation.calls]
            return {"group_by": _group(node), "calls": calls}
        case PhysicalRank():
            return {
                **asdict(node.ranking),
                **_number_values(node),
                "partition_by": list(node.partition),
                "order_by": list(node.order),
            }
        case PhysicalSession():
            return {"time": node.order, "gap": _gap(node), "partition_by": list(node.partition)}
        case PhysicalOver():
            return {
                "partition_by": list(node.partition),
                "order_by": list(node.order),
                "calls": [{"name": call.name, "sql": call.text} for call in node.calls],
            }
        case PhysicalLookup():
            versions = node.match is not None and node.match.versions
            return {
                "join": "left" if node.pads else "inner",
                "on": [*_pairs(node), *_times(node)],
                "versions": versions,
            }
        case PhysicalMatch():
            return match_values(node)
        case PhysicalNormalize() | PhysicalStamp() | PhysicalUnion():
            return {}
        case PhysicalTemporalFilter():
            times = {"begins": node.begins, "ends": node.ends}
            order = {"order_by": list(node.order)} if node.order else {}
            told = {name: moment(at) for name, at in times.items() if at is not None}
            return {"clock": node.clock.name, **told, **order}


def _passing(node: PhysicalTemporalFilter) -> str:
    """From when on and until when rows are let through."""
    when = " in the order of their time, each when" if node.whole else " from when"
    when = f" in the order of {', '.join(node.order)}, each when" if node.order else when
    begins = "" if node.begins is None else f"{when} {by(node.clock)} passes {moment(node.begins)}"
    if isinstance(node.input, PhysicalJoin) and node.input.kind != "anti" and node.begins is not None:
        begins = f" with a match, and those without one{begins}" if node.begins.null == "always" else begins
    return f"rows{begins}{'' if node.ends is None else f' until {by(node.clock)} passes {moment(node.ends)}'}"


def _times(node: PhysicalLookup) -> list[str]:
    """How times of the two sides compare."""
    match = node.match
    return [] if match is None else [f"{show(resolved(match.left))} {match.comparison} {show(resolved(match.right))}"]


def _pairs(node: PhysicalJoin | PhysicalLookup) -> list[str]:
    left, right = node.left.calc.key, node.right.calc.key
    pairs = zip(left.parts, right.parts, left.null_safe, strict=True)
    return [f"{a.text} {'<=>' if null_safe else '='} {b.text}" for a, b, null_safe in pairs]


def _group(node: PhysicalAggregate) -> list[str]:
    return [show(resolved(name)) for name in node.aggregation.group]


def _aggregate(node: PhysicalAggregate) -> str:
    calls = ", ".join(map(_call, node.aggregation.calls))
    group = ", ".join(_group(node))
    if not calls:
        return f"DISTINCT {group}" if group else "one row, whatever the rows are"
    return f"{calls} over all rows" if node.aggregation.is_global else f"{calls} GROUP BY {group}"


def _fact(node: PhysicalAggregate) -> str:
    what = "NULLs" if node.calc.key.constant == HAS_NULL else "rows"
    return f"whether {called(node.input)} has {what}"


def _call(call: AggregateCall) -> str:
    return f"{_written(call)} AS {show(resolved(call.name))}"


def _written(call: AggregateCall) -> str:
    # Where the plan itself wants to count, there is no call in the SQL.
    return "COUNT(*)" if call.function == "count" and not call.arguments and call.filter is None else call.text


def _rank(node: PhysicalRank) -> str:
    ranking = node.ranking
    numbers = str(ranking.first) if ranking.first == ranking.last else f"{ranking.first} to {ranking.last}"
    if ranking.last is None:
        numbers = "of every row" if ranking.first == 1 else f"from {ranking.first} on"
    partition = f" PARTITION BY {', '.join(node.partition)}" if node.partition else ""
    order = f" ORDER BY {', '.join(node.order)}" if node.order else ""
    names = (
        f"{'' if function == ranking.function else f'{function.upper()} '}AS {show(resolved(name))}"
        for name, function in node.numbers.items()
    )
    columns = f" {', '.join(names)}" if node.numbers else ""
    return f"{ranking.function.upper()} {numbers}{partition}{order}{columns}"


def _number_values(node: PhysicalRank) -> dict[str, Any]:
    """The columns with numbers, for programs: that of the rank's own function, and all where there are others."""
    own = next((name for name, function in node.numbers.items() if function == node.ranking.function), None)
    numbers = [{"name": name, "function": function} for name, function in node.numbers.items()]
    return {"number": own} | ({"numbers": numbers} if len(numbers) != (own is not None) else {})


def _own(name: str) -> str:
    """A column as the user wrote it."""
    return show(resolved(name))


def _gap(node: PhysicalSession) -> str:
    return show(interval(node.gap))


def _deduplicate(node: PhysicalRank) -> str:
    per = f" per {', '.join(node.partition)}" if node.partition else " of all"
    if len(node.order) != 1:
        by = f" by {', '.join(node.order)}" if node.order else ""
        return f"the first row{by}{per}"
    (order,) = node.order
    plain = order.removesuffix(" DESC")
    which = "first" if plain == order else "last"
    return f"the {which} row to arrive{per}" if plain == "arrival" else f"the {which} row by {plain}{per}"
