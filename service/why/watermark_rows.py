"""A few of a table's rows that move its watermark as all rows do, so that the others need not be kept.

    slot of 1 s       rows of partition 0, by the time in the watermark     kept
    12:00:00          11:59, 12:00, 11:58                                   12:00
    12:00:01          11:57                                                 11:57

In each slot of time and partition, the insertion with the highest time is kept. A partition without a row in a slot has
received none, so whether it is idle does not change. The watermark is right at the end of each slot.
"""

from __future__ import annotations

import numpy as np

from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import WEIGHTS, Int64s, Rows
from rowkind.service.execute.column_times import in_us
from rowkind.service.execute.values import Values
from rowkind.service.physical.source_table import Watermark
from rowkind.service.why.sources import SourceChanges

_MOST_WAITING = 20_000
"""The number of rows at which rows of the same slot are reduced to one again."""

_SLOTS = 2_000
_SLOTS_PER_IDLE = 4
"""A slot is much shorter than the time after which a partition is idle."""


def slot_ms(watermark: Watermark, first: int, last: int) -> int:
    """Return the length of a slot for records between two times. All are in ms; the times are since the epoch."""
    return max(1, min((last - first) // _SLOTS, watermark.idle_ms // _SLOTS_PER_IDLE))


class WatermarkRows:
    """Collects the rows that move a watermark. `slot`: the length of a slot in ms."""

    def __init__(self, none: SourceChanges, watermark: Watermark, slot: int) -> None:
        self._kept = none
        self._watermark = watermark
        self._slot = slot
        self._reduced = 0

    def add(self, changes: SourceChanges) -> None:
        """Add changes in the order in which their partitions have them."""
        self._kept = _joined(self._kept, self._highest(changes))
        if len(self._kept.rows) > self._reduced + _MOST_WAITING:
            self._kept = self._highest(self._kept)
            self._reduced = len(self._kept.rows)

    @property
    def found(self) -> SourceChanges:
        """The rows, one per slot and partition."""
        return self._highest(self._kept)

    def _highest(self, changes: SourceChanges) -> SourceChanges:
        changes = changes.filter(WEIGHTS[changes.rows.kind] > 0)
        time = self._watermark.time
        values = Values(changes.source.declared, [time], changes.rows, nulls=True).of(time)
        changes = changes.filter(there := values.is_valid().to_numpy(zero_copy_only=False))
        times: Int64s = in_us(values)[there]
        slots, partitions = changes.times // self._slot, ArrivalNumber.partitions(changes.rows.seq)
        order = np.lexsort((times, slots, partitions))
        own = np.stack([partitions[order], slots[order]])
        last = np.append((own[:, 1:] != own[:, :-1]).any(axis=0), True)[: len(order)]
        mask = np.zeros(len(order), np.bool_)
        mask[order[last]] = True
        return changes.filter(mask)


def _joined(one: SourceChanges, other: SourceChanges) -> SourceChanges:
    rows, times = Rows.concat([one.rows, other.rows]), np.concatenate([one.times, other.times])
    return SourceChanges(one.source, rows, times, one.ends, one.read)
