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

from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.manifest import Run
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
        for segment, keys in _touched(run, reach.firsts, reach.place, segment_store):
            rows = segment.find_up_to(reach.firsts[keys], reach.place[keys], reach.seq[keys])
            yield segment.entries.take(rows)


def reach_of_first(
    whole: Reach, enough: int, runs: Sequence[Run], segment_store: SegmentStore, come: Entries | None
) -> Reach:
    """Return the range to read in order to get `enough` rows of each key from some run.

    If no run has `enough` rows of a key, the key's range is that in `whole`. If `come` is given, the range may end
    between ties. `come` contains the rows that the batch inserts, whose order keys may differ from those of the ties.
    """
    reach = whole
    for run in runs:
        missing = np.full(len(whole.firsts), enough)
        for segment, keys in _touched(run, whole.firsts, reach.place, segment_store):
            keys = keys[missing[keys] > 0]  # noqa: PLW2901 - the other keys have enough rows
            at, missing[keys] = segment.find_nth(whole.firsts[keys], reach.place[keys], missing[keys])
            keys, at = keys[at >= 0], at[at >= 0]  # noqa: PLW2901 - the scan of these keys stops here
            reach = _nearer(reach, keys, *_cut(segment, at, divides=come is not None))
    if come is None or len(reach.divided) == 0:
        return reach
    seq = reach.seq.copy()
    order = np.argsort(come.place)
    come = come.take(order)
    # Each iteration handles one place, and may avoid reading MANY rows.
    for key in reach.divided:
        if not _all_ties(int(reach.place[key]), runs, segment_store, come):
            seq[key] = LAST_SEQ
    return replace(reach, seq=seq)


def _touched(
    run: Run, firsts: Uint64s, until: Uint64s, segment_store: SegmentStore
) -> Iterator[tuple[Segment, Indices]]:
    """Yield each segment that may have rows of these keys, with the numbers of the keys concerned."""
    for info in run.segments:
        keys = np.flatnonzero((firsts <= np.uint64(info.last)) & (until >= np.uint64(info.first)))
        if len(keys):
            yield segment_store.open(info), keys


def _cut(segment: Segment, at: Indices, *, divides: bool) -> tuple[Uint64s, Int64s]:
    """Return the (place, seq) up to which to read, given the index `at` of each key's last wanted row."""
    places = segment.entries.place
    place, seq = places[at], np.full(len(at), LAST_SEQ)
    if divides:
        stop = np.searchsorted(places, place, side="right")
        # The rows of the segment's last place may continue in the next segment.
        many = (stop - at > MANY) | (stop == len(places))
        seq[many] = segment.entries.seq[at[many]]
    return place, seq


def _nearer(reach: Reach, keys: Indices, place: Uint64s, seq: Int64s) -> Reach:
    """Return the ranges, in which the ranges of `keys` are shortened to end at (`place`, `seq`) or earlier."""
    nearer = (place < reach.place[keys]) | ((place == reach.place[keys]) & (seq < reach.seq[keys]))
    places, seqs = reach.place.copy(), reach.seq.copy()
    places[keys[nearer]], seqs[keys[nearer]] = place[nearer], seq[nearer]
    return replace(reach, place=places, seq=seqs)


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
