"""`rowkind try`: runs a sink's query over a file of changes, without Kafka.

The input has one JSON object per line, `{"table": "orders", "op": "+I", "row": {…}}`. The lines are processed in order,
in batches of a given number of lines. The output consists of JSON lines too: the net changes of each batch, or, if
`fold` is set, the rows that remain at the end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rowkind.avro.json_rows import check_row, decode, encode, encode_keys, parse_line
from rowkind.avro.same_rows import SameRows
from rowkind.avro.schema import Record
from rowkind.avro.text_values import ValueProblem
from rowkind.errors import REFUSED, RowkindError
from rowkind.operators.changelog import SYMBOLS, RowKind
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import Changes, Rows
from rowkind.quantities import counted
from rowkind.service.execute.failures import LeftOut
from rowkind.service.execute.promises import Broken
from rowkind.service.job.columns import declared
from rowkind.service.job.model import Job
from rowkind.service.job.table import Table
from rowkind.service.physical.graph import graph
from rowkind.service.physical.node import PhysicalScan, PhysicalSink
from rowkind.service.physical.tree import walk
from rowkind.service.plan.sql.scope import near
from rowkind.service.query.errors import RunError
from rowkind.service.query.memory import Fold, MemoryEngine, OnUnmatched, Watch


class TrialBatch(dict[str, Rows]):
    """Each table's changes in a batch, encoded with the record that the job declares for the table.

    `clock`: the time of the batch in ms, None for the current time. `ended`: there is no further input.
    """

    clock: int | None = None
    ended: bool = False


Engine = Callable[[Job, PhysicalSink, Sequence[TrialBatch]], Iterator[Changes]]
"""Runs a plan over batches. Yields each batch's net changes, with the sink's value record and key."""

EXPECTED = 'expected {"table": "…", "op": "+I", "row": {…}}'
_ALLOWED = {"append": ("+I",), "retract": ("+I", "-U", "+U", "-D"), "upsert": ("+I", "+U", "-D")}


class InputError(RowkindError):
    """A line of the input is not a valid change; the message begins with the file and line number."""

    exit_code = REFUSED


class UnmatchedError(RunError):
    """A retraction found no row, and the job has `unmatched: fail`."""


_CLOCK = Record.of({"clock": "TIMESTAMP(3) NOT NULL"})


@dataclass(frozen=True)
class TrialChange:
    """A checked change: its number among all changes of the run, its table, its row kind, and the values for Arrow."""

    number: int
    table: str
    kind: RowKind
    row: Mapping[str, Any]


def read(job: Job, lines: Iterable[str | Mapping[str, Any]], name: str, batch_rows: int) -> list[TrialBatch]:
    """Read the changes in a file's lines into at least one batch. Raises InputError for the first invalid line.

    A line is JSON text or its parsed value. A line with a clock begins a new batch. The clock's time also applies to
    later batches. The first clock's time also applies to earlier batches.
    """
    records: dict[str, Record] = {}
    changes: list[tuple[int, TrialChange]] = []
    # Some results, such as COUNT(*), have a row before there is any change.
    batches, room, clock = [TrialBatch()], batch_rows, None
    for number, line in enumerate(lines, 1):
        if isinstance(line, str) and not line.strip():
            continue
        try:
            found = _clock_or_change(job, records, number, line)
        except ValueProblem as problem:
            raise InputError(f"{name}:{number}: {problem}") from None
        if isinstance(found, int):
            if clock is not None and found < clock:
                raise InputError(f"{name}:{number}: the clock must not go back")
            clock = found
        if isinstance(found, int) or not room:
            # The first batch exists whether or not any change precedes the first clock.
            batches += [TrialBatch()] if changes or clock is not None else []
            batches[-1].clock, room = clock, batch_rows
        if not isinstance(found, int):
            changes.append((len(batches) - 1, found))
            room -= 1
    begins = next((batch.clock for batch in batches if batch.clock is not None), None)
    for batch in batches:
        batch.clock = begins if batch.clock is None else batch.clock
    fill(job, records, batches, changes)
    return batches


def fill(
    job: Job, records: Mapping[str, Record], batches: list[TrialBatch], changes: Sequence[tuple[int, TrialChange]]
) -> None:
    """Add changes, in order and each with the index of its batch, to the batches. `records`: each table's columns."""
    for table, record in records.items():
        own = [(batch, change) for batch, change in changes if change.table == table]
        if not own:
            continue
        payload = _encoded(record, job.tables[table], [change for _, change in own])
        kinds = np.array([change.kind for _, change in own], np.int8)
        seqs = ArrivalNumber.pack(np.array([change.number for _, change in own], np.int64))
        numbers = np.array([batch for batch, _ in own], np.int64)
        for batch in np.unique(numbers):
            first, last = np.searchsorted(numbers, [batch, batch + 1])
            batches[batch][table] = Rows(kinds[first:last], seqs[first:last], payload[first:last])


