"""Temporal filter: of its input's rows, those whose time has come and is not over.

Each row says from when on it is in the result, and until when; both are known from the row itself. So all that is kept
is an **agenda**: for each row that is there the next thing that happens to it because time passes. A row whose time has
not come is in there with its beginning, one whose time will be over with its end, and of any other nothing is kept.

The walk: take what is due off the agenda, put out rows that begin and take back those that end; then let every change
of the batch pass whose row is in the result now, and enter in the agenda what will happen to it. What is due is one
range of the arrangement, which lies in order of time. (Materialize's temporal filters, by an ordered state in place of
a timer for each row, as Flink has.)

It serves three ends. By the clock it is `WHERE ts > NOW() - INTERVAL …`: rows leave without any input. By a watermark
it holds rows back until they are final, each of which it then puts out once, in order of their time; and that is
sorting by time too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import ArrangementSpec
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.changes import Indices, Int8s, Int64s, Mask, Uint64s, concat_binary, constant
from rowkind.operators.columns.grouping import group
from rowkind.operators.columns.hashing import hash64, mix
from rowkind.operators.netting import net_rows
from rowkind.operators.operator import Output
from rowkind.operators.rowtime import END, RowTime

_SPREAD = 15
"""Bits by which rows of one ms are told apart, so that a part of them can be found, and let out by themselves."""

_EARLIEST = -(1 << 48)
_LATEST = (1 << 48) - 1

_BEGINS, _ENDS = 0, 1
"""The marks of what happens to a row."""


def places(times: Int64s, payload: pa.BinaryArray) -> Uint64s:
    """The places of these times, in ms, in a timer queue; times long after the year 9999 are near its end.

    What has always been so, from `-END` on, is at place 0, which even a clock that knows nothing yet has come to. What
    never happens, from `END` on, is at the end, to which no clock comes.
    """
    ms = (np.where(times < END, np.clip(times, _EARLIEST, _LATEST - 1), _LATEST) - _EARLIEST).astype(np.uint64)
    found = (ms << np.uint64(_SPREAD)) | (hash64(payload) >> np.uint64(64 - _SPREAD))
    return np.where(times > -END, found, np.uint64(0))


def last_place(now: int) -> np.uint64:
    """The last place of what is due at a time, in ms."""
    ms = np.clip(np.array([now]), _EARLIEST - 1, _LATEST - 1)[0] - _EARLIEST
    return np.uint64(max(0, ((int(ms) + 1) << _SPREAD) - 1))


def time_at(place: int) -> int:
    """The time, in ms, of what stands at this place in an agenda."""
    return (place >> _SPREAD) + _EARLIEST


@dataclass(frozen=True, slots=True)
class TemporalFilterSpec:
    """From when on and until when rows are in the result, each None for always.

    The input is an exact changelog. `most`: of the rows that a batch finds due, about how many it lets out, the others
    in the next ones; None for all. The end of time, which no batch follows, lets all of them out. `refreshes`: whether
    somebody further down has a TTL. `whole`: all that is due at one time, in ms, is let out in one batch.
    """

    begins: RowTime | None
    ends: RowTime | None
    most: int | None = None
    refreshes: bool = False
    whole: bool = False


@dataclass(frozen=True, slots=True)
class TemporalFilter:
    """The operator; it has no state of its own. Raises nothing."""

    spec: TemporalFilterSpec

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The agenda."""
        return {"agenda": None}

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Apply one batch of one shard; by time `now` (ms since the epoch) all is due that begins or ends then."""
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
        # What ends was there until now.
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
        """What is let out in a batch at this time, in order, and the place up to which it is."""
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
        """From when on and until when these rows are in the result."""
        count = len(payload)
        begins = np.full(count, -END) if self.spec.begins is None else self.spec.begins(payload)
        ends = np.full(count, END) if self.spec.ends is None else self.spec.ends(payload)
        return _Stay(places(begins, payload), places(ends, payload), begins < END, ends < END)


@dataclass(frozen=True, slots=True)
class _Stay:
    """The places of an agenda at which rows come and go, and whether they ever do."""

    comes: Uint64s
    goes: Uint64s
    begins: Mask
    ends: Mask

    def there(self, reached: np.uint64) -> Mask:
        """Which of them are in the result."""
        return (self.comes <= reached) & (reached < self.goes)

    def waits(self, reached: np.uint64) -> Mask:
        """Which of them will come."""
        return (self.comes > reached) & self.begins & (self.comes < self.goes)

    def entries(self, payload: pa.BinaryArray, waits: Mask, stays: Mask) -> tuple[Indices, Entries]:
        """When rows that wait come and rows that stay go, each once, and which rows these are."""
        at = np.concatenate([np.flatnonzero(waits), np.flatnonzero(stays)])
        mark = np.repeat(np.array([_BEGINS, _ENDS], np.int8), [waits.sum(), stays.sum()])
        place = np.where(mark == _BEGINS, self.comes[at], self.goes[at])
        return at, _entries(place, mark, payload.take(pa.array(at)))


def _entries(place: Uint64s, mark: Int8s, payload: pa.BinaryArray) -> Entries:
    """What happens to these rows, each there once. Their key is nobody's business."""
    count, none = len(place), constant(b"", len(place))
    numbers = np.zeros(count, np.int64)
    return Entries(place, np.zeros(count, np.uint64), none, none, payload, numbers + 1, numbers, numbers, mark)


def _surplus(agenda: Arrangement, entries: Entries) -> Mask:
    """Which of these entries take off the agenda what is not there, of equal ones the latest."""
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
