"""What a checkpoint's state depends on, so that a changed query is never run over the state of another.

The fingerprint of a plan is a flat mapping of readable facts: per node the layout, keys and schemas that decided
which bytes went into which shard. Two plans with equal fingerprints may share a checkpoint. Names, comments, filters
below the state and anything above the last operator may change freely only if no fact changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rowkind.operators.match_calls import Classifier, MatchNumber
from rowkind.service.aggregation import AggregateCall
from rowkind.service.calc import ROW_DIGEST, Calc
from rowkind.service.clocks import Closing, ColumnTime, Ending
from rowkind.service.expression import Expand, Expression
from rowkind.service.keys import Key, SubKeyPart
from rowkind.service.matching import CalledColumn
from rowkind.service.over_call import WindowCall
from rowkind.service.physical import (
    PhysicalAggregate,
    PhysicalInput,
    PhysicalJoin,
    PhysicalLookup,
    PhysicalMatch,
    PhysicalNode,
    PhysicalNormalize,
    PhysicalOver,
    PhysicalRank,
    PhysicalScan,
    PhysicalSession,
    PhysicalSink,
    PhysicalStamp,
    PhysicalTemporalFilter,
    PhysicalUnion,
)
from rowkind.service.physical_tree import inputs, walk
from rowkind.service.python.function import called

Fingerprint = dict[str, str]


def fingerprint(sink: PhysicalSink) -> Fingerprint:
    """The facts of `sink`, by `<node>.<fact>`."""
    facts = {"sink.topic": sink.topic, "sink.mode": sink.mode}
    for node in walk(sink):
        if isinstance(node, PhysicalSink):
            facts["sink.key"] = ", ".join(node.key) or "none"
            # A batch that was written in part is completed by the other tasks: each row must be in the same one again.
            facts["sink.rows"] = "shuffled by key" if node.exchange else "from where they are"
            continue
        own = {**_own(node), "inputs": ", ".join(each.node for each in inputs(node)) or "none"}
        if not isinstance(node, PhysicalUnion):
            own |= _calc(node.calc)
        if not isinstance(node, PhysicalScan | PhysicalUnion):
            own["stage"] = "that of its consumer" if node.fused else "its own"
        facts |= {f"{node.node}.{fact}": value for fact, value in own.items()}
    return facts


def differences(before: Fingerprint, after: Fingerprint) -> list[str]:
    """One line per fact that differs, naming it with both values; of lists, with what the other one has not."""
    return [
        f"{fact}: {' -> '.join(_apart(before.get(fact, 'absent'), after.get(fact, 'absent')))}"
        for fact in sorted(before.keys() | after.keys())
        if before.get(fact) != after.get(fact) and not _first_policy(fact, before)
    ]


def _first_policy(fact: str, before: Fingerprint) -> bool:
    """Whether it is said for the first time what becomes of a row that fails: the query has met none such."""
    return fact.endswith(".on_error") and fact not in before


def _apart(*values: str) -> list[str]:
    """Two values without the parts that they share; whole where only the order of their parts differs."""
    first, second = (value.split(", ") for value in values)
    only = [[part for part in first if part not in second], [part for part in second if part not in first]]
    return [", ".join(parts) or "none" for parts in only] if any(only) else list(values)


def _own(
    node: PhysicalNode,
) -> Fingerprint:
    match node:
        case PhysicalScan():
            return {"topic": node.source.topic, "mode": node.source.mode, **_digest(node)}
        case PhysicalJoin():
            return {
                "kind": node.kind,
                "condition": node.condition.text if node.condition else "none",
                **(_functions(node.condition, of="condition's ") if node.condition else {}),
                "left": _input(node.left_input),
                "right": _input(node.right_input),
            }
        case PhysicalAggregate():
            return {
                "group": _columns(node.aggregation.group),
                "calls": "; ".join(map(_call, node.aggregation.calls)) or "none",
                "state": "values that may be taken back" if node.aggregation.retracts else "sums only",
                **_on_error(node.aggregation.calls, node.calc),
                **_closing(node.aggregation.closing),
                **_ending(node.aggregation.ending),
            }
        case PhysicalRank():
            return {
                "rows": ", ".join(f"{name} {value}" for name, value in asdict(node.ranking).items()),
                "number": ", ".join(
                    name if function == node.ranking.function else f"{name} {function}"
                    for name, function in node.numbers.items()
                )
                or "none",
                "state": f"{node.strategy}, {_input(node.state)}",
                "identity": _columns(node.identity),
                **({"condition": node.condition.expression.text} if node.condition is not None else {}),
                **({"settled": str(node.settled)} if node.settled is not None else {}),
            }
        case PhysicalSession():
            ends = {"ends": "of each row"} if node.ends else {}
            return {"time": node.time, "gap": str(node.gap), **ends, "state": _input(node.state)}
        case PhysicalOver():
            calls = "; ".join(
                f"{call.name}: {call.text}" + " of the last values" * (call.function == "lag" and call.skips)
                for call in node.calls
            )
            tail = {"keeps": "what later rows see" + " by their times" * node.passes} if node.ahead is not None else {}
            own = {"calls": calls, "order": _columns(node.order), "state": _input(node.state), **tail}
            return own | _on_error(node.calls, node.calc)
        case PhysicalLookup():
            match = node.match
            kept = ", what is met as a list" * (node.left.traits.mode != "append" or node.calc.refreshes)
            by = f"arrival{kept}" if match is None else f"{match.left} {match.comparison} {match.right}"
            return {
                "kind": "left" if node.pads else "inner",
                "by": by + (" of versions" if match is not None and match.versions else ""),
                "left": _input(node.left_input),
                "right": _input(node.right_input),
            }
        case PhysicalMatch():
            return _match(node)
        case PhysicalNormalize():
            expired = {"expired": "taken back"} if node.takes_back else {}
            arrivals = {"arrivals": "emitted"} if node.arrivals else {}
            return {"state": _input(node.state), **expired, **arrivals}
        case PhysicalTemporalFilter():
            return {"begins": _time(node.begins), "ends": _time(node.ends), "clock": node.clock.name}
        case PhysicalStamp() | PhysicalUnion():
            return {}


def _match(node: PhysicalMatch) -> Fingerprint:
    sought, found = node.matching.sought, {}
    for name, each in zip(sought.names, node.matching.conditions, strict=True):
        called_ = "" if each is None or not each.calls else f" of {'; '.join(map(_called, each.calls))}"
        found[f"define {name}"] = "always" if each is None else f"{each.condition.text}{called_}"
        found |= {} if each is None else _functions(each.condition, of=f"{name}'s ")
    return {
        "pattern": sought.text,
        "skip": sought.skip_text,
        "within": "any time" if sought.within is None else f"{sought.within} us",
        "rows": "all" if sought.all_rows else "one",
        **found,
        "measures": "; ".join(map(_called, node.matching.calls)) or "none",
        **_closing(node.closing),
    }


def _called(column: CalledColumn) -> str:
    variables = () if isinstance(column.call, Classifier | MatchNumber) else column.call.variables
    several = f" of variables {', '.join(map(str, variables))}" if len(variables) > 1 else ""
    return f"{column.text}{several} AS {column.name} {column.type.sql}"


def _digest(scan: PhysicalScan) -> Fingerprint:
    """What a digest of whole rows is made of, where rows are told apart by it."""
    if all(expression.column != ROW_DIGEST for expression in scan.calc.columns):
        return {}
    return {
        "digest": ", ".join(
            f"{field.name} {field.type.sql}{'' if field.type.nullable else ' NOT NULL'}"
            for field in scan.calc.input.fields
        )
    }


def _calc(calc: Calc) -> Fingerprint:
    # What is done before rows are shuffled is left out: an operator takes them with that and without.
    return {
        **({"expands": "; ".join(map(_expand, calc.expands))} if calc.expands else {}),
        "columns": ", ".join(
            f"{expression.text} AS {field.name} {field.type.sql}{'' if field.type.nullable else ' NOT NULL'}"
            for expression, field in zip(calc.columns, calc.output.fields, strict=True)
        ),
        "filter": calc.predicate.text if calc.predicate else "none",
        "key": _key(calc.key),
        "sub-key": ", ".join(map(_order, calc.sub_key)) or "none",
        "side": str(calc.side),
        **({"arrival": calc.arrival.text} if calc.arrival is not None else {}),
        **_functions(*calc.expressions),
        **({"on_error": calc.on_error} if calc.on_error != "fail" and _computes(calc) else {}),
    }


def _expand(expand: Expand) -> str:
    outer = " or NULL" if expand.outer else ""
    on = f" on {expand.condition.text}" if expand.condition else ""
    where = f" where {expand.predicate.text}" if expand.predicate else ""
    carried = "".join(f", {each.text}" for each in expand.carried)
    return f"{expand.text}{on}{outer} AS {_columns(expand.output.names)} of {expand.array.text}{carried}{where}"


def _computes(calc: Calc) -> bool:
    """Whether anything is evaluated, and so may fail."""
    return bool(calc.expands) or any(each.column is None for each in calc.expressions)


def _functions(*expressions: Expression, of: str = "") -> Fingerprint:
    """Which functions of the job's are called, and what stands for their code."""
    called = dict.fromkeys(function for each in expressions for function in each.functions)
    said = ", ".join(f"{each.name} {each.identity}" for each in called)
    return {f"{of}functions": said} if said else {}


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


