"""The window functions by name, and frames: which rows of its partition a row sees."""

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
    """The rows from `start` to `end`; by values these are distances in the unit of the values, of doubles codes."""

    kind: Literal["rows", "range"]
    start: int | None
    end: int | None

    @property
    def measured(self) -> bool:
        """Whether an edge is at a distance from the row."""
        return bool(self.start) or bool(self.end)

    @property
    def behind(self) -> int:
        """How far behind a row there are rows that see it, where the frame is not from the partition's beginning."""
        return max(0, -(self.start or 0))

    @property
    def before(self) -> int:
        """How far before a row there are rows that see it."""
        return max(0, self.end or 0)

    @property
    def by_distance(self) -> bool:
        """Whether values alone say which rows see a row, so that none sees one that is too far away."""
        return self.kind == "range" and self.start is not None and self.end is not None and self.measured


def code(value: float) -> int:
    """A double as a number with the order of doubles: the bits of its absolute value, with its sign."""
    (size,) = struct.unpack(">q", struct.pack(">d", abs(value)))
    return int(-size if value < 0 else size)
