"""Temporal filter: the input rows whose start time has been reached and whose end time has not been reached.

Each row determines when it enters and leaves the result. So the only state is a **timer queue** (arrangement "agenda")
with the next time-driven event of each row. A row that is not in the result yet has an entry at its start time. A row
that will leave the result has an entry at its end time. Other rows have no entry.

Algorithm. The due entries are removed from the timer queue; rows that start are emitted and rows that end are
retracted. Then each change of the batch is passed on if its row is in the result now, and the row's next event is
queued. The due entries are one range of the arrangement, which is ordered by time. An entry's *place*, the 64-bit
number by which a run's entries are ordered, contains the time in its upper bits. (These are Materialize's temporal
filters. The state is ordered, whereas Flink uses a timer per row.)

The operator has three uses. Driven by the clock, it implements `WHERE ts > NOW() - INTERVAL …`: rows leave the result
without any input. Driven by a watermark, it buffers rows until they are final, and then emits each row once, in time
order. In the same way, it sorts rows by time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import ArrangementSpec
from rowkind.operators.arrangement.netting import net_rows
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.changes import Indices, Int8s, Int64s, Mask, Uint64s, concat_binary, constant
from rowkind.operators.columns.grouping import group
from rowkind.operators.columns.hashing import hash64, mix
from rowkind.operators.columns.rowtime import END, RowTime
from rowkind.operators.operator import Output

_SPREAD = 15
"""The number of bits that distinguish entries with the same time in ms, so that they can be released separately."""

_EARLIEST = -(1 << 48)
_LATEST = (1 << 48) - 1

_BEGINS, _ENDS = 0, 1
"""The marks of a row's two events: entering and leaving the result."""


def places(times: Int64s, payload: pa.BinaryArray) -> Uint64s:
    """Return the places of the given times (ms) in a timer queue.

    Times at or before `-END` have place 0, which even the initial clock has reached. Times long after the year 9999
    have places near the end of the queue. Times at or after `END` are never reached: they have the last place.
    """
    ms = (np.where(times < END, np.clip(times, _EARLIEST, _LATEST - 1), _LATEST) - _EARLIEST).astype(np.uint64)
    found = (ms << np.uint64(_SPREAD)) | (hash64(payload) >> np.uint64(64 - _SPREAD))
    return np.where(times > -END, found, np.uint64(0))


def last_place(now: int) -> np.uint64:
    """Return the last place that is due at time `now` (ms)."""
    ms = np.clip(np.array([now]), _EARLIEST - 1, _LATEST - 1)[0] - _EARLIEST
    return np.uint64(max(0, ((int(ms) + 1) << _SPREAD) - 1))


def time_at(place: int) -> int:
    """Return the time (ms) of a place in a timer queue."""
    return (place >> _SPREAD) + _EARLIEST


@dataclass(frozen=True, slots=True)
class TemporalFilterSpec:
    """The specification of a temporal filter.

    The input is an exact changelog.

    - `begins` and `ends`: return the times at which rows enter and leave the result. None if all rows are in the result
      from the beginning, or never leave it.
    - `most`: the approximate maximum number of due rows that one batch releases; the remaining rows follow in the next
      batches. None for no limit. The last batch, at the end of time, releases all rows.
    - `refreshes`: whether a downstream operator has a TTL.
    - `whole`: whether all rows that are due in the same ms are released in one batch.
    """

    begins: RowTime | None
    ends: RowTime | None
    most: int | None = None
    refreshes: bool = False
    whole: bool = False


