"""Sessions: each row of a partition with the start of its session and, if requested, the session's end.

Maintains every input row with the start of its session. A session is a chain of rows in which each row is at most `gap`
after the previous row; its start is the time of the first row. An inserted row may merge two sessions, and a retracted
row may split a session. The rows of the later part then get a different start: they are retracted and inserted again.
If rows also have an end, the end is the last time of the session plus the gap, and all rows of the session are emitted
again when the end changes. Otherwise, a consumer computes the end: the largest time of the rows with the same start,
plus the gap.

    gap 5            1   3       9  10          a session of 1 and 3, and one of 9 and 10
    7 is inserted    1   3   7   9  10          one session: 9 and 10 are emitted again, with start 1

Algorithm. A row's start depends only on the row itself and the rows before it. So reading begins one gap before a
change. The first row that is read, if it is not after the change, records the start of the session. Reading continues
to a row whose start has not changed, or to a gap without rows. The distance is unknown, so each read goes twice as far
as the previous read. At most one session is read, even if its partition has very many rows. With ends, each row records
how far its session extends, and the whole session is read in one step.

State: arrangement "rows", layout *ordered*, stores all rows by partition. The sub-key contains the row's time and
*window* (the start and, if requested, the end) as bytes that compare in the same order as the numbers. All rows of a
partition with the same time have the same window. So a retraction, which carries only the time, can find its row. With
a TTL, rows that arrive later do not see an expired row. Existing rows stay in their session until a row before them
changes or, with ends, until any row of the session changes.

With a watermark W, a session has ended when its last time plus the gap is before W. If rows may be late, a longer
interval is added instead of the gap. No row is added to an ended session: a row that arrives within the gap after it
begins a new session. A row whose own time plus this interval is before W is late and never arrives at this operator. So
no change affects rows more than one gap before that time, and older rows are evicted, even if their session continues.
With ends, the rows of a continuing session would have to be emitted again with a new end. So in that case all rows of a
session are stored until the session has ended, and none afterwards. (The semantics are those of Flink's sessions, which
are purged when they end, extended to inputs that retract rows.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import ArrangementSpec, places
from rowkind.operators.arrangement.netting import net_rows
from rowkind.operators.arrangement.resolving import Resolved, resolve
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.arrangement.touched_keys import TouchedKeys
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.changes import Changes, Indices, Int64s, Mask, Rows, concat_binary
from rowkind.operators.columns.grouping import group
from rowkind.operators.columns.hashing import hash64, mix
from rowkind.operators.columns.rowtime import BEGINNING, END, RowTime, later
from rowkind.operators.operator import Output
from rowkind.operators.time.session_spans import (
    LEAST,
    SessionRows,
    SessionSpans,
    sessions_of,
    sub_keys,
    window_at,
    windows_of,
)


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """The specification of a session operator. Every retraction carries the full row that it retracts.

    - `gap`: the maximum distance between adjacent rows of a session, in the unit of `times`.
    - `times`: takes payloads and returns the rows' times.
    - `ends`: whether each row also has the end of its session.
    - `started`: takes payloads, session starts and, if requested, session ends; returns output rows.
    - `by_seq`: whether a row's changes are applied in `seq` order, as for a source. Otherwise each batch is a net
      multiset of signed rows, as from an operator.
    - `counts_unmatched`: whether retractions that find no row are returned as unmatched.
    - `until`: returns the time, in ms, when a watermark may evict each row. The time is the one that would apply if the
      row were the last row of its session: one gap after the session's end. None if there is no watermark, or if `open`
      and `ends` determine the time.
    - `open`: how long a session accepts rows after its last time, in the unit of `times`. This is the gap, or longer if
      rows may be late. None if no watermark ends sessions.
    - `ticks`: the number of units of `times` in one ms.
    - `refreshes`: whether a downstream operator has a TTL.
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
        """The number of values in a window: the start and, if requested, the end."""
        return 1 + self.ends

    @property
    def goes_whole(self) -> bool:
        """Whether a watermark evicts whole sessions once they have ended, instead of single rows by their own times."""
        return self.ends and self.open is not None