def end(sink: PhysicalSink, batches: list[TrialBatch]) -> None:
    """Add a last batch that marks the end of the input, if an operator uses a watermark or the processing time."""
    if any(clock.tables or clock.processing for clock in graph([sink]).clocks):
        last = TrialBatch()
        last.clock, last.ended = batches[-1].clock, True
        batches.append(last)


def _encoded(record: Record, of: Table, changes: Sequence[TrialChange]) -> pa.BinaryArray:
    """Encode the rows as payloads. A delete in an upsert table contains only the key, as in Kafka."""
    alone = np.array([of.changelog == "upsert" and each.kind == RowKind.DELETE for each in changes], np.bool_)
    whole = encode(record, [each.row for each, by_key in zip(changes, alone, strict=True) if not by_key])
    if not alone.any():
        return whole
    keys = [each.row for each, by_key in zip(changes, alone, strict=True) if by_key]
    order = np.argsort(np.concatenate([np.flatnonzero(~alone), np.flatnonzero(alone)]))
    return pa.concat_arrays([whole, encode_keys(record, of.primary_key, keys)]).take(pa.array(order))


def _clock_or_change(
    job: Job, records: dict[str, Record], number: int, line: str | Mapping[str, Any]
) -> TrialChange | int:
    """Return a line's change, or the time in ms if the line has a clock."""
    change = _parsed(line) if isinstance(line, str) else line
    if isinstance(change, Mapping) and list(change) == ["clock"]:
        return clock_ms(change["clock"])
    if not isinstance(change, Mapping) or not isinstance(change.get("row"), Mapping):
        raise ValueProblem(EXPECTED)
    if extra := [each for each in change if each not in ("table", "op", "row")]:
        raise ValueProblem(f"unknown key {extra[0]!r}: {EXPECTED}")
    table = change.get("table")
    if table not in job.tables:
        raise ValueProblem(f"there is no table {table!r}{near(str(table), job.tables)}")
    if table not in records:
        records[table] = declared(job, table)
    return checked_change(job, table, records[table], number, (change.get("op"), change["row"]))


def checked_change(
    job: Job, table: str, record: Record, number: int, change: tuple[Any, Mapping[str, Any]]
) -> TrialChange:
    """Check a change of a table: the symbol of its row kind, and its row. Raises ValueProblem."""
    symbol, row = change
    mode = job.tables[table].changelog
    if symbol not in _ALLOWED[mode]:
        raise ValueProblem(
            f"op {symbol!r} is not allowed in a table with mode {mode}: expected {' or '.join(_ALLOWED[mode])}"
        )
    if mode == "upsert" and symbol == "-D":
        # As in Kafka, where a delete is a key without a value.
        record = record.select(job.tables[table].primary_key)
        row = {column: value for column, value in row.items() if column in record.names}
    return TrialChange(number, table, RowKind(SYMBOLS.index(symbol)), check_row(record, row))


def clock_ms(value: Any) -> int:
    """Return a time of the clock in ms since the epoch. Raises ValueProblem."""
    return int(check_row(_CLOCK, {"clock": value})["clock"])


