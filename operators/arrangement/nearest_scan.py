"""Reading from a place on, in either direction: the nearest entries, as few as will do, with nothing missing between.

Of every run the nearest entries of an interval of places are looked for. What is complete is what lies no further away
than the least far of the points at which some run has enough of them; places are read whole.
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
    """Up to which place each closed interval is to be read so that some run has `enough` entries there.

    It is read from `low` on, or from `high` on where `backward`. Where no run has as many, it is the interval's end.
    The intervals are disjoint and ascending.
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
            # Within what is still wanted, so that it can only be nearer.
            reach[which[there]] = places[at[there]]
    return reach
