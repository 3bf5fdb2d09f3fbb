"""Convert dates and times to and from ISO 8601 text, in every year that a column can contain.

Python's dates end at the years 1 and 9999. The calendar repeats every 400 years, so other years are computed a multiple
of 400 years earlier or later. They are written with a sign: +10000-01-01, and -0001-12-31 for 2 BC.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

PER_SECOND = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}
"""The number of units per second, by unit of a timestamp."""

_REPEAT_YEARS, _REPEAT_DAYS = 400, 146_097
_FIRST = date(1970, 1, 1).toordinal()
_DAY = 86_400
_YEAR_400, _YEAR_2400 = (date(year, 1, 1).toordinal() - _FIRST for year in (400, 2400))
_FIRST_SAFE, _LAST_SAFE = (date(year, 1, 1).toordinal() - _FIRST for year in (2, 9999))
"""Between these days, adding an offset of some hours cannot leave Python's years."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SIGNED_YEAR = re.compile(r"([+-]\d{4,9}|0000)(?=-)")
_NANOS = re.compile(r"(?<=[.,]\d{6})\d+")


def date_text(days: int) -> str:
    """Return a number of days since 1970 as text, such as 2026-01-31."""
    repeats, rest = divmod(days, _REPEAT_DAYS)
    text = date.fromordinal(_FIRST + rest).isoformat()
    return f"{year_text(int(text[:4]) + repeats * _REPEAT_YEARS)}{text[4:]}" if repeats else text


def year_text(year: int) -> str:
    """Return a year with four digits; outside 0 to 9999, with a sign and at least four digits."""
    return f"{year:04}" if 0 <= year <= 9999 else f"{year:+05}"


def moment_text(since: int, per_second: int) -> str:
    """Return a time since 1970 as text, such as 2026-01-31T12:00:00.123.

    The fraction has as few groups of three digits as possible.
    """
    seconds, fraction = divmod(since, per_second)
    days, second = divmod(seconds, _DAY)
    text = f"{date_text(days)}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    digits = str(fraction).zfill(len(str(per_second)) - 1) if per_second > 1 else ""
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{text}.{digits}" if digits else text


def time_text(since: int, per_second: int) -> str:
    """Return a time since midnight as text, such as 12:30:00.500000.

    Times may be before 00:00:00 or after 24:00:00, as in some other databases.
    """
    seconds, fraction = divmod(abs(since), per_second)
    text = f"{'-' if since < 0 else ''}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction * (1_000_000 // per_second):06}" if fraction else text


def days_of(text: str) -> int:
    """Parse a date, and return its days since 1970. Raises ValueError."""
    within, repeats = _within(text)
    return date.fromisoformat(within).toordinal() - _FIRST + repeats * _REPEAT_DAYS


def days_of_date(year: int, month: int, day: int) -> int:
    """Return the days since 1970 of a date. Raises ValueError if the date does not exist."""
    moved, repeats = near_year(year)
    return date(moved, month, day).toordinal() - _FIRST + repeats * _REPEAT_DAYS


def moment_of(text: str, per_second: int) -> tuple[int, bool]:
    """Parse a time, and return its units since 1970, and whether the text has a zone. Raises ValueError.

    Without a zone, the time is in UTC. Digits that the unit does not have are cut off.
    """
    within, repeats = _within(text)
    moment = datetime.fromisoformat(within)
    nanos = _NANOS.search(within)
    rest = int(nanos[0][:3].ljust(3, "0")) if nanos else 0
    since = units_of(moment, PER_SECOND["nanos"]) + rest + repeats * _REPEAT_DAYS * _DAY * PER_SECOND["nanos"]
    return since * per_second // PER_SECOND["nanos"], moment.tzinfo is not None


def units_of(moment: datetime, per_second: int) -> int:
    """Return a Python datetime as units since 1970. A datetime without a zone is in UTC."""
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    return since // timedelta(microseconds=1) * per_second // PER_SECOND["micros"]


def near(micros: int) -> tuple[datetime, int]:
    """Return a moment in UTC within Python's years, and how many microseconds later the requested moment is."""
    days, rest = divmod(micros, _DAY * PER_SECOND["micros"])
    repeats = 0
    if not _FIRST_SAFE <= days < _LAST_SAFE:
        first = _YEAR_2400 if days > 0 else _YEAR_400
        repeats, within = divmod(days - first, _REPEAT_DAYS)
        days = first + within
    return _EPOCH + timedelta(days=days, microseconds=rest), later(repeats)


def near_year(year: int) -> tuple[int, int]:
    """Return a year with the same calendar within Python's years, and how many times 400 years later the given year is.

    Time zones follow the same rules in both years.
    """
    if 1 < year < 9999:
        return year, 0
    first = 2400 if year > 0 else 400
    repeats, rest = divmod(year - first, _REPEAT_YEARS)
    return first + rest, repeats


def later(repeats: int) -> int:
    """Return `repeats` times 400 years, in microseconds."""
    return repeats * _REPEAT_DAYS * _DAY * PER_SECOND["micros"]


def _within(text: str) -> tuple[str, int]:
    """Return the text with its year moved into Python's years, and by how many times 400 years it was moved."""
    found = _SIGNED_YEAR.match(text)
    if found is None:
        return text, 0
    year, repeats = near_year(int(found[0]))
    return f"{year:04}{text[found.end() :]}", repeats
