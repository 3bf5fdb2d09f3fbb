"""The window functions by name, and frames: which rows of its partition a window function sees for each row."""

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
    """The rows from `start` to `end`; for "range" these are distances in units of the values, codes for doubles."""

    kind: Literal["rows", "range"]
    start: int | None
    end: int | None

    @property
    def measured(self) -> bool:
        """Whether an edge is at a distance from the row."""
        return bool(self.start) or bool(self.end)

    @property
    def behind(self) -> int:
        """How far after a row other rows may see it, if the frame does not start at the partition's beginning."""
        return max(0, -(self.start or 0))

    @property
    def before(self) -> int:
        """How far before a row other rows may see it."""
        return max(0, self.end or 0)

    @property
    def by_distance(self) -> bool:
        """Whether the values alone decide which rows see a row, so that rows too far away never do."""
        return self.kind == "range" and self.start is not None and self.end is not None and self.measured


def code(value: float) -> int:
    """Return the code of a double: the bits of its absolute value as an integer, with its sign."""
    (size,) = struct.unpack(">q", struct.pack(">d", abs(value)))
    return int(-size if value < 0 else size)
