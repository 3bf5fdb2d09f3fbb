"""When groups end: an agenda of those whose end is known from their rows only, as a session's is.

Where a group column is a time, what is kept of a group expires by that (`operators.columns.rowtime`). The end of a
session is the last time of its rows and the gap; it moves as rows come. So each open group has one entry at its end,
which moves with it, and what the watermark passes is taken off, together with all that is kept of these groups.
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
"""About how many groups are let go of in one batch."""


@dataclass(frozen=True, slots=True)
class GroupNames:
    """Groups by their hashes and keys."""

    hash: Uint64s
    key: pa.BinaryArray

    def are_of(self, entries: Entries) -> Mask:
        """Which of the entries belong to one of these groups."""
        keys = group(np.concatenate([self.hash, entries.hash]), [concat_binary([self.key, entries.key])])
        return np.isin(keys.ids[len(self.hash) :], keys.ids[: len(self.hash)])


class TimerQueue:
    """The agenda within one batch, at time `now` (ms)."""

    def __init__(self, store: BlobStore, now: int) -> None:
        self._agenda = Arrangement(store, ArrangementSpec("ends", "timed"), now)
        self._now = now

    def due(self, touched: GroupNames) -> GroupNames:
        """The groups that have ended, or about as many of them as one batch lets go of; not those that are touched."""
        reached = last_place(self._now)
        found = self._agenda.between(np.zeros(1, np.uint64), np.array([reached]))
        if len(found) > _AT_ONCE:
            found = found.filter(found.place <= np.partition(found.place, _AT_ONCE)[_AT_ONCE])
        found = found.filter(~touched.are_of(found))
        self._agenda.append(-found)
        return GroupNames(found.hash, found.key)

    def move(self, before: tuple[GroupNames, Int64s], after: tuple[GroupNames, Int64s]) -> None:
        """Groups end at other times than before, both in ms; each is in either, or in both."""
        self._agenda.append(-_entries(*before))
        self._agenda.append(_entries(*after))

    def finish(self) -> Finished:
        """Write it."""
        return self._agenda.finish()


def _entries(groups: GroupNames, ends: Int64s) -> Entries:
    count, none = len(ends), constant(b"", len(ends))
    numbers = np.zeros(count, np.int64)
    place = places(ends, groups.key)
    return Entries(place, groups.hash, groups.key, none, none, numbers + 1, numbers, numbers, numbers.astype(np.int8))
