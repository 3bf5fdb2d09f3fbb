"""Descriptions of a query's plans: each node, and how the node's consumer uses it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rowkind.operators.field_roles import roles as field_roles
from rowkind.service.physical.aggregation import Aggregation
from rowkind.service.physical.calc import ROW_DIGEST, Calc, LocalTopK
from rowkind.service.physical.computes import computes
from rowkind.service.physical.expression import Expand
from rowkind.service.physical.graph import GraphOperator, graph, is_shuffled
from rowkind.service.physical.node import PhysicalNode, PhysicalScan, PhysicalSink, PhysicalUnion
from rowkind.service.physical.operators import PhysicalAggregate
from rowkind.service.physical.sink_target import destination
from rowkind.service.plan.explain.advice import advice
from rowkind.service.plan.explain.description import Description, Fact, QueryDescription, Step, Way
from rowkind.service.plan.explain.records import column_values, columns
from rowkind.service.plan.explain.values import (
    ABSENT,
    CalcValues,
    ExpandValues,
    FirstStep,
    OutcomeValues,
    Role,
    SinkValues,
)
from rowkind.service.plan.operators import described
from rowkind.service.python.function import PythonFunction

_KINDS = {
    "append": "append: +I only",
    "retract": "retract: +I, -U, +U, -D",
    "upsert": "upsert: +I, +U, -D by key, without old rows",
}
_DELIVERIES = {"exactly_once": "exactly once", "at_least_once": "at least once"}


def describe(name: str, sinks: Sequence[PhysicalSink], sqls: Mapping[str, str] | None = None) -> QueryDescription:
    """Describe a query's plans in words and values. `sqls` maps each sink to the SQL that the user wrote for it."""
    whole = graph(sinks)
    describing = _Describing({each.identity: each for each in whole.operators}, whole.levels)
    plans = tuple(describing.sink(sink, (sqls or {}).get(sink.name, "")) for sink in sinks)
    return QueryDescription(name, plans, whole.levels, tuple(each.scan.source.table for each in whole.scans))


def _to(sink: PhysicalSink) -> str:
    """Return the end of the sink's title, which says where the changes go."""
    if sink.to == "topic":
        return f" into topic {sink.topic}, {_DELIVERIES[sink.delivery]}"
    return f", {destination(sink.to, '')}{', at least once' if sink.to == 'print' else ''}"


def _sink_values(sink: PhysicalSink) -> SinkValues:
    """Return the values that describe a sink. Only a topic has a delivery."""
    topic, delivery, to = (sink.topic, sink.delivery, ABSENT) if sink.to == "topic" else (ABSENT, ABSENT, sink.to)
    return SinkValues(topic, sink.mode, sink.key, delivery, column_values(sink.value), sink.fixes or ABSENT, to)


def _fixed(sink: PhysicalSink) -> Iterator[Fact]:
    if sink.fixes:
        text = (
            f"{', '.join(sink.fixes)}: all rows with the same key have the same values in these columns, so "
            "they are in one shard"
        )
        yield Fact("key determines", text)


