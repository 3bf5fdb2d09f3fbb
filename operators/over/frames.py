"""Frames: which rows of its partition a row sees, as ranges of places in rows that are in order.

A frame is measured in rows, or by how far apart the values are that the rows are ordered by. Its edges are signed:
below zero so far before the row, above zero behind it, zero at the row (by values: at the first or last of its peers,
the rows with the same order key), and None for the edge of the partition.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rowkind.operators.columns.changes import Indices, Int64s, Mask
from rowkind.operators.over.framing import Frame
from rowkind.operators.over.order_distance import Scale


@dataclass(frozen=True, slots=True)
class Stretches:
    """Rows by partition in order, of each a stretch of all that there are.

    - `begin` and `stop` are for each row where its stretch begins, and where the next one does; `peer` and `peer_stop`
      the same for its peers, which are all there.
    - `begins` and `ends`: whether the stretch begins and ends where the partition does.
    - `value`: by which distances are measured, on its `scale`; None where there are none.
    """

    begin: Indices
    stop: Indices
    peer: Indices
    peer_stop: Indices
    begins: Mask
    ends: Mask
    value: Int64s | None
    scale: Scale

    def __len__(self) -> int:
        return len(self.begin)

    @classmethod
    def of(
        cls, key: Indices, order: Int64s, begins: Mask, ends: Mask, value: Int64s | None, *, scale: Scale
    ) -> Stretches:
        """Rows of these partitions with these order keys, by number."""
        new = key[1:] != key[:-1]
        begin, stop = _groups(new, len(key))
        peer, peer_stop = _groups(new | (order[1:] != order[:-1]), len(key))
        return cls(begin, stop, peer, peer_stop, begins, ends, value, scale)

    def from_last_before(self, asked: Mask) -> tuple[Stretches, Indices]:
        """The stretches from the last row before the first that is `asked` on, where there is one; and these rows."""
        at = np.arange(len(self))
        first = np.full(len(self) + 1, len(self))
        np.minimum.at(first, self.begin[asked], at[asked])
        last = first[self.begin] - 1
        on = (last >= self.begin) & (last < self.stop - 1) & (at >= last)
        begin = np.where(on, last, self.begin)
        return replace(self, begin=begin, begins=self.begins & ~on), np.flatnonzero(on & (at == last))

    def frame(self, frame: Frame) -> tuple[Indices, Indices, Mask]:
        """Where the frame of each row begins and stops, the same where it is empty, and where that is not certain.

        A frame from the beginning of the partition begins with the stretch.
        """
        at = np.arange(len(self))
        unsure = np.zeros(len(self), np.bool_)
        if frame.start is None:
            first = self.begin
        elif frame.kind == "rows":
            first = at + frame.start
            unsure |= ~self.begins & (first < self.begin)
            unsure |= ~self.ends & (first > self.stop)
        else:
            first = self.peer if frame.start == 0 else self._search(frame.start, "left")
            unsure |= (frame.start < 0) & ~self.begins & (first == self.begin)
            unsure |= (frame.start > 0) & ~self.ends & (first == self.stop)
        if frame.end is None:
            last = self.stop
            unsure |= ~self.ends
        elif frame.kind == "rows":
            last = at + frame.end + 1
            unsure |= ~self.ends & (last > self.stop)
            unsure |= ~self.begins & (last <= self.begin)
        else:
            last = self.peer_stop if frame.end == 0 else self._search(frame.end, "right")
            unsure |= (frame.end > 0) & ~self.ends & (last == self.stop)
            unsure |= (frame.end < 0) & ~self.begins & (last == self.begin)
        first = np.clip(first, self.begin, self.stop)
        return first, np.maximum(first, np.clip(last, self.begin, self.stop)), unsure

    def _search(self, distance: int, side: Literal["left", "right"]) -> Indices:
        """Where values of the stretch begin (or, on the right, stop) that are no further than so far from the row's."""
        assert self.value is not None, "distances are measured by values"
        rows, wanted = len(self), self.scale.moved(self.value, distance)
        _, rank = np.unique(np.concatenate([self.value, wanted]), return_inverse=True)
        line = self.begin * (2 * rows + 1)
        found: Indices = np.searchsorted(line + rank[:rows], line + rank[rows:], side=side)
        return found


def _groups(new: Mask, count: int) -> tuple[Indices, Indices]:
    """Where the group of each of `count` rows begins, and where the next one does; each but the first may begin one."""
    starts = np.append(0, np.flatnonzero(new) + 1)[:count]
    sizes = np.diff(np.append(starts, count))
    return np.repeat(starts, sizes), np.repeat(starts + sizes, sizes)
