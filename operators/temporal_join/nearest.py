"""Nearest rows: for each of the given points on the keys' lines, the row just after or just before the point.

The rows are in an arrangement of layout *ordered* whose sub-key is a number (`columns.number_bytes`): the row's
position on its key's line. A *place* is a 64-bit number by which a run's entries are ordered. It consists of bits of
the key's hash and of the sub-key.

Each point costs one search, which reads a few entries of each run, starting at the point. More entries are read only if
the first entries have cancelled out, will be retracted, or belong to another key with the same places. Points that are
close together share the entries that are read: each point reads only up to the next point, and uses the next point's
result if it finds no row of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import UPPER_ORDERED, places
from rowkind.operators.arrangement.touched_keys import TouchedKeys
from rowkind.operators.columns import number_bytes
from rowkind.operators.columns.changes import Indices, Int64s, Mask, Uint64s
from rowkind.operators.columns.grouping import distinct
from rowkind.operators.columns.hashing import hash64

_FEW = 2
"""The number of entries that are initially read from each run.

A rewritten version has three entries: the old entry, an entry that cancels it, and the new entry.
"""

NOWHERE = 1 << 62
"""The position of rows whose time is NULL; no row is found at this position or after it."""

LAST_PLACE = NOWHERE - 2
"""The last position, shared by all times after about the year 148,000.

The first position is equally far in the past.
"""

_FAR = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Points:
    """Points on the keys' lines: the number of each point's key (`key`) and the point's position on the line (`at`)."""

    key: Indices
    at: Int64s

    def __len__(self) -> int:
        return len(self.key)

    @classmethod
    def concat(cls, *parts: Points) -> Points:
        """Concatenate all parts."""
        return cls(np.concatenate([part.key for part in parts]), np.concatenate([part.at for part in parts]))

    def filter(self, mask: Mask) -> Points:
        """Return the points for which `mask` is true."""
        return Points(self.key[mask], self.at[mask])

    def places(self, keys: TouchedKeys) -> Uint64s:
        """Return the points' places in an arrangement."""
        sub_key = number_bytes.to_bytes(self.at)
        return places("ordered", keys.hash[self.key], sub_key, sub_key)

    def next_of(self, points: Points) -> Indices:
        """Return, for each of `points`, the index of the next point in this object; -1 for none.

        The next point has the same key and is at or after the given point. The points of this object must be ordered.
        """
        return self._of_same_key(_beside(self, points, backward=False), points)

    def before(self, points: Points) -> Indices:
        """Return, for each of `points`, the index of the previous point in this object; -1 for none.

        The previous point has the same key and is before the given point. The points of this object must be ordered.
        """
        return self._of_same_key(_beside(self, points, backward=True), points)

    def _of_same_key(self, found: Indices, points: Points) -> Indices:
        return np.where((found >= 0) & (np.append(self.key, -1)[found] == points.key), found, -1)


@dataclass(frozen=True, slots=True)
class Line:
    """Rows ordered by key and position.

    Of rows at the same position, the latest to arrive is first; the other rows have no effect.
    """

    entries: Entries
    points: Points

    @classmethod
    def of(cls, keys: TouchedKeys, entries: Entries) -> Line:
        """Return the rows that belong to `keys`, in order."""
        key, at = keys.find(entries), number_bytes.from_bytes(entries.sub_key)
        # Rows that were expanded from the same row have equal arrival numbers, so their payload hashes decide.
        order = np.lexsort((hash64(entries.payload), ~entries.seq, at, key))
        order = order[key[order] >= 0]
        return cls(entries.take(order), Points(key[order], at[order]))


