"""What there is to know of each node of a physical plan, as a description."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rowkind.avro.schema import Record
from rowkind.service.aggregation import Aggregation
from rowkind.service.calc import ROW_DIGEST, Calc, Contest
from rowkind.service.computes import computes
from rowkind.service.expression import Expand
from rowkind.service.graph import GraphOperator, graph, is_shuffled
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
    PhysicalSink,
    PhysicalStamp,
    PhysicalTemporalFilter,
    PhysicalUnion,
)
from rowkind.service.physical_tree import remade_inputs
from rowkind.service.plan.explain.advice import advice
from rowkind.service.plan.explain.description import (
    Description,
    Fact,
    FirstStep,
    QueryDescription,
    Role,
    Step,
    StepKind,
    Way,
)
from rowkind.service.plan.explain.hot_keys import hot_keys, salted, spreadable
from rowkind.service.plan.explain.matches import match_facts
from rowkind.service.plan.explain.state import called, concerned, kept
from rowkind.service.plan.explain.tables import table_facts
from rowkind.service.plan.explain.titles import title, titled_values
from rowkind.service.plan.scalar.scalars import resolved, show
from rowkind.service.python.function import PythonFunction

_KINDS = {
    "append": "append: +I only",
    "retract": "retract: +I, -U, +U, -D",
    "upsert": "upsert: +I, +U, -D by key, without old rows",
}
_DELIVERIES = {"exactly_once": "exactly once", "at_least_once": "at least once"}
TIED = "\u00a0"
"""Stands for a space at which no line is broken: a column stays together with its type."""


def describe(name: str, sinks: Sequence[PhysicalSink], sqls: Mapping[str, str] | None = None) -> QueryDescription:
    """The plans of a query in words and values; `sqls` are the queries of the sinks as the user wrote them."""
    whole = graph(sinks)
    describing = _Describing({each.identity: each for each in whole.operators}, whole.levels)
    plans = tuple(describing.sink(sink, (sqls or {}).get(sink.name, "")) for sink in sinks)
    return QueryDescription(name, plans, whole.levels, tuple(each.scan.source.table for each in whole.scans))


def _fixed(sink: PhysicalSink) -> Iterator[Fact]:
    if sink.fixes:
        text = f"{', '.join(sink.fixes)}: no two rows with one key ever differ in that, so they are all in one shard"
        yield Fact("key fixes", text, {"fixes": list(sink.fixes)})


def columns(record: Record) -> str:
    """The columns of a record with their types."""
    return ", ".join(f"{each.name} {each.type}".replace(" ", TIED) for each in record.fields)


def column_values(record: Record) -> list[dict[str, str]]:
    """The same for programs."""
    return [{"name": each.name, "type": str(each.type)} for each in record.fields]


@dataclass
class _Describing:
    """Describes the plans of a query one after the other, each operator of its graph once."""

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
            title=f"{sink.mode}{key} into topic {sink.topic}, {_DELIVERIES[sink.delivery]}",
            facts=(Fact("columns", columns(sink.value), {"columns": column_values(sink.value)}), *_fixed(sink)),
            inputs=(self._step(sink.input, sink, "input", None),),
            values={"topic": sink.topic, "mode": sink.mode, "key": list(sink.key), "delivery": sink.delivery},
        )
        # What is there once needs one piece of advice, where it is described.
        here = {step.name for step in root.walk() if step.same_as in (None, (sink.name, step.name))}
        return Description(root, tuple(each for each in advice(sink) if each.about in here), sql)

    def _step(self, node: PhysicalNode, consumer: PhysicalNode | PhysicalSink, role: Role, level: int | None) -> Step:
        """The node as its consumer, which is on this level, sees it."""
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
        facts = [
            *(() if same_as else _own_facts(node)),
            *([] if isinstance(node, PhysicalUnion) else _calc_facts(node)),
            *_outcome(node, consumer, way),
        ]
        if same_as is not None:
            where = "" if same_as[0] == self._sink else f" of sink {same_as[0]}"
            facts = [Fact("same as", f"{same_as[1]}{where}: it is there once"), *facts]
        if own is not None and self.levels > 1:
            facts.append(Fact("stage", f"{own} of {self.levels}"))
        return Step(
            name=node.node,
            kind=_kind(node),
            title=title(node),
            facts=tuple(facts),
            state=() if same_as else kept(node),
            inputs=below,
            way=way,
            stage=own,
            same_as=same_as,
            values=titled_values(node),
        )

    def _same_as(self, node: PhysicalNode, operator: GraphOperator | None) -> tuple[str, str] | None:
        """Where the same step was described before, if it was."""
        if isinstance(node, PhysicalScan):
            before = node.node in self._scans
            self._scans.add(node.node)
            return (self._sink, node.node) if before else None
        if operator is None:
            return None
        before = operator.identity in self._described
        self._described.add(operator.identity)
        return (operator.sink, operator.node.node) if before else None


def _kind(node: PhysicalNode) -> StepKind:
    match node:
        case PhysicalScan():
            return "scan"
        case PhysicalJoin(kind="semi"):
            return "semi_join"
        case PhysicalJoin(kind="anti" | "not in"):
            return "anti_join"
        case PhysicalJoin(kind="mark" | "in"):
            return "mark_join"
        case PhysicalJoin():
            return "join"
        case PhysicalAggregate():
            return "aggregate"
        case PhysicalRank():
            return "deduplicate" if node.ranking.takes_one else "rank"
        case PhysicalSession():
            return "session"
        case PhysicalOver():
            return "over"
        case PhysicalLookup():
            return "lookup" if node.match is None else "asof_join"
        case PhysicalNormalize():
            return "expiry" if node.takes_back else "normalize"
        case PhysicalTemporalFilter():
            return "temporal_filter"
        case PhysicalStamp():
            return "stamp"
        case PhysicalMatch():
            return "match"
        case PhysicalUnion():
            return "union"


def _below(node: PhysicalNode) -> Iterator[tuple[PhysicalNode, Role]]:
    match node:
        case PhysicalJoin() | PhysicalLookup():
            yield node.left, "left"
            yield node.right, "right"
            for each in node.facts if isinstance(node, PhysicalJoin) else ():
                yield each, "fact"
        case PhysicalUnion():
            for each in node.inputs:
                yield each, "input"
        case PhysicalScan():
            return
        case _:
            yield node.input, "input"


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
        case Contest():
            return "ranked"
        case None:
            return None


def _own_facts(node: PhysicalNode) -> Iterator[Fact]:
    """What only nodes of this sort have."""
    match node:
        case PhysicalScan():
            read = node.calc.input
            text = columns(read) or "no column, only how many rows there are"
            yield Fact("reads", text, {"reads": column_values(read)})
            yield from table_facts(node.source)
        case PhysicalJoin():
            if node.condition is not None:
                yield Fact("and", node.condition.text, {"condition": node.condition.text})
            remade = dict(remade_inputs(node))
            for name, below in remade.items():
                text = f"{called(below)}, made anew of what it keeps by the same key; nothing is kept of it here"
                yield Fact(f"reads {name}", text, {"remade": [*remade]})
            if node.placed:
                yield Fact("not as written", node.placed, {"reason": node.placed})
            yield from hot_keys(spreadable(node), "the rows of a key meet in one shard")
        case PhysicalRank():
            yield from _of_rank(node)
        case PhysicalMatch():
            yield from match_facts(node)
        case PhysicalNormalize(takes_back=False):
            yield Fact("needed", _needed(node), {"reason": node.reason})
        case PhysicalOver(ahead=None):
            yield Fact("a change", concerned(node))
        case PhysicalStamp():
            yield Fact("a batch", "has one time, also when it is done again")
        case (
            PhysicalAggregate()
            | PhysicalSession()
            | PhysicalOver()
            | PhysicalLookup()
            | PhysicalNormalize()
            | PhysicalUnion()
        ):
            return


def _of_rank(node: PhysicalRank) -> Iterator[Fact]:
    if node.condition is not None:
        yield Fact("and", node.condition.expression.text, {"condition": node.condition.expression.text})
        if node.condition.bound is not None:
            bound = show(resolved(node.condition.bound))
            yield Fact("reads to", f"number {bound}, which all rows of a partition share", {"bound": bound})
    if node.settled is not None:
        yield Fact("numbers", f"those above {node.settled} are not told apart", {"settled": node.settled})
    yield Fact("strategy", node.strategy, {"strategy": node.strategy, "reason": node.reason})
    if node.ranking.ties == "latest first":
        yield Fact("ties", "the later arrival counts")
    spread = isinstance(node.input, PhysicalRank) and salted(node.input.input)
    if node.strategy == "retract" and node.ranking.last is not None and not spread:
        yield from hot_keys([node.input], "a partition is ranked in one shard")


def _needed(node: PhysicalNormalize) -> str:
    replaces = node.state.layout == "one row per key"
    flaw = "may leave out old rows" if replaces else "may take back rows that it has not sent"
    return f"{called(node.input)} {flaw}, and {node.reason}"


def _calc_facts(node: PhysicalNode) -> Iterator[Fact]:
    """What happens to rows at the exit of the node."""
    calc = node.calc
    if calc.expands:
        steps = list(map(_expand_values, calc.expands))
        yield Fact("expands", "; then ".join(map(_expand, calc.expands)), {"expands": steps})
    if calc.predicate is not None:
        swallows = "; a row that fails it goes on as a delete of its key" if calc.upsert else ""
        values = {"filter": calc.predicate.text} | ({"filter_deletes": True} if calc.upsert else {})
        yield Fact("filter", calc.predicate.text + swallows, values)
    matched = [part.type.nullable and not safe for part, safe in zip(calc.key.parts, calc.key.null_safe, strict=False)]
    if calc.key.drop_null and any(matched):
        yield Fact("drops", "rows whose key is NULL: they match nothing", {"drops_null_keys": True})
    if any(each.column == ROW_DIGEST for each in calc.columns):
        text = "by a digest of all their columns: a retraction must not take back another one"
        yield Fact("rows differ", text, {"digested": True})
    if computed := [_computed(calc, number) for number, each in enumerate(calc.columns) if each.column is None]:
        yield Fact("computes", ", ".join(map(" = ".join, computed)), {"computes": dict(computed)})
    yield from _functions(node)


def _expand(expand: Expand) -> str:
    rows = "each row" if expand.predicate is None else f"each row where {expand.predicate.text}"
    which = "" if expand.condition is None else f" where {expand.condition.text}"
    return f"{rows} into one per element of {expand.text}{which}" + (", or one with NULLs" if expand.outer else "")


def _expand_values(expand: Expand) -> dict[str, Any]:
    asked = {"filter": expand.predicate, "elements_where": expand.condition}
    where = {name: each.text for name, each in asked.items() if each is not None}
    return {"elements_of": expand.text, "outer": expand.outer, **where}


def _functions(node: PhysicalNode) -> Iterator[Fact]:
    """The functions of the job's that are called."""
    called = dict.fromkeys(each for expression in node.calc.expressions for each in expression.functions)
    if isinstance(node, PhysicalAggregate):
        calls = (call.function for call in node.aggregation.calls)
        called |= dict.fromkeys(each for each in calls if isinstance(each, PythonFunction))
    if called:
        values = {each.name: f"{each.module}:{each.attribute}" for each in called}
        yield Fact("python", ", ".join(f"{name} is {where}" for name, where in values.items()), {"functions": values})


