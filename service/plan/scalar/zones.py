"""How far the clocks of a time zone are ahead of UTC, at most and at least."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from rowkind.avro.timestamp_text import zone_of

_DAY = timedelta(days=1)
_FIRST, _LAST = datetime(1840, 1, 1, tzinfo=UTC), datetime(2060, 1, 1, tzinfo=UTC)
"""Before any zone was more than the time of a place, and long after the last rule that is not for ever."""


@lru_cache(maxsize=64)
def offsets(name: str) -> tuple[int, int] | None:
    """The least and the largest offset that a zone has ever had, in microseconds; None for what is no zone.

    Looked up day by day: no offset was in force for less.
    """
    try:
        zone = zone_of(name)
    except (ValueError, LookupError, OSError):
        return None
    first = _FIRST.replace(tzinfo=zone)
    found = {(first + _DAY * number).utcoffset() for number in range((_LAST - _FIRST).days)}
    known = [each // timedelta(microseconds=1) for each in found if each is not None]
    return (min(known), max(known)) if known else None
