"""The minimum and maximum UTC offset of a time zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from rowkind.avro.timestamp_text import zone_of

_DAY = timedelta(days=1)
_FIRST, _LAST = datetime(1840, 1, 1, tzinfo=UTC), datetime(2060, 1, 1, tzinfo=UTC)
"""The period that is searched. It begins when every zone still used local mean time. It ends after the last change of
every zone whose offset changes a limited number of times.
"""


@lru_cache(maxsize=64)
def offsets(name: str) -> tuple[int, int] | None:
    """Return the minimum and maximum of a zone's UTC offsets over time, in µs, or None if the zone does not exist.

    The offset is looked up once for each day, because no offset was ever in force for less than a day.
    """
    try:
        zone = zone_of(name)
    except (ValueError, LookupError, OSError):
        return None
    first = _FIRST.replace(tzinfo=zone)
    found = {(first + _DAY * number).utcoffset() for number in range((_LAST - _FIRST).days)}
    known = [each // timedelta(microseconds=1) for each in found if each is not None]
    return (min(known), max(known)) if known else None
