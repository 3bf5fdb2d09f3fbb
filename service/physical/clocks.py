"""The time that operators follow, from the batch or a watermark, and the times after which rows may be evicted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from rowkind.operators.field_roles import COLUMN


@dataclass(frozen=True)
class Clock:
    """The watermark of `tables`, each with the ms of batch time after which a partition is idle; else the batch's time.

    Spark logs the time of a batch with the batch, so a replay sees the same time. With `processing` the time is the
    PROCTIME() of the rows in the batch. It ends when the input ends, as watermarks do and NOW() does not.
    """

    tables: tuple[tuple[str, int], ...] = ()
    # Not part of state names (`service.physical.computes`): while there is input, the two clocks are the same.
    processing: bool = field(default=False, repr=False)

    @property
    def name(self) -> str:
        """The clock's name in state and in output for people."""
        return ",".join(table for table, _ in self.tables) or "the clock"


@dataclass(frozen=True)
class ColumnTime:
    """A time of a row: the value of a TIMESTAMP or DATE column, plus `later_us` microseconds.

    `null` is the meaning of NULL: a time that is never reached, or a time that has always passed.
    """

    column: str = field(metadata=COLUMN)
    later_us: int = 0
    null: Literal["never", "always"] = "never"


@dataclass(frozen=True)
class Closing:
    """When an input evicts its rows.

    Once the clock has reached `late`, a change of the row is late and is dropped. Once it has reached `kept`, the row
    itself is evicted; None for never. The two differ if rows are kept because other rows need them.
    """

    clock: Clock
    late: ColumnTime
    kept: ColumnTime | None


@dataclass(frozen=True)
class Ending:
    """When a group ends, by a time in its result.

    Once the clock has reached that time, all state of the group is evicted.
    """

    clock: Clock
    at: ColumnTime


@dataclass(frozen=True)
class TimeBounds:
    """Pairs match only if the right column is between left plus `earliest` and left plus `latest`, in microseconds.

    None means no bound on that side. If either column is NULL, the pair does not match.
    """

    left: str = field(metadata=COLUMN)
    right: str = field(metadata=COLUMN)
    earliest: int | None = None
    latest: int | None = None

    @property
    def whole(self) -> bool:
        """Whether both bounds are set."""
        return self.earliest is not None and self.latest is not None

    def within(self, other: TimeBounds) -> TimeBounds:
        """The intersection of two bounds on the same columns."""
        earliest = [each for each in (self.earliest, other.earliest) if each is not None]
        latest = [each for each in (self.latest, other.latest) if each is not None]
        return replace(self, earliest=max(earliest, default=None), latest=min(latest, default=None))
