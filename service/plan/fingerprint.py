"""The fingerprint of a plan: the facts on which a checkpoint's state depends.

The fingerprint prevents a changed query from reading state that a different query wrote. It is a flat mapping of
readable facts: for each node, the layout, keys and schemas that decide which bytes go into which shard. Two plans with
equal fingerprints may share a checkpoint. Names, comments, filters below the state and anything above the last operator
may change, as long as no recorded fact changes.

The facts are collected from the fields of the nodes and their calcs. Every field is included unless its declaration
says that the state does not depend on the field (`operators.field_roles`). The names and texts of facts are part of the
checkpoint format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any

from rowkind.avro.schema import Field as Column
from rowkind.operators.field_roles import FACT, ROLE
from rowkind.operators.match.calls import Classifier, MatchNumber
from rowkind.operators.rank.ranking import Ranking
from rowkind.service.physical.aggregation import Aggregation, OrderColumn, PhysicalAggregateCall
from rowkind.service.physical.calc import ROW_DIGEST, Calc
from rowkind.service.physical.clocks import Clock, Closing, ColumnTime, Ending
from rowkind.service.physical.digests import AS_NAMED, ColumnTexts, Walk
from rowkind.service.physical.expression import Expand, Expression
from rowkind.service.physical.keys import Key, SubKeyPart
from rowkind.service.physical.matching import CalledColumn, DefinedVariable, Matching, SoughtPattern
from rowkind.service.physical.node import PhysicalInput, PhysicalNode, PhysicalScan, PhysicalSink, PhysicalUnion
from rowkind.service.physical.operators import (
    PhysicalAggregate,
    PhysicalLookup,
    PhysicalOver,
    PhysicalRank,
    RankCondition,
)
from rowkind.service.physical.over_call import PhysicalWindowCall
from rowkind.service.physical.source_table import SourceTable
from rowkind.service.physical.tree import inputs, walk
from rowkind.service.plan.tree import rule_for
from rowkind.service.python.function import called

Fingerprint = dict[str, str]
NO_TOPIC = "none: changes are printed or discarded"
"""The fact about the topic of a sink without one. `print` and `blackhole` may replace each other."""


def fingerprint(sink: PhysicalSink) -> Fingerprint:
    """Return the facts of the plan of `sink`, keyed by `<node>.<fact>`."""
    facts = {
        "sink.topic": sink.topic or NO_TOPIC,
        "sink.mode": sink.mode,
        "sink.key": _text(sink.key) or "none",
        # The remaining tasks complete a batch that was only partly written, so each row must be in the same task again.
        "sink.rows": "shuffled by key" if sink.exchange else "from where they are",
    }
    for node in walk(sink):
        facts |= {f"{node.node}.{fact}": text for fact, text in _of_node(node).items()}
    return facts


def differences(before: Fingerprint, after: Fingerprint) -> list[str]:
    """Return one line per fact that differs, with both values. Of two lists, only the items that differ are shown."""
    return [
        f"{fact}: {' -> '.join(_apart(before.get(fact, 'absent'), after.get(fact, 'absent')))}"
        for fact in sorted(before.keys() | after.keys())
        if before.get(fact) != after.get(fact) and not _first_policy(fact, before)
    ]


def _first_policy(fact: str, before: Fingerprint) -> bool:
    """Return whether the fact is an error policy that the checkpoint does not record because no row has failed yet."""
    return fact.endswith(".on_error") and fact not in before


def _apart(*values: str) -> list[str]:
    """Return two values without the items that they share. If only the order of items differs, return both in full."""
    first, second = (value.split(", ") for value in values)
    only = [[part for part in first if part not in second], [part for part in second if part not in first]]
    return [", ".join(parts) or "none" for parts in only] if any(only) else list(values)


def _of_node(node: PhysicalNode) -> Fingerprint:
    facts = _facts(node) | _digest(node) | {"inputs": ", ".join(each.node for each in inputs(node)) or "none"}
    if isinstance(node, PhysicalUnion):
        return facts
    facts |= _facts(node.calc) | _functions(node.calc.expressions) | _on_error(node)
    return facts if isinstance(node, PhysicalScan) else facts | _stage(fused=node.fused)


def _stage(*, fused: bool) -> Fingerprint:
    return {"stage": "that of its consumer" if fused else "its own"}


def _facts(value: Any) -> Fingerprint:
    """Return the facts about a value's fields, including facts that combine several fields."""
    facts, known = {}, _together(value)
    for each in fields(value):
        name, says, empty = each.metadata.get(FACT) or ("", "", "")
        if name in known:
            facts[name] = known[name]
        elif name or _counts(each, getattr(value, each.name)):
            facts |= _fact(name or each.name, getattr(value, each.name), says, empty)
    return facts | known


