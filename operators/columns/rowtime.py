"""Times that rows have of their own, in ms since the epoch, on the scale that watermarks have.

An operator whose rows are let go of by a watermark takes the watermark for the time of the batch, and what it keeps of
a row is written at the time at which it may go. So state that is closed by time expires as state with a TTL does:
nobody sees it from then on, merges leave it out, and segments with nothing else are forgotten unread.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from rowkind.operators.columns.changes import Int64s

BEGINNING = -(1 << 60)
"""Before every time."""

END = 1 << 60
"""After every time: when the input has ended, and when a row goes that never does."""

RowTime = Callable[[pa.BinaryArray], Int64s]
"""A time of each of these packed rows."""

_LEAST, _LARGEST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)


def later(times: Int64s, by: int) -> Int64s:
    """Times moved by a length. What would leave the numbers stays at their end, so that no time wraps around."""
    by = max(_LEAST, min(_LARGEST, by))
    found: Int64s = (
        np.minimum(times, _LARGEST - by) + by if by >= 0 else np.maximum(times, max(_LEAST - by, _LEAST)) + by
    )
    return found
