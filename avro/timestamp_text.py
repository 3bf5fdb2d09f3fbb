"""Timestamps in all the forms in which Spark reads them from text."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

_MOMENT = re.compile(
    r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](?:(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?\s*(\S*))?)?)?)?"
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment_of(text: str, instant: bool) -> int | None:
    """Microseconds since 1970; None for a text that is no timestamp. A local time ignores its zone."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    try:
        where = zone_of(zone or "Z")
        moment = datetime(
            int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0),
            int((fraction or "").ljust(6, "0")[:6]), tzinfo=where if instant else UTC,
        )  # fmt: skip
        return (moment - EPOCH) // timedelta(microseconds=1)
    except (ValueError, LookupError, OSError):
        return None


@lru_cache(maxsize=256)
def zone_of(name: str) -> tzinfo:
    """The zone of this name or offset. Raises ValueError or LookupError where there is none."""
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
