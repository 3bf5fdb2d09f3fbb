"""The answer of `rowkind why`: which source rows make a row of a sink, or what leaves the row out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.json_rows import decode
from rowkind.avro.same_rows import SameRows
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import Int64s, Mask, Rows, concat_binary
from rowkind.quantities import counted
from rowkind.service.execute.values import Values
from rowkind.service.physical.calc import is_internal
from rowkind.service.physical.node import PhysicalScan, PhysicalSink
from rowkind.service.physical.operators import PhysicalLookup, PhysicalStamp
from rowkind.service.physical.tree import walk
from rowkind.service.plan.explain.display_names import display_text
from rowkind.service.why.absence import Absence, Cause
from rowkind.service.why.atoms import matching
from rowkind.service.why.history import JsonRow, Replayed, TopicChange, history, replayed
from rowkind.service.why.narrowing import Narrowing, TableRead
from rowkind.service.why.sources import SourceChanges, TableReader
from rowkind.service.why.steps import Origin, PlanRows
from rowkind.service.why.trace import Traced, trace
from rowkind.service.why.wanted import WantedRow

MOST_ROWS = 10
"""At most this many rows of a step are in the answer. `StepRows.count` has the number of all rows."""


@dataclass(frozen=True)
class SourceRow:
    """A change of a table that inserted a row, or that a cause names: its place in the topic, time in ms, and row."""

    partition: int
    offset: int
    time: int
    row: JsonRow


@dataclass(frozen=True)
class StepRows:
    """The rows of a step that matter. For a table, `sources` has them; for an operator, `rows`."""

    count: int
    rows: Sequence[JsonRow] = ()
    sources: Sequence[SourceRow] = ()


@dataclass(frozen=True)
class ReportedCause:
    """A cause with the first rows that it is about."""

    step: str
    kind: str
    text: str
    rows: StepRows | None


@dataclass
class RowExplanation:
    """The answer. `rows` are the wanted rows that the sources' rows give.

    - `topic_rows`: the rows that the result's topic has, None if it was not read. `topic_differs`: whether these rows
      differ from `rows`.
    - `steps`: the rows of each step, by the step's name. `causes`: why there is no row.
    - `changes`: the history, None if it was not asked for.
    - `sources`: all rows of the tables that `rows` derive from, not only the first.
    """

    wanted: WantedRow
    rows: Sequence[JsonRow]
    steps: Mapping[str, StepRows]
    causes: Sequence[ReportedCause]
    reads: Sequence[TableRead]
    notes: list[str] = field(default_factory=list)
    topic_rows: Sequence[JsonRow] | None = None
    topic_differs: bool = False
    changes: Sequence[TopicChange] | None = None
    replayed: Sequence[Replayed] = ()
    sources: Mapping[str, SourceChanges] = field(default_factory=dict)
    tables: Mapping[str, SourceChanges] = field(default_factory=dict)


def answer(
    sink: PhysicalSink,
    wanted: WantedRow,
    tables: TableReader,
    topic: SourceChanges | None = None,
    *,
    with_changes: bool = False,
    now: int | None = None,
) -> RowExplanation:
    """Return why a sink has the wanted rows, or why not.

    `topic` has the changes of the wanted rows in the result's topic. `now`: the time in ms since the epoch. Raises
    ChangelogError, and ExpressionError for a row on which the query fails.
    """
    at = time.time_ns() // 1_000_000 if now is None else now
    narrowing = Narrowing(sink, tables, at)
    steps = PlanRows(sink, narrowing.run(wanted.atoms), at)
    payloads, causes, traced = _followed(steps, wanted)
    found = RowExplanation(
        wanted=wanted,
        rows=decode(sink.value, payloads),
        steps=dict(_steps(steps, traced)),
        causes=[_reported(steps, each) for each in causes],
        reads=list(narrowing.reads.values()),
        notes=[*_notes(sink, narrowing), *steps.notes],
        sources={
            table: changes.filter(_in(changes, steps.rows(table).seq[traced.of(steps, table)]))
            for table, changes in narrowing.found.items()
        },
        tables=narrowing.found,
    )
    if topic is not None:
        there, same = _current(topic), SameRows(sink.value)
        found.topic_rows = decode(sink.value, there)
        found.topic_differs = sorted(same(there).to_pylist()) != sorted(same(payloads).to_pylist())
    if with_changes:
        if topic is None:
            found.notes.append("the changes of the row are not shown, because they are read from the result's topic")
        found.replayed = replayed(sink, narrowing.found, wanted.atoms)
        found.changes = None if topic is None else history(sink, topic, found.replayed)
    return found


def _current(topic: SourceChanges) -> pa.BinaryArray:
    """Return the rows of a result's topic. A key that has rows in several partitions has several rows."""
    if not topic.source.replaces:
        return topic.live().rows.payload
    partitions = ArrivalNumber.partitions(topic.rows.seq)
    return concat_binary([topic.filter(partitions == each).live().rows.payload for each in np.unique(partitions)])