def _parsed(text: str) -> Any:
    """Parse a line. Raises ValueProblem."""
    try:
        return parse_line(text.strip())
    except json.JSONDecodeError as error:
        raise ValueProblem(f"the line is not JSON, column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise ValueProblem(f"the line is not JSON: {error}") from None


def in_memory(warn: Callable[[str], None], watch: Watch | None = None) -> Engine:
    """Return the in-memory engine. It calls `warn` with texts about unmatched retractions and dropped rows.

    `watch` is called with every batch that moves between nodes.
    """

    def run(job: Job, sink: PhysicalSink, batches: Sequence[TrialBatch]) -> Iterator[Changes]:
        def late(node: str, changes: Changes) -> None:
            warn(f"{node}: {counted(len(changes), 'late change')} dropped")

        engine = reporting_engine(job, [sink], warn, late, watch)
        now = 0
        for batch in batches:
            now = max(now + 1, time.time_ns() // 1_000_000) if batch.clock is None else batch.clock
            yield engine.batch(batch, now, ended=batch.ended)[sink.name]

    return run


def reporting_engine(
    job: Job,
    sinks: Sequence[PhysicalSink],
    warn: Callable[[str], None],
    late: OnUnmatched,
    watch: Watch | None = None,
) -> MemoryEngine:
    """Return an engine that follows the job's policies: it raises their errors, or calls `warn` with a text.

    `late` is called with the name of a node and its late changes.
    """

    def unmatched(node: str, changes: Changes) -> None:
        text = f"{node}: {counted(len(changes), 'retraction')} found no row to retract"
        if job.unmatched == "fail":
            raise UnmatchedError(f"{text}, and the job has `unmatched: fail`")
        warn(text)

    def broken(promise: Broken) -> None:
        if job.promises == "fail":
            raise promise.error
        warn(str(promise))

    def failed(of: str, left_out: LeftOut) -> None:
        warn(f"{of}: {counted(len(left_out.reasons), 'row')} dropped: {left_out.reasons[0]}")

    return MemoryEngine(*sinks, unmatched=unmatched, broken=broken, failed=failed, watch=watch, late=late)


def results(
    job: Job, sink: PhysicalSink, batches: Sequence[TrialBatch], engine: Engine, *, fold: bool
) -> Iterator[dict[str, Any]]:
    """Yield the result's changes as JSON objects in order, or, if `fold` is set, the remaining rows."""
    if fold:
        for row in decode(sink.value, folded(job, sink, batches, engine)):
            yield {"row": row}
        return
    for number, changes in enumerate(engine(job, sink, batches)):
        for kind, row in zip(changes.kind.tolist(), decode(sink.value, changes.payload), strict=True):
            yield {"batch": number, "op": SYMBOLS[kind], "row": row}


def folded(job: Job, sink: PhysicalSink, batches: Sequence[TrialBatch], engine: Engine) -> pa.BinaryArray:
    """Return the rows that remain at the end, in order."""
    fold = fold_of(sink)
    for changes in engine(job, sink, batches):
        fold.apply(changes)
    return in_order(sink, fold)


def fold_of(sink: PhysicalSink) -> Fold:
    """Return an empty fold of a sink's changes."""
    forgets = any(node.calc.refreshes for node in walk(sink))
    return Fold(keyed=sink.mode == "upsert", forgets=forgets, alike=SameRows(sink.value))


def in_order(sink: PhysicalSink, fold: Fold) -> pa.BinaryArray:
    """Return the current rows of a sink's fold, ordered by their columns from the left."""
    payloads = pa.array(fold.payloads, pa.binary())
    rows = decode(sink.value, payloads)
    return payloads.take(pa.array(sorted(range(len(rows)), key=lambda place: row_order(rows[place])), pa.int64()))


def unread(sink: PhysicalSink, batches: Sequence[TrialBatch]) -> list[str]:
    """Return the tables that have changes in the batches but that the query does not read."""
    read_ = {node.source.table for node in walk(sink) if isinstance(node, PhysicalScan)}
    return sorted({table for batch in batches for table in batch} - read_)


def row_order(row: Mapping[str, Any]) -> tuple[tuple[bool, bool, Any], ...]:
    """Return a sort key that orders rows by their columns from left to right, NULL first."""
    plain = (json.dumps(value) if isinstance(value, list | dict) else value for value in row.values())
    return tuple((value is not None, isinstance(value, str), 0 if value is None else value) for value in plain)
