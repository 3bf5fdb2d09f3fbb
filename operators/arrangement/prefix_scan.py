"""Reading from the top: the first rows of keys in layout *ordered*, as few as will do, with nothing missing in between.

A run stands in order of (place, seq). Of every run the first rows of each key are read; what is complete is what lies
before the least point up to which some run was read. A place is read whole, because its rows may have different order
keys, of which the last row may have the first. But where a place has very many rows they mostly are ties, rows with
one and the same order key, which rank by arrival as they stand. So before more than `MANY` rows of a place are read
their order keys are compared, which touches nothing else of the rows; if there is only one, a part of them will do.
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
"""When a reading would have to go beyond what is wanted by more rows of one place than this, it looks for ties."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Up to where keys have been read: from the places `firsts` on up to and including (`place`, `seq`).

    `ends` are the last places that rows of these keys could have. Where `latest_first`, runs have later seqs before
    earlier ones and `seq` is the complement of one.
    """

    firsts: Uint64s
    ends: Uint64s
    place: Uint64s
    seq: Int64s
    latest_first: bool

    @classmethod
    def whole(cls, firsts: Uint64s, ends: Uint64s, *, latest_first: bool) -> Reach:
        """All rows of keys that begin at these places and end at those."""
        return cls(firsts, ends, ends, np.full(len(firsts), LAST_SEQ), latest_first)

    @property
    def is_whole(self) -> Mask:
        """Of which keys there is nothing beyond."""
        result: Mask = (self.place == self.ends) & (self.seq == LAST_SEQ)
        return result

    @property
    def divided(self) -> Indices:
        """The keys that are read up to the middle of a place."""
        return np.flatnonzero(self.seq != LAST_SEQ)

    def filter(self, mask: Mask) -> Reach:
        """That of the keys where `mask` is true."""
        return Reach(self.firsts[mask], self.ends[mask], self.place[mask], self.seq[mask], self.latest_first)

    def holds(self, entries: Entries) -> Mask:
        """Which of the entries are within it."""
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
    """All that the runs have within this reach."""
    for run in runs:
        for segment, keys in _touched(run, reach.firsts, reach.place, segment_store):
            rows = segment.find_up_to(reach.firsts[keys], reach.place[keys], reach.seq[keys])
            yield segment.entries.take(rows)


def reach_of_first(
    whole: Reach, enough: int, runs: Sequence[Run], segment_store: SegmentStore, come: Entries | None
) -> Reach:
    """How far to read so that of every run there are `enough` rows of each key, if it has so many.

    Ties may be read in part where `come` is given: the rows that are to come, which may have other order keys.
    """
    reach = whole
    for run in runs:
        missing = np.full(len(whole.firsts), enough)
        for segment, keys in _touched(run, whole.firsts, reach.place, segment_store):
            keys = keys[missing[keys] > 0]  # noqa: PLW2901 - of the others there is enough
            at, missing[keys] = segment.find_nth(whole.firsts[keys], reach.place[keys], missing[keys])
            keys, at = keys[at >= 0], at[at >= 0]  # noqa: PLW2901 - those that need go no further
            reach = _nearer(reach, keys, *_cut(segment, at, divides=come is not None))
    if come is None or len(reach.divided) == 0:
        return reach
    seq = reach.seq.copy()
    order = np.argsort(come.place)
    come = come.take(order)
    # A step per place, which spares the reading of MANY rows each.
    for key in reach.divided:
        if not _all_ties(int(reach.place[key]), runs, segment_store, come):
            seq[key] = LAST_SEQ
    return replace(reach, seq=seq)


def _touched(
    run: Run, firsts: Uint64s, until: Uint64s, segment_store: SegmentStore
) -> Iterator[tuple[Segment, Indices]]:
    """The segments that may have rows of these keys, and of which keys."""
    for info in run.segments:
        keys = np.flatnonzero((firsts <= np.uint64(info.last)) & (until >= np.uint64(info.first)))
        if len(keys):
            yield segment_store.open(info), keys


def _cut(segment: Segment, at: Indices, *, divides: bool) -> tuple[Uint64s, Int64s]:
    """Up to where to read so that the rows `at` are the last ones that are wanted."""
    places = segment.entries.place
    place, seq = places[at], np.full(len(at), LAST_SEQ)
    if divides:
        stop = np.searchsorted(places, place, side="right")
        # A place at the end of a segment may go on in the next one.
        many = (stop - at > MANY) | (stop == len(places))
        seq[many] = segment.entries.seq[at[many]]
    return place, seq


def _nearer(reach: Reach, keys: Indices, place: Uint64s, seq: Int64s) -> Reach:
    """The reach, for these keys up to (`place`, `seq`) at most."""
    nearer = (place < reach.place[keys]) | ((place == reach.place[keys]) & (seq < reach.seq[keys]))
    places, seqs = reach.place.copy(), reach.seq.copy()
    places[keys[nearer]], seqs[keys[nearer]] = place[nearer], seq[nearer]
    return replace(reach, place=places, seq=seqs)


def _all_ties(place: int, runs: Sequence[Run], segment_store: SegmentStore, come: Entries) -> bool:
    """Whether all rows at a place have one order key, those that `come` too, which are sorted."""
    first, stop = (int(np.searchsorted(come.place, np.uint64(place), side=side)) for side in ("left", "right"))
    found: set[bytes | None] = set(come.sub_key.slice(first, stop - first).to_pylist())
    for run in runs:
        for info in run.segments:
            if info.first <= place <= info.last:
                found |= segment_store.open(info).subs_at(place)
                if None in found or len(found) > 1:
                    return False
    return True
