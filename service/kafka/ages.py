"""Count a batch's records by timestamp, as input for the latency histogram.

A record's latency is known only when its batch has ended. Until then, the counters sent with the blocks carry the
records' timestamps. Each timestamp is rounded to an eighth of the record's age at the time of reading, which is precise
enough for a histogram. A batch therefore has at most a few dozen distinct timestamps.
"""

from __future__ import annotations

import numpy as np

from rowkind.service.execute.metrics import sample
from rowkind.service.kafka.record import Made

_EXACT_BITS = 3


def ages(table: str, made: Made, now: float) -> dict[str, float]:
    """Return a table's latency counters. `made`: sampled record times; `now`: the current Unix time in seconds."""
    old = np.maximum(now * 1000 - made.at, 1)
    step = np.int64(1) << np.maximum(np.log2(old).astype(np.int64) - _EXACT_BITS, 0)
    times, which = np.unique(made.at // step * step + step // 2, return_inverse=True)
    records = np.bincount(which, made.records, len(times))
    return {
        sample("rowkind_latency_seconds", table=table, made=at): count
        for at, count in zip(times.tolist(), records.tolist(), strict=True)
    }