def _beside(rows: Points, points: Points, *, backward: bool) -> Indices:
    """Return the index of the row after each point or, if `backward` is set, before it; -1 for none.

    The row may have a different key. At the same position, points come before rows.
    """
    count = len(points)
    is_row = np.repeat([False, True], [count, len(rows)])
    order = np.lexsort((is_row, np.concatenate([points.at, rows.at]), np.concatenate([points.key, rows.key])))
    number = order - count
    found = np.empty(len(order), np.int64)
    if backward:
        found[order] = np.maximum.accumulate(np.where(number >= 0, number, -1))
        return found[:count]
    found[order] = np.minimum.accumulate(np.where(number >= 0, number, _FAR)[::-1])[::-1]
    return np.where(found[:count] == _FAR, -1, found[:count])


def nearest(rows: Arrangement, keys: TouchedKeys, points: Points, less: Entries, *, backward: bool = False) -> Entries:
    """Return the live rows from each point to at least the first row of the point's key that is not in `less`.

    A row exactly at a point is included. If `backward` is set, return the rows before each point instead; `less` must
    then be empty. The result may include further rows, and rows with other keys.
    """
    if not len(points):
        return Entries.empty()
    intervals = _Intervals.of(points.places(keys), backward=backward)
    while True:
        stored, reach = rows.nearest(intervals.low, intervals.high, intervals.enough, backward=backward)
        line = Line.of(keys, rows.without(stored, -less))
        found = line.points.before(points) if backward else line.points.next_of(points)
        at = np.where(found >= 0, np.append(line.entries.place, np.uint64(0))[found], intervals.nowhere)
        short = intervals.short(reach, at)
        if not len(short):
            return stored
        intervals = intervals.longer(short)


@dataclass(frozen=True, slots=True)
class _Intervals:
    """Disjoint intervals of places, in order. Each begins at a point or, if `backward` is set, ends at a point.

    `own` contains the index of each point's interval. `enough` contains the number of entries to read from each run.
    """

    low: Uint64s
    high: Uint64s
    own: Indices
    enough: Int64s
    backward: bool

    @classmethod
    def of(cls, at: Uint64s, *, backward: bool) -> _Intervals:
        """Return the intervals from each place in `at` to just before the next place, or to the end of the key.

        If `backward` is set, the intervals extend back to just after the previous place, or to the beginning of the
        key.
        """
        edge = distinct(at)
        key = edge & UPPER_ORDERED
        low, high = edge, edge
        if backward:
            follows = np.append(False, key[1:] == key[:-1])
            low = np.where(follows, np.roll(edge, 1) + np.uint64(1), key)
        else:
            follows = np.append(key[1:] == key[:-1], False)
            high = np.where(follows, np.roll(edge, -1) - np.uint64(1), key | ~UPPER_ORDERED)
        return cls(low, high, np.searchsorted(edge, at), np.full(len(edge), _FEW), backward)

    @property
    def nowhere(self) -> np.uint64:
        """A place farther from the points than any row: the last place or, if `backward` is set, the first."""
        return np.uint64(0) if self.backward else ~np.uint64(0)

    def short(self, reach: Uint64s, found: Uint64s) -> Indices:
        """Return the intervals that must be read further to ensure that the rows at the places `found` are the nearest.

        `reach` is how far each interval has been read. A found row is the nearest once all places between the point and
        the row have been read. So the only interval to check is the first one, from the point on and within its key,
        that has not been read to its end.
        """
        count = len(self.low)
        number, key = np.arange(count), self.low & UPPER_ORDERED
        if self.backward:
            open_ = np.maximum.accumulate(np.where(reach > self.low, number, -1))
        else:
            open_ = np.minimum.accumulate(np.where(reach < self.high, number, count)[::-1])[::-1]
        open_ = np.where((open_ >= 0) & (open_ < count), open_, -1)
        open_ = np.where((open_ >= 0) & (key[open_] == key), open_, -1)[self.own]
        within = found >= reach[open_] if self.backward else found <= reach[open_]
        return np.unique(open_[(open_ >= 0) & ~within])

    def longer(self, which: Indices) -> _Intervals:
        """Return the same intervals, with four times as many entries to read for the intervals in `which`."""
        enough = self.enough.copy()
        enough[which] *= 4
        return replace(self, enough=enough)
