"""Row kinds and changelog modes, as plain names. Planning uses them without loading any column code."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

ChangelogMode = Literal["append", "retract", "upsert"]


class RowKind(IntEnum):
    """The effect of a change on its row; the ordinals are Flink's."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def symbol(self) -> str:
        """`+I`, `-U`, `+U` or `-D`."""
        return SYMBOLS[self]


SYMBOLS = ("+I", "-U", "+U", "-D")
