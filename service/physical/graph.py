"""The graph of a query: what several sinks have in common is there once, and what is equally deep runs together.

    level 0          level 1                  level 2              the writer
    [ scans ]  ──▶  [ join    aggregate ] ──▶ [ rank   join ]  ──▶ [ sinks ]
        └──────────────────────────────────────────▲                  ▲
                       └──────────────────────────────────────────────┘

A plan is a tree for each sink. Here operators that compute the same over the same are one, with a calc at its exit for
each consumer; and so a table is read once, whoever reads it. The operators of a **level** are the members of one
stateful stage, each on the shards of its own key, whatever that key is: so a query has as many stages as it is deep,
and not as many as it has operators. What is for a deeper level, or for the writer, rides through the levels between.

An operator lies one level above the deepest of its inputs, or on the same one where that input comes partitioned as the
operator wants it: then their rows are handed on in memory.
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
    """A way out of a scan or an operator.

    - `node`, `traits`: what the scan or operator is called, and what is known of it, in the consumer's plan.
    - `to`: the place of the operator that takes the rows in; sinks have theirs behind all operators.
    - `level`: where that is. `stays`: the rows are in its shard already.
    - `spreads`: nothing says in which shard the rows belong: they go to a sink without a key.
    - `nets`: of the changes of one key only what is left of them in a batch matters, and they have still to be
      shuffled. `by seq`: the last one by arrival is left, also of a part of the batch. `signed`: the changes are all of
      the batch's, as an operator emits them, and old rows are dropped.
    """

    node: str
    calc: Calc
    to: int
    level: int
    stays: bool
    traits: Traits
    spreads: bool = False
    nets: Literal["by seq", "signed"] | None = None


@dataclass(frozen=True)
class GraphScan:
    """A table that is read, and everybody who reads it; `scan.calc.input` has all columns that somebody reads."""

    scan: PhysicalScan
    exits: tuple[Exit, ...]

    @property
    def delete_time(self) -> str | None:
        """The column in which deletes by key are to have a time; None if no reader asks for it."""
        return next((each.calc.delete_time for each in self.exits if each.calc.delete_time is not None), None)


@dataclass(frozen=True)
class GraphOperator:
    """An operator of the graph.

    - `sink`: the first sink that needs it, in whose plan it is called `node.node`.
    - `identity`: what `computes` says of it.
    - `state`: what its state is called: a digest of what it computes, unless a checkpoint has another name for it.
    - `refreshes`: whether somebody wants to know of rows that were written again.
    - `reads`: what it calls state of other operators of its level, the place of each and what that one calls it.
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
        """The time that it goes by where its rows have times of their own; None where it is that of the batch."""
        return clock(self.node)

    @property
    def refreshes(self) -> bool:
        """Whether somebody further down must be told of rows that were written again and stay the same."""
        return any(each.calc.refreshes for each in self.exits)


@dataclass(frozen=True)
class Graph:
    """Scans, operators (each behind those that feed it) and sinks of a query.

    - `levels`: how many of them have operators, counted from 1. The writer is the one behind them.
    - `exchange`: whether what leaves the last level, or the scans if there is none, is shuffled before it is written.
    - `states`: what the state of each operator is called, by `<sink>.<node>` in whichever plan.
    """

    scans: tuple[GraphScan, ...]
    operators: tuple[GraphOperator, ...]
    sinks: tuple[PhysicalSink, ...]
    levels: int
    exchange: bool
    states: Mapping[str, str]

    @property
    def clocks(self) -> tuple[Clock, ...]:
        """The times that its operators go by, but for the time of the batch."""
        return tuple(dict.fromkeys(each.clock for each in self.operators if each.clock is not None))

    @property
    def timed_tables(self) -> frozenset[str]:
        """The tables whose watermarks somebody goes by."""
        return frozenset(table for clock in self.clocks for table, _ in clock.tables)

    @property
    def timed_levels(self) -> tuple[int, ...]:
        """The levels at which time passes also where no rows come."""
        return tuple(sorted({each.level for each in self.operators if each.clock is not None}))

    @property
    def writer(self) -> int:
        """The level of the writer."""
        return self.levels + 1

    @property
    def whole_partitions(self) -> bool:
        """Whether rows are written by who has read them: two tasks would not keep the order of one partition."""
        return not self.levels and not self.exchange

    def place(self, sink: str) -> int:
        """The place of a sink."""
        return len(self.operators) + [each.name for each in self.sinks].index(sink)


def graph(
    sinks: Sequence[PhysicalSink], levels: int = 0, *, exchange: bool = False, states: Mapping[str, str] | None = None
) -> Graph:
    """The graph of the plans of these sinks.

    What a checkpoint was made with stays: so many `levels` at least, the shuffle in the end, the names of its `states`.
    """
    building = _Building(states or {})
    for sink in sinks:
        building.take(sink)
    return building.graph(levels, exchange=exchange)


def always_runs(node: PhysicalOperator) -> bool:
    """Whether an operator has something to say without changes: a global aggregate, that there are no rows."""
    return isinstance(node, PhysicalAggregate) and node.aggregation.is_global


def waits(node: PhysicalOperator) -> bool:
    """Whether an operator has something to do because time has passed, without changes."""
    if isinstance(node, PhysicalNormalize):
        return node.takes_back
    return isinstance(node, PhysicalTemporalFilter | PhysicalMatch)


