"""The names of window functions, and frames: the rows of the partition that a window function sees for each row."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

Neighbour = Literal["lag", "lead"]
Picked = Literal["first_value", "last_value", "nth_value"]
Numbering = Literal["row_number", "rank", "dense_rank"]
OverAggregate = Literal["count", "sum", "avg", "bool_and", "bool_or", "min", "max"]
Placing = Literal["ntile", "percent_rank", "cume_dist"]
OverFunction = OverAggregate | Picked | Neighbour | Numbering | Placing


@dataclass(frozen=True, slots=True)
class Frame:
    """The rows from `start` to `end`, relative to a row.

    `start` and `end` are numbers of rows or, for "range", distances in the unit of the values. For doubles, distances
    are codes. None stands for the partition's edge.
    """

    kind: Literal["rows", "range"]
    start: int | None
    end: int | None

    @property
    def measured(self) -> bool:
        """Whether at least one edge is at a nonzero distance from the row."""
        return bool(self.start) or bool(self.end)

    @property
    def behind(self) -> int:
        """The maximum distance from a row to a later row whose frame contains the earlier row.

        This does not count frames that start at the beginning of the partition.
        """
        return max(0, -(self.start or 0))

    @property
    def before(self) -> int:
        """The maximum distance from a row to an earlier row whose frame contains the later row.

        This does not count frames that end at the end of the partition.
        """
        return max(0, self.end or 0)

    @property
    def by_distance(self) -> bool:
        """Whether the rows in a frame depend only on values, so that rows at too great a distance are never in it."""
        return self.kind == "range" and self.start is not None and self.end is not None and self.measured


def code(value: float) -> int:
    """Return the code of a double: the bits of its absolute value as an integer, with its sign."""
    (size,) = struct.unpack(">q", struct.pack(">d", abs(value)))
    return int(-size if value < 0 else size)