def _order(order: SubKeyPart) -> str:
    plain = not order.descending and order.nulls_first
    how = f"{' DESC' if order.descending else ''} NULLS {'FIRST' if order.nulls_first else 'LAST'}"
    return order.expression.text + ("" if plain else how)


def _on_error(calls: Sequence[AggregateCall | WindowCall], calc: Calc) -> Fingerprint:
    """What becomes of rows that fail, where results of these calls make rows fail."""
    fallible = any(call.fallible for call in calls)
    return {"on_error": calc.on_error} if fallible and calc.on_error != "fail" else {}


def _call(call: AggregateCall) -> str:
    arguments = f"{'DISTINCT ' if call.distinct else ''}{', '.join(call.arguments) or '*'}"
    where = f" FILTER ({call.filter})" if call.filter else ""
    order = [f"{o.column}{' DESC' * o.descending} NULLS {'FIRST' if o.nulls_first else 'LAST'}" for o in call.order]
    by = f" ORDER BY {', '.join(order)}" if order else ""
    more = [*map(repr, call.constants), *(["only grows"] if call.grows else []), *(["tries"] if call.tries else [])]
    more += [f"{call.stage} step"] if call.stage != "whole" else []
    how = f" ({', '.join(more)})" if more else ""
    return f"{called(call.function)}({arguments}{by}){where}{how} AS {call.name} {call.type.sql}"


def _columns(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"


def _input(side: PhysicalInput) -> str:
    # The TTL is left out: it may be changed at any time, rows then expire by the new one.
    if side.remade:
        return "made anew of the join below"
    how = f"{side.layout}, {'by arrival' if side.by_seq else 'as a multiset'}"
    return "; ".join([how, *(f"{name} {value}" for name, value in _closing(side.closing).items())])


def _closing(closing: Closing | None) -> Fingerprint:
    if closing is None:
        return {}
    return {"late": _time(closing.late), "kept until": _time(closing.kept), "watermark": closing.clock.name}


def _ending(ending: Ending | None) -> Fingerprint:
    return {} if ending is None else {"kept until": _time(ending.at), "watermark": ending.clock.name}


def _time(time: ColumnTime | None) -> str:
    if time is None:
        return "always"
    return f"{time.column} + {time.later_us} us" + (" or always" if time.null == "always" else "")
