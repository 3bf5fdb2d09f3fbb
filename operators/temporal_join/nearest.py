"""Nearest rows: for points on the lines of some keys, the next row of the key or the previous one.

Rows are in an arrangement of layout *ordered* whose sub-key is a number (`columns.number_bytes`), the row's position on
the line of its key. A *place* in the arrangement is the 64-bit position of an entry in the order of a run. It consists
of bits of the key's hash and of the sub-key. Each point costs a search: a few entries of each run are read from the
point on. More are read only if these have cancelled out, will be retracted, or belong to another key that shares the
places. Points that lie close together share their readings: each reads only up to the next point, and uses the next
point's result if it finds nothing.
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
"""The number of entries of a run that are read first; a rewritten version is two entries and one that cancels."""

NOWHERE = 1 << 62
"""The number of a row that has no position on its line; no row is found there or after it."""

LAST_PLACE = NOWHERE - 2
"""The position of all times from the year 148,000 on; the first position is equally far in the other direction."""

_FAR = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Points:
    """Points on the lines of keys: for each, the number of its key (`key`) and its position on the line (`at`)."""

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
        """Return the places of the points in an arrangement."""
        sub_key = number_bytes.to_bytes(self.at)
        return places("ordered", keys.hash[self.key], sub_key, sub_key)

    def next_of(self, points: Points) -> Indices:
        """Return for each of `points` the first of these (ordered) points at or after it in its key; -1 if none."""
        return self._of_same_key(_beside(self, points, backward=False), points)

    def before(self, points: Points) -> Indices:
        """Return for each of `points` the last of these (ordered) points before it in its key; -1 if none."""
        return self._of_same_key(_beside(self, points, backward=True), points)

    def _of_same_key(self, found: Indices, points: Points) -> Indices:
        return np.where((found >= 0) & (np.append(self.key, -1)[found] == points.key), found, -1)


@dataclass(frozen=True, slots=True)
class Line:
    """Rows by key and position; of rows at one position, the latest to arrive comes first, and only it counts."""

    entries: Entries
    points: Points

    @classmethod
    def of(cls, keys: TouchedKeys, entries: Entries) -> Line:
        """Return the rows of these keys in order."""
        key, at = keys.find(entries), number_bytes.from_bytes(entries.sub_key)
        # Arrival numbers are equal if a row was expanded into several; their payload hashes then decide.
        order = np.lexsort((hash64(entries.payload), ~entries.seq, at, key))
        order = order[key[order] >= 0]
        return cls(entries.take(order), Points(key[order], at[order]))


def _beside(rows: Points, points: Points, *, backward: bool) -> Indices:
    """Return the row after or before each point, in any key; -1 for none. At one position, points come before rows."""
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
    """Return the live rows from each point on, at least up to the first of its key that is not in `less`.

    Rows at a point itself count. If `backward`, return the rows before each point; `less` must then be empty. The
    result may have further rows, and rows of other keys.
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
    """Disjoint intervals of places in order, which begin at points or, if `backward`, end there.

    `own` is the interval of each point. `enough` is the number of entries to read of a run.
    """

    low: Uint64s
    high: Uint64s
    own: Indices
    enough: Int64s
    backward: bool

    @classmethod
    def of(cls, at: Uint64s, *, backward: bool) -> _Intervals:
        """Make intervals from each of these places up to the next one, or to the end of its key."""
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
        """A place that is farther from the points than any row: the last one, or the first one with `backward`."""
        return np.uint64(0) if self.backward else ~np.uint64(0)

    def short(self, reach: Uint64s, found: Uint64s) -> Indices:
        """Return the intervals of which more must be read until the rows found at these places are known to be nearest.

        That is known once everything up to the found place has been read. The first interval of the key that has not
        been read to its end decides it.
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
        """Return the same intervals; four times as many entries are read of `which`."""
        enough = self.enough.copy()
        enough[which] *= 4
        return replace(self, enough=enough)
