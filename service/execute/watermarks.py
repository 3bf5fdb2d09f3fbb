"""Watermarks: the time that each table has reached. Every shard tracks watermarks separately.

A **mark** is the highest time seen in one partition of a topic, minus the delay that the table allows. The reader sends
a batch's marks in band, to every shard of each level with an operator that follows the table's watermark. A shard
stores the marks with its state. So a watermark is exactly-once like the state, is the same when a batch is replayed,
and needs no coordinator. (The idea comes from Flink and MillWheel. A source's partitions correspond to Flink's splits.)

The watermark of a set of tables is the lowest mark of all their partitions, except for **idle** partitions, which have
received no rows for a certain batch time. If all partitions are idle, the watermark is the highest of their marks. The
watermark never decreases. Whether a batch's rows are late depends on the watermark before the batch. The batch's marks
take effect at the end of the batch. So the division of the input into batches affects the result only through late
rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.schema import Record
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.block import TimeMarks
from rowkind.operators.columns.changes import Rows
from rowkind.operators.columns.rowtime import BEGINNING, END, later
from rowkind.service.execute.column_times import in_us
from rowkind.service.execute.expressions import evaluate
from rowkind.service.execute.metrics import sample
from rowkind.service.physical.clocks import Clock
from rowkind.service.physical.source_table import Watermark

STATE = "watermarks"
"""The name of the watermarks in the state of a stage's shard."""

NO_TABLE = ""
"""The table name of the mark that ends processing time when a trial run's input has ended."""


@dataclass(frozen=True, slots=True)
class Passing:
    """The time of an operator's clock before and after a batch, in ms."""

    before: int
    after: int


@dataclass(frozen=True)
class Watermarks:
    """The watermarks of one shard.

    - `seen`: for each partition of each table, its mark and the batch time at which it last received rows, in ms.
    - `reached`: the watermark of each clock.
    - `now`: the time of the last batch, or `BEGINNING` before the first batch.
    """

    seen: Mapping[str, Mapping[int, tuple[int, int]]] = field(default_factory=dict)
    reached: Mapping[str, int] = field(default_factory=dict)
    now: int = BEGINNING

    @classmethod
    def from_blob(cls, blob: pa.Buffer | None) -> Self:
        """Decode a blob from `to_blob`. Return empty watermarks if there is no blob."""
        if blob is None:
            return cls()
        said = json.loads(blob.to_pybytes())
        seen = {
            table: {int(partition): (mark, since) for partition, (mark, since) in partitions.items()}
            for table, partitions in said["seen"].items()
        }
        return cls(seen, said["reached"], said["now"])

    def to_blob(self) -> pa.Buffer:
        """Encode the watermarks for the state."""
        return pa.py_buffer(json.dumps({"seen": self.seen, "reached": self.reached, "now": self.now}).encode())

    def moved(self, marks: Iterable[TimeMarks], now: int, clocks: Sequence[Clock]) -> Self:
        """Return the watermarks after a batch with the time `now` and these marks, for operators with these clocks."""
        seen = {table: dict(partitions) for table, partitions in self.seen.items()}
        for table, partitions in (of for each in marks for of in each.items()):
            own = seen.setdefault(table, {})
            for partition, mark in partitions.items():
                known, since = own.get(partition, (BEGINNING, now))
                own[partition] = (known, since) if mark is None else (max(known, mark), now)
        # Each table also has a watermark of its own, for the gauges.
        alone = [Clock((table,)) for clock in clocks for table in clock.tables]
        reached = {
            clock.name: max(self.reached.get(clock.name, BEGINNING), _least(seen, now, clock))
            for clock in (*clocks, *alone)
            if clock.tables
        }
        return type(self)(seen, reached, now)

    def gauges(self, now: int) -> dict[str, float]:
        """Return each table's watermark gauges: the watermark, and its distance behind the batch time `now`."""
        found: dict[str, float] = {}
        for name, reached in self.reached.items():
            if name in self.seen and BEGINNING < reached < END:
                found[sample("rowkind_watermark_timestamp_seconds", table=name)] = reached / 1000
                found[sample("rowkind_watermark_lag_seconds", table=name)] = (now - reached) / 1000
        return found

    def due_ms(self, clock: Clock, due: int | None) -> float:
        """Return when an operator that waits for the time `due` next has work to do if no rows arrive.

        The result is a batch time in ms, or infinity for never. If `due` has already passed, the operator has not yet
        finished its work and continues immediately.
        """
        if due is None:
            return math.inf
        if not clock.tables:
            return due
        return self.now if due <= self.at(clock) else self._next_ms(clock)

    def _next_ms(self, clock: Clock) -> float:
        """Return when the partitions that hold back the clock become idle if no rows arrive, or infinity if never."""
        reached, waiting = self.at(clock), []
        for table, idle_ms in clock.tables:
            partitions = self.seen.get(table, {}).values()
            waiting += [since + idle_ms for mark, since in partitions if mark <= reached]
        marks = [mark for table, _ in clock.tables for mark, _ in self.seen.get(table, {}).values()]
        return max(waiting) if waiting and max(marks) > reached else math.inf

    def at(self, clock: Clock) -> int:
        """Return the current time of a clock, in ms."""
        if clock.tables:
            return self.reached.get(clock.name, BEGINNING)
        return END if clock.processing and NO_TABLE in self.seen else self.now


def _least(seen: Mapping[str, Mapping[int, tuple[int, int]]], now: int, clock: Clock) -> int:
    """Return the lowest mark of all partitions that are not idle, or the highest mark if all partitions are idle."""
    marks, active = [BEGINNING], []
    for table, idle_ms in clock.tables:
        if not seen.get(table):
            return BEGINNING
        for mark, since in seen[table].values():
            marks.append(mark)
            if since > now - idle_ms:
                active.append(mark)
    return min(active) if active else max(marks)


def passing(before: Watermarks, after: Watermarks, clock: Clock) -> Passing:
    """Return a clock's time before and after a batch."""
    return Passing(before.at(clock), after.at(clock))


def marks_of(watermark: Watermark, record: Record, rows: Rows) -> Mapping[int, int]:
    """Return each partition's mark, given rows of a table. Their payloads are packed rows of `record`.

    A row is ignored if its time is NULL or the time expression fails on it.
    """
    columns = codec.read(record, rows.payload)
    if watermark.time.column is not None:
        times = columns.column(watermark.time.column)
    else:
        read = {name: columns.column(name) for name in watermark.time.columns}
        times = evaluate([watermark.time], read, len(rows), nulls=True)[watermark.time]
    told = times.is_valid().to_numpy(zero_copy_only=False)
    found = later(in_us(times)[told], -watermark.delay_us)
    partitions = ArrivalNumber.partitions(rows.seq)[told]
    order = np.lexsort((found, partitions))
    last = np.append(partitions[order][1:] != partitions[order][:-1], True)[: len(order)]
    at = order[last]
    # Marks are rounded down, because rows within the mark's ms may still arrive.
    return dict(zip(partitions[at].tolist(), (found[at] // 1000).tolist(), strict=True))