def _computed(calc: Calc, number: int) -> tuple[str, str]:
    return calc.output.names[number], calc.columns[number].text


def _outcome(node: PhysicalNode, consumer: PhysicalNode | PhysicalSink, way: Way) -> Iterator[Fact]:
    """What comes out of the node, and where it goes."""
    traits = node.traits
    # The sink has just said the columns that come to it.
    text = "" if isinstance(consumer, PhysicalSink) else columns(node.calc.output) or "no column"
    yield Fact("output", text, {"columns": column_values(node.calc.output)})
    spared = traits.mode == "retract" and not traits.needs_before
    text = _KINDS[traits.mode] + ("; the consumer could do without -U" if spared else "")
    values = {"mode": traits.mode, "needs_old_rows": traits.needs_before}
    refreshes = not isinstance(node, PhysicalScan) and node.calc.refreshes
    text += "; and refreshes" if refreshes else ""
    yield Fact("changes", text, {**values, "refreshes": refreshes})
    keys = "there is one row" if () in traits.unique_keys else ", ".join(map(_tuple, traits.unique_keys))
    yield Fact("unique keys", keys or "none known", {"unique_keys": [list(key) for key in traits.unique_keys]})
    if traits.upsert_key and traits.mode != "append":
        yield Fact("upsert key", _tuple(traits.upsert_key), {"upsert_key": list(traits.upsert_key)})
    spread = {"partition_key": list(traits.partition_key)}
    match node:
        case PhysicalUnion():
            return
        case PhysicalScan():
            yield Fact("partitioned", "as the topic's partitions have them", spread)
        case _:
            yield Fact("partitioned", _by(traits.partition_key) or "all rows in one shard", spread)
    yield Fact("exchange", _exchange(way, to_sink=isinstance(consumer, PhysicalSink)))


def _exchange(way: Way, *, to_sink: bool) -> str:
    to = f"to {way.to}" + (f" as its {way.role}" if way.role in ("left", "right") else "")
    if to_sink:
        return f"to the sink, shuffled {_by(way.by)}" if way.how == "shuffled" else "to the sink: nothing is shuffled"
    first = f"{way.first_step} in each task first, then " if way.first_step else ""
    match way.how:
        case "same stage":
            return f"{to}, {first}in the same stage: nothing is shuffled"
        case "every shard":
            return f"{to}, on every shard: it is true of the input as a whole"
        case "shuffled" | "unmoved":
            return (
                f"{to}, {first}shuffled {_by(way.by) or 'into one shard'}{f' and {way.salted}' if way.salted else ''}"
            )


def _by(key: Sequence[str]) -> str:
    return f"by {', '.join(key)}" if key else ""


def _tuple(key: Sequence[str]) -> str:
    return f"({', '.join(key)})"