def _followed(steps: PlanRows, wanted: WantedRow) -> tuple[pa.BinaryArray, list[Cause], Traced]:
    """Return the wanted rows, and the rows that they derive from; without any, the causes and the rows up to there."""
    chosen = [
        (steps.place, edge, matching(wanted.atoms, steps.sink.value, steps.passed(edge).changes.rows))
        for edge in steps.edges[steps.place]
    ]
    payloads = concat_binary([steps.passed(edge).changes.payload.filter(pa.array(mask)) for _, edge, mask in chosen])
    if len(payloads):
        return payloads, [], trace(steps, chosen)
    absence = Absence(steps)
    causes = absence.causes(wanted.atoms)
    return payloads, causes, trace(steps, absence.kept, absence.dropped)


def source_row(changes: SourceChanges, at: int) -> SourceRow:
    """Return one change of a table."""
    place = ArrivalNumber.of(int(changes.rows.seq[at]))
    row = decode(changes.source.declared, changes.rows.payload[at : at + 1])[0]
    return SourceRow(place.partition, place.offset, int(changes.times[at]), row)


def _in(changes: SourceChanges, seqs: Int64s) -> Mask:
    """Return a mask of the insertions with these arrival numbers."""
    return np.isin(changes.rows.seq, seqs) & np.isin(changes.rows.kind, (0, 2))


def _steps(steps: PlanRows, traced: Traced) -> Iterator[tuple[str, StepRows]]:
    """Yield the name of each step and its rows. A step that is shared has several names."""
    names = {edge.way.node: edge.origin for edges in steps.edges.values() for edge in edges}
    masks = {name: np.zeros(len(steps.rows(origin)), np.bool_) for name, origin in names.items()}
    for edge, mask in (each for found in traced.exits.values() for each in found):
        masks[edge.way.node][steps.passed(edge).at[mask]] = True
    for edge, mask in traced.dropped:
        masks[edge.way.node] |= mask
    for name, origin in names.items():
        yield name, rows_of(steps, origin, masks[name])


def rows_of(steps: PlanRows, origin: Origin, mask: Mask) -> StepRows:
    """Return the first of a step's rows in the mask, with the columns that the step's calc computes."""
    at = np.flatnonzero(mask)
    if isinstance(origin, str):
        changes, seqs = steps.tables[origin], steps.rows(origin).seq[at]
        places = np.flatnonzero(_in(changes, seqs))
        return StepRows(len(at), sources=[source_row(changes, int(place)) for place in places[:MOST_ROWS]])
    some = steps.rows(origin).take(at[:MOST_ROWS])
    return StepRows(len(at), _shown(steps, origin, some))


def _shown(steps: PlanRows, origin: int, some: Rows) -> Sequence[JsonRow]:
    """Return rows of an operator with the columns that its calc computes for the next step."""
    record = steps.record(origin)
    names = [name for name in record.names if not is_internal(name)]
    found = [{display_text(name): row[name] for name in names} for row in decode(record, some.payload)]
    edge = next(edge for edges in steps.edges.values() for edge in edges if edge.origin == origin)
    calc = edge.way.calc
    if calc.expands or edge in steps.edges[steps.place]:
        return found
    computed = {
        name: each
        for name, each in zip(calc.output.names, calc.columns, strict=True)
        if each.column is None and name not in names and not is_internal(name)
    }
    if computed and len(some):
        values = Values(record, list(computed.values()), some, nulls=True)
        own = calc.output.select(list(computed))
        packed = codec.encode(own, {name: values.of(each) for name, each in computed.items()}, len(some))
        for row, more in zip(found, decode(own, packed), strict=True):
            row.update({display_text(name): value for name, value in more.items()})
    return found


def _reported(steps: PlanRows, cause: Cause) -> ReportedCause:
    rows = None
    if cause.table and len(cause.changes):
        changes = steps.tables[cause.table]
        rows = StepRows(len(cause.changes), sources=[source_row(changes, int(at)) for at in cause.changes])
    elif cause.rows is not None:
        rows = rows_of(steps, *cause.rows)
    return ReportedCause(cause.step, cause.kind, cause.text, rows)


def _notes(sink: PhysicalSink, narrowing: Narrowing) -> Iterator[str]:
    nodes = list(walk(sink))
    for table, read in narrowing.reads.items():
        if not read.by:
            yield f"all rows of {table} were used, because no condition on its rows follows from the key"
        bad = narrowing.found[table].undecodable
        if bad:
            left_out = "was left out" if bad == 1 else "were left out"
            yield f"{counted(bad, 'record')} of {table} cannot be decoded and {left_out}, as in the job"
    sources = {node.source.table: node.source for node in nodes if isinstance(node, PhysicalScan)}
    for table, source in sources.items():
        if source.start.at != "earliest":
            yield f"the job reads {table} from {source.start.at}, but all records of the topic were used here"
    if any(node.calc.refreshes for node in nodes):
        yield "the job has a TTL, and rows that have expired in the job were used here"
    if any(isinstance(node, PhysicalLookup | PhysicalStamp) for node in nodes):
        yield "the result depends on when the job read each change; here the changes are ordered by their record times"