def is_shuffled(node: PhysicalNode, sink: PhysicalSink) -> bool:
    """Whether what a node sends to a sink goes by way of the sink's key.

    Not where all changes of such a key come from one partition, that of an upsert topic's key.
    """
    if not sink.exchange or not isinstance(node, PhysicalScan) or node.source.mode != "upsert":
        return sink.exchange
    columns = dict(zip(node.calc.output.names, (each.column for each in node.calc.columns), strict=True))
    return not {columns[name] for name in sink.key} >= set(node.source.primary_key)


@dataclass
class _Edge:
    """From a table or the place of an operator to the consumer whose plan has `node` there."""

    origin: str | int
    node: PhysicalScan | PhysicalOperator

    def exit(self, to: int, level: int, *, stays: bool) -> Exit:
        """The way to a consumer."""
        return Exit(self.node.node, self.node.calc, to, level, stays, self.node.traits)

    def to_sink(self, sink: PhysicalSink, to: int, level: int) -> Exit:
        """The way to the writer."""
        stays = not is_shuffled(self.node, sink)
        way = replace(self.exit(to, level, stays=stays), spreads=not sink.key)
        if way.stays or sink.mode != "upsert" or self.node.traits.needs_before:
            return way
        if sink.by_seq:
            return replace(way, nets="by seq")
        # A task reads a part of a batch. The old row that it would leave out may cancel with a change in another part.
        return way if isinstance(self.node, PhysicalScan) else replace(way, nets="signed")


@dataclass
class _Vertex:
    """An operator on its way into the graph."""

    node: PhysicalOperator
    sink: str
    identity: str
    state: str
    level: int
    inputs: list[_Edge]


@dataclass
class _Building:
    """What has been found so far, operators by what they compute; `states` are names that are given."""

    states: Mapping[str, str]
    _named: dict[str, str] = field(default_factory=dict)
    _places: dict[str, int] = field(default_factory=dict)
    _operators: list[_Vertex] = field(default_factory=list)
    _scans: dict[str, list[PhysicalScan]] = field(default_factory=dict)
    _sinks: list[tuple[PhysicalSink, list[_Edge]]] = field(default_factory=list)

    def take(self, sink: PhysicalSink) -> None:
        """Everything that a sink needs."""
        self._sinks.append((sink, [self._edge(each, sink.name) for each in without_unions(sink.input)]))

    def graph(self, levels: int, *, exchange: bool) -> Graph:
        """All of it."""
        levels = max([levels, *(each.level for each in self._operators)])
        exits: dict[str | int, list[Exit]] = {}
        for place, vertex in enumerate(self._operators):
            for edge in vertex.inputs:
                exits.setdefault(edge.origin, []).append(edge.exit(place, vertex.level, stays=fused(edge.node)))
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
        # Another one may be the same but for its TTL, which is no part of the name: it may be changed.
        names = (state, *(f"{state}@{sink}{'+' * count}" for count in range(len(self._operators))))
        taken = {each.state for each in self._operators}
        return next(name for name in names if name not in taken)

    def _reads(self, node: PhysicalOperator) -> Iterator[tuple[str, tuple[int, str]]]:
        """The state of the joins below that keep what inputs of this one are made of, however deep."""
        for name, below in remade_inputs(node):
            place = self._places[computes(below)]
            assert self._operators[place].level == level(node), "state is read in the stage that it belongs to"
            others = [each for each, _ in remade_inputs(below)]
            yield from ((f"{name}.{own}", (place, own)) for own in ("left", "right") if own not in others)
            yield from ((f"{name}.{called}", state) for called, state in self._reads(below))

    def _refresh(self, place: int, again: PhysicalOperator) -> None:
        """Let what comes to an operator say what was written again, if this plan of it wants to know."""
        for edge, node in zip(self._operators[place].inputs, without_unions(*inputs(again)), strict=True):
            if node.calc.refreshes and not edge.node.calc.refreshes:
                edge.node = replace(edge.node, calc=replace(edge.node.calc, refreshes=True))
            if isinstance(edge.origin, int) and not isinstance(node, PhysicalScan):
                self._refresh(edge.origin, node)


def _last_are_shuffled(exits: Mapping[str | int, Sequence[Exit]], operators: Sequence[_Vertex], levels: int) -> bool:
    """Whether rows that leave the last level, or the scans if there is none, are not yet where they are written."""
    last: list[str | int] = [place for place, each in enumerate(operators) if each.level == levels]
    if not levels:
        last = list(exits)
    return any(way.level > levels and not way.stays for origin in last for way in exits[origin])


def _scan(scans: Sequence[PhysicalScan], exits: Sequence[Exit], timed: AbstractSet[str]) -> GraphScan:
    """One scan for all of a table, which reads the columns that somebody reads, in the order of the table.

    Those of its time are read where it is among the `timed` tables.
    """
    first = scans[0]
    read = {name for scan in scans for name in scan.calc.input.names}
    if first.source.watermark is not None and first.source.table in timed:
        read |= set(first.source.watermark.time.columns)
    record = first.source.declared.select([name for name in first.source.declared.names if name in read])
    widened = replace(first, calc=replace(first.calc, input=record))
    return GraphScan(widened, tuple(replace(each, calc=replace(each.calc, input=record)) for each in exits))
