"""Time spans around changes, the rows in these spans, and the rows' sessions.

A row's **window** consists of the start and, if requested, the end of the row's session. The window is stored in the
row's sub-key, after the row's time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import places
from rowkind.operators.arrangement.touched_keys import TouchedKeys
from rowkind.operators.columns.changes import Indices, Int64s, Mask, Uint64s
from rowkind.operators.columns.grouping import Groups, group
from rowkind.operators.columns.hashing import mix
from rowkind.operators.columns.packed_columns import fixed_width
from rowkind.operators.columns.rowtime import later

_SIGN = np.int64(np.iinfo(np.int64).min)
LEAST, LARGEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class SessionRows:
    """Rows with their partition numbers, times and windows. `window` is a matrix with one row per entry."""

    entries: Entries
    key: Indices
    time: Int64s
    window: Int64s

    def __len__(self) -> int:
        return len(self.key)

    @classmethod
    def of(cls, keys: TouchedKeys, entries: Entries, width: int) -> SessionRows:
        """Return the entries as rows whose windows consist of `width` numbers."""
        return cls(entries, keys.find(entries), *_numbers(entries.sub_key, width))

    @property
    def start(self) -> Int64s:
        """The start of each row's session."""
        found: Int64s = self.window[:, 0]
        return found

    def filter(self, mask: Mask) -> SessionRows:
        """Return the rows for which `mask` is true."""
        return SessionRows(self.entries.filter(mask), self.key[mask], self.time[mask], self.window[mask])


@dataclass(frozen=True, slots=True)
class SessionSpans:
    """Disjoint, ordered time spans in partitions: the parts that are read around changes.

    All rows from `low` to `high` have been read; `first` and `last` are the times of a span's first and last change.
    """

    key: Indices
    low: Int64s
    high: Int64s
    first: Int64s
    last: Int64s

    @classmethod
    def around(cls, keys: Indices, times: Int64s, gap: int) -> SessionSpans:
        """Return spans that extend from one gap before to one gap after each of the given times."""
        order = np.lexsort((times, keys))
        key, time = keys[order], times[order]
        return cls(key, later(time, -gap), later(time, gap), time, time).merged()

    def merged(self) -> SessionSpans:
        """Return the spans, with spans that touch or overlap merged."""
        highs, rank = np.unique(self.high, return_inverse=True)
        # To compute a running maximum within each partition, the numbers are shifted so that a later partition's
        # numbers exceed those of all earlier partitions.
        base = self.key * len(highs)
        reached = highs[np.maximum.accumulate(base + rank) - base]
        begin = np.flatnonzero(np.append(True, (self.key[1:] != self.key[:-1]) | (self.low[1:] > reached[:-1])))
        high = np.maximum.reduceat(self.high, begin)
        first, last = np.minimum.reduceat(self.first, begin), np.maximum.reduceat(self.last, begin)
        return SessionSpans(self.key[begin], self.low[begin], high, first, last)

    def filter(self, mask: Mask) -> SessionSpans:
        """Return the spans for which `mask` is true."""
        return SessionSpans(self.key[mask], self.low[mask], self.high[mask], self.first[mask], self.last[mask])

    def longer(self, which: Mask, width: int) -> SessionSpans:
        """Return all spans; the spans marked in `which` end `width` later."""
        return replace(self, high=np.where(which, later(self.high, width), self.high)).merged()

    def with_sessions(self, rows: SessionRows, gap: int) -> SessionSpans:
        """Return all spans, extended to cover the whole sessions of the rows in them.

        The windows of the rows must have ends.
        """
        span, low, high = self.hold(rows), self.low.copy(), self.high.copy()
        np.minimum.at(low, span, rows.window[:, 0])
        np.maximum.at(high, span, rows.window[:, 1] - gap)
        order = np.lexsort((low, self.key))
        return SessionSpans(self.key[order], low[order], high[order], self.first[order], self.last[order]).merged()

    def are(self, others: SessionSpans) -> bool:
        """Return whether the spans equal the spans `others` from which they were extended."""
        return np.array_equal(self.low, others.low) and np.array_equal(self.high, others.high)

    def are_of(self, keys: Indices) -> Mask:
        """Return a mask of the given partitions that have spans."""
        return np.isin(keys, self.key)

    def are_of_keys(self, keys: Indices) -> Mask:
        """Return a mask of the spans that are in one of the given partitions."""
        return np.isin(self.key, keys)

    def hold(self, rows: SessionRows) -> Indices:
        """Return the index of the span that contains each row; -1 if no span does."""
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

    def read(self, rows: Arrangement, keys: TouchedKeys, width: int) -> SessionRows:
        """Read the rows in the spans. Their windows consist of `width` numbers."""
        hashes = keys.hash[self.key]
        low, high = (_places(hashes, *edge) for edge in ((self.low, LEAST), (self.high, LARGEST)))
        order = np.argsort(low)
        low, high = low[order], np.maximum.accumulate(high[order])
        begin = np.flatnonzero(np.append(True, low[1:] > high[:-1]))
        found = SessionRows.of(keys, rows.between(low[begin], np.maximum.reduceat(high, begin)), width)
        found = found.filter(found.key >= 0)
        return found.filter(self.hold(found) >= 0)


