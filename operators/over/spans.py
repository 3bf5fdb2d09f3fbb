"""Spans: the parts of partitions that OVER reads around a batch's changes, as far as frames extend.

    rows       . . . . . 1 . . . . . . . . 2 3 . . .
    changes              ^                 ^ ^
    spans          [. . . 1 . . .]   [. . . 2 3 . . .]

The ends of spans are given as places. A *place* is a 64-bit number by which a run's entries are ordered
(`operators.arrangement.layout`).

Initially each change is a span of its own, and some rows before and after it are read. Spans whose read parts touch are
merged. It is not known in advance how far a span must be read, so each read goes four times as far as the previous
read, for all spans at once. If a change may affect all rows after or before the changed row, the partition is a single
span.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import UPPER_ORDERED
from rowkind.operators.columns.changes import Indices, Int64s, Mask, Uint64s
from rowkind.operators.columns.grouping import distinct, is_in

_ONE = np.uint64(1)


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans, in order, given by the places of their first and last changes. Several spans may share a partition.

    `enough` contains the number of rows to read before and after each span.
    """

    low: Uint64s
    high: Uint64s
    enough: Int64s

    @classmethod
    def around(cls, places: Uint64s, enough: int, *, apart: bool) -> Spans:
        """Return one span per place if `apart` is set, otherwise one span per partition.

        The span of a partition extends from its first to its last place.
        """
        low = high = distinct(places)
        if not apart:
            new = (low[1:] & UPPER_ORDERED) != (low[:-1] & UPPER_ORDERED)
            low, high = low[np.append(True, new)[: len(low)]], high[np.append(new, True)[: len(high)]]
        return cls(low, high, np.full(len(low), enough))

    @property
    def first(self) -> Uint64s:
        """The places at which the partitions of the spans begin."""
        return self.low & UPPER_ORDERED

    @property
    def last(self) -> Uint64s:
        """The places at which the partitions of the spans end."""
        return self.low | ~UPPER_ORDERED

    def of(self, places: Uint64s) -> Mask:
        """Return a mask of the places that are in a partition with a span."""
        return is_in(places & UPPER_ORDERED, self.first)

    def with_others(self, which: Indices) -> Mask:
        """Return a mask of the spans with the numbers `which` and of all other spans in the same partitions."""
        return is_in(self.first, distinct(self.first[which]))

    def longer(self, which: Indices) -> Spans:
        """Return all spans in the partitions of `which`, to be read again, with `which` read four times as far."""
        enough, again = self.enough.copy(), self.with_others(which)
        enough[which] *= 4
        return Spans(self.low[again], self.high[again], enough[again])

    def read(self, rows: Arrangement, *, back: bool, on: bool) -> SpansRead:
        """Read the spans' rows: from the partition's beginning if `back` is set, and to its end if `on` is set."""
        begin, end = self.first, self.last
        follows = np.append(False, begin[1:] == begin[:-1])[: len(begin)]
        assert not ((back or on) and follows.any()), "a partition read to its beginning or end must have one span"
        if not back:
            begin = np.where(follows, np.roll(self.high, 1) + _ONE, begin)
            some = np.flatnonzero(begin < self.low)
            reach = rows.nearest(begin[some], self.low[some] - _ONE, self.enough[some], backward=True)[1]
            begin = self.low.copy()
            begin[some] = reach
        if not on:
            end = np.where(np.roll(follows, -1), np.roll(self.low, -1) - _ONE, end)
            some = np.flatnonzero(self.high < end)
            reach = rows.nearest(self.high[some] + _ONE, end[some], self.enough[some])[1]
            end = self.high.copy()
            end[some] = reach
        starts = np.flatnonzero(~(follows & (begin <= np.roll(end, 1) + _ONE)))
        stops = np.append(starts[1:], len(begin))[: len(starts)] - 1
        met = Spans(self.low[starts], self.high[stops], _largest(self.enough, starts))
        return SpansRead(met, begin[starts], end[stops], rows.between(begin[starts], end[stops]).units)


def _largest(values: Int64s, starts: Indices) -> Int64s:
    """Return the largest value of each group; `starts` contains the position of each group's first value."""
    return np.maximum.reduceat(values, starts) if len(starts) else values


@dataclass(frozen=True, slots=True)
class SpansRead:
    """Merged spans, the first and last place that has been read for each span, and the rows that have been read."""

    spans: Spans
    begin: Uint64s
    end: Uint64s
    rows: Entries

    @property
    def begins(self) -> Mask:
        """A mask of the spans that have been read from the beginning of their partitions."""
        result: Mask = self.begin == self.spans.first
        return result

    @property
    def ends(self) -> Mask:
        """A mask of the spans that have been read to the end of their partitions."""
        result: Mask = self.end == self.spans.last
        return result

    @property
    def vacant(self) -> Mask:
        """A mask of the spans that are in partitions without stored rows."""
        return ~is_in(self.spans.first, distinct(self.rows.place & UPPER_ORDERED))

    def own(self, places: Uint64s) -> Indices:
        """Return, for each place, the index of the span that contains the place."""
        found: Indices = np.searchsorted(self.begin, places, side="right") - 1
        return found
