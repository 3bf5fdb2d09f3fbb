"""A timer queue for groups whose end time depends on their rows, such as sessions.

If a group column is a time, the group expires by that column (`operators.columns.rowtime`). A session, however, ends
when a gap has passed since the latest time of its rows, so its end time changes as rows are inserted. The queue has one
entry for each open group, at the group's end time. If the end time changes, the entry is moved. When the watermark
reaches the time of an entry, the entry is removed together with all state of its group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.arrangement import Arrangement, Finished
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import ArrangementSpec
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.columns.changes import Int64s, Mask, Uint64s, concat_binary, constant
from rowkind.operators.columns.grouping import group
from rowkind.operators.time.temporal_filter import last_place, places

_AT_ONCE = 100_000
"""The approximate maximum number of groups that are evicted in one batch."""


@dataclass(frozen=True, slots=True)
class GroupNames:
    """Groups, identified by hash and key."""

    hash: Uint64s
    key: pa.BinaryArray

    def are_of(self, entries: Entries) -> Mask:
        """Return a mask of the entries that belong to one of these groups."""
        keys = group(np.concatenate([self.hash, entries.hash]), [concat_binary([self.key, entries.key])])
        return np.isin(keys.ids[len(self.hash) :], keys.ids[: len(self.hash)])


class TimerQueue:
    """The timer queue within one batch, at time `now` (ms)."""

    def __init__(self, store: BlobStore, now: int) -> None:
        self._agenda = Arrangement(store, ArrangementSpec("ends", "timed"), now)
        self._now = now

    def due(self, touched: GroupNames) -> GroupNames:
        """Remove and return ended groups that the batch does not touch, at most about `_AT_ONCE` groups at a time."""
        reached = last_place(self._now)
        found = self._agenda.between(np.zeros(1, np.uint64), np.array([reached]))
        if len(found) > _AT_ONCE:
            found = found.filter(found.place <= np.partition(found.place, _AT_ONCE)[_AT_ONCE])
        found = found.filter(~touched.are_of(found))
        self._agenda.append(-found)
        return GroupNames(found.hash, found.key)

    def move(self, before: tuple[GroupNames, Int64s], after: tuple[GroupNames, Int64s]) -> None:
        """Move groups from their end times (ms) before the batch to their end times after the batch.

        Groups that exist only before the batch are removed. Groups that exist only after it are added.
        """
        self._agenda.append(-_entries(*before))
        self._agenda.append(_entries(*after))

    def finish(self) -> Finished:
        """Write the queue to its store."""
        return self._agenda.finish()


def _entries(groups: GroupNames, ends: Int64s) -> Entries:
    count, none = len(ends), constant(b"", len(ends))
    numbers = np.zeros(count, np.int64)
    place = places(ends, groups.key)
    return Entries(place, groups.hash, groups.key, none, none, numbers + 1, numbers, numbers, numbers.astype(np.int8))