@dataclass(frozen=True, slots=True)
class TemporalFilter:
    """The temporal filter operator. It keeps its state in the stores, not in this object. It raises no errors."""

    spec: TemporalFilterSpec

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The arrangement of the timer queue, which has no TTL."""
        return {"agenda": None}

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Apply one batch of one shard; all events up to and including time `now` (ms since the epoch) are due."""
        agenda = Arrangement(stores["agenda"], ArrangementSpec("agenda", "timed"), now)
        due, reached = self._due(agenda, now)
        agenda.append(-due)
        changes = batch.touched
        payload = concat_binary([due.payload, changes.payload])
        seq = np.concatenate([due.seq, changes.seq])
        weight = np.concatenate([np.where(due.mark == _BEGINS, due.weight, -due.weight), changes.weight])
        refresh = np.arange(len(payload)) >= len(payload) - len(batch.refreshes)
        weight[refresh] = 0
        stay = self._stay(payload)
        there = stay.there(reached)
        # A row whose end is due was in the result until now.
        there[: len(due)] |= due.mark == _ENDS
        waits, stays = stay.waits(reached), there & stay.ends
        stays[: len(due)] &= due.mark == _BEGINS
        at, entries = stay.entries(payload, waits, stays)
        entries = replace(entries, weight=weight[at], seq=seq[at])
        surplus = _surplus(agenda, entries)
        agenda.append(entries.filter(~surplus & (entries.weight != 0)))
        lost = np.zeros(len(payload), np.bool_)
        lost[at[surplus]] = True
        finished = agenda.finish()
        next_ = agenda.first_after(int(reached))
        return Output(
            self._emitted(payload, seq, weight, there & ~lost & ~refresh, there & refresh),
            changes.filter(lost[len(due) :]),
            finished.state,
            finished.merged_rows,
            due=None if next_ is None else time_at(next_),
        )

    def _due(self, agenda: Arrangement, now: int) -> tuple[Entries, np.uint64]:
        """Return the entries that this batch releases, in order, and the place up to which entries are released."""
        reached = last_place(now)
        due = agenda.between(np.zeros(1, np.uint64), np.array([reached]))
        if self.spec.most is not None and now < END and len(due) > self.spec.most:
            reached = np.partition(due.place, self.spec.most - 1)[self.spec.most - 1]
            reached = last_place(time_at(int(reached))) if self.spec.whole else reached
            due = due.filter(due.place <= reached)
        return due.take(np.lexsort((due.seq, due.place >> np.uint64(_SPREAD)))), reached

    def _emitted(self, payload: pa.BinaryArray, seq: Int64s, weight: Int64s, out: Mask, again: Mask) -> Emitted:
        rows = np.concatenate([np.flatnonzero(out), np.flatnonzero(again)])
        refreshed = np.arange(int(out.sum()), len(rows)) if self.spec.refreshes else None
        return net_rows(payload.take(pa.array(rows)), seq[rows], weight[rows], refreshed)

    def _stay(self, payload: pa.BinaryArray) -> _Stay:
        """Return when the given rows enter and leave the result."""
        count = len(payload)
        begins = np.full(count, -END) if self.spec.begins is None else self.spec.begins(payload)
        ends = np.full(count, END) if self.spec.ends is None else self.spec.ends(payload)
        return _Stay(places(begins, payload), places(ends, payload), begins < END, ends < END)


@dataclass(frozen=True, slots=True)
class _Stay:
    """The places in the timer queue at which rows enter and leave the result, and whether the rows ever do so."""

    comes: Uint64s
    goes: Uint64s
    begins: Mask
    ends: Mask

    def there(self, reached: np.uint64) -> Mask:
        """Return a mask of the rows that are in the result."""
        return (self.comes <= reached) & (reached < self.goes)

    def waits(self, reached: np.uint64) -> Mask:
        """Return a mask of the rows that will enter the result later."""
        return (self.comes > reached) & self.begins & (self.comes < self.goes)

    def entries(self, payload: pa.BinaryArray, waits: Mask, stays: Mask) -> tuple[Indices, Entries]:
        """Return the indices and timer queue entries of rows.

        `waits` marks the rows that get an entry at their start time, and `stays` the rows that get an entry at their
        end time.
        """
        at = np.concatenate([np.flatnonzero(waits), np.flatnonzero(stays)])
        mark = np.repeat(np.array([_BEGINS, _ENDS], np.int8), [waits.sum(), stays.sum()])
        place = np.where(mark == _BEGINS, self.comes[at], self.goes[at])
        return at, _entries(place, mark, payload.take(pa.array(at)))


def _entries(place: Uint64s, mark: Int8s, payload: pa.BinaryArray) -> Entries:
    """Return timer queue entries for the given rows, each with weight 1 and without a key."""
    count, none = len(place), constant(b"", len(place))
    numbers = np.zeros(count, np.int64)
    return Entries(place, np.zeros(count, np.uint64), none, none, payload, numbers + 1, numbers, numbers, mark)


def _surplus(agenda: Arrangement, entries: Entries) -> Mask:
    """Return a mask of the retractions whose entry is not in the timer queue.

    Of equal retractions, the latest are marked.
    """
    goes = np.flatnonzero(entries.weight < 0)
    if not len(goes):
        return np.zeros(len(entries), np.bool_)
    payload = entries.payload.take(pa.array(goes))
    stored = agenda.at(entries.place[goes], payload)
    both = Entries.concat([entries, stored])
    groups = group(mix(both.place, hash64(both.payload)), (both.mark, both.place, both.payload))
    there = np.zeros(groups.count, np.int64)
    np.add.at(there, groups.ids, np.maximum(both.weight, 0))
    order = goes[np.lexsort((entries.seq[goes], groups.ids[goes]))]
    of, taken = groups.ids[order], np.cumsum(-entries.weight[order])
    first = np.concatenate(([True], of[1:] != of[:-1]))
    before = (taken + entries.weight[order])[first][np.cumsum(first) - 1]
    result = np.zeros(len(entries), np.bool_)
    result[order[taken - before > there[of]]] = True
    return result
