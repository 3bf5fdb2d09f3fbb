"""How old the records of a batch are, counted so that it can ride with the blocks.

What a record has waited for is known when its batch has ended. Until then its time rides along, as coarsely as is good
enough for a histogram: to an eighth of how old it is when it is read. So a batch has a few dozen times, whatever
it is made of.
"""

from __future__ import annotations

import numpy as np

from rowkind.service.execute.metrics import sample
from rowkind.service.kafka.record import Made

_EXACT_BITS = 3


def ages(table: str, made: Made, now: float) -> dict[str, float]:
    """The samples of a table's records that were `made` then, at Unix time `now`."""
    old = np.maximum(now * 1000 - made.at, 1)
    step = np.int64(1) << np.maximum(np.log2(old).astype(np.int64) - _EXACT_BITS, 0)
    times, which = np.unique(made.at // step * step + step // 2, return_inverse=True)
    records = np.bincount(which, made.records, len(times))
    return {
        sample("rowkind_latency_seconds", table=table, made=at): count
        for at, count in zip(times.tolist(), records.tolist(), strict=True)
    }