@dataclass(frozen=True, slots=True)
class Session:
    """The session operator. It keeps its state in the stores, not in this object."""

    spec: SessionSpec

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The arrangement of the rows, and its TTL in ms."""
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
            # A row whose window changes is emitted anyway, so the row needs no refresh.
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
        """Read the rows in the spans. With ends, first extend the spans to cover the sessions of all rows in them."""
        stored = spans.read(rows, keys, self.spec.width)
        if self.spec.ends:
            # One repetition is enough, except for sessions from the middle of which a TTL has removed rows.
            while not (longer := spans.with_sessions(stored, self.spec.gap)).are(spans):
                spans, stored = longer, longer.read(rows, keys, self.spec.width)
        return spans, stored

    def _until_ended(self, entries: Entries) -> Entries:
        """Return the entries. If whole sessions are evicted, the entries expire when their session has ended."""
        spec = self.spec
        if not spec.goes_whole or spec.open is None:
            return entries
        over = later(windows_of(entries, spec.width)[:, 1] - spec.gap, spec.open + 1)
        return replace(entries, written_at=-(-over // spec.ticks))

    def _moved(
        self, rows: Arrangement, keys: TouchedKeys, spans: SessionSpans, stored: SessionRows, resolved: Resolved
    ) -> _Moved:
        """Return the rows that stay and whose window changes, and the inserted rows with their windows.

        Each iteration of the loop reads further in all partitions in which the end of the changes is not known yet.
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
            # With ends, all sessions have been read completely.
            again = spans.are_of_keys(spans.key[chain.unsure & (not spec.ends)])
            found.append(chain.moved(~again[chain.span]))
            if not again.any():
                before, after = zip(*((each.before, each.after) for each in found), strict=True)
                return _Moved(Entries.concat(before), self._until_ended(Entries.concat(after)))
            spans = spans.filter(again).longer(chain.unsure[again], width)
            stored = spans.read(rows, keys, spec.width)
            width *= 2

    def _ended(self, stored: SessionRows, rows: SessionRows, now: int) -> Mask:
        """Return a mask of the rows that belong to sessions that had ended before the batch.

        The last row of each session is taken from the `stored` rows. If a session's last row has not been read, it is
        later than any change.
        """
        spec = self.spec
        if spec.open is None or now <= BEGINNING:
            return np.zeros(len(rows), np.bool_)
        of = sessions_of(stored, rows)
        last = np.full(of.count, LEAST)
        np.maximum.at(last, of.ids[: len(stored)], stored.time)
        return (last < now * spec.ticks - spec.open)[of.ids[len(stored) :]]


def _for_good(payload: pa.BinaryArray) -> Int64s:
    """Return `END` for each row, because rows are initially stored indefinitely."""
    return np.full(len(payload), END, np.int64)


@dataclass(frozen=True, slots=True)
class _Moved:
    """Rows with their old windows (`before`), and the same rows and inserted rows with their new windows (`after`)."""

    before: Entries
    after: Entries


@dataclass(frozen=True, slots=True)
class _Chain:
    """The rows of some spans in time order, with their windows before and after the batch.

    `unsure` marks the spans after which further rows may also get a different start.
    """

    rows: SessionRows
    comes: Mask
    span: Indices
    window: Int64s
    unsure: Mask

    @classmethod
    def of(cls, spans: SessionSpans, stays: SessionRows, comes: SessionRows, ended: Mask, gap: int) -> _Chain:
        """Return the chain of the given rows; `ended` marks the rows in `stays` whose session has ended."""
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
        # Up to the first change of a span, the starts do not change.
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
        """Return the window changes of the rows for which `done` is true."""
        changed = done & ~self.comes & (self.window != self.rows.window).any(axis=1)
        written = changed | (done & self.comes)
        entries = self.rows.entries.filter(written)
        sub_key = sub_keys(self.rows.time[written], self.window[written])
        after = replace(entries, place=places("ordered", entries.hash, sub_key, entries.payload), sub_key=sub_key)
        return _Moved(self.rows.entries.filter(changed), after)


def _lasts(begins: Mask, times: Int64s) -> Int64s:
    """Return, for each row, the time of its group's last row; `begins` marks each group's first row."""
    found: Int64s = np.append(times[np.flatnonzero(begins)[1:] - 1], times[-1:])[np.cumsum(begins) - 1]
    return found


def _beside(entries: Entries, others: Entries) -> Entries:
    """Return the rows in `entries` that are not in `others`."""
    hashes, keys, sub_keys, payloads = (
        [getattr(part, name) for part in (entries, others)] for name in ("hash", "key", "sub_key", "payload")
    )
    payload = concat_binary(payloads)
    columns = (concat_binary(keys), concat_binary(sub_keys), payload)
    ids = group(mix(np.concatenate(hashes), hash64(payload)), columns).ids
    return entries.filter(~np.isin(ids[: len(entries)], ids[len(entries) :]))
