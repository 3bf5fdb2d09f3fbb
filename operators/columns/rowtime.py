"""Times from the rows' own columns, in ms since the epoch, on the same scale as watermarks.

An operator that evicts rows by a watermark uses the watermark as the batch's time. The `written_at` of a stored row is
then the time at which the row may be evicted. Such rows therefore expire like rows with a TTL: from that time on, they
are invisible, merges drop them, and segments that contain only such rows are dropped without being read.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from rowkind.operators.columns.changes import Int64s

BEGINNING = -(1 << 60)
"""A time before all others."""

END = 1 << 60
"""A time after all others: the watermark at the end of the input, and the eviction time of rows that never expire."""

RowTime = Callable[[pa.BinaryArray], Int64s]
"""A function that returns a time for each packed row."""

_LEAST, _LARGEST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)


def later(times: Int64s, by: int) -> Int64s:
    """Return the times shifted by `by` ms. The result is clamped to 64 bits, so that no time wraps around."""
    by = max(_LEAST, min(_LARGEST, by))
    found: Int64s = (
        np.minimum(times, _LARGEST - by) + by if by >= 0 else np.maximum(times, max(_LEAST - by, _LEAST)) + by
    )
    return found
