"""Parse timestamps and dates in all text forms that Spark accepts."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from rowkind.avro.time_text import PER_SECOND, days_of_date, later, near_year, units_of

_DATE = re.compile(r"([+-]?\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_MOMENT = re.compile(
    r"([+-]?\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?\s*(\S*))?)?)?)?)?"
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")
FIRST_MOMENT, LAST_MOMENT = -9_223_372_022_400_000_000, 2**63 - 2
FIRST_DATE, LAST_DATE = -(2**31) + 2, 2**31 - 2
"""The range that DuckDB computes with, in microseconds and days since 1970: slightly less than a column can hold."""


def moment_of(text: str, instant: bool) -> int | None:
    """Return microseconds since 1970, or None if the text is not a timestamp.

    `instant` says whether the zone in the text counts. For a local time, the zone is ignored.
    """
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    try:
        where = zone_of(zone or "Z")
        moved, repeats = near_year(int(year))
        moment = datetime(
            moved, int(month or 1), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0),
            int((fraction or "").ljust(6, "0")[:6]), tzinfo=where if instant else UTC,
        )  # fmt: skip
    except (ValueError, LookupError, OSError):
        return None
    micros = units_of(moment, PER_SECOND["micros"]) + later(repeats)
    return micros if FIRST_MOMENT <= micros <= LAST_MOMENT else None


def date_of(text: str) -> int | None:
    """Return days since 1970, or None if the text is not a date.

    Months and days may lack a leading zero, or be missing.
    """
    found = _DATE.fullmatch(text)
    try:
        days = days_of_date(*(int(part or 1) for part in found.groups())) if found else None
    except ValueError:
        return None
    return days if days is not None and FIRST_DATE <= days <= LAST_DATE else None


@lru_cache(maxsize=256)
def zone_of(name: str) -> tzinfo:
    """Return the zone with this name or offset. Raises ValueError or LookupError if there is none."""
    if name in ("Z", "UTC", "GMT", "UT"):
        return UTC
    found = _OFFSET.fullmatch(name)
    if found is None:
        return ZoneInfo(name)
    sign, hours, minutes, seconds = found.groups()
    offset = timedelta(hours=int(hours), minutes=int(minutes or 0), seconds=int(seconds or 0))
    if offset > timedelta(hours=18):
        raise ValueError(name)
    return timezone(offset if sign == "+" else -offset)
