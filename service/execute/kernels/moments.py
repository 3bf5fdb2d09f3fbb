"""Time kernels. They parse and format times like Spark, including years for which DuckDB behaves differently."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache

from rowkind.avro.time_text import PER_SECOND, date_text, later, near, near_year, units_of, year_text
from rowkind.avro.timestamp_text import FIRST_MOMENT, LAST_MOMENT, date_of, moment_of, zone_of
from rowkind.service.execute.kernels.kernel import Kernel, each

MACROS = (
    # The seconds may be 60, which means the next minute.
    (
        "spark_made(y, mo, d, h, mi, s) AS make_timestamp(y, mo, d, h, mi, CASE WHEN s = 60 THEN 0 ELSE s END) "
        "+ to_seconds(CASE WHEN s = 60 THEN 60 ELSE 0 END)"
    ),
    "spark_day_number(t) AS (CAST(year(t) AS BIGINT) * 12 + month(t)) * 32 + day(t)",
    # Whole months from a to b. A later day or time of day in a makes the last month incomplete.
    (
        "spark_months_passed(a, b) AS (spark_day_number(CAST(b AS DATE) + CASE "
        "WHEN CAST(b AS DATE) > CAST(a AS DATE) AND CAST(b AS TIME) < CAST(a AS TIME) THEN -1 "
        "WHEN CAST(b AS DATE) < CAST(a AS DATE) AND CAST(b AS TIME) > CAST(a AS TIME) THEN 1 ELSE 0 END) "
        "- spark_day_number(a)) // 32"
    ),
    "spark_zoned(t, a, b) AS make_timestamp(spark_shifted(epoch_us(CAST(t AS TIMESTAMP)), a, b))",
    # In Spark, a year has four digits, or a sign and more digits. DuckDB writes years before year 1 as years BC.
    (
        "spark_moment_text(t) AS CASE WHEN year(t) BETWEEN 1 AND 9999 THEN CAST(t AS VARCHAR) "
        "ELSE spark_far_moment(epoch_us(t)) END"
    ),
    (
        "spark_date_text(d) AS CASE WHEN year(d) BETWEEN 1 AND 9999 THEN CAST(d AS VARCHAR) "
        "ELSE spark_far_date(CAST(d - DATE '1970-01-01' AS INTEGER)) END"
    ),
    # `p` is the format in the notation of `time_formats`. DuckDB supports fewer fields.
    (
        "spark_written(t, f, p) AS CASE WHEN year(t) BETWEEN 1000 AND 9999 THEN strftime(t, f) "
        "ELSE spark_far_written(epoch_us(t), p) END"
    ),
    "spark_months(a, b, r) AS spark_months_apart(epoch_us(CAST(a AS TIMESTAMP)), epoch_us(CAST(b AS TIMESTAMP)), r)",
)


def _shifted(micros: int, source: str, target: str) -> int:
    """Convert a local time in the zone `source` to the zone `target`. Both are in microseconds since 1970."""
    shown, more = near(micros)
    try:
        there = shown.replace(tzinfo=zone_of(source)).astimezone(zone_of(target)).replace(tzinfo=UTC)
    except (ValueError, LookupError, OSError):
        raise ValueError(f"{source!r} or {target!r} is not a time zone") from None
    return _in_micros(there) + more


def _in_micros(moment: datetime) -> int:
    return units_of(moment, PER_SECOND["micros"])


def _months_apart(end: int, start: int, rounded: bool) -> float:
    """Return the months between two times. The remaining days count as a fraction of a month with 31 days.

    If both times are on the same day of the month, or both on its last day, the result is a whole number.
    """
    (a, more), (b, less) = near(end), near(start)
    months = (a.year - b.year) * 12 + a.month - b.month + (more - less) // later(1) * 400 * 12
    last = all(moment.day == monthrange(moment.year, moment.month)[1] for moment in (a, b))
    if a.day == b.day or last:
        return float(months)
    seconds = [(moment.hour * 60 + moment.minute) * 60 + moment.second for moment in (a, b)]
    apart = months + ((a.day - b.day) * 86400 + seconds[0] - seconds[1]) / (31 * 86400)
    return float(Decimal(repr(apart)).quantize(Decimal("1e-8"), ROUND_HALF_UP)) if rounded else apart


def _moment_text(micros: int) -> str:
    """Return text such as 2026-01-31 12:00:00.5, without trailing zeros in the fraction."""
    seconds, fraction = divmod(micros, PER_SECOND["micros"])
    days, second = divmod(seconds, 86_400)
    text = f"{date_text(days)} {second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    return f"{text}.{fraction:06}".rstrip("0") if fraction else text


_FIELD = re.compile(r"%(-?.)")


def _written(micros: int, format_: str) -> str:
    """Format a time as DuckDB's `strftime` does.

    In addition, %-Y stands for the year without leading zeros, and without a plus sign for years above 9999.
    """
    moment, more = near(micros)
    year = moment.year + more // later(1) * 400

    def field(found: re.Match[str]) -> str:
        match found[1]:
            case "Y":
                return year_text(year)
            case "-Y":
                return str(year)
            case "y":
                return f"{abs(year) % 100:02}"
            case "g":
                return f"{moment.microsecond // 1000:03}"
            case _:
                return moment.strftime(found[0])

    return _FIELD.sub(field, format_)


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def _read(text: str, shape: str, letters: str) -> int | None:
    """Parse text as a time. Return None if the text does not match.

    The regular expression `shape` contains a group for each letter in `letters`.
    """
    found = _compiled(shape).fullmatch(text)
    if found is None:
        return None
    parts = dict(zip(letters, found.groups(), strict=True))
    name = parts.get("M", "1").lower()[:3]
    month = _MONTHS.index(name) + 1 if name in _MONTHS else int(name)
    hour = int(parts.get("H", 0))
    if "h" in parts:
        if not 1 <= int(parts["h"]) <= 12:
            return None
        hour = int(parts["h"]) % 12 + (12 if parts["a"].lower() == "pm" else 0)
    moved, repeats = near_year(int(parts["y"]))
    minute, second, fraction = (int(parts.get("m", 0)), int(parts.get("s", 0)), parts.get("S", "0").ljust(6, "0"))
    try:
        moment = datetime(moved, month, int(parts.get("d", 1)), hour, minute, second, int(fraction), UTC)
    except ValueError:
        return None
    micros = _in_micros(moment) + later(repeats)
    return micros if FIRST_MOMENT <= micros <= LAST_MOMENT else None


@lru_cache(maxsize=64)
def _compiled(shape: str) -> re.Pattern[str]:
    return re.compile(shape)


KERNELS: Mapping[str, Kernel] = {
    "spark_moment": each(moment_of, "VARCHAR", "BOOLEAN", "BIGINT"),
    "spark_day": each(date_of, "VARCHAR", "INTEGER"),
    "spark_far_moment": each(_moment_text, "BIGINT", "VARCHAR"),
    "spark_far_date": each(date_text, "INTEGER", "VARCHAR"),
    "spark_far_written": each(_written, "BIGINT", "VARCHAR", "VARCHAR"),
    "spark_far_read": each(_read, "VARCHAR", "VARCHAR", "VARCHAR", "BIGINT"),
    "spark_shifted": each(_shifted, "BIGINT", "VARCHAR", "VARCHAR", "BIGINT"),
    "spark_months_apart": each(_months_apart, "BIGINT", "BIGINT", "BOOLEAN", "DOUBLE"),
}
