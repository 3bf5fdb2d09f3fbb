"""Read as few of the entries nearest to a place as necessary, in either direction, without gaps.

An entry's *place* is its 64-bit sort position within a run (`operators.arrangement.layout`).

In every run, the scan locates the nearest entries within an interval of places. The scan ends at the nearest place at
which some run has enough entries; up to that place, the result is complete. Entries with the same place are always read
together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rowkind.operators.arrangement.manifest import Run
from rowkind.operators.arrangement.segment_store import SegmentStore
from rowkind.operators.columns.changes import Int64s, Uint64s


def reach_of_nearest(
    low: Uint64s,
    high: Uint64s,
    enough: Int64s,
    runs: Sequence[Run],
    segment_store: SegmentStore,
    *,
    backward: bool,
) -> Uint64s:
    """Return, for each closed interval, how far to read to find enough entries in some run.

    `enough` gives the number of entries to find in each interval. An interval is read from `low` upwards or, if
    `backward` is set, from `high` downwards. If no run has enough entries, the place is the end of the interval. The
    intervals must be disjoint and ascending.
    """
    reach = (low if backward else high).copy()
    for run in runs:
        missing = enough.copy()
        for info in reversed(run.segments) if backward else run.segments:
            near, far = (reach, high) if backward else (low, reach)
            which = np.flatnonzero((near <= np.uint64(info.last)) & (far >= np.uint64(info.first)) & (missing > 0))
            if not len(which):
                continue
            places = segment_store.open(info).place
            first = np.searchsorted(places, near[which])
            stop = np.searchsorted(places, far[which], side="right")
            at = stop - missing[which] if backward else first + missing[which] - 1
            there = stop - first >= missing[which]
            missing[which] -= stop - first
            # The place is within the interval that has been searched, so `reach` can only shrink.
            reach[which[there]] = places[at[there]]
    return reach