def _counts(of: Field[Any], value: Any) -> bool:
    """Return whether a field without a fact name is a fact. Default values are not: older checkpoints omit them."""
    default = of.default_factory() if of.default_factory is not MISSING else of.default
    return FACT not in of.metadata and of.metadata.get(ROLE) not in ("aside", "child") and value != default


def _fact(name: str, value: Any, says: str, empty: str) -> Fingerprint:
    """Return the facts about a field. If the field's value has facts of its own, return those instead."""
    match value:
        case SourceTable():
            generated = {} if value.generation is None else {"generate": repr(value.generation)}
            return {"topic": value.topic, "mode": value.mode} | generated
        case Aggregation() | Matching() | SoughtPattern() | RankCondition():
            return _facts(value) | dict(_defines(value) if isinstance(value, Matching) else ())
        case Closing():
            return {"late": _text(value.late), "kept until": _kept(value.kept), "watermark": value.clock.name}
        case Ending():
            return {"kept until": _text(value.at), "watermark": value.clock.name}
        case Expression():
            return {name: value.text} | (_functions([value], of="condition's ") if name == "condition" else {})
        case bool() | None | ():
            return {name: says if value else empty} if value or empty else {}
    return {name: _text(value)}


def _together(value: Any) -> Fingerprint:
    """Return the facts that combine several fields."""
    match value:
        case PhysicalRank():
            numbers = (name if of == value.ranking.function else f"{name} {of}" for name, of in value.numbers.items())
            state = f"{value.ranking.strategy}, {_text(value.state)}"
            settled = {} if value.ranking.settled is None else {"settled": str(value.ranking.settled)}
            return {"number": ", ".join(numbers) or "none", "state": state} | settled
        case PhysicalOver() if value.ahead is not None:
            return {"keeps": "what later rows see" + " by their times" * value.passes}
        case SoughtPattern() if value.within is not None:
            return {"within": f"{value.within} us"}
        case PhysicalLookup():
            return {"by": _met(value)}
        case Calc():
            named = zip(value.columns, value.output.fields, strict=True)
            return {"columns": ", ".join(f"{each.text} AS {_text(column)}" for each, column in named)}
    return {}


def _met(node: PhysicalLookup) -> str:
    """Return a text that says how a lookup finds the right rows for a left row."""
    if node.match is None:
        return "arrival" + ", what is met as a list" * (node.left.traits.mode != "append" or node.calc.refreshes)
    return f"{node.match.left} {node.match.comparison} {node.match.right}" + " of versions" * node.match.versions


def _defines(matching: Matching) -> Iterator[tuple[str, str]]:
    """Yield the facts about the conditions of a pattern's variables."""
    for name, each in zip(matching.sought.names, matching.conditions, strict=True):
        yield f"define {name}", "always" if each is None else _text(each)
        yield from () if each is None else _functions([each.condition], of=f"{name}'s ").items()


def _digest(node: PhysicalNode) -> Fingerprint:
    """Return the columns that a scan's row digest covers, if the scan emits a row digest."""
    if not isinstance(node, PhysicalScan) or all(each.column != ROW_DIGEST for each in node.calc.columns):
        return {}
    return {"digest": ", ".join(map(_text, node.calc.input.fields))}


def _functions(expressions: Iterable[Expression], of: str = "") -> Fingerprint:
    """Return the job functions that the expressions call, each with a text that identifies its code."""
    called_ = dict.fromkeys(function for each in expressions for function in each.functions)
    return {f"{of}functions": ", ".join(map(called, called_))} if called_ else {}


class _FactWalk(Walk):
    """A walk that writes values on one line, in the form that checkpoints store."""

    def value(self, value: Any, names: ColumnTexts) -> str:
        """Return a value as text, with its columns replaced by the texts in `names`."""
        rule = rule_for(value, _TEXTS)
        return super().value(value, names) if rule is None else rule(value)


_WALK = _FactWalk()


def _text(value: Any) -> str:
    return _WALK.value(value, AS_NAMED)


def _kept(time: ColumnTime | None) -> str:
    return "always" if time is None else _text(time)


def _input(side: PhysicalInput) -> str:
    # The TTL is omitted: it may change at any time, and rows then expire according to the new TTL.
    if side.remade:
        return "made anew of the join below"
    how = f"{side.layout}, {'by arrival' if side.by_seq else 'as a multiset'}"
    closing = {} if side.closing is None else _fact("closing", side.closing, "", "")
    return "; ".join([how, *(f"{name} {value}" for name, value in closing.items())])


