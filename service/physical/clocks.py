"""Clocks that operators follow, and the times from which rows may be evicted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from rowkind.operators.field_roles import COLUMN


@dataclass(frozen=True)
class Clock:
    """The watermark of `tables`, or the batch time if there are no tables.

    `tables` contains each table's name, and after how many milliseconds of batch time without rows a partition is idle.
    Spark logs a batch's time with the batch, so a replay sees the same time. If `processing` is set, the clock is the
    PROCTIME() of the rows in the batch. PROCTIME() and watermarks end when the input ends, but NOW() does not.
    """

    tables: tuple[tuple[str, int], ...] = ()
    # Not part of state names (`service.physical.computes`): while there is input, PROCTIME() and NOW() are the same.
    processing: bool = field(default=False, repr=False)

    @property
    def name(self) -> str:
        """The clock's name in the state and in output for people."""
        return ",".join(table for table, _ in self.tables) or "the clock"


@dataclass(frozen=True)
class ColumnTime:
    """A time of a row: the value of a TIMESTAMP or DATE column, plus `later_us` microseconds.

    `null` says whether NULL stands for a time that is never reached, or for a time that has always passed.
    """

    column: str = field(metadata=COLUMN)
    later_us: int = 0
    null: Literal["never", "always"] = "never"


@dataclass(frozen=True)
class Closing:
    """A rule that says when an input's rows are late and when they are evicted.

    Once the clock has reached a row's time `late`, changes of the row are late and are dropped. Once the clock has
    reached the time `kept`, the row itself is evicted from the state. If `kept` is None, the row is never evicted. The
    two times differ if other rows still need the row after its time `late`.
    """

    clock: Clock
    late: ColumnTime
    kept: ColumnTime | None


@dataclass(frozen=True)
class Ending:
    """A rule that says when a group ends.

    Once the clock has reached the time `at` in the group's result, the group's entire state is evicted.
    """

    clock: Clock
    at: ColumnTime


@dataclass(frozen=True)
class TimeBounds:
    """Bounds on the times of a pair of rows: the right time is from `left + earliest` to `left + latest`.

    `earliest` and `latest` are in microseconds, or None if there is no such bound. If the time column of either row is
    NULL, the pair does not match.
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
        """Return the intersection of these bounds and `other`, which are bounds on the same columns."""
        earliest = [each for each in (self.earliest, other.earliest) if each is not None]
        latest = [each for each in (self.latest, other.latest) if each is not None]
        return replace(self, earliest=max(earliest, default=None), latest=min(latest, default=None))
