"""Sessions: the rows of a partition, each with the beginning of the session that it is in and, if asked for, its end.

Maintains every row of the input with its `start`: the time of the first of the rows before it, in order of time, of
which each comes no more than `gap` after the one before. A row that comes may make two sessions one, and one that goes
may make two of one: then the rows of the later part have another start, are taken back and come again. Where rows have
an `end`, too, it is the last time of their session and the gap, and all rows of the session come again when that moves.
Elsewhere who asks takes the largest time of the rows with one start, and adds the gap.

    gap 5            1   3       9  10          a session of 1 and 3, and one of 9 and 10
    7 comes          1   3   7   9  10          one session: 9 and 10 are sent again, with start 1

What the start of a row is depends on the rows before it only. So a change reads the rows from one gap before it on;
the first of them that is not after the change says in which session they all are. It reads on until it meets a row
whose start stays what it was, or a gap. How far that is away nobody knows, so that each reading goes twice as far as
the one before; of a key with very many rows, those of one session are read at most. With ends, rows say how far their
session goes, and all of it is read at once.

State: arrangement `rows`, layout *ordered*: all rows by partition, with the time and the window of the row, which is
its start and maybe its end, as bytes that compare as the numbers do, for the sub-key. All rows of a partition with one
time have one window, and so a retraction, which knows its time only, finds its row. With a TTL, a row that has expired
is as if it had never been for rows that come; those that are there stay in the session in which they are, until a row
before them, or with ends any row of it, changes.

By a watermark W a session has ended when its last time and the gap are before W, or longer before, where rows may be
late. No row is added to it any more: one that comes within the gap all the same begins a session of its own. A row is
late, and does not come here, once that has passed of its own time; so no change reaches further back than a gap before
that, and older rows are let go of, also those of a session that goes on. With ends, they would come again with another
one, and so all rows of a session are kept until it has ended, and none from then on. (Flink's sessions, which are
purged when they end, on inputs that retract.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import ArrangementSpec, places
from rowkind.operators.arrangement.resolving import Resolved, resolve
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.changes import Changes, Indices, Int64s, Mask, Rows, concat_binary
from rowkind.operators.columns.grouping import group
from rowkind.operators.columns.hashing import hash64, mix
from rowkind.operators.netting import net_rows
from rowkind.operators.operator import Output
from rowkind.operators.rowtime import BEGINNING, END, RowTime, later
from rowkind.operators.session_spans import (
    LEAST,
    SessionRows,
    SessionSpans,
    sessions_of,
    sub_keys,
    window_at,
    windows_of,
)
from rowkind.operators.touched_keys import TouchedKeys


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """What the plan provides: every retraction carries the full row that it takes back.

    - `gap`: how far apart two rows of a session may be, in the unit of `times`, which gives the time of payloads.
    - `ends`: whether rows have the end of their session, too.
    - `started` makes output rows of payloads and their starts, and their ends where there are any.
    - `by_seq`: the changes of one row are to be taken in the order of seq (a source); else each batch is a net multiset
      of signed rows (an operator).
    - `counts_unmatched`: retractions that find no row come back as unmatched.
    - `until`: when rows may be let go of, by a watermark in ms: a gap after their session has ended, if they are its
      last; None where there is none, and where `open` and `ends` say it.
    - `open`: for how long after its last time a session takes rows, in the unit of `times`: the gap, or longer where
      rows may be late; None where no watermark ends it. `ticks` of that unit are a ms.
    - `refreshes`: whether somebody further down has a TTL.
    """

    gap: int
    times: Callable[[pa.BinaryArray], Int64s]
    started: Callable[..., pa.BinaryArray]
    ttl_ms: int | None = None
    by_seq: bool = False
    counts_unmatched: bool = True
    until: RowTime | None = None
    open: int | None = None
    ticks: int = 1_000
    refreshes: bool = False
    ends: bool = False

    @property
    def width(self) -> int:
        """Of how many numbers a window is."""
        return 1 + self.ends

    @property
    def goes_whole(self) -> bool:
        """Whether a watermark lets go of sessions, when they have ended, and not of rows, when theirs has passed."""
        return self.ends and self.open is not None


@dataclass(frozen=True, slots=True)
class Session:
    """The operator; it has no state of its own."""

    spec: SessionSpec

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The rows, with their TTL in ms."""
        return {"rows": self.spec.ttl_ms}

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Apply one batch of one shard at time `now` (ms since the epoch)."""
        spec = self.spec
        until = _for_good if spec.goes_whole else spec.until
        rows = Arrangement(
            stores["rows"], ArrangementSpec("rows", "ordered", spec.ttl_ms, by_number=True, until=until), now
        )
        touched = batch.touched
        if not len(touched):
            finished = rows.finish()
            return Output(Emitted(Rows.empty()), touched, finished.state, finished.merged_rows)
        times = spec.times(touched.payload)
        keys = TouchedKeys.of(touched)
        spans, stored = self._read(rows, keys, SessionSpans.around(keys.of_change, times, spec.gap))
        batch = batch.with_sub_keys(sub_keys(times, window_at(stored, keys.of_change, times)))
        resolved = resolve(rows, batch, by_seq=spec.by_seq)
        resolved = replace(resolved, refreshed=self._until_ended(resolved.refreshed))
        moved = self._moved(rows, keys, spans, stored, resolved)
        rows.append(-resolved.removed)
        rows.append(resolved.refreshed)
        rows.append(-moved.before)
        rows.append(moved.after)
        finished = rows.finish()
        step = Entries.concat([-resolved.removed, -moved.before, moved.after])
        again = None
        if spec.refreshes:
            # What comes again with another window is written by that.
            rewritten, changed = _beside(resolved.rewritten, moved.before), len(step)
            step = Entries.concat([step, rewritten.relabel(weight=np.zeros(len(rewritten), np.int64))])
            again = np.arange(changed, len(step))
        payload = spec.started(step.payload, *windows_of(step, spec.width).T)
        return Output(
            net_rows(payload, step.seq, step.weight, again),
            batch.changes.take(resolved.unmatched) if spec.counts_unmatched else Changes.empty(),
            finished.state,
            finished.merged_rows,
        )

    def _read(self, rows: Arrangement, keys: TouchedKeys, spans: SessionSpans) -> tuple[SessionSpans, SessionRows]:
        """The spans and the rows in them; with ends, as long as all sessions that have rows there."""
        stored = spans.read(rows, keys, self.spec.width)
        if self.spec.ends:
            # Once more at most, but for sessions of which a TTL has taken rows in between.
            while not (longer := spans.with_sessions(stored, self.spec.gap)).are(spans):
                spans, stored = longer, longer.read(rows, keys, self.spec.width)
        return spans, stored

    def _until_ended(self, entries: Entries) -> Entries:
        """The entries, kept until their session has ended, if it is let go of as a whole."""
        spec = self.spec
        if not spec.goes_whole or spec.open is None:
            return entries
        over = later(windows_of(entries, spec.width)[:, 1] - spec.gap, spec.open + 1)
        return replace(entries, written_at=-(-over // spec.ticks))

    def _moved(
        self, rows: Arrangement, keys: TouchedKeys, spans: SessionSpans, stored: SessionRows, resolved: Resolved
    ) -> _Moved:
        """The rows that stay and whose window changes, and those that come, with their windows.

        The loop is over readings, of all partitions that are not certain yet at once.
        """
        spec = self.spec
        found: list[_Moved] = []
        less = Entries.concat([-resolved.removed, resolved.refreshed])
        come = SessionRows.of(keys, resolved.added, spec.width)
        less_of = keys.find(less)
        width = 4 * spec.gap
        while True:
            left = rows.without(stored.entries, less.filter(spans.are_of(less_of)))
            stays = SessionRows.of(keys, left, spec.width)
            ended = self._ended(stored, stays, rows.now)
            chain = _Chain.of(spans, stays, come.filter(spans.are_of(come.key)), ended, spec.gap)
            # With ends, sessions have been read as a whole.
            again = spans.are_of_keys(spans.key[chain.unsure & (not spec.ends)])
            found.append(chain.moved(~again[chain.span]))
            if not again.any():
                before, after = zip(*((each.before, each.after) for each in found), strict=True)
                return _Moved(Entries.concat(before), self._until_ended(Entries.concat(after)))
            spans = spans.filter(again).longer(chain.unsure[again], width)
            stored = spans.read(rows, keys, spec.width)
            width *= 2

    def _ended(self, stored: SessionRows, rows: SessionRows, now: int) -> Mask:
        """Which of these rows are of sessions that have ended, as the rows that were `stored` before the batch say.

        Where the last row of a session is further away than they go, it is later than that of any change.
        """
        spec = self.spec
        if spec.open is None or now <= BEGINNING:
            return np.zeros(len(rows), np.bool_)
        of = sessions_of(stored, rows)
        last = np.full(of.count, LEAST)
        np.maximum.at(last, of.ids[: len(stored)], stored.time)
        return (last < now * spec.ticks - spec.open)[of.ids[len(stored) :]]


def _for_good(payload: pa.BinaryArray) -> Int64s:
    """Until when rows are kept as long as nobody has said it."""
    return np.full(len(payload), END, np.int64)


@dataclass(frozen=True, slots=True)
class _Moved:
    """Rows that no longer have their window, and those that have another or are new."""

    before: Entries
    after: Entries


@dataclass(frozen=True, slots=True)
class _Chain:
    """The rows of some spans in the order of time: where each was before the batch, and the window that it has now.

    `unsure` says of which spans the rows behind them may have other starts as well.
    """

    rows: SessionRows
    comes: Mask
    span: Indices
    window: Int64s
    unsure: Mask

    @classmethod
    def of(cls, spans: SessionSpans, stays: SessionRows, comes: SessionRows, ended: Mask, gap: int) -> _Chain:
        """That of rows that stay, some in sessions that have `ended`, and rows that come."""
        rows = SessionRows(
            Entries.concat([stays.entries, comes.entries]),
            *(np.concatenate([getattr(part, name) for part in (stays, comes)]) for name in ("key", "time", "window")),
        )
        new, span = np.repeat([False, True], [len(stays), len(comes)]), spans.hold(rows)
        over = np.concatenate([ended, np.zeros(len(comes), np.bool_)])
        order = np.lexsort((new, rows.time, span))
        over = over[order]
        new, span, time, old = new[order], span[order], rows.time[order], rows.start[order]
        rows = SessionRows(rows.entries.take(order), rows.key[order], time, rows.window[order])
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
        window = start[:, None]
        if rows.window.shape[1] > 1:
            another = np.append(True, (span[1:] != span[:-1]) | (start[1:] != start[:-1]))[: len(time)]
            window = np.column_stack([start, _lasts(another, time) + gap])
        return cls(rows, new, span, window, unsure)

    def moved(self, done: Mask) -> _Moved:
        """What becomes of the rows where `done` is true."""
        changed = done & ~self.comes & (self.window != self.rows.window).any(axis=1)
        written = changed | (done & self.comes)
        entries = self.rows.entries.filter(written)
        sub_key = sub_keys(self.rows.time[written], self.window[written])
        after = replace(entries, place=places("ordered", entries.hash, sub_key, entries.payload), sub_key=sub_key)
        return _Moved(self.rows.entries.filter(changed), after)


def _lasts(begins: Mask, times: Int64s) -> Int64s:
    """For each row the time of the last one of its run; `begins` says with which rows runs begin."""
    found: Int64s = np.append(times[np.flatnonzero(begins)[1:] - 1], times[-1:])[np.cumsum(begins) - 1]
    return found


def _beside(entries: Entries, others: Entries) -> Entries:
    """The rows that are none of these others."""
    hashes, keys, sub_keys, payloads = (
        [getattr(part, name) for part in (entries, others)] for name in ("hash", "key", "sub_key", "payload")
    )
    payload = concat_binary(payloads)
    columns = (concat_binary(keys), concat_binary(sub_keys), payload)
    ids = group(mix(np.concatenate(hashes), hash64(payload)), columns).ids
    return entries.filter(~np.isin(ids[: len(entries)], ids[len(entries) :]))
