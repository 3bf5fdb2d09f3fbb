"""The nearest rows: of points on the lines of some keys, the row of each key that comes next, or the one before.

Rows lie in an arrangement of layout *ordered* whose sub-key is a number (`columns.number_bytes`). A point costs a
search: of each run a few entries are read from it on, and more only where these have cancelled out, are to go, or are
of another key that shares the places. Where several points lie close together, what one has read serves the others:
each reads up to the next point only, and who finds nothing there takes what the next one has found.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import UPPER_ORDERED, places
from rowkind.operators.columns import number_bytes
from rowkind.operators.columns.changes import Indices, Int64s, Mask, Uint64s
from rowkind.operators.columns.grouping import distinct
from rowkind.operators.columns.hashing import hash64
from rowkind.operators.touched_keys import TouchedKeys

_FEW = 2
"""Entries that are read of a run at first; a version that has been written again is two and one that cancels."""

NOWHERE = 1 << 62
"""The place of what has no place on its line: nothing lies there or behind."""

LAST_PLACE = NOWHERE - 2
"""Where all times from the year 148,000 on stand; the first place is as far on the other side."""

_FAR = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Points:
    """Places on the lines of keys: the number of a key and a number on its line."""

    key: Indices
    at: Int64s

    def __len__(self) -> int:
        return len(self.key)

    @classmethod
    def concat(cls, *parts: Points) -> Points:
        """All of them, one after the other."""
        return cls(np.concatenate([part.key for part in parts]), np.concatenate([part.at for part in parts]))

    def filter(self, mask: Mask) -> Points:
        """Those where `mask` is true."""
        return Points(self.key[mask], self.at[mask])

    def places(self, keys: TouchedKeys) -> Uint64s:
        """Where they stand in an arrangement."""
        sub_key = number_bytes.to_bytes(self.at)
        return places("ordered", keys.hash[self.key], sub_key, sub_key)

    def next_of(self, points: Points) -> Indices:
        """For each of other points the first of these, which are in order, of its key there or behind; -1 for none."""
        return self._of_same_key(_beside(self, points, backward=False), points)

    def before(self, points: Points) -> Indices:
        """For each of other points the last of these, which are in order, of its key before it; -1 for none."""
        return self._of_same_key(_beside(self, points, backward=True), points)

    def _of_same_key(self, found: Indices, points: Points) -> Indices:
        return np.where((found >= 0) & (np.append(self.key, -1)[found] == points.key), found, -1)


@dataclass(frozen=True, slots=True)
class Line:
    """Rows by key and place; of those at one place the one that counts comes first, which is the latest to arrive."""

    entries: Entries
    points: Points

    @classmethod
    def of(cls, keys: TouchedKeys, entries: Entries) -> Line:
        """The rows of these keys in order."""
        key, at = keys.find(entries), number_bytes.from_bytes(entries.sub_key)
        # Arrival numbers are equal where a row has been made into several: their bytes decide then.
        order = np.lexsort((hash64(entries.payload), ~entries.seq, at, key))
        order = order[key[order] >= 0]
        return cls(entries.take(order), Points(key[order], at[order]))


def _beside(rows: Points, points: Points, *, backward: bool) -> Indices:
    """The row that comes after or before each point, whatever its key; -1 for none. At one place, points come first."""
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
    """The live rows from each point on, at least up to the first of its key that stays when the rows `less` are gone.

    These are rows at points. Where `backward`, the rows before each point, and nothing goes. There may be more rows
    among them, and rows of other keys.
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
    """Disjoint intervals of places in order, which begin at points, or end there where `backward`.

    `own` says which one is each point's. `enough` is how many entries are to be read of a run.
    """

    low: Uint64s
    high: Uint64s
    own: Indices
    enough: Int64s
    backward: bool

    @classmethod
    def of(cls, at: Uint64s, *, backward: bool) -> _Intervals:
        """From each of these places up to the next one, or to the end of its key."""
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
        """A place further away than all others."""
        return np.uint64(0) if self.backward else ~np.uint64(0)

    def short(self, reach: Uint64s, found: Uint64s) -> Indices:
        """The intervals of which more must be read, until what points have found at these places is the nearest.

        That is known once all is read up to there: up to the first interval of the key that is not read to its end.
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
        """The same, of some of which more is read."""
        enough = self.enough.copy()
        enough[which] *= 4
        return replace(self, enough=enough)
