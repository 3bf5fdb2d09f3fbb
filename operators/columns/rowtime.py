"""Times taken from columns of the rows, in ms since the epoch, on the same scale as watermarks.

An operator that evicts rows by a watermark uses the watermark as the batch's time, and stores each row with the time of
its eviction as `written_at`. The rows then expire like rows with a TTL: from their time on, they are invisible and
merges drop them. A segment in which all rows have expired is dropped without being read.
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
"""A function that takes packed rows and returns a time for each row."""

_LEAST, _LARGEST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)


def later(times: Int64s, by: int) -> Int64s:
    """Return the times shifted by `by` ms. The result is clamped to 64 bits, so that no time wraps around."""
    by = max(_LEAST, min(_LARGEST, by))
    found: Int64s = (
        np.minimum(times, _LARGEST - by) + by if by >= 0 else np.maximum(times, max(_LEAST - by, _LEAST)) + by
    )
    return found