def window_at(stored: SessionRows, keys: Indices, times: Int64s) -> Int64s:
    """Return the windows of the stored rows with these partitions and times; zeros if no row is stored there."""
    both = (np.concatenate([stored.key, keys]), np.concatenate([stored.time, times]))
    groups = group(mix(both[0].astype(np.uint64), both[1].view(np.uint64)), both)
    window = np.zeros((groups.count, stored.window.shape[1]), np.int64)
    window[groups.ids[: len(stored)]] = stored.window
    found: Int64s = window[groups.ids[len(stored) :]]
    return found


def sessions_of(rows: SessionRows, others: SessionRows) -> Groups:
    """Group the rows of both parts by session, that is, by partition and start."""
    key, start = (np.concatenate([getattr(rows, name), getattr(others, name)]) for name in ("key", "start"))
    return group(mix(key.astype(np.uint64), start.view(np.uint64)), (key, start))


def sub_keys(times: Int64s, windows: Int64s) -> pa.BinaryArray:
    """Return sub-keys: a marker, the time and the window, as bytes that compare in the same order as the numbers."""
    numbers = np.column_stack([times, windows])
    octets = np.ones((len(times), 1 + 8 * numbers.shape[1]), np.uint8)
    octets[:, 1:] = (numbers ^ _SIGN).astype(">i8").view(np.uint8)
    return fixed_width(octets, octets.shape[1], len(times))


def windows_of(entries: Entries, width: int) -> Int64s:
    """Return the windows from the entries' sub-keys."""
    return _numbers(entries.sub_key, width)[1]


def _places(hashes: Uint64s, times: Int64s, number: int) -> Uint64s:
    sub_key = sub_keys(times, np.full((len(times), 1), number, np.int64))
    return places("ordered", hashes, sub_key, sub_key)


def _numbers(sub_key: pa.BinaryArray, width: int) -> tuple[Int64s, Int64s]:
    """Return the times and the windows from sub-keys."""
    count, octets = len(sub_key), 1 + 8 * (1 + width)
    if not count:
        return np.empty(0, np.int64), np.empty((0, width), np.int64)
    first = int(np.frombuffer(sub_key.buffers()[1], np.int32, count + 1, sub_key.offset * 4)[0])
    data = np.frombuffer(sub_key.buffers()[2], np.uint8, count * octets, first).reshape(count, octets)
    numbers = np.ascontiguousarray(data[:, 1:]).view(">i8").astype(np.int64) ^ _SIGN
    return numbers[:, 0], numbers[:, 1:]
