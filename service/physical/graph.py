"""The graph of a query. Shared operators exist only once, and operators of equal depth run together in one stage.

    level 0          level 1                  level 2              the writer
    [ scans ]  ──▶  [ join    aggregate ] ──▶ [ rank   join ]  ──▶ [ sinks ]
        └──────────────────────────────────────────▲                  ▲
                       └──────────────────────────────────────────────┘

A query has one plan tree per sink. The graph merges operators that do the same computation over the same inputs. The
merged operator has one exit per consumer, each with its own calc. A table is therefore read only once, even if several
operators read it. The operators of a **level** are the members of one stateful stage, each on the shards of its own
key. The number of stages thus equals the depth of the query, not its number of operators. Rows for a deeper level, or
for the writer, pass through the levels in between.

An operator is one level above its highest input. If that input is already partitioned as the operator needs, the
operator is on the same level as the input, and rows are passed on in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Literal

from rowkind.service.physical.calc import Calc
from rowkind.service.physical.clocks import Clock
from rowkind.service.physical.computes import computes
from rowkind.service.physical.node import PhysicalNode, PhysicalOperator, PhysicalScan, PhysicalSink, Traits
from rowkind.service.physical.operators import (
    PhysicalAggregate,
    PhysicalMatch,
    PhysicalNormalize,
    PhysicalTemporalFilter,
)
from rowkind.service.physical.tree import clock, fused, inputs, level, remade_inputs, without_unions


@dataclass(frozen=True)
class Exit:
    """The exit of a scan or operator to one consumer.

    - `node`: the name of the scan or operator in the consumer's plan. `traits`: that plan's facts about the rows.
    - `to`: the position of the consumer. Sinks come after all operators. `into`: the consumer's name in metrics, which
      is `<sink>`, or `<sink>.<operator>` with the first sink that uses the operator.
    - `level`: the level of the consumer. `stays`: whether the rows are already in the consumer's shard.
    - `spreads`: whether the rows go to a sink without a key, so that no key chooses the shard.
    - `nets`: set if only the net effect of a key's changes in a batch matters and the rows still have to be shuffled.
      With `by seq`, a key's last change in order of arrival counts, even within a part of the batch. With `signed`, the
      exit gets all changes that an operator emits in the batch, and drops old rows.
    """

    node: str
    calc: Calc
    to: int
    level: int
    stays: bool
    traits: Traits
    spreads: bool = False
    nets: Literal["by seq", "signed"] | None = None
    into: str = ""


@dataclass(frozen=True)
class GraphScan:
    """The only scan of a table, with its exits. `scan.calc.input` contains all columns that any consumer reads."""

    scan: PhysicalScan
    exits: tuple[Exit, ...]

    @property
    def delete_time(self) -> str | None:
        """The column in which deletes by key carry a time, or None if no consumer asks for it."""
        return next((each.calc.delete_time for each in self.exits if each.calc.delete_time is not None), None)


@dataclass(frozen=True)
class GraphOperator:
    """An operator of the graph.

    - `sink`: the first sink that needs the operator. In that sink's plan, the operator's name is `node.node`.
    - `identity`: the operator's digest, from `computes`.
    - `state`: the name of the operator's state: a digest of its computation, unless a checkpoint contains another name.
    - `refreshes`: whether a consumer needs refreshes, which are rows that were written again unchanged.
    - `reads`: the state of other operators on the same level that this operator reads. It maps this operator's name for
      the state to the other operator's position and the state's name there.
    """

    node: PhysicalOperator
    sink: str
    identity: str
    state: str
    level: int
    exits: tuple[Exit, ...]
    reads: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def clock(self) -> Clock | None:
        """The clock that the operator follows, or None if the operator only uses the batch time."""
        return clock(self.node)

    @property
    def refreshes(self) -> bool:
        """Whether a downstream operator needs refreshes, which are rows that were written again unchanged."""
        return any(each.calc.refreshes for each in self.exits)


@dataclass(frozen=True)
class Graph:
    """The scans, operators and sinks of a query. Each operator comes after all operators that feed it.

    - `levels`: the number of levels with operators, counted from 1. The writer is on the next level.
    - `exchange`: whether rows that leave the last level, or the scans if there are no levels, are shuffled before they
      are written.
    - `states`: the state name of each operator, keyed by `<sink>.<node>` for every plan that contains the operator.
    """

    scans: tuple[GraphScan, ...]
    operators: tuple[GraphOperator, ...]
    sinks: tuple[PhysicalSink, ...]
    levels: int
    exchange: bool
    states: Mapping[str, str]

    @property
    def clocks(self) -> tuple[Clock, ...]:
        """The clocks that the operators follow."""
        return tuple(dict.fromkeys(each.clock for each in self.operators if each.clock is not None))

    @property
    def timed_tables(self) -> frozenset[str]:
        """The tables whose watermarks an operator follows."""
        return frozenset(table for clock in self.clocks for table, _ in clock.tables)

    @property
    def timed_levels(self) -> tuple[int, ...]:
        """The levels at which time must advance even if no rows arrive."""
        return tuple(sorted({each.level for each in self.operators if each.clock is not None}))

    @property
    def writer(self) -> int:
        """The level of the writer."""
        return self.levels + 1

    @property
    def whole_partitions(self) -> bool:
        """Whether the task that reads a partition also writes the partition's rows.

        If so, the partition must not be split, because two tasks would not preserve the order of its rows.
        """
        return not self.levels and not self.exchange

    def place(self, sink: str) -> int:
        """Return the position of a sink."""
        return len(self.operators) + [each.name for each in self.sinks].index(sink)


def graph(
    sinks: Sequence[PhysicalSink], levels: int = 0, *, exchange: bool = False, states: Mapping[str, str] | None = None
) -> Graph:
    """Build the graph from the plans of these sinks.

    Properties that a checkpoint fixes are preserved: at least `levels` levels, the final shuffle (`exchange`), and the
    state names in `states`.
    """
    building = _Building(states or {})
    for sink in sinks:
        building.take(sink)
    return building.graph(levels, exchange=exchange)


def always_runs(node: PhysicalOperator) -> bool:
    """Return whether an operator emits rows even without input, as a global aggregate does."""
    return isinstance(node, PhysicalAggregate) and node.aggregation.is_global


def waits(node: PhysicalOperator) -> bool:
    """Return whether an operator has work to do as time passes, even if no changes arrive."""
    if isinstance(node, PhysicalNormalize):
        return node.takes_back
    return isinstance(node, PhysicalTemporalFilter | PhysicalMatch)


def is_shuffled(node: PhysicalNode, sink: PhysicalSink) -> bool:
    """Return whether rows from a node to a sink are shuffled by the sink's key.

    No shuffle is needed if the key contains the primary key of an upsert topic, because all changes with the same key
    then come from one partition.
    """
    if not sink.exchange or not isinstance(node, PhysicalScan) or node.source.mode != "upsert":
        return sink.exchange
    columns = dict(zip(node.calc.output.names, (each.column for each in node.calc.columns), strict=True))
    return not {columns[name] for name in sink.key} >= set(node.source.primary_key)


@dataclass
class _Edge:
    """An edge to a consumer.

    `origin` is the name of a table or the position of an operator. `node` is that scan or operator in the consumer's
    plan.
    """

    origin: str | int
    node: PhysicalScan | PhysicalOperator

    def exit(self, to: int, level: int, into: str, *, stays: bool) -> Exit:
        """Return the exit to the operator at position `to`, whose name is `into`."""
        return Exit(self.node.node, self.node.calc, to, level, stays, self.node.traits, into=into)

    def to_sink(self, sink: PhysicalSink, to: int, level: int) -> Exit:
        """Return the exit to a sink."""
        stays = not is_shuffled(self.node, sink)
        way = replace(self.exit(to, level, sink.name, stays=stays), spreads=not sink.key)
        if way.stays or sink.mode != "upsert" or self.node.traits.needs_before:
            return way
        if sink.by_seq:
            return replace(way, nets="by seq")
        # A task of a scan reads only part of a batch. An old row that it drops might cancel a change in another part.
        return way if isinstance(self.node, PhysicalScan) else replace(way, nets="signed")


@dataclass
class _Vertex:
    """An operator while the graph is being built."""

    node: PhysicalOperator
    sink: str
    identity: str
    state: str
    level: int
    inputs: list[_Edge]


@dataclass
class _Building:
    """A graph under construction. `states` are the state names that a checkpoint fixes."""

    states: Mapping[str, str]
    _named: dict[str, str] = field(default_factory=dict)
    _places: dict[str, int] = field(default_factory=dict)
    _operators: list[_Vertex] = field(default_factory=list)
    _scans: dict[str, list[PhysicalScan]] = field(default_factory=dict)
    _sinks: list[tuple[PhysicalSink, list[_Edge]]] = field(default_factory=list)

    def take(self, sink: PhysicalSink) -> None:
        """Add a sink and all scans and operators that the sink needs."""
        self._sinks.append((sink, [self._edge(each, sink.name) for each in without_unions(sink.input)]))

    def graph(self, levels: int, *, exchange: bool) -> Graph:
        """Return the complete graph."""
        levels = max([levels, *(each.level for each in self._operators)])
        exits: dict[str | int, list[Exit]] = {}
        for place, vertex in enumerate(self._operators):
            for edge in vertex.inputs:
                into = f"{vertex.sink}.{vertex.node.node}"
                exits.setdefault(edge.origin, []).append(edge.exit(place, vertex.level, into, stays=fused(edge.node)))
        for place, (sink, edges) in enumerate(self._sinks, len(self._operators)):
            for edge in edges:
                exits.setdefault(edge.origin, []).append(edge.to_sink(sink, place, levels + 1))
        clocks = (clock(each.node) for each in self._operators)
        timed = {table for each in clocks if each is not None for table, _ in each.tables}
        return Graph(
            scans=tuple(_scan(scans, exits[table], timed) for table, scans in self._scans.items()),
            operators=tuple(
                GraphOperator(
                    each.node,
                    each.sink,
                    each.identity,
                    each.state,
                    each.level,
                    tuple(exits[place]),
                    dict(self._reads(each.node)),
                )
                for place, each in enumerate(self._operators)
            ),
            sinks=tuple(sink for sink, _ in self._sinks),
            levels=levels,
            exchange=exchange or _last_are_shuffled(exits, self._operators, levels),
            states=self._named,
        )

    def _edge(self, node: PhysicalScan | PhysicalOperator, sink: str) -> _Edge:
        if isinstance(node, PhysicalScan):
            self._scans.setdefault(node.source.table, []).append(node)
            return _Edge(node.source.table, node)
        identity = computes(node)
        place = self._places.get(identity)
        if place is None:
            place = self._places[identity] = self._add(node, identity, sink)
        else:
            self._refresh(place, node)
        self._named[f"{sink}.{node.node}"] = self._operators[place].state
        return _Edge(place, node)

    def _add(self, node: PhysicalOperator, identity: str, sink: str) -> int:
        edges = [self._edge(each, sink) for each in without_unions(*inputs(node))]
        self._operators.append(_Vertex(node, sink, identity, self._state(node, sink), level(node), edges))
        return len(self._operators) - 1

    def _state(self, node: PhysicalOperator, sink: str) -> str:
        if (known := self.states.get(f"{sink}.{node.node}")) is not None:
            return known
        state = computes(node, ttl=False)[:16]
        # The name omits the TTL, because the TTL may change. An operator that differs only in its TTL may have the same
        # name.
        names = (state, *(f"{state}@{sink}{'+' * count}" for count in range(len(self._operators))))
        taken = {each.state for each in self._operators}
        return next(name for name in names if name not in taken)

    def _reads(self, node: PhysicalOperator) -> Iterator[tuple[str, tuple[int, str]]]:
        """Yield the state of each upstream join, at any depth, from which this join's inputs are recomputed."""
        for name, below in remade_inputs(node):
            place = self._places[computes(below)]
            assert self._operators[place].level == level(node), "an operator is in the stage of its level"
            others = [each for each, _ in remade_inputs(below)]
            yield from ((f"{name}.{own}", (place, own)) for own in ("left", "right") if own not in others)
            yield from ((f"{name}.{called}", state) for called, state in self._reads(below))

    def _refresh(self, place: int, again: PhysicalOperator) -> None:
        """Make the inputs of a shared operator emit refreshes if the operator `again` of another plan needs them."""
        for edge, node in zip(self._operators[place].inputs, without_unions(*inputs(again)), strict=True):
            if node.calc.refreshes and not edge.node.calc.refreshes:
                edge.node = replace(edge.node, calc=replace(edge.node.calc, refreshes=True))
            if isinstance(edge.origin, int) and not isinstance(node, PhysicalScan):
                self._refresh(edge.origin, node)


def _last_are_shuffled(exits: Mapping[str | int, Sequence[Exit]], operators: Sequence[_Vertex], levels: int) -> bool:
    """Return whether rows from the last level (the scans, if there are no levels) are shuffled before being written."""
    last: list[str | int] = [place for place, each in enumerate(operators) if each.level == levels]
    if not levels:
        last = list(exits)
    return any(way.level > levels and not way.stays for origin in last for way in exits[origin])


def _scan(scans: Sequence[PhysicalScan], exits: Sequence[Exit], timed: AbstractSet[str]) -> GraphScan:
    """Merge all scans of a table into one scan. It reads all columns that any of them reads, in the table's order.

    If the table is among the `timed` tables, the scan also reads the columns of the watermark's time.
    """
    first = scans[0]
    read = {name for scan in scans for name in scan.calc.input.names}
    if first.source.watermark is not None and first.source.table in timed:
        read |= set(first.source.watermark.time.columns)
    record = first.source.declared.select([name for name in first.source.declared.names if name in read])
    widened = replace(first, calc=replace(first.calc, input=record))
    return GraphScan(widened, tuple(replace(each, calc=replace(each.calc, input=record)) for each in exits))