@dataclass
class _Describing:
    """Describes a query's plans one after the other. An operator that several plans share is described only once."""

    operators: Mapping[str, GraphOperator]
    levels: int
    _described: set[str] = field(default_factory=set)
    _scans: set[str] = field(default_factory=set)
    _sink: str = ""

    def sink(self, sink: PhysicalSink, sql: str) -> Description:
        self._sink, self._scans = sink.name, set()
        key = f" on ({', '.join(sink.key)})" if sink.key else ""
        root = Step(
            name=sink.name,
            kind="sink",
            title=f"{sink.mode}{key}{_to(sink)}",
            values=(_sink_values(sink),),
            facts=(Fact("columns", columns(sink.value)), *_fixed(sink)),
            inputs=(self._step(sink.input, sink, "input", None),),
        )
        # Advice on an operator that several sinks share is given once: in the sink where the operator is described.
        here = {step.name for step in root.walk() if step.same_as in (None, (sink.name, step.name))}
        return Description(root, tuple(each for each in advice(sink) if each.about in here), sql)

    def _step(self, node: PhysicalNode, consumer: PhysicalNode | PhysicalSink, role: Role, level: int | None) -> Step:
        """Describe a node from the point of view of its consumer. `level` is the consumer's level."""
        operator = None if isinstance(node, PhysicalScan | PhysicalUnion) else self.operators[computes(node)]
        own = None if operator is None else operator.level
        way = _way(node, consumer, role, same_stage=own is not None and own == level)
        same_as = self._same_as(node, operator)
        to, inside = (consumer, level) if isinstance(node, PhysicalUnion) else (node, own)
        below = (
            ()
            if same_as
            else tuple(
                self._step(each, to, role if isinstance(node, PhysicalUnion) else each_role, inside)
                for each, each_role in _below(node)
            )
        )
        own_, calc = described(node), None if isinstance(node, PhysicalUnion) else _calc_values(node)
        facts = [
            *(() if same_as else own_.facts),
            *(() if calc is None else _calc_facts(node, calc)),
            *_outcome_facts(node, consumer, way),
        ]
        if same_as is not None:
            where = "" if same_as[0] == self._sink else f" of sink {same_as[0]}"
            facts = [Fact("same as", f"{same_as[1]}{where}: the step runs only once"), *facts]
        if own is not None and self.levels > 1:
            facts.append(Fact("stage", f"{own} of {self.levels}"))
        details = () if same_as else (own_.details,)
        return Step(
            name=node.node,
            kind=own_.kind,
            title=own_.title,
            values=(own_.values, *details, *(() if calc is None else (calc,)), _outcome_values(node)),
            facts=tuple(facts),
            state=() if same_as else own_.state,
            inputs=below,
            way=way,
            stage=own,
            same_as=same_as,
        )

    def _same_as(self, node: PhysicalNode, operator: GraphOperator | None) -> tuple[str, str] | None:
        """Return the sink and the name of the step if the same step has already been described, otherwise None."""
        if isinstance(node, PhysicalScan):
            before = node.node in self._scans
            self._scans.add(node.node)
            return (self._sink, node.node) if before else None
        if operator is None:
            return None
        before = operator.identity in self._described
        self._described.add(operator.identity)
        return (operator.sink, operator.node.node) if before else None


def _below(node: PhysicalNode) -> Iterator[tuple[PhysicalNode, Role]]:
    """Yield the inputs of a node, each with its role."""
    roles: Mapping[str, Role] = {"left": "left", "right": "right", "facts": "fact"}
    for name, role in field_roles(type(node)):
        below = getattr(node, name)
        for each in () if role != "child" else below if isinstance(below, tuple) else (below,):
            yield each, roles.get(name, "input")


def _way(node: PhysicalNode, consumer: PhysicalNode | PhysicalSink, role: Role, *, same_stage: bool) -> Way:
    calc, mode = node.calc, node.traits.mode
    by = tuple(part.text for part in calc.key.decisive)
    if isinstance(consumer, PhysicalSink):
        return Way(consumer.name, role, "shuffled" if is_shuffled(node, consumer) else "unmoved", consumer.key, mode)
    if calc.key.constant is not None:
        return Way(consumer.node, role, "every shard", (), mode)
    if same_stage:
        return Way(consumer.node, role, "same stage", by, mode, _first(calc))
    salt = calc.key.salt
    copies = salt is not None and salt.deal == "copies"
    shards = None if salt is None else salt.count
    spread_over, copied_to = (None, shards) if copies else (shards, None)
    return Way(consumer.node, role, "shuffled", by, mode, _first(calc), spread_over, copied_to)


def _first(calc: Calc) -> FirstStep | None:
    match calc.partial:
        case Aggregation():
            return "added up"
        case LocalTopK():
            return "ranked"
        case None:
            return None


def _calc_facts(node: PhysicalNode, values: CalcValues) -> Iterator[Fact]:
    """Yield the facts about the node's calc. `values` are the same facts in machine-readable form."""
    calc = node.calc
    if calc.expands:
        yield Fact("expands", "; then ".join(map(_expand, calc.expands)))
    if calc.predicate is not None:
        swallows = "; a row that fails it is emitted as a delete of its key" if calc.upsert else ""
        yield Fact("filter", calc.predicate.text + swallows)
    if values.drops_null_keys is not ABSENT:
        yield Fact("drops", "rows with a NULL key, because they match nothing")
    if values.digested is not ABSENT:
        yield Fact("row digest", "of all columns, so that a retraction removes the right row")
    if values.computes is not ABSENT:
        yield Fact("computes", ", ".join(map(" = ".join, values.computes.items())))
    if values.functions is not ABSENT:
        yield Fact("python", ", ".join(f"{name} is {where}" for name, where in values.functions.items()))


