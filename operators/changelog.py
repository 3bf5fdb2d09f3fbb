"""The words of a changelog: its row kinds and its modes. Plain names, which a plan needs without a single column."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

ChangelogMode = Literal["append", "retract", "upsert"]


class RowKind(IntEnum):
    """What a change does to its row; the ordinals are Flink's, plus three that no topic has.

    A dead letter only rides along. A refresh says that its row was written again and is the same: who keeps the row
    keeps it longer, and tells those further down. A batch's refreshes come after its other changes; one of a row that
    is not there, or has expired, says nothing. A truncation retracts all rows of its table that arrived before it. It
    has no row, goes to every shard, and only operators that keep all rows of the table receive it.
    """

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3
    DEAD_LETTER = 4
    REFRESH = 5
    TRUNCATION = 6

    @property
    def symbol(self) -> str:
        """`+I`, `-U`, `+U` or `-D`; a dead letter shows as `!`, a refresh as `~`, a truncation as `0`."""
        return SYMBOLS[self]


SYMBOLS = ("+I", "-U", "+U", "-D", "!", "~", "0")
