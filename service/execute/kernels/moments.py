"""Kernels of times: timestamps in all the forms in which Spark reads them from text."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Mapping
from datetime import UTC, timedelta
from decimal import ROUND_HALF_UP, Decimal

from rowkind.avro.timestamp_text import EPOCH, moment_of, zone_of
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


def _shifted(micros: int, source: str, target: str) -> int:
    """What clocks in `target` show, in microseconds since 1970, while those in `source` show `micros`."""
    try:
        shown = (EPOCH + timedelta(microseconds=micros)).replace(tzinfo=zone_of(source))
        there = shown.astimezone(zone_of(target)).replace(tzinfo=UTC)
    except (ValueError, LookupError, OSError):
        raise ValueError(f"{source!r} or {target!r} is no time zone") from None
    return (there - EPOCH) // timedelta(microseconds=1)


def _months_apart(end: int, start: int, rounded: bool) -> float:
    """Months and a fraction of 31 days; whole where both are the same day of the month, or the last one."""
    a, b = (EPOCH + timedelta(microseconds=micros) for micros in (end, start))
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