def _calc_values(node: PhysicalNode) -> CalcValues:
    """Return the values that describe the node's calc, in machine-readable form."""
    calc = node.calc
    matched = [part.type.nullable and not safe for part, safe in zip(calc.key.parts, calc.key.null_safe, strict=False)]
    named = zip(calc.output.names, calc.columns, strict=True)
    return CalcValues(
        list(map(_expand_values, calc.expands)) or ABSENT,
        ABSENT if calc.predicate is None else calc.predicate.text,
        (calc.upsert and calc.predicate is not None) or ABSENT,
        (calc.key.drop_null and any(matched)) or ABSENT,
        any(each.column == ROW_DIGEST for each in calc.columns) or ABSENT,
        {name: each.text for name, each in named if each.column is None} or ABSENT,
        _functions(node) or ABSENT,
    )


def _expand(expand: Expand) -> str:
    rows = "each row" if expand.predicate is None else f"each row where {expand.predicate.text}"
    which = "" if expand.condition is None else f" where {expand.condition.text}"
    return f"{rows} into one row per element of {expand.text}{which}" + (
        ", or one row with NULLs" if expand.outer else ""
    )


def _expand_values(expand: Expand) -> ExpandValues:
    where = (ABSENT if each is None else each.text for each in (expand.predicate, expand.condition))
    return ExpandValues(expand.text, expand.outer, *where)


def _functions(node: PhysicalNode) -> Mapping[str, str]:
    """Return the job functions that the node calls, each with the place where it is defined."""
    called = dict.fromkeys(each for expression in node.calc.expressions for each in expression.functions)
    if isinstance(node, PhysicalAggregate):
        calls = (call.function for call in node.aggregation.calls)
        called |= dict.fromkeys(each for each in calls if isinstance(each, PythonFunction))
    return {each.name: f"{each.module}:{each.attribute}" for each in called}


def _outcome_facts(node: PhysicalNode, consumer: PhysicalNode | PhysicalSink, way: Way) -> Iterator[Fact]:
    """Yield the facts about the node's output and the way to its consumer."""
    traits = node.traits
    # The sink already lists the columns that it receives.
    if not isinstance(consumer, PhysicalSink):
        yield Fact("output", columns(node.calc.output) or "no columns")
    spared = traits.mode == "retract" and not traits.needs_before
    text = _KINDS[traits.mode] + ("; the consumer does not need -U" if spared else "")
    yield Fact("changes", text + ("; and TTL refreshes" if _refreshes(node) else ""))
    keys = "at most one row" if () in traits.unique_keys else ", ".join(map(_tuple, traits.unique_keys))
    yield Fact("unique keys", keys or "none known")
    if traits.upsert_key and traits.mode != "append":
        yield Fact("upsert key", _tuple(traits.upsert_key))
    if isinstance(node, PhysicalUnion):
        return
    spread = _by(traits.partition_key) or "all rows in one shard"
    yield Fact("partitioned", "like the topic" if isinstance(node, PhysicalScan) else spread)
    yield Fact("exchange", _exchange(way, to_sink=isinstance(consumer, PhysicalSink)))


def _outcome_values(node: PhysicalNode) -> OutcomeValues:
    """Return the values that describe the node's output, in machine-readable form."""
    traits = node.traits
    return OutcomeValues(
        column_values(node.calc.output),
        traits.mode,
        traits.needs_before,
        _refreshes(node),
        traits.unique_keys,
        traits.upsert_key if traits.upsert_key and traits.mode != "append" else ABSENT,
        ABSENT if isinstance(node, PhysicalUnion) else traits.partition_key,
    )


def _refreshes(node: PhysicalNode) -> bool:
    return not isinstance(node, PhysicalScan) and node.calc.refreshes


def _exchange(way: Way, *, to_sink: bool) -> str:
    to = f"to {way.to}" + (f" as its {way.role}" if way.role in ("left", "right") else "")
    if to_sink:
        return f"to the sink, shuffled {_by(way.by)}" if way.how == "shuffled" else "to the sink, without a shuffle"
    first = f"{way.first_step} in each task first, then " if way.first_step else ""
    match way.how:
        case "same stage":
            return f"{to}, {first}in the same stage, without a shuffle"
        case "every shard":
            return f"{to}, on every shard, because it describes the whole input"
        case "shuffled" | "unmoved":
            return (
                f"{to}, {first}shuffled {_by(way.by) or 'into one shard'}{f' and {way.salted}' if way.salted else ''}"
            )


def _by(key: Sequence[str]) -> str:
    return f"by {', '.join(key)}" if key else ""


def _tuple(key: Sequence[str]) -> str:
    return f"({', '.join(key)})"
