"""The rows of each step of a plan, computed in memory from the rows of its tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rowkind.avro.same_rows import SameRows
from rowkind.avro.schema import Record
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Emitted
from rowkind.operators.columns.changes import Changes, Int64s, Rows
from rowkind.quantities import counted
from rowkind.service.execute import failures
from rowkind.service.execute.failures import OnFailure
from rowkind.service.execute.stage import MemberOutput
from rowkind.service.physical.calc import ARRIVAL
from rowkind.service.physical.computes import computes
from rowkind.service.physical.graph import Exit, Graph, graph
from rowkind.service.physical.node import PhysicalNode, PhysicalOperator, PhysicalScan, PhysicalSink
from rowkind.service.physical.operators import (
    PhysicalAggregate,
    PhysicalLookup,
    PhysicalStamp,
)
from rowkind.service.physical.tree import inputs, walk, without_unions
from rowkind.service.query.memory import MemoryEngine, pruned
from rowkind.service.why.atoms import FeedingStep
from rowkind.service.why.replay import ReplayBatch, in_order, one_batch
from rowkind.service.why.sources import SourceChanges, live_rows

Origin = str | int
"""A table's name, or the position of an operator in the graph."""


@dataclass(frozen=True)
class StepEdge:
    """The way of rows from a scan or an operator to a consumer. `node` is the scan or operator in the plan."""

    origin: Origin
    way: Exit
    node: FeedingStep


@dataclass(frozen=True)
class Passed:
    """The rows that leave through an exit. `at` is the index of the origin's row from which each row was computed."""

    changes: Changes
    at: Int64s


class PlanRows:
    """The current rows of each step. If the result depends on the order of changes, they are replayed in order."""

    def __init__(self, sink: PhysicalSink, tables: Mapping[str, SourceChanges], now: int) -> None:
        self.sink = sink
        self.graph: Graph = graph([sink])
        self.tables = tables
        self.ordered = depends_on_order(sink)
        self.edges = dict(_edges(self.graph))
        emitted: dict[int, list[Rows]] = defaultdict(list)

        def observe(output: MemberOutput) -> None:
            emitted[output.member.place].append(output.emitted.rows)

        late: dict[str, list[Changes]] = defaultdict(list)
        engine = MemoryEngine(
            sink,
            observe=observe,
            late=lambda node, changes: late[node].append(changes),
        )
        for batch in _batches(tables, now, ordered=self.ordered):
            engine.batch(batch.rows, batch.now)
        self._late = {node: Changes.concat(parts) for node, parts in late.items()}
        self._rows: dict[Origin, Rows] = {
            place: live_rows(Rows.concat(parts), SameRows(self.record(place))) for place, parts in emitted.items()
        }
        for table, changes in tables.items():
            self._rows[table] = (changes.inserted() if table in self._versions else changes.live()).rows
        self._passed: dict[Exit, Passed] = {}

    @cached_property
    def _versions(self) -> frozenset[str]:
        """The tables whose old rows matter too, because a lookup joins the version of an earlier time."""
        right = [node.right for node in walk(self.sink) if isinstance(node, PhysicalLookup)]
        return frozenset(each.source.table for node in right for each in walk(node) if isinstance(each, PhysicalScan))

    @property
    def place(self) -> int:
        """The position of the sink."""
        return len(self.graph.operators)

    @property
    def notes(self) -> list[str]:
        """How many late changes each operator has dropped."""
        return [
            f"{node}: {counted(len(changes), 'late change')} dropped in the replay"
            for node, changes in self._late.items()
        ]

    def late(self, node: str) -> Changes:
        """Return the late changes that an operator has dropped."""
        return self._late.get(node, Changes.empty())

    def operator(self, place: int) -> PhysicalOperator:
        """Return the operator at a position."""
        return self.graph.operators[place].node

    def record(self, origin: Origin) -> Record:
        """Return the record of a step's own rows: a table's declared record, or what an operator emits."""
        if isinstance(origin, str):
            return next(each.scan.source.declared for each in self.graph.scans if each.scan.source.table == origin)
        return emits(self.operator(origin))

    def rows(self, origin: Origin) -> Rows:
        """Return a step's own rows, before its calc."""
        return self._rows.get(origin, Rows.empty())

    def passed(self, edge: StepEdge) -> Passed:
        """Return the rows that leave through an exit."""
        if edge.way not in self._passed:
            self._passed[edge.way] = self._pass(edge)
        return self._passed[edge.way]

    def _pass(self, edge: StepEdge) -> Passed:
        rows = self.rows(edge.origin)
        if isinstance(edge.origin, str):
            scan = next(each.scan for each in self.graph.scans if each.scan.source.table == edge.origin)
            rows = pruned(scan, {edge.origin: rows})
        rows = replace(rows, kind=np.full(len(rows), RowKind.INSERT, np.int8))
        numbered = replace(rows, seq=np.arange(len(rows)))
        found = through(edge.way, numbered)
        if any(each.column == ARRIVAL for each in edge.way.calc.columns):
            # The arrival number is a value here, so the rows are computed with it.
            return Passed(through(edge.way, rows), found.seq)
        return Passed(found, found.seq)


def through(way: Exit, rows: Rows) -> Changes:
    """Apply an exit's calc to insertions, each of them on its own."""
    calc = replace(
        way.calc,
        nets=False,
        partial=None,
        arrival=None,
        refreshes=False,
        upsert=False,
        replaced_by=(),
        delete_time=None,
    )
    return failures.run(calc, Emitted(rows), OnFailure(way.node)).changes


def emits(node: PhysicalOperator) -> Record:
    """Return the record of the rows that an operator emits."""
    if isinstance(node, PhysicalAggregate):
        return node.aggregation.output
    schema = getattr(node, "schema", None)
    return schema if isinstance(schema, Record) else node.sides[0].calc.output


def depends_on_order(sink: PhysicalSink) -> bool:
    """Return whether the result depends on the order of changes: by a watermark, the clock or the order of arrival."""
    nodes = [node for node in walk(sink) if isinstance(node, PhysicalOperator)]
    timed = any(clock.tables or clock.processing for clock in graph([sink]).clocks)
    return timed or any(isinstance(node, PhysicalLookup | PhysicalStamp) for node in nodes)


def _batches(tables: Mapping[str, SourceChanges], now: int, *, ordered: bool) -> Iterator[ReplayBatch]:
    return in_order(tables, now) if ordered else one_batch({name: each.live() for name, each in tables.items()}, now)


def _edges(whole: Graph) -> Iterator[tuple[int, list[StepEdge]]]:
    """Yield the inputs of each operator and sink: left before right, facts last, unions replaced by their inputs."""
    places = {each.identity: place for place, each in enumerate(whole.operators)}
    exits: dict[Origin, Sequence[Exit]] = {each.scan.source.table: each.exits for each in whole.scans}
    exits |= {place: each.exits for place, each in enumerate(whole.operators)}
    consumers: list[PhysicalNode | PhysicalSink] = [*(each.node for each in whole.operators), *whole.sinks]
    for place, consumer in enumerate(consumers):
        ways = {origin: iter([way for way in of if way.to == place]) for origin, of in exits.items()}
        found = []
        for node in without_unions(*inputs(consumer)):
            origin: Origin = node.source.table if isinstance(node, PhysicalScan) else places[computes(node)]
            found.append(StepEdge(origin, next(ways[origin]), node))
        yield place, found
