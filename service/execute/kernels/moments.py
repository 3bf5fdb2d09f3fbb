"""Kernels of times: timestamps in all the forms in which Spark reads them from text."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from zoneinfo import ZoneInfo

from rowkind.service.execute.kernels.kernel import Kernel, each

MACROS = (
    # The seconds may be 60, which is the next minute.
    (
        "spark_made(y, mo, d, h, mi, s) AS make_timestamp(y, mo, d, h, mi, CASE WHEN s = 60 THEN 0 ELSE s END) "
        "+ to_seconds(CASE WHEN s = 60 THEN 60 ELSE 0 END)"
    ),
    "spark_day_number(t) AS (CAST(year(t) AS BIGINT) * 12 + month(t)) * 32 + day(t)",
    # Whole months from a to b: a later day or time of the day in a makes the last one short.
    (
        "spark_months_passed(a, b) AS (spark_day_number(CAST(b AS DATE) + CASE "
        "WHEN CAST(b AS DATE) > CAST(a AS DATE) AND CAST(b AS TIME) < CAST(a AS TIME) THEN -1 "
        "WHEN CAST(b AS DATE) < CAST(a AS DATE) AND CAST(b AS TIME) > CAST(a AS TIME) THEN 1 ELSE 0 END) "
        "- spark_day_number(a)) // 32"
    ),
    "spark_zoned(t, a, b) AS make_timestamp(spark_shifted(epoch_us(CAST(t AS TIMESTAMP)), a, b))",
    "spark_months(a, b, r) AS spark_months_apart(epoch_us(CAST(a AS TIMESTAMP)), epoch_us(CAST(b AS TIMESTAMP)), r)",
)
_MOMENT = re.compile(
    r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](?:(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?\s*(\S*))?)?)?)?"
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment_of(text: str, instant: bool) -> int | None:
    """Microseconds since 1970; None for a text that is no timestamp. A local time ignores its zone."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    try:
        where = _zone(zone or "Z")
        moment = datetime(
            int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0),
            int((fraction or "").ljust(6, "0")[:6]), tzinfo=where if instant else UTC,
        )  # fmt: skip
        return (moment - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, LookupError, OSError):
        return None


@lru_cache(maxsize=256)
def _zone(name: str) -> tzinfo:
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


def _shifted(micros: int, source: str, target: str) -> int:
    """What clocks in `target` show, in microseconds since 1970, while those in `source` show `micros`."""
    try:
        shown = (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=_zone(source))
        there = shown.astimezone(_zone(target)).replace(tzinfo=UTC)
    except (ValueError, LookupError, OSError):
        raise ValueError(f"{source!r} or {target!r} is no time zone") from None
    return (there - _EPOCH) // timedelta(microseconds=1)


def _months_apart(end: int, start: int, rounded: bool) -> float:
    """Months and a fraction of 31 days; whole where both are the same day of the month, or the last one."""
    a, b = (_EPOCH + timedelta(microseconds=micros) for micros in (end, start))
    months = (a.year - b.year) * 12 + a.month - b.month
    last = all(moment.day == monthrange(moment.year, moment.month)[1] for moment in (a, b))
    if a.day == b.day or last:
        return float(months)
    seconds = [(moment.hour * 60 + moment.minute) * 60 + moment.second for moment in (a, b)]
    apart = months + ((a.day - b.day) * 86400 + seconds[0] - seconds[1]) / (31 * 86400)
    return float(Decimal(repr(apart)).quantize(Decimal("1e-8"), ROUND_HALF_UP)) if rounded else apart


KERNELS: Mapping[str, Kernel] = {
    "spark_moment": each(moment_of, "VARCHAR", "BOOLEAN", "BIGINT"),
    "spark_shifted": each(_shifted, "BIGINT", "VARCHAR", "VARCHAR", "BIGINT"),
    "spark_months_apart": each(_months_apart, "BIGINT", "BIGINT", "BOOLEAN", "DOUBLE"),
}
