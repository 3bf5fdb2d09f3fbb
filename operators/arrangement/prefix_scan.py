"""Read as few of the first rows of keys in layout *ordered* as necessary, without gaps.

A run is sorted by (place, seq). An entry's *place* is its 64-bit sort position within a run, which includes the first
bits of the order key (`operators.arrangement.layout`). The first rows of each key are read from every run. The result
is complete up to the earliest point at which the scan of any run stopped.

Rows with the same place are read together, because they may have different order keys, so that the last row may rank
first. However, if very many rows have the same place, they are usually ties: rows with the same order key. Ties rank by
arrival, and are stored in that order. Before more than `MANY` rows with the same place are read, the scan therefore
compares only their order keys. If all order keys are the same, it is enough to read some of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rowkind.operators.arrangement import compiled
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.manifest import Run, SegmentInfo
from rowkind.operators.arrangement.segment import LAST_SEQ, Segment
from rowkind.operators.arrangement.segment_store import SegmentStore
from rowkind.operators.columns.changes import Indices, Int64s, Mask, Uint64s

MANY = 1 << 10
"""The number of unwanted rows with the same place above which the scan checks whether the rows are ties."""


@dataclass(frozen=True, slots=True)
class Reach:
    """A range of entries for each key: from the place in `firsts` up to and including (`place`, `seq`).

    `ends` contains the last possible place of each key's rows. If `latest_first` is set, rows with the same place are
    stored latest first, and `seq` is the complement of a seq.
    """

    firsts: Uint64s
    ends: Uint64s
    place: Uint64s
    seq: Int64s
    latest_first: bool

    @classmethod
    def whole(cls, firsts: Uint64s, ends: Uint64s, *, latest_first: bool) -> Reach:
        """Return the range of all rows of keys whose rows have places from `firsts` to `ends`."""
        return cls(firsts, ends, ends, np.full(len(firsts), LAST_SEQ), latest_first)

    @property
    def is_whole(self) -> Mask:
        """A mask of the keys whose range covers all of their rows."""
        result: Mask = (self.place == self.ends) & (self.seq == LAST_SEQ)
        return result

    @property
    def divided(self) -> Indices:
        """The indices of the keys whose range includes only some of the rows at its last place."""
        return np.flatnonzero(self.seq != LAST_SEQ)

    def filter(self, mask: Mask) -> Reach:
        """Return the ranges of the keys for which `mask` is true."""
        return Reach(self.firsts[mask], self.ends[mask], self.place[mask], self.seq[mask], self.latest_first)

    def holds(self, entries: Entries) -> Mask:
        """Return a mask of the entries that are within the range of some key."""
        if len(self.firsts) == 0:
            return np.zeros(len(entries), np.bool_)
        owner = np.searchsorted(self.firsts, entries.place, side="right") - 1
        until = self.place[owner]
        result: Mask = (owner >= 0) & (entries.place <= until)
        if len(self.divided):
            seq = ~entries.seq if self.latest_first else entries.seq
            result &= (entries.place < until) | (seq <= self.seq[owner])
        return result


def read(reach: Reach, runs: Sequence[Run], segment_store: SegmentStore) -> Iterator[Entries]:
    """Yield the entries of all runs that are within the range of some key."""
    for run in runs:
        for segment, _, keys in _touched(run, reach.firsts, reach.place, segment_store):
            rows = segment.find_up_to(reach.firsts[keys], reach.place[keys], reach.seq[keys])
            yield segment.entries.take(rows)


def reach_of_first(
    whole: Reach, enough: int, runs: Sequence[Run], segment_store: SegmentStore, come: Entries | None
) -> Reach:
    """Return the range to read in order to get `enough` rows of each key from some run.

    If no run has `enough` rows of a key, the key's range is that in `whole`. If `come` is given, the range may end
    between ties. `come` contains the rows that the batch inserts, whose order keys may differ from those of the ties.
    """
    place, seq = whole.place.copy(), whole.seq.copy()
    for run in runs:
        reached = compiled.Reached(whole.firsts, place, seq, np.full(len(whole.firsts), enough))
        for segment, info, keys in _touched(run, whole.firsts, place, segment_store):
            many = None if come is None else MANY
            if not compiled.shorten(segment.view, (info.first, info.last), reached, many):
                _shorten(segment, reached, keys, divides=come is not None)
    reach = replace(whole, place=place, seq=seq)
    if come is None or len(reach.divided) == 0:
        return reach
    order = np.argsort(come.place)
    come = come.take(order)
    # Each iteration handles one place, and may avoid reading MANY rows.
    for key in reach.divided:
        if not _all_ties(int(reach.place[key]), runs, segment_store, come):
            seq[key] = LAST_SEQ
    return replace(reach, seq=seq)


def _touched(
    run: Run, firsts: Uint64s, until: Uint64s, segment_store: SegmentStore
) -> Iterator[tuple[Segment, SegmentInfo, Indices]]:
    """Yield each segment that may have rows of these keys, with the numbers of the keys concerned."""
    for info in run.segments:
        keys = np.flatnonzero((firsts <= np.uint64(info.last)) & (until >= np.uint64(info.first)))
        if len(keys):
            yield segment_store.open(info), info, keys


def _shorten(segment: Segment, reached: compiled.Reached, keys: Indices, *, divides: bool) -> None:
    """Shorten the ranges of `keys` after searching a segment for their first rows."""
    keys = keys[reached.missing[keys] > 0]
    at, reached.missing[keys] = segment.find_nth(reached.low[keys], reached.place[keys], reached.missing[keys])
    keys, at = keys[at >= 0], at[at >= 0]
    places = segment.place
    place, seq = places[at], np.full(len(at), LAST_SEQ)
    if divides:
        stop = np.searchsorted(places, place, side="right")
        # The rows of the segment's last place may continue in the next segment.
        many = (stop - at > MANY) | (stop == len(places))
        seq[many] = segment.entries.seq[at[many]]
    nearer = (place < reached.place[keys]) | (seq < reached.seq[keys])
    reached.place[keys[nearer]], reached.seq[keys[nearer]] = place[nearer], seq[nearer]


def _all_ties(place: int, runs: Sequence[Run], segment_store: SegmentStore, come: Entries) -> bool:
    """Return whether all rows at a place have the same order key, including the rows in `come`, sorted by place."""
    first, stop = (int(np.searchsorted(come.place, np.uint64(place), side=side)) for side in ("left", "right"))
    found: set[bytes | None] = set(come.sub_key.slice(first, stop - first).to_pylist())
    for run in runs:
        for info in run.segments:
            if info.first <= place <= info.last:
                found |= segment_store.open(info).subs_at(place)
                if None in found or len(found) > 1:
                    return False
    return True
