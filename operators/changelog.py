"""Row kinds and changelog modes, in a separate module so that the planner need not import the column code."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

ChangelogMode = Literal["append", "retract", "upsert"]


class RowKind(IntEnum):
    """The effect of a change on its row. The ordinals are the same as those of Flink's `RowKind`."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def symbol(self) -> str:
        """The symbol of the row kind: `+I`, `-U`, `+U` or `-D`."""
        return SYMBOLS[self]


SYMBOLS = ("+I", "-U", "+U", "-D")
