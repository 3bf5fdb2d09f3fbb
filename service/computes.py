"""What a node of a plan computes, as a text without names: nodes of the same text are one in a graph."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace

from rowkind.avro.schema import Record
from rowkind.operators.match_calls import MatchAggregate, Navigation
from rowkind.service.aggregation import AggregateCall, Aggregation
from rowkind.service.clocks import Closing, ColumnTime
from rowkind.service.expression import Expand, Expression
from rowkind.service.keys import Key
from rowkind.service.matching import CalledColumn, DefinedVariable, Matching
from rowkind.service.physical import (
    PhysicalAggregate,
    PhysicalInput,
    PhysicalJoin,
    PhysicalLookup,
    PhysicalMatch,
    PhysicalNode,
    PhysicalNormalize,
    PhysicalOperator,
    PhysicalOver,
    PhysicalRank,
    PhysicalScan,
    PhysicalSession,
    PhysicalStamp,
    PhysicalTemporalFilter,
    PhysicalUnion,
)
from rowkind.service.physical_tree import inputs
from rowkind.service.python.function import called


def computes(node: PhysicalNode, *, ttl: bool = True) -> str:
    """A digest of what a node computes, which is equal where that is, whatever things are called in the SQL.

    Columns are named by their place. `ttl` says whether TTLs count.
    """
    if isinstance(node, PhysicalScan):
        return f"scan {node.source.table}"
    below = [(computes(each, ttl=ttl), _calc(each)) for each in inputs(node)]
    return hashlib.sha256(f"{_own(node, ttl=ttl)} of {below}".encode()).hexdigest()


def _own(node: PhysicalOperator | PhysicalUnion, *, ttl: bool) -> str:
    match node:
        case PhysicalUnion():
            return "union"
        case PhysicalJoin():
            left, right = node.left.calc.output, node.right.calc.output
            condition = _expression(node.condition, _numbered(left.concat(right))) if node.condition else "none"
            sides = [_input(node.left_input, ttl, _numbered(left)), _input(node.right_input, ttl, _numbered(right))]
            return f"{node.kind} join {sides[0]} {sides[1]} if {condition}"
        case PhysicalAggregate():
            return f"aggregate {_aggregation(node.aggregation, ttl=ttl)}"
        case PhysicalRank():
            identity = [_numbered(node.input.calc.output)[name] for name in node.identity]
            functions = [*node.numbers.values()]
            numbered = "numbered" if functions else ""
            more = f" {functions}" if functions not in ([], [node.ranking.function]) else ""
            more += "" if node.settled is None else f" settled {node.settled}"
            if node.condition is not None:
                names = _numbered(node.input.calc.output.concat(node.condition.numbers))
                more += f" if {_expression(node.condition.expression, names)} of {node.condition.functions}"
                more += "" if node.condition.bound is None else f" up to {names[node.condition.bound]}"
            state = _input(node.state, ttl, _numbered(node.input.calc.output))
            return f"rank {node.ranking} {numbered} {node.strategy} {identity} {state}{more}"
        case PhysicalSession():
            names = _numbered(node.input.calc.output)
            ends = " with its end" if node.ends else ""
            return f"session of {names[node.time]} {node.gap}{ends} {_input(node.state, ttl, names)}"
        case PhysicalOver():
            names = _numbered(node.input.calc.output)
            calls = [
                f"{call.function} {[names[each] for each in call.arguments]} {call.type.sql} {call.frame} "
                f"{call.nth}{' of values' * call.skips} if {None if call.filter is None else names[call.filter]}"
                for call in node.calls
            ]
            measure = None if node.measure is None else names[node.measure.column]
            ahead = "" if node.ahead is None else f" in order, {node.ahead} ahead"
            return f"over {calls} by {measure} {_input(node.state, ttl, names)}{ahead}"
        case PhysicalLookup():
            mine, theirs = (_numbered(side.calc.output) for side in (node.left, node.right))
            sides = [_input(node.left_input, ttl, mine), _input(node.right_input, ttl, theirs)]
            match, kind = node.match, "left" if node.pads else "inner"
            by = "arrival"
            if match is not None:
                by = f"{mine[match.left]} {match.comparison} {theirs[match.right]}{' of versions' * match.versions}"
            return f"{kind} lookup {sides[0]} {sides[1]} by {by}"
        case PhysicalMatch():
            names = _numbered(node.input.calc.output)
            return f"match {_matching(node.matching, names)}{_closing(node.closing, names)}"
        case PhysicalNormalize():
            word = "expiry" if node.takes_back else "normalize"
            return f"{word} {_input(node.state, ttl, _numbered(node.input.calc.output))}"
        case PhysicalStamp():
            return "stamp"
        case PhysicalTemporalFilter():
            names = _numbered(node.input.calc.output)
            times = [_time(each, names) for each in (node.begins, node.ends)]
            whole = " in order" * node.whole
            return f"rows from {times[0]} until {times[1]} by {node.clock}{_closing(node.closing, names)}{whole}"


def _input(chosen: PhysicalInput, ttl: bool, names: Mapping[str, str]) -> str:
    remade = " made anew" * chosen.remade
    return repr(chosen if ttl else replace(chosen, ttl_ms=None)) + _closing(chosen.closing, names) + remade


def _closing(closing: Closing | None, names: Mapping[str, str]) -> str:
    if closing is None:
        return ""
    return f" late from {_time(closing.late, names)}, kept until {_time(closing.kept, names)} by {closing.clock}"


def _time(time: ColumnTime | None, names: Mapping[str, str]) -> str:
    return "always" if time is None else f"{names[time.column]} + {time.later_us}{_or_null(time)}"


def _or_null(time: ColumnTime) -> str:
    return ", always if NULL" if time.null == "always" else ""


def _aggregation(aggregation: Aggregation, *, ttl: bool) -> str:
    names = _numbered(aggregation.input)
    group = [names[name] for name in aggregation.group]
    calls = [_call(each, names) for each in aggregation.calls]
    kept = aggregation.ttl_ms if ttl else None
    plain = f"{group} {calls} {_types(aggregation.output)} {aggregation.retracts} {aggregation.is_global} {kept}"
    ending, results = aggregation.ending, _numbered(aggregation.output)
    ends = "" if ending is None else f" ends at {_time(ending.at, results)} by {ending.clock}"
    return plain + _closing(aggregation.closing, names) + ends


def _matching(matching: Matching, names: Mapping[str, str]) -> str:
    sought = replace(matching.sought, text="", skip_text="")
    carried = [names[name] for name in matching.carried]
    calls = [_called(each, names) for each in matching.calls]
    return f"{sought} {[_defined(each, names) for each in matching.conditions]} {carried} {calls}"


def _defined(variable: DefinedVariable | None, names: Mapping[str, str]) -> str:
    if variable is None:
        return "always"
    own = {each.name: f"%{number}" for number, each in enumerate(variable.calls)}
    condition = _expression(variable.condition, {**names, **own})
    return f"{condition} {variable.condition.functions} of {[_called(each, names) for each in variable.calls]}"


def _called(column: CalledColumn, names: Mapping[str, str]) -> str:
    call = column.call
    if isinstance(call, Navigation | MatchAggregate) and call.column is not None:
        call = replace(call, column=names[call.column])
    return f"{call} {column.type}"


def _call(call: AggregateCall, names: Mapping[str, str]) -> str:
    arguments = [names[name] for name in call.arguments]
    where = names[call.filter] if call.filter is not None else ""
    plain = f"{called(call.function)} {call.type} {arguments} {where} {call.distinct}"
    order = [(names[each.column], each.descending, each.nulls_first) for each in call.order]
    more = (order, call.constants, call.grows, call.stage, call.types)
    return f"{plain} {more}" if any(more[:3]) or call.stage != "whole" else plain


def _calc(node: PhysicalNode) -> str:
    if isinstance(node, PhysicalUnion):
        return ""
    calc = node.calc
    # Those of a table are the same for everybody, and who reads which of them says nothing.
    names = {} if isinstance(node, PhysicalScan) else _numbered(calc.input)
    expands = ""
    for each in calc.expands:
        expands, names = f"{expands}{_expand(each, names)} ", _numbered(each.output)
    columns = [_expression(each, names) for each in calc.columns]
    order = [(_expression(each.expression, names), each.descending, each.nulls_first) for each in calc.sub_key]
    predicate = _expression(calc.predicate, names) if calc.predicate else ""
    replaced = [names.get(name, name) for name in calc.replaced_by]
    flags = (calc.side, calc.upsert, calc.nets, isinstance(calc.partial, Aggregation))
    return f"{expands}{columns} {_types(calc.output)} {_key(calc.key, names)} {order} {predicate} {replaced} {flags}"


def _expand(expand: Expand, names: Mapping[str, str]) -> str:
    computed = [_expression(each, names) for each in (expand.array, *expand.carried)]
    predicate = _expression(expand.predicate, names) if expand.predicate else ""
    condition = f" {_expression(expand.condition, _numbered(expand.output))}" if expand.condition else ""
    made = f"{expand.made} {expand.first} {expand.inline} {expand.outer}{condition}"
    return f"{computed} {_types(expand.output)} {predicate} {made}"


def _key(key: Key, names: Mapping[str, str]) -> str:
    salt = "" if key.salt is None else f" {key.salt}"
    apart = f" {key.apart} apart" if key.apart else ""
    plain = f"{key.null_safe} {key.drop_null} {key.constant!r}"
    return f"{[_expression(each, names) for each in key.parts]} {plain}{salt}{apart}"


def _expression(expression: Expression, names: Mapping[str, str]) -> str:
    what = expression.sql if expression.column is None else f'"{names.get(expression.column, expression.column)}"'
    return f"{_renamed(what, names)} {expression.type}"


_TOKEN = re.compile(r"""'(?:[^']|'')*'|"((?:[^"]|"")*)\"""")


def _renamed(sql: str, names: Mapping[str, str]) -> str:
    """DuckDB SQL with other names of columns, which are all quoted there."""

    def other(token: re.Match[str]) -> str:
        if token[1] is None:
            return token[0]
        name = token[1].replace('""', '"')
        return f'"{names.get(name, name)}"'

    return _TOKEN.sub(other, sql)


def _numbered(record: Record) -> Mapping[str, str]:
    return {name: f"${number}" for number, name in enumerate(record.names)}


def _types(record: Record) -> str:
    return ", ".join(f"{each.type.sql}{'' if each.type.nullable else ' NOT NULL'}" for each in record.fields)
