"""Clocks that operators follow, and the times after which rows may be evicted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from rowkind.operators.field_roles import COLUMN


@dataclass(frozen=True)
class Clock:
    """The watermark of `tables`, or the batch time if there are no tables.

    Each table has the milliseconds of batch time after which a partition is idle. Spark logs the time of a batch with
    the batch, so a replay sees the same time. If `processing` is set, the clock is the PROCTIME() of the rows in the
    batch. PROCTIME() ends when the input ends, as watermarks do, but NOW() does not.
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
    """A rule that says when an input's rows are late and when they are evicted.

    Once the clock has reached `late`, a change of the row is late and is dropped. Once the clock has reached `kept`,
    the row itself is evicted; None if it never is. The two times differ if rows are kept because other rows need them.
    """

    clock: Clock
    late: ColumnTime
    kept: ColumnTime | None


@dataclass(frozen=True)
class Ending:
    """A rule that says when a group ends.

    Once the clock has reached the time `at` in the group's result, all state of the group is evicted.
    """

    clock: Clock
    at: ColumnTime


@dataclass(frozen=True)
class TimeBounds:
    """Bounds on the times of a pair: the right time is from `left + earliest` to `left + latest`, in microseconds.

    None means that there is no such bound. If either column is NULL, the pair does not match.
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
        """Return the intersection of two bounds on the same columns."""
        earliest = [each for each in (self.earliest, other.earliest) if each is not None]
        latest = [each for each in (self.latest, other.latest) if each is not None]
        return replace(self, earliest=max(earliest, default=None), latest=min(latest, default=None))
