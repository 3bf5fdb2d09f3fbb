"""The minimum and maximum UTC offset of a time zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from rowkind.avro.timestamp_text import zone_of

_DAY = timedelta(days=1)
_FIRST, _LAST = datetime(1840, 1, 1, tzinfo=UTC), datetime(2060, 1, 1, tzinfo=UTC)
"""The period that is searched. It begins before any zone had a time other than a place's local time, and ends long
after the end of every rule that has one."""


@lru_cache(maxsize=64)
def offsets(name: str) -> tuple[int, int] | None:
    """Return a zone's minimum and maximum UTC offset of all times, in microseconds; None if the zone does not exist.

    The offsets are looked up day by day, because no offset was in force for less than a day.
    """
    try:
        zone = zone_of(name)
    except (ValueError, LookupError, OSError):
        return None
    first = _FIRST.replace(tzinfo=zone)
    found = {(first + _DAY * number).utcoffset() for number in range((_LAST - _FIRST).days)}
    known = [each // timedelta(microseconds=1) for each in found if each is not None]
    return (min(known), max(known)) if known else None
