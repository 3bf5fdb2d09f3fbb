"""Functions on dates and timestamps. All expressions are evaluated in UTC."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rowkind.avro.schema import Type
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar.casts import cast
from rowkind.service.plan.scalar.functions import time_formats
from rowkind.service.plan.scalar.functions.function import ScalarFunction, maybe
from rowkind.service.plan.scalar.typed import Typed
from rowkind.service.plan.scalar.types import BIGINT, DATE, DOUBLE, INT, LOCAL, STRING, TIMESTAMP, decimal, family

_UNITS = {
    "MICROSECOND": "microsecond", "MILLISECOND": "millisecond", "SECOND": "second", "MINUTE": "minute", "HOUR": "hour",
    "DAY": "day", "DAYOFYEAR": "day", "WEEK": "week", "MONTH": "month", "QUARTER": "quarter", "YEAR": "year",
}  # fmt: skip
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_TRUNCATED = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"), "QUARTER": "quarter", "WEEK": "week",
    **dict.fromkeys(("MONTH", "MON", "MM"), "month"), **dict.fromkeys(("DAY", "DD"), "day"),
    "HOUR": "hour", "MINUTE": "minute", "SECOND": "second", "MILLISECOND": "milliseconds",
    "MICROSECOND": "microseconds",
}  # fmt: skip
_FIELDS = {
    **dict.fromkeys(("YEAR", "Y", "YEARS", "YR", "YRS"), "year({0})"),
    **dict.fromkeys(("YEAROFWEEK",), "isoyear({0})"),
    **dict.fromkeys(("QUARTER", "QTR"), "quarter({0})"),
    **dict.fromkeys(("MONTH", "MON", "MONS", "MONTHS"), "month({0})"),
    **dict.fromkeys(("WEEK", "W", "WEEKS"), "week({0})"),
    **dict.fromkeys(("DAY", "D", "DAYS"), "day({0})"),
    **dict.fromkeys(("DAYOFWEEK", "DOW"), "(dayofweek({0}) + 1)"),
    **dict.fromkeys(("DAYOFWEEK_ISO", "DOW_ISO"), "isodow({0})"),
    "DOY": "dayofyear({0})",
    **dict.fromkeys(("HOUR", "H", "HOURS", "HR", "HRS"), "hour({0})"),
    **dict.fromkeys(("MINUTE", "M", "MIN", "MINS", "MINUTES"), "minute({0})"),
}
_SECONDS = ("SECOND", "S", "SEC", "SECONDS", "SECS")
_WEEKDAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")


def plain(value: Typed) -> str:
    """Return SQL that converts a date or timestamp to a DuckDB TIMESTAMP, which has no time zone."""
    return value.sql if family(value.type) == "local" else f"CAST({value.sql} AS TIMESTAMP)"


def _dated(value: Typed) -> str:
    """Convert a timestamp like `plain`, but leave a date unchanged, because DATE has a wider range than TIMESTAMP."""
    return value.sql if family(value.type) == "date" else plain(value)


def _instant(sql: str) -> str:
    return f"CAST({sql} AS TIMESTAMPTZ)"


def _unit(value: Typed, known: dict[str, str], what: str) -> str:
    found = known.get(str(value.literal).upper())
    if found is None:
        raise Refusal(f"{value.literal} is not a unit of {what}: units are {', '.join(known)}")
    return found


def _part(template: str) -> Callable[[Sequence[Typed]], str]:
    def write(arguments: Sequence[Typed]) -> str:
        return f"CAST({template.format(_dated(arguments[0]))} AS INTEGER)"

    return write


def _field_type(arguments: Sequence[Typed]) -> Type:
    """INT, or DECIMAL(8,6) for SECOND."""
    seconds = decimal(8, 6)
    assert seconds is not None, "the precision is at most 38"
    return seconds if str(arguments[0].literal).upper() in _SECONDS else INT


def _field(arguments: Sequence[Typed]) -> str:
    if str(arguments[0].literal).upper() in _SECONDS:
        return (
            f"CAST(CAST(date_part('microsecond', {plain(arguments[1])}) AS DECIMAL(18,0)) * 0.000001 AS DECIMAL(8,6))"
        )
    template = _unit(arguments[0], _FIELDS, "EXTRACT")
    return f"CAST({template.format(_dated(arguments[1]))} AS INTEGER)"


def _days_added(sign: str) -> Callable[[Sequence[Typed]], str]:
    return lambda given: f"CAST({given[0].sql} {sign} {given[1].sql} AS DATE)"


def _added_type(arguments: Sequence[Typed]) -> Type:
    """TIMESTAMP, or TIMESTAMP_NTZ if the argument has this type."""
    return LOCAL if family(arguments[2].type) == "local" else TIMESTAMP


def _added(arguments: Sequence[Typed]) -> str:
    unit, count, moment = arguments
    added = f"({plain(moment)} + to_{_unit(unit, _UNITS, 'TIMESTAMPADD')}s({count.sql}))"
    return added if family(moment.type) == "local" else _instant(added)


def _between(arguments: Sequence[Typed]) -> str:
    unit, start, end = arguments
    if unit.literal is not None and unit.literal.upper() in _MONTHS:
        return f"(spark_months_passed({plain(start)}, {plain(end)}) // {_MONTHS[unit.literal.upper()]})"
    return f"datesub('{_unit(unit, _UNITS, 'TIMESTAMPDIFF')}', {plain(start)}, {plain(end)})"


def _truncated(arguments: Sequence[Typed]) -> str:
    unit, moment = arguments
    return _instant(f"date_trunc('{_unit(unit, _TRUNCATED, 'DATE_TRUNC')}', {plain(moment)})")


def _truncated_date(arguments: Sequence[Typed]) -> str:
    known = {spelled: unit for spelled, unit in _TRUNCATED.items() if unit in ("year", "quarter", "month", "week")}
    return f"CAST(date_trunc('{_unit(arguments[1], known, 'TRUNC')}', {arguments[0].sql}) AS DATE)"


def _next_day(arguments: Sequence[Typed]) -> str:
    day, name = arguments
    spelled = str(name.literal).upper()
    wanted = [
        number for number, full in enumerate(_WEEKDAYS, 1) if len(spelled) > 1 and spelled in (full, full[:2], full[:3])
    ]
    if not wanted:
        raise Refusal(f"{name.literal} is not a day of the week: write it in English, as in 'MON' or 'MONDAY'")
    return f"({day.sql} + CAST(1 + ({wanted[0]} - isodow({day.sql}) + 6) % 7 AS INTEGER))"


def _formatted(arguments: Sequence[Typed]) -> str:
    return time_formats.write(plain(arguments[0]), str(arguments[1].literal))


def _parsed(name: str, *, strict: bool = True, after: str = "{}") -> Callable[[Sequence[Typed]], str]:
    def write(arguments: Sequence[Typed]) -> str:
        moment = time_formats.read(arguments[0].sql, str(arguments[1].literal), strict=strict)
        return after.format(f"CAST({moment} AS {name})")

    return write


def _made_in(arguments: Sequence[Typed]) -> str:
    *parts, zone = (argument.sql for argument in arguments)
    made = _instant(f"spark_zoned(spark_made({', '.join(parts)}), {zone}, 'UTC')")
    return f"(CASE WHEN {zone} IS NOT NULL THEN {made} END)"


_MICROS = "epoch_us(CAST({0} AS TIMESTAMP))"
_OF_SECONDS = "make_timestamp({0} * 1000000)"
_READS = "The pattern is checked. It can contain yyyy MM dd HH mm ss and similar fields, month names and quoted text."
_ZONES = "Region names and offsets."

FUNCTIONS = (
    ScalarFunction("YEAR", "moment", INT, _part("year({0})")),
    ScalarFunction("QUARTER", "moment", INT, _part("quarter({0})")),
    ScalarFunction("MONTH", "moment", INT, _part("month({0})")),
    ScalarFunction("DAY DAYOFMONTH", "moment", INT, _part("day({0})")),
    ScalarFunction("DAYOFYEAR", "moment", INT, _part("dayofyear({0})")),
    ScalarFunction("DAYOFWEEK", "moment", INT, _part("dayofweek({0}) + 1"), "1 is Sunday."),
    ScalarFunction("WEEKDAY", "moment", INT, _part("isodow({0}) - 1"), "0 is Monday."),
    ScalarFunction("WEEKOFYEAR", "moment", INT, _part("week({0})"), "ISO 8601 weeks."),
    ScalarFunction("HOUR", "moment", INT, _part("hour({0})")),
    ScalarFunction("MINUTE", "moment", INT, _part("minute({0})")),
    ScalarFunction(
        "SECOND", "moment", INT, _part("second({0})"), "Without the fraction; EXTRACT(SECOND …) includes it."
    ),
    ScalarFunction("EXTRACT DATE_PART DATEPART", "'text', moment", _field_type, _field, "Also EXTRACT(field FROM d)."),
    ScalarFunction("DAYNAME", "moment", STRING, lambda given: f"left(dayname({_dated(given[0])}), 3)"),
    ScalarFunction("MONTHNAME", "moment", STRING, lambda given: f"left(monthname({_dated(given[0])}), 3)"),
    ScalarFunction("LAST_DAY", "date", DATE, "last_day({0})"),
    ScalarFunction("NEXT_DAY", "date, 'text'", DATE, _next_day),
    ScalarFunction("ADD_MONTHS", "date, int", DATE, "CAST({0} + to_months({1}) AS DATE)"),
    ScalarFunction("MONTHS_BETWEEN", "timestamp, timestamp", DOUBLE, "spark_months({0}, {1}, TRUE)"),
    ScalarFunction("MONTHS_BETWEEN", "timestamp, timestamp, boolean", DOUBLE, "spark_months({0}, {1}, {2})"),
    ScalarFunction("DATE_ADD DATEADD", "date, int", DATE, _days_added("+")),
    ScalarFunction("DATE_SUB", "date, int", DATE, _days_added("-")),
    ScalarFunction(
        "TIMESTAMPADD DATEADD DATE_ADD", "unit, int, moment", _added_type, _added, "Returns a TIMESTAMP for a date."
    ),
    ScalarFunction("DATEDIFF DATE_DIFF", "date, date", INT, "CAST({0} - {1} AS INTEGER)", "DATEDIFF(end, start)."),
    ScalarFunction(
        "TIMESTAMPDIFF DATEDIFF DATE_DIFF", "unit, moment, moment", BIGINT, _between, "Whole units from start to end."
    ),
    ScalarFunction("DATE_TRUNC", "'text', moment", TIMESTAMP, _truncated),
    ScalarFunction("TRUNC", "date, 'text'", DATE, _truncated_date),
    ScalarFunction("MAKE_DATE", "int, int, int", DATE, "make_date({0}, {1}, {2})"),
    *(
        ScalarFunction(names, "int, int, int, int, int, double", type_, sql)
        for names, type_, sql in (
            ("MAKE_TIMESTAMP MAKE_TIMESTAMP_LTZ", TIMESTAMP, "CAST(spark_made({all}) AS TIMESTAMPTZ)"),
            ("MAKE_TIMESTAMP_NTZ", LOCAL, "spark_made({all})"),
        )
    ),
    *(
        ScalarFunction(f"MAKE_TIMESTAMP{suffix}", "int, int, int, int, int, double, text", TIMESTAMP, _made_in, _ZONES)
        for suffix in ("", "_LTZ")
    ),
    *(
        ScalarFunction(
            names, f"int, int, int, int, int, double{zone}", maybe(type_), sql, "NULL if there is no such date."
        )
        for names, type_, zone, sql in (
            ("TRY_MAKE_TIMESTAMP TRY_MAKE_TIMESTAMP_LTZ", TIMESTAMP, "", "TRY(CAST(spark_made({all}) AS TIMESTAMPTZ))"),
            ("TRY_MAKE_TIMESTAMP TRY_MAKE_TIMESTAMP_LTZ", TIMESTAMP, ", text", lambda given: f"TRY({_made_in(given)})"),
            ("TRY_MAKE_TIMESTAMP_NTZ", LOCAL, "", "TRY(spark_made({all}))"),
        )
    ),
    ScalarFunction("TO_DATE", "text, 'text'", DATE, _parsed("DATE"), _READS),
    ScalarFunction("TO_TIMESTAMP TO_TIMESTAMP_LTZ", "text, 'text'", TIMESTAMP, _parsed("TIMESTAMPTZ"), _READS),
    ScalarFunction("TO_TIMESTAMP_NTZ", "text, 'text'", LOCAL, _parsed("TIMESTAMP"), _READS),
    ScalarFunction("TRY_TO_DATE", "text, 'text'", maybe(DATE), _parsed("DATE", strict=False), _READS),
    ScalarFunction("TRY_TO_TIMESTAMP", "text, 'text'", maybe(TIMESTAMP), _parsed("TIMESTAMPTZ", strict=False), _READS),
    ScalarFunction("DATE_FORMAT", "moment, 'text'", STRING, _formatted, _READS),
    ScalarFunction(
        "FROM_UNIXTIME", "bigint", STRING, time_formats.formatted("make_timestamp({0} * 1000000)", "%Y-%m-%d %H:%M:%S")
    ),
    ScalarFunction(
        "FROM_UNIXTIME",
        "bigint, 'text'",
        STRING,
        lambda given: time_formats.write(f"make_timestamp({given[0].sql} * 1000000)", str(given[1].literal)),
        _READS,
    ),
    ScalarFunction("UNIX_TIMESTAMP TO_UNIX_TIMESTAMP", "timestamp", BIGINT, f"({_MICROS} // 1000000)"),
    ScalarFunction(
        "UNIX_TIMESTAMP TO_UNIX_TIMESTAMP",
        "text, 'text'",
        BIGINT,
        _parsed("TIMESTAMP", after="spark_floor_div(epoch_us({}), 1000000)"),
        _READS,
    ),
    ScalarFunction("UNIX_DATE", "day", INT, "CAST({0} - DATE '1970-01-01' AS INTEGER)"),
    ScalarFunction("UNIX_SECONDS", "instant", BIGINT, f"spark_floor_div({_MICROS}, 1000000)"),
    ScalarFunction("UNIX_MILLIS", "instant", BIGINT, f"spark_floor_div({_MICROS}, 1000)"),
    ScalarFunction("UNIX_MICROS", "instant", BIGINT, _MICROS),
    ScalarFunction("DATE_FROM_UNIX_DATE", "int", DATE, "(DATE '1970-01-01' + {0})"),
    ScalarFunction(
        "TIMESTAMP_SECONDS", "number", TIMESTAMP, lambda given: str(cast(given[0].sql, given[0].type, TIMESTAMP))
    ),
    ScalarFunction("TIMESTAMP_MILLIS", "bigint", TIMESTAMP, "CAST(make_timestamp({0} * 1000) AS TIMESTAMPTZ)"),
    ScalarFunction("TIMESTAMP_MICROS", "bigint", TIMESTAMP, "CAST(make_timestamp({0}) AS TIMESTAMPTZ)"),
    ScalarFunction(
        "FROM_UTC_TIMESTAMP", "timestamp, text", TIMESTAMP, "CAST(spark_zoned({0}, 'UTC', {1}) AS TIMESTAMPTZ)", _ZONES
    ),
    ScalarFunction(
        "TO_UTC_TIMESTAMP", "timestamp, text", TIMESTAMP, "CAST(spark_zoned({0}, {1}, 'UTC') AS TIMESTAMPTZ)", _ZONES
    ),
    ScalarFunction("CONVERT_TIMEZONE", "text, local", LOCAL, "spark_zoned({1}, 'UTC', {0})", _ZONES),
    ScalarFunction("CONVERT_TIMEZONE", "text, text, local", LOCAL, "spark_zoned({2}, {0}, {1})", _ZONES),
)
