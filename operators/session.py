"""Sessions: the rows of a partition, each with the beginning of the session that it is in.

Maintains every row of the input with its `start`: the time of the first of the rows before it, in order of time, of
which each comes no more than `gap` after the one before. A row that comes may make two sessions one, and one that goes
may make two of one: then the rows of the later part have another start, are taken back and come again. When a session
ends, the rows do not say; whoever asks takes the largest time of the rows with one start, and adds the gap.

    gap 5            1   3       9  10          a session of 1 and 3, and one of 9 and 10
    7 comes          1   3   7   9  10          one session: 9 and 10 are sent again, with start 1

What the start of a row is depends on the rows before it only. So a change reads the rows from one gap before it on;
the first of them that is not after the change says in which session they all are. It reads on until it meets a row
whose start stays what it was, or a gap. How far that is away nobody knows, so that each reading goes twice as far as
the one before; of a key with very many rows, those of one session are read at most.

State: arrangement `rows`, layout *ordered*: all rows by partition, with the time and the start of the row, as bytes
that compare as the numbers do, for the sub-key. All rows of a partition with one time have one start, and so a
retraction, which knows its time only, finds its row. With a TTL, a row that has expired is as if it had never been for
rows that come; those that are there stay in the session in which they are, until a row before them changes.

By a watermark W a session has ended when its last time and the gap are before W, or longer before, where rows may be
late. No row is added to it any more: one that comes within the gap all the same begins a session of its own. A row is
late, and does not come here, once that has passed of its own time; so no change reaches further back than a gap before
that, and older rows are let go of, also those of a session that goes on. (Flink's sessions, which are purged when they
end, on inputs that retract.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.arrangement import Arrangement, places
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.resolving import Resolved, resolve
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.columns.changes import Changes, Indices, Int64s, Mask, Rows, Uint64s, concat_binary
from rowkind.operators.columns.grouping import Groups, group
from rowkind.operators.columns.hashing import hash64, mix
from rowkind.operators.netting import net_rows
from rowkind.operators.operator import Output
from rowkind.operators.rowtime import BEGINNING, RowTime
from rowkind.operators.touched_keys import TouchedKeys

_SIGN = np.int64(np.iinfo(np.int64).min)
_LEAST, _LARGEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_WIDTH = 17


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """What the plan provides: every retraction carries the full row that it takes back.

    - `gap`: how far apart two rows of a session may be, in the unit of `times`, which gives the time of payloads.
    - `started` makes output rows of payloads and their starts.
    - `by_seq`: the changes of one row are to be taken in the order of seq (a source); else each batch is a net multiset
      of signed rows (an operator).
    - `counts_unmatched`: retractions that find no row come back as unmatched.
    - `until`: when rows may be let go of, by a watermark in ms: a gap after their session has ended, if they are its
      last; None where there is none.
    - `open`: for how long after its last time a session takes rows, in the unit of `times`: the gap, or longer where
      rows may be late; None where no watermark ends it. `ticks` of that unit are a ms.
    - `refreshes`: whether somebody further down has a TTL.
    """

    gap: int
    times: Callable[[pa.BinaryArray], Int64s]
    started: Callable[[pa.BinaryArray, Int64s], pa.BinaryArray]
    ttl_ms: int | None = None
    by_seq: bool = False
    counts_unmatched: bool = True
    until: RowTime | None = None
    open: int | None = None
    ticks: int = 1_000
    refreshes: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """The operator; it has no state of its own."""

    spec: SessionSpec

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The rows, with their TTL in ms."""
        return {"rows": self.spec.ttl_ms}

    def process(self, changes: Changes, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Apply one batch of one shard at time `now` (ms since the epoch)."""
        spec = self.spec
        rows = Arrangement(stores["rows"], "rows", "ordered", spec.ttl_ms, now, by_number=True, until=spec.until)
        if not len(changes):
            finished = rows.finish()
            return Output(Rows.empty(), changes, finished.state, finished.merged_rows)
        times = spec.times(changes.payload)
        keys = TouchedKeys.of(changes)
        spans = _Spans.around(keys.of_change, times, spec.gap)
        stored = spans.read(rows, keys)
        changes = replace(changes, sub_key=_sub_keys(times, _starts_at(stored, keys.of_change, times)))
        resolved = resolve(rows, changes, by_seq=spec.by_seq)
        moved = self._moved(rows, keys, spans, stored, resolved)
        rows.append(-resolved.removed)
        rows.append(resolved.refreshed)
        rows.append(-moved.before)
        rows.append(moved.after)
        finished = rows.finish()
        step = Entries.concat([-resolved.removed, -moved.before, moved.after])
        again = None
        if spec.refreshes:
            # What comes again with another start is written by that.
            rewritten, changed = _beside(resolved.rewritten, moved.before), len(step)
            step = Entries.concat([step, rewritten.relabel(weight=np.zeros(len(rewritten), np.int64))])
            again = np.arange(changed, len(step))
        payload = spec.started(step.payload, _numbers(step.sub_key)[1])
        return Output(
            net_rows(payload, step.seq, step.weight, again),
            changes.take(resolved.unmatched) if spec.counts_unmatched else Changes.empty(),
            finished.state,
            finished.merged_rows,
        )

    def _moved(self, rows: Arrangement, keys: TouchedKeys, spans: _Spans, stored: _Rows, resolved: Resolved) -> _Moved:
        """The rows that stay and whose start changes, and those that come, with their starts.

        The loop is over readings, of all partitions that are not certain yet at once.
        """
        found: list[_Moved] = []
        less, come = Entries.concat([-resolved.removed, resolved.refreshed]), _Rows.of(keys, resolved.added)
        less_of = keys.find(less)
        width = 4 * self.spec.gap
        while True:
            stays = _Rows.of(keys, rows.without(stored.entries, less.filter(spans.are_of(less_of))))
            ended = self._ended(stored, stays, rows.now)
            chain = _Chain.of(spans, stays, come.filter(spans.are_of(come.key)), ended, self.spec.gap)
            again = spans.are_of_keys(spans.key[chain.unsure])
            found.append(chain.moved(~again[chain.span]))
            if not again.any():
                parts = zip(*((each.before, each.after) for each in found), strict=True)
                return _Moved(*map(Entries.concat, parts))
            spans = spans.filter(again).longer(chain.unsure[again], width)
            stored = spans.read(rows, keys)
            width *= 2

    def _ended(self, stored: _Rows, rows: _Rows, now: int) -> Mask:
        """Which of these rows are of sessions that have ended, as the rows that were `stored` before the batch say.

        Where the last row of a session is further away than they go, it is later than that of any change.
        """
        spec = self.spec
        if spec.open is None or now <= BEGINNING:
            return np.zeros(len(rows), np.bool_)
        of = _sessions(stored, rows)
        last = np.full(of.count, _LEAST)
        np.maximum.at(last, of.ids[: len(stored)], stored.time)
        return (last < now * spec.ticks - spec.open)[of.ids[len(stored) :]]


@dataclass(frozen=True, slots=True)
class _Moved:
    """Rows that no longer have their start, and those that have another or are new."""

    before: Entries
    after: Entries


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows with the numbers of their partitions, their times and their starts."""

    entries: Entries
    key: Indices
    time: Int64s
    start: Int64s

    def __len__(self) -> int:
        return len(self.key)

    @classmethod
    def of(cls, keys: TouchedKeys, entries: Entries) -> _Rows:
        """The rows, all of them."""
        return cls(entries, keys.find(entries), *_numbers(entries.sub_key))

    def filter(self, mask: Mask) -> _Rows:
        """The rows where `mask` is true."""
        return _Rows(self.entries.filter(mask), self.key[mask], self.time[mask], self.start[mask])


@dataclass(frozen=True, slots=True)
class _Spans:
    """Disjoint spans of time of partitions, in order: what is read around changes.

    From `low` to `high` everything is known; `first` and `last` are the times of the first and the last change.
    """

    key: Indices
    low: Int64s
    high: Int64s
    first: Int64s
    last: Int64s

    @classmethod
    def around(cls, keys: Indices, times: Int64s, gap: int) -> _Spans:
        """One gap before and behind each of these times."""
        order = np.lexsort((times, keys))
        key, time = keys[order], times[order]
        return cls(key, time - gap, time + gap, time, time).merged()

    def merged(self) -> _Spans:
        """Those that meet as one."""
        highs, rank = np.unique(self.high, return_inverse=True)
        # The highest end so far in each partition: numbers of a later partition are higher than all before.
        base = self.key * len(highs)
        reached = highs[np.maximum.accumulate(base + rank) - base]
        begin = np.flatnonzero(np.append(True, (self.key[1:] != self.key[:-1]) | (self.low[1:] > reached[:-1])))
        last = np.maximum.reduceat(self.last, begin)
        return _Spans(self.key[begin], self.low[begin], np.maximum.reduceat(self.high, begin), self.first[begin], last)

    def filter(self, mask: Mask) -> _Spans:
        """The spans where `mask` is true."""
        return _Spans(self.key[mask], self.low[mask], self.high[mask], self.first[mask], self.last[mask])

    def longer(self, which: Mask, width: int) -> _Spans:
        """All of them, some longer at their ends."""
        return replace(self, high=self.high + np.where(which, width, 0)).merged()

    def are_of(self, keys: Indices) -> Mask:
        """Which of these partitions have spans."""
        return np.isin(keys, self.key)

    def are_of_keys(self, keys: Indices) -> Mask:
        """Which spans are of one of these partitions."""
        return np.isin(self.key, keys)

    def hold(self, rows: _Rows) -> Indices:
        """The number of the span that each row is in, -1 for none."""
        count = len(self.key)
        order = np.lexsort(
            (
                np.repeat([0, 1], [count, len(rows)]),
                np.concatenate([self.low, rows.time]),
                np.concatenate([self.key, rows.key]),
            )
        )
        owner = np.empty(len(order), np.int64)
        owner[order] = np.maximum.accumulate(np.where(order < count, order, -1))
        span = owner[count:]
        within = (span >= 0) & (self.key[span] == rows.key) & (rows.time <= self.high[span])
        return np.where(within, span, -1)

    def read(self, rows: Arrangement, keys: TouchedKeys) -> _Rows:
        """The rows that are there in these spans."""
        hashes = keys.hash[self.key]
        low, high = (_places(hashes, *edge) for edge in ((self.low, _LEAST), (self.high, _LARGEST)))
        order = np.argsort(low)
        low, high = low[order], np.maximum.accumulate(high[order])
        begin = np.flatnonzero(np.append(True, low[1:] > high[:-1]))
        found = _Rows.of(keys, rows.between(low[begin], np.maximum.reduceat(high, begin)))
        found = found.filter(found.key >= 0)
        return found.filter(self.hold(found) >= 0)


@dataclass(frozen=True, slots=True)
class _Chain:
    """The rows of some spans in the order of time: where each was before the batch, and the start that it has now.

    `unsure` says of which spans the rows behind them may have other starts as well.
    """

    rows: _Rows
    comes: Mask
    span: Indices
    start: Int64s
    unsure: Mask

    @classmethod
    def of(cls, spans: _Spans, stays: _Rows, comes: _Rows, ended: Mask, gap: int) -> _Chain:
        """That of rows that stay, some in sessions that have `ended`, and rows that come."""
        rows = _Rows(
            Entries.concat([stays.entries, comes.entries]),
            *(np.concatenate([getattr(part, name) for part in (stays, comes)]) for name in ("key", "time", "start")),
        )
        new, span = np.repeat([False, True], [len(stays), len(comes)]), spans.hold(rows)
        over = np.concatenate([ended, np.zeros(len(comes), np.bool_)])
        order = np.lexsort((new, rows.time, span))
        over = over[order]
        new, span, time, old = new[order], span[order], rows.time[order], rows.start[order]
        rows = _Rows(rows.entries.take(order), rows.key[order], time, old)
        # Nothing before the first change of a span is another, and so is no start up to there.
        known = ~new & (time <= spans.first[span])
        far = (span[1:] != span[:-1]) | (time[1:] - time[:-1] > gap)
        apart = np.append(True, far | (over[:-1] & ~over[1:]))[: len(time)]
        begins = known | apart
        at = np.maximum.accumulate(np.where(begins, np.arange(len(time)), 0))
        start = np.where(known, old, time)[at]
        last = np.append(span[1:] != span[:-1], True)[: len(time)]
        follows = last & (time > spans.last[span]) & (start != old) & (spans.high[span] - time < gap)
        unsure = np.zeros(len(spans.key), np.bool_)
        unsure[span[follows]] = True
        return cls(rows, new, span, start, unsure)

    def moved(self, done: Mask) -> _Moved:
        """What becomes of the rows where `done` is true."""
        changed = done & ~self.comes & (self.start != self.rows.start)
        written = changed | (done & self.comes)
        entries, start = self.rows.entries.filter(written), self.start[written]
        sub_key = _sub_keys(self.rows.time[written], start)
        after = replace(entries, place=places("ordered", entries.hash, sub_key, entries.payload), sub_key=sub_key)
        return _Moved(self.rows.entries.filter(changed), after)


def _starts_at(stored: _Rows, keys: Indices, times: Int64s) -> Int64s:
    """The start of the stored rows of a partition at a time, 0 where there is none."""
    both = (np.concatenate([stored.key, keys]), np.concatenate([stored.time, times]))
    groups = group(mix(both[0].astype(np.uint64), both[1].view(np.uint64)), both)
    start = np.zeros(groups.count, np.int64)
    start[groups.ids[: len(stored)]] = stored.start
    found: Int64s = start[groups.ids[len(stored) :]]
    return found


def _sessions(rows: _Rows, others: _Rows) -> Groups:
    """The sessions that these rows and those others are in, by their partitions and starts."""
    key, start = (np.concatenate([getattr(rows, name), getattr(others, name)]) for name in ("key", "start"))
    return group(mix(key.astype(np.uint64), start.view(np.uint64)), (key, start))


def _beside(entries: Entries, others: Entries) -> Entries:
    """The rows that are none of these others."""
    hashes, keys, sub_keys, payloads = (
        [getattr(part, name) for part in (entries, others)] for name in ("hash", "key", "sub_key", "payload")
    )
    payload = concat_binary(payloads)
    columns = (concat_binary(keys), concat_binary(sub_keys), payload)
    ids = group(mix(np.concatenate(hashes), hash64(payload)), columns).ids
    return entries.filter(~np.isin(ids[: len(entries)], ids[len(entries) :]))


def _places(hashes: Uint64s, times: Int64s, start: int) -> Uint64s:
    sub_key = _sub_keys(times, np.full(len(times), start, np.int64))
    return places("ordered", hashes, sub_key, sub_key)


def _sub_keys(times: Int64s, starts: Int64s) -> pa.BinaryArray:
    """A marker and two numbers as bytes that compare as they do."""
    count = len(times)
    octets = np.empty((count, _WIDTH), np.uint8)
    octets[:, 0] = 1
    for at, numbers in ((1, times), (9, starts)):
        octets[:, at : at + 8] = (numbers ^ _SIGN).astype(">i8").view(np.uint8).reshape(count, 8)
    offsets = np.arange(count + 1, dtype=np.int32) * _WIDTH
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(octets)])


def _numbers(sub_keys: pa.BinaryArray) -> tuple[Int64s, Int64s]:
    """The times and starts of sub-keys."""
    count = len(sub_keys)
    if not count:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    first = int(np.frombuffer(sub_keys.buffers()[1], np.int32, count + 1, sub_keys.offset * 4)[0])
    octets = np.frombuffer(sub_keys.buffers()[2], np.uint8, count * _WIDTH, first).reshape(count, _WIDTH)
    times, starts = (
        np.ascontiguousarray(octets[:, at : at + 8]).view(">i8").ravel().astype(np.int64) ^ _SIGN for at in (1, 9)
    )
    return times, starts