def _expand(expand: Expand) -> str:
    outer = " or NULL" if expand.outer else ""
    on = f" on {expand.condition.text}" if expand.condition else ""
    where = f" where {expand.predicate.text}" if expand.predicate else ""
    carried = "".join(f", {each.text}" for each in expand.carried)
    return f"{expand.text}{on}{outer} AS {_text(expand.output.names) or 'none'} of {expand.array.text}{carried}{where}"


def _key(key: Key) -> str:
    if key.constant is not None:
        return f"always {key.constant.decode()}, for every shard"
    parts = [
        f"{part.text} {part.type.sql}{' (NULL = NULL)' if null_safe else ''}"
        for part, null_safe in zip(key.parts, key.null_safe, strict=True)
    ]
    salt = "" if key.salt is None else f"; {key.salt.count} salts, {key.salt.deal}"
    apart = f"; the last {key.apart} apart" if key.apart else ""
    return (", ".join(parts) or "none") + salt + apart


def _sub_key_part(part: SubKeyPart) -> str:
    return part.expression.text + _sorted(part) * (part.descending or not part.nulls_first)


def _sorted(order: SubKeyPart | OrderColumn) -> str:
    return f"{' DESC' if order.descending else ''} NULLS {'FIRST' if order.nulls_first else 'LAST'}"


def _call(call: PhysicalAggregateCall) -> str:
    arguments = f"{'DISTINCT ' if call.distinct else ''}{', '.join(call.arguments) or '*'}"
    by = f" ORDER BY {_text(call.order)}" if call.order else ""
    where = f" FILTER ({call.filter})" if call.filter else ""
    more = [*map(repr, call.constants), *(["only grows"] if call.grows else []), *(["tries"] if call.tries else [])]
    more += [f"{call.stage} step"] if call.stage != "whole" else []
    how = f" ({', '.join(more)})" if more else ""
    return f"{called(call.function)}({arguments}{by}){where}{how} AS {call.name} {call.type.sql}"


def _called_column(column: CalledColumn) -> str:
    variables = () if isinstance(column.call, Classifier | MatchNumber) else column.call.variables
    several = f" of variables {', '.join(map(str, variables))}" if len(variables) > 1 else ""
    return f"{column.text}{several} AS {column.name} {column.type.sql}"


def _on_error(node: PhysicalNode) -> Fingerprint:
    """Return the error policy if an expression in the node's calc or one of its calls may fail."""
    calc = node.calc
    computes = bool(calc.expands) or any(each.column is None for each in calc.expressions)
    if calc.on_error == "fail" or not (computes or any(call.fallible for call in _calls(node))):
        return {}
    return {"on_error": calc.on_error}


def _calls(node: PhysicalNode) -> Sequence[PhysicalAggregateCall | PhysicalWindowCall]:
    if isinstance(node, PhysicalAggregate):
        return node.aggregation.calls
    return node.calls if isinstance(node, PhysicalOver) else ()


_SEPARATORS: Mapping[type, str] = dict.fromkeys((Expand, PhysicalAggregateCall, PhysicalWindowCall, CalledColumn), "; ")
"""The separators between values of certain types. Values of all other types are separated by commas."""

_TEXTS: Mapping[type, Callable[[Any], str]] = {
    str: str,
    int: str,
    tuple: lambda each: _SEPARATORS.get(type(each[0]), ", ").join(map(_text, each)) if each else "",
    Ranking: lambda each: f"function {each.function}, first {each.first}, last {each.last}, ties {each.ties}",
    Column: lambda each: f"{each.name} {each.type.sql}{'' if each.type.nullable else ' NOT NULL'}",
    Clock: lambda each: each.name,
    ColumnTime: lambda each: f"{each.column} + {each.later_us} us{' or always' if each.null == 'always' else ''}",
    PhysicalInput: _input,
    Expand: _expand,
    Key: _key,
    SubKeyPart: _sub_key_part,
    OrderColumn: lambda each: f"{each.column}{_sorted(each)}",
    PhysicalAggregateCall: _call,
    PhysicalWindowCall: lambda each: (
        f"{each.name}: {each.text}" + " of the last values" * (each.function == "lag" and each.skips)
    ),
    CalledColumn: _called_column,
    DefinedVariable: lambda each: f"{each.condition.text}{f' of {_text(each.calls)}' if each.calls else ''}",
}
"""Functions that write values of certain types. `Walk` writes values of all other types."""
