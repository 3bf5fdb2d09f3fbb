"""Dates and times before the year 1 and after the year 9999, compared with Spark SQL."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rowkind.avro.schema import Record
from tests.spark.sql_oracle import compiled, differences, frame_of

pytestmark = pytest.mark.spark

SEED = 7
_TABLE = Record.of(
    {
        "l": "BIGINT",
        "n": "INT",
        "ts": "TIMESTAMP",
        "nt": "TIMESTAMP_NTZ",
        "day": "DATE",
        "s": "STRING",
        "zone": "STRING",
    }
)
_NUMBERS = Record.of(
    {"l": "BIGINT", "n": "INT", "ts": "BIGINT", "nt": "BIGINT", "day": "INT", "s": "STRING", "zone": "STRING"}
)
_MADE = {
    "ts": "TIMESTAMP_MICROS(ts) AS ts",
    "nt": "CAST(TIMESTAMP_MICROS(nt) AS TIMESTAMP_NTZ) AS nt",
    "day": "DATE_FROM_UNIX_DATE(day) AS day",
}
_DAY = 86_400_000_000
_EDGES = [
    0, -1, -62_135_596_800_000_000, -62_135_596_800_001_000, -62_167_219_200_000_000, -62_167_219_200_000_001,
    -377_705_116_800_001_000, 253_402_300_800_000_000, 253_402_300_799_999_999, 9_223_372_036_825_200_000,
    2**63 - 2, -9_223_372_022_400_000_000, -62_014_003_200_000_000, -30_610_224_000_000_001,
]  # fmt: skip
_TEXTS = [
    "2024-01-01 24:00:00", "2024-01-01T23:59:60", "2024-01-01 23:60:00", "2024-01-01 23:59:59.9999999", "+10000-01-01",
    "-0001-01-01", "0000-01-01", "0000-02-29", "-0004-02-29", "10000-01-01", "+10000-01-01 12:00:00",
    "-0001-12-31 01:02:03.5", "+294247-01-10 04:00:54.775808", "-290308-12-21 19:59:05.224191", "5881580-07-12",
    "-5877641-06-22", "+2024-01-01", "-2024-01-01 00:00:00", "12345678-01-01", "1234567-01-01", "1234567",
    "123456-1-1 1:1:1", "+12345", "99999-12-31T23:59:59.999999+18:00", "0001-01-01 00:00:00+14:00",
    "9999-12-31 23:00:00-18:00",
    "+10000-01-01 12:00:00 Europe/Berlin", "1700-01-01 12:00:00 Europe/Berlin", "0000-01-01 00:00:00 America/New_York",
    "-0001-01", "-12345-13-01", "+-2024-01-01", "202-01-01", "infinity", "", "0001-12-31 (BC)", "10000-01-01T",
    " +10000 ", "2024-01-01 12:30:10.", "2024-01-01T12:30  +1:0", "2024-01-01Z",
]  # fmt: skip
_SHAPED = ["+10000-01-02 03:04", "10000-01-01 00:00", "-0001-02-03 04:05", "0000-01-01 00:00", "2024-01-01 24:00",
           "2024-01-01 00:60", "+2024-01-01 00:00", "0999-12-31 23:59", "-290000-01-01 00:00"]  # fmt: skip
_FIELDS = ("YEAR", "QUARTER", "MONTH", "DAY", "DAYOFYEAR", "DAYOFWEEK", "WEEKDAY", "WEEKOFYEAR", "DAYNAME", "MONTHNAME",
           "HOUR", "SECOND")  # fmt: skip
_PATTERNS = ("yyyy-MM-dd HH:mm:ss.SSS", "y", "yy", "yyyyMMdd", "EEE D DDD MMM d h a", "'%Y' yyyy")


def _of_moments() -> list[str]:
    """Return expressions over columns of every time type.

    Their results are text or numbers, because Python lacks such times.
    """
    texts = ["UNIX_MICROS(ts)", "UNIX_MILLIS(ts)", "UNIX_SECONDS(ts)", "FROM_UNIXTIME(UNIX_SECONDS(ts))"]
    for of in ("ts", "nt", "day"):
        texts += [f"CAST({of} AS STRING)", f"TO_JSON(NAMED_STRUCT('t', {of}))", f"TO_CHAR({of}, 'yyyy')"]
        texts += [f"DATE_FORMAT({of}, {pattern!r})" for pattern in _PATTERNS[:-1]]
        texts += [f'DATE_FORMAT({of}, "{_PATTERNS[-1]}")', f"CONCAT({of}, ',')", f"CAST(ARRAY({of}) AS STRING)"]
        texts += [f"{name}({of})" for name in _FIELDS if of != "day" or name not in ("HOUR", "SECOND")]
        texts += [f"EXTRACT(YEAROFWEEK FROM {of})", f"CAST({of} AS DATE) < DATE '+10000-01-01'"]
    texts += [
        f"CAST(DATE_TRUNC('{unit}', {of}) AS STRING)" for of in ("ts", "nt") for unit in ("WEEK", "QUARTER", "DAY")
    ]
    texts += [f"CAST({of} + INTERVAL '1' DAY AS STRING)" for of in ("ts", "nt")]
    texts += [f"CAST({of} - INTERVAL '1' MONTH AS STRING)" for of in ("ts", "nt")]
    texts += [f"CAST({name} AS STRING)" for name in ("LAST_DAY(ts)", "NEXT_DAY(ts, 'MON')", "TRUNC(ts, 'WEEK')")]
    texts += [f"CAST({name} AS STRING)" for name in ("DATE_ADD(ts, 1)", "CAST(ts AS DATE)")]
    texts += ["MONTHS_BETWEEN(ts, TIMESTAMP '2024-02-29 12:00:00')", "DATEDIFF(ts, DATE '-0001-01-01')"]
    texts += [f"CAST({name}(ts, zone) AS STRING)" for name in ("FROM_UTC_TIMESTAMP", "TO_UTC_TIMESTAMP")]
    texts += ["CAST(CONVERT_TIMEZONE(zone, 'Asia/Tokyo', nt) AS STRING)", "CAST(CAST(ts AS DATE) AS TIMESTAMP) <= ts"]
    return texts


_OF_MOMENTS = _of_moments()
_OF_TEXTS = [
    f"CAST({cast}(s AS {type_}) AS STRING)"
    for cast in ("TRY_CAST", "CAST")
    for type_ in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")
]
_OF_SHAPED = [
    f"CAST({name}(s, 'yyyy-MM-dd HH:mm') AS STRING)" for name in ("TRY_TO_TIMESTAMP", "TO_TIMESTAMP", "TRY_TO_DATE")
]
_OF_DAYS = ["CAST(day AS STRING)", "DATE_FORMAT(day, 'yyyy')", "TO_JSON(NAMED_STRUCT('t', day))", "YEAR(day)"]
_OF_NUMBERS = [
    f"CAST({made} AS STRING)"
    for made in (
        "TIMESTAMP_MILLIS(l)",
        "TIMESTAMP_SECONDS(l)",
        "CAST(CAST(n AS BIGINT) * 1000000 AS TIMESTAMP)",
        "ADD_MONTHS(TIMESTAMP_MILLIS(l), -1)",
        "DATE_FROM_UNIX_DATE(n)",
        "MAKE_DATE(n, 2, 28)",
        "MAKE_TIMESTAMP(n, 1, 2, 3, 4, 5.5)",
        "DATE_ADD(DATE '9999-12-31', n)",
    )
]


def test_times_of_every_year_are_computed_and_written_as_in_spark(spark: SparkSession) -> None:
    """Every time function and every conversion to text gives Spark's values from the first year to the last."""
    dice = _dice()
    moments = _EDGES + [dice.randrange(-(2**62), 2**62) for _ in range(12)]
    moments += [253_402_300_800_000_000 + dice.randrange(-400, 400) * _DAY for _ in range(6)]
    moments += [-62_135_596_800_000_000 + dice.randrange(-800, 800) * _DAY for _ in range(12)]
    zones = [dice.choice(["UTC", "Europe/Berlin", "America/New_York", "+02:00", "-05:30"]) for _ in moments]
    days = [each // _DAY for each in moments]
    _compare(spark, _OF_MOMENTS, {"ts": moments, "nt": moments, "day": days, "zone": zones})


def test_text_of_every_year_is_read_as_in_spark(spark: SparkSession) -> None:
    """CAST, TRY_CAST and TO_TIMESTAMP read signed years as Spark does, and refuse the same hours and days."""
    dice = _dice()
    texts = _TEXTS + [
        f"{dice.choice(['', '+', '-'])}{dice.choice([dice.randrange(10000), dice.randrange(300_000)]):04}-"
        f"{dice.randrange(14):02}-{dice.randrange(33)}{dice.choice(' T')}{dice.randrange(26):02}:"
        f"{dice.randrange(61):02}:{dice.randrange(61):02}"
        for _ in range(200)
    ]
    _compare(spark, _OF_TEXTS, {"s": texts})
    _compare(spark, _OF_SHAPED, {"s": _SHAPED})


def test_days_and_numbers_become_times_as_in_spark(spark: SparkSession) -> None:
    """A day, a number of seconds or a year becomes the same date or time as in Spark, or fails in both."""
    days = [0, -719_162, -719_163, -719_528, -719_529, 2_932_896, 2_932_897, 106_751_991, -106_751_990, 2**31 - 2]
    _compare(spark, _OF_DAYS, {"day": days})
    numbers = [0, 1, -1, -5, 99_999, 253_402_300_800, -62_135_596_801, 253_402_300_800_000, 10**15, 2**63 - 1, -(2**63)]
    years = [0, 1, -1, 9999, 10_000, -5, 290_000, -290_000, 294_247, 400_000, 5_881_579]
    _compare(spark, _OF_NUMBERS, {"l": numbers, "n": years})


def _dice() -> random.Random:
    print(f"seed {SEED}")
    return random.Random(SEED)


def _compare(spark: SparkSession, texts: Sequence[str], given: Mapping[str, list[Any]]) -> None:
    """Compare with Spark. Spark computes the times from numbers, because Python cannot represent most of them."""
    count = len(next(iter(given.values())))
    columns = {name: given.get(name, [None] * count) for name in _TABLE.names}
    numbers = frame_of(spark, _NUMBERS, columns)
    frame = numbers.selectExpr("row", *(_MADE.get(name, name) for name in _TABLE.names))
    expressions = {}
    for text in texts:
        expression = compiled(text, _TABLE)
        assert expression is not None, text
        expressions[text] = expression
    wrong = differences(frame, _TABLE, columns, expressions, local=False)
    assert not wrong, "\n".join(wrong)
