"""The lengths of time units."""

from __future__ import annotations

from collections.abc import Mapping

from rowkind.service.plan.scalar.time_windows import DAY

LONGEST: Mapping[str, int] = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    **dict.fromkeys(("DAY", "DD"), DAY),
    "WEEK": 7 * DAY,
    **dict.fromkeys(("MONTH", "MON", "MM"), 31 * DAY),
    "QUARTER": 92 * DAY,
    **dict.fromkeys(("YEAR", "YYYY", "YY"), 366 * DAY),
}
"""The maximum length of each unit of DATE_TRUNC, in microseconds."""
