"""Read from a place on, in either direction: the nearest entries, as few as suffice, with no gaps in between.

A *place* is the 64-bit position of an entry in the order of a run (`operators.arrangement.layout`).

In every run, the nearest entries of an interval of places are located. The result is complete up to the nearest of the
points at which some run has enough entries; places are read whole.
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
    """Return for each closed interval the place up to which it must be read to find `enough` entries in one run.

    `enough` has a number for each interval. The interval is read from `low` on, or from `high` down with `backward`. If
    no run has enough entries, the place is the interval's end. The intervals are disjoint and ascending.
    """
    reach = (low if backward else high).copy()
    for run in runs:
        missing = enough.copy()
        for info in reversed(run.segments) if backward else run.segments:
            near, far = (reach, high) if backward else (low, reach)
            which = np.flatnonzero((near <= np.uint64(info.last)) & (far >= np.uint64(info.first)) & (missing > 0))
            if not len(which):
                continue
            places = segment_store.open(info).entries.place
            first = np.searchsorted(places, near[which])
            stop = np.searchsorted(places, far[which], side="right")
            at = stop - missing[which] if backward else first + missing[which] - 1
            there = stop - first >= missing[which]
            missing[which] -= stop - first
            # This place is within the range that is still wanted, so the reach can only become nearer.
            reach[which[there]] = places[at[there]]
    return reach
