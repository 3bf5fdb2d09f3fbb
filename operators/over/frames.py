"""Frames as ranges of positions: for each row, the rows of the partition that a window function sees.

A frame is measured in rows, or in distances between the values by which the rows are ordered. A frame's edges are
signed numbers: negative before the row, positive after the row. Zero stands for the row itself or, in a frame measured
by values, for the row's first or last peer. *Peers* are rows with the same order key. None stands for the partition's
edge.
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
    """Ordered rows and their stretches. A row's *stretch* is the part of its partition that has been read.

    - `begin` and `stop`: for each row, the first position of its stretch and the position after the last one. `peer`
      and `peer_stop` are the same for the row's peers, all of which have been read.
    - `begins` and `ends`: whether the stretch begins where the partition begins, and ends where the partition ends.
    - `value`: the order values between which distances are measured, on the `scale`; None if no frame is measured in
      distances.
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
        """Return the stretches of ordered rows, given each row's partition and order key as numbers."""
        new = key[1:] != key[:-1]
        begin, stop = _groups(new, len(key))
        peer, peer_stop = _groups(new | (order[1:] != order[:-1]), len(key))
        return cls(begin, stop, peer, peer_stop, begins, ends, value, scale)

    def from_last_before(self, asked: Mask) -> tuple[Stretches, Indices]:
        """Shorten each stretch to begin with the row just before its first `asked` row, if that row is in the stretch.

        Also return the rows with which the shortened stretches begin.
        """
        at = np.arange(len(self))
        first = np.full(len(self) + 1, len(self))
        np.minimum.at(first, self.begin[asked], at[asked])
        last = first[self.begin] - 1
        on = (last >= self.begin) & (last < self.stop - 1) & (at >= last)
        begin = np.where(on, last, self.begin)
        return replace(self, begin=begin, begins=self.begins & ~on), np.flatnonzero(on & (at == last))

    def frame(self, frame: Frame) -> tuple[Indices, Indices, Mask]:
        """Return where each row's frame begins and stops, and a mask of the rows for which this is uncertain.

        For an empty frame, the two positions are equal. A frame that starts at the beginning of the partition starts at
        the beginning of the stretch.
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
        """Return, for each row, where the values within a distance begin or, if `side` is "right", where they stop."""
        assert self.value is not None, "a distance needs a column of values"
        rows, wanted = len(self), self.scale.moved(self.value, distance)
        _, rank = np.unique(np.concatenate([self.value, wanted]), return_inverse=True)
        line = self.begin * (2 * rows + 1)
        found: Indices = np.searchsorted(line + rank[:rows], line + rank[rows:], side=side)
        return found


def _groups(new: Mask, count: int) -> tuple[Indices, Indices]:
    """Return where each row's group begins and stops; `new` marks the first row of every group but the first."""
    starts = np.append(0, np.flatnonzero(new) + 1)[:count]
    sizes = np.diff(np.append(starts, count))
    return np.repeat(starts, sizes), np.repeat(starts + sizes, sizes)
