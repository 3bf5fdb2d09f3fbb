"""Watermarks: how far the time of each table has come, as every shard knows it for itself.

A **mark** is the highest time that one partition of a topic has been seen to have, less the delay that its table
allows. The reader sends the marks of a batch in band, to every shard of each level where somebody goes by them, and a
shard keeps them with its state. So a watermark is as exactly-once as the state, the same when a batch is replayed, and
nobody has to be asked for it. (Flink's and MillWheel's; a source's partitions are Flink's splits.)

The watermark of some tables is the least mark of all their partitions, but for those that are **idle**: of which
nothing has come for a while of batch time. Where all are idle it is the greatest. It never goes back. The rows of a
batch are judged by the watermark before it, and what the batch moves takes effect at its end; so the result depends on
how the input is cut into batches only by what comes late.
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
from rowkind.operators.rowtime import BEGINNING, END, later
from rowkind.service.clocks import Clock
from rowkind.service.execute.column_times import in_us
from rowkind.service.execute.expressions import evaluate
from rowkind.service.metrics import sample
from rowkind.service.source_table import Watermark

STATE = "watermarks"
"""What the state of a shard of a stage is called in which its marks are."""

NO_TABLE = ""
"""Under which there is a mark when the input of a trial has ended: of the time at which rows are processed."""


@dataclass(frozen=True, slots=True)
class Passing:
    """The time of an operator before a batch and after it, in ms."""

    before: int
    after: int


@dataclass(frozen=True)
class Watermarks:
    """What one shard knows of time.

    - `seen`: of each partition of each table its mark, and the batch time at which something last came of it, in ms.
    - `reached`: the watermark of each clock.
    - `now`: the time of the last batch; `BEGINNING` before the first.
    """

    seen: Mapping[str, Mapping[int, tuple[int, int]]] = field(default_factory=dict)
    reached: Mapping[str, int] = field(default_factory=dict)
    now: int = BEGINNING

    @classmethod
    def from_blob(cls, blob: pa.Buffer | None) -> Self:
        """What `to_blob` wrote; nothing is known where there is none."""
        if blob is None:
            return cls()
        said = json.loads(blob.to_pybytes())
        seen = {
            table: {int(partition): (mark, since) for partition, (mark, since) in partitions.items()}
            for table, partitions in said["seen"].items()
        }
        return cls(seen, said["reached"], said["now"])

    def to_blob(self) -> pa.Buffer:
        """All of it, as it is kept."""
        return pa.py_buffer(json.dumps({"seen": self.seen, "reached": self.reached, "now": self.now}).encode())

    def moved(self, marks: Iterable[TimeMarks], now: int, clocks: Sequence[Clock]) -> Self:
        """What is known after a batch at time `now` with these marks, of whoever goes by these clocks."""
        seen = {table: dict(partitions) for table, partitions in self.seen.items()}
        for table, partitions in (of for each in marks for of in each.items()):
            own = seen.setdefault(table, {})
            for partition, mark in partitions.items():
                known, since = own.get(partition, (BEGINNING, now))
                own[partition] = (known, since) if mark is None else (max(known, mark), now)
        # Each table has a watermark of its own besides, for people to see.
        alone = [Clock((table,)) for clock in clocks for table in clock.tables]
        reached = {
            clock.name: max(self.reached.get(clock.name, BEGINNING), _least(seen, now, clock))
            for clock in (*clocks, *alone)
            if clock.tables
        }
        return type(self)(seen, reached, now)

    def gauges(self, now: int) -> dict[str, float]:
        """The watermark of each table, and how far it is behind the time of a batch."""
        found: dict[str, float] = {}
        for name, reached in self.reached.items():
            if name in self.seen and BEGINNING < reached < END:
                found[sample("rowkind_watermark_timestamp_seconds", table=name)] = reached / 1000
                found[sample("rowkind_watermark_lag_seconds", table=name)] = (now - reached) / 1000
        return found

    def due_ms(self, clock: Clock, due: int | None) -> float:
        """When who waits for the time `due` by this clock has something to do if no rows come, in ms of batch time.

        Infinity for never. Where the time has come already, it did not do everything at once, and goes on with it.
        """
        if due is None:
            return math.inf
        if not clock.tables:
            return due
        return self.now if due <= self.at(clock) else self._next_ms(clock)

    def _next_ms(self, clock: Clock) -> float:
        """When a partition that holds this clock back is idle if nothing comes of it; infinity for never."""
        reached, waiting = self.at(clock), []
        for table, idle_ms in clock.tables:
            partitions = self.seen.get(table, {}).values()
            waiting += [since + idle_ms for mark, since in partitions if mark <= reached]
        marks = [mark for table, _ in clock.tables for mark, _ in self.seen.get(table, {}).values()]
        return max(waiting) if waiting and max(marks) > reached else math.inf

    def at(self, clock: Clock) -> int:
        """The time by this clock, in ms."""
        if clock.tables:
            return self.reached.get(clock.name, BEGINNING)
        return END if clock.processing and NO_TABLE in self.seen else self.now


def _least(seen: Mapping[str, Mapping[int, tuple[int, int]]], now: int, clock: Clock) -> int:
    """The least mark of the partitions that are not idle."""
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
    """How far a batch moves a clock."""
    return Passing(before.at(clock), after.at(clock))


def marks_of(watermark: Watermark, record: Record, rows: Rows) -> Mapping[int, int]:
    """The mark of each partition that these rows of a table come from, which are packed under `record`.

    A row on which the expression of the time fails, or is NULL, says nothing of time.
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
    # Rounded down: what lies in the ms of the mark may still come.
    return dict(zip(partitions[at].tolist(), (found[at] // 1000).tolist(), strict=True))
