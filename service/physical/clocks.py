"""The time that operators go by: the batch's or a watermark, and what a row says of when it may be let go of."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from rowkind.operators.field_roles import COLUMN


@dataclass(frozen=True)
class Clock:
    """The watermark of these tables, each with the ms of batch time after which a partition is idle; else the batch's.

    The time of a batch is the one that Spark logs with it, so that a replay sees the same. With `processing` it is that
    of the rows which come in the batch, their PROCTIME(): it is over when the input is, as watermarks are and NOW() is
    not.
    """

    tables: tuple[tuple[str, int], ...] = ()
    # No part of what state is called by (`service.physical.computes`): while there is input the two are the same.
    processing: bool = field(default=False, repr=False)

    @property
    def name(self) -> str:
        """What it is called where it is kept, and to people."""
        return ",".join(table for table, _ in self.tables) or "the clock"


@dataclass(frozen=True)
class ColumnTime:
    """A time of a row: that of a column, a TIMESTAMP or a DATE, and so many microseconds later.

    `null` is what NULL stands for: a time that never comes, or one that has always been.
    """

    column: str = field(metadata=COLUMN)
    later_us: int = 0
    null: Literal["never", "always"] = "never"


@dataclass(frozen=True)
class Closing:
    """When an input lets go of its rows.

    Once the clock has come to `late`, a change of the row is late and is left out; and once it has come to `kept`, the
    row is not kept any more; None for never. The two differ where rows are kept for the sake of others.
    """

    clock: Clock
    late: ColumnTime
    kept: ColumnTime | None


@dataclass(frozen=True)
class Ending:
    """When a group ends, which is in its result: once the clock has come to that, all that is kept of it goes."""

    clock: Clock
    at: ColumnTime


@dataclass(frozen=True)
class TimeBounds:
    """Pairs match only if the right column is between the left one and `earliest`, and it and `latest` microseconds.

    None where there is no such bound. Where one column is NULL there is no match.
    """

    left: str = field(metadata=COLUMN)
    right: str = field(metadata=COLUMN)
    earliest: int | None = None
    latest: int | None = None

    @property
    def whole(self) -> bool:
        """Whether both bounds are there."""
        return self.earliest is not None and self.latest is not None

    def within(self, other: TimeBounds) -> TimeBounds:
        """Both at once, of the same columns."""
        earliest = [each for each in (self.earliest, other.earliest) if each is not None]
        latest = [each for each in (self.latest, other.latest) if each is not None]
        return replace(self, earliest=max(earliest, default=None), latest=min(latest, default=None))
