"""Parse decimals, dates and times as people and JSON write them.

DECIMAL                 its digits as text, "12.50", or a number
TIMESTAMP               ISO-8601, in UTC if it has no zone, or a number of ms since the epoch
TIMESTAMP_NTZ, DATE, TIME    ISO-8601
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro.decode import BOUNDED_TIMES
from rowkind.avro.time_text import PER_SECOND, days_of, moment_of, units_of
from rowkind.avro.type import Type

_DIGITS = Context(prec=100)

_MOST_SCALE = 1_000
"""The maximum scale and the maximum number of bytes of a decimal. No database has more, and computing with more could
exhaust the memory."""

_FIRST_DAY = -719_162
"""January 1 of the year 1, in days since 1970."""

_SPELLED = frozenset({"decimal", "date", "time-millis", "time-micros"})
"""Logical types that are read from text, besides timestamps."""


class ValueProblem(ValueError):  # noqa: N818 -- its text is shown to people unchanged
    """A value that does not have its column's type."""


def shown(value: Any) -> str:
    """Return a value as its author wrote it: as JSON if JSON has such values, otherwise as Python code."""
    if isinstance(value, Decimal):
        return str(value)
    try:
        return json.dumps(value, default=str if isinstance(value, list | dict) else None)
    except (TypeError, ValueError):
        return repr(value)


def spelled(type_: Type, value: Any) -> Any:
    """Convert a value of a decimal, date, time or timestamp type for Arrow. Raises ValueProblem."""
    match type_.logical:
        case "date" if type(value) is date:
            return value
        case "time-millis" | "time-micros" if isinstance(value, time):
            return _in_utc(value)
        case "decimal":
            return _decimal(type_, value)
        case "date":
            return _within(type_, value, parsed(value, days_of, "a date such as 2026-01-31"))
        case "time-millis" | "time-micros":
            return _in_utc(parsed(value, time.fromisoformat, "a time such as 12:30:00"))
        case _:
            return _timestamp(type_, value)


def _decimal(type_: Type, value: Any) -> Decimal:
    if isinstance(value, str | int | float | Decimal) and not isinstance(value, bool):
        try:
            # A float denotes the shortest decimal that rounds to it, such as 12.3, not its exact binary value.
            number = Decimal(repr(float(value)) if isinstance(value, float) else value)
            exact = number.quantize(Decimal(1).scaleb(-type_.scale), context=_DIGITS)
        except InvalidOperation:
            pass
        else:
            if exact == number and len(exact.as_tuple().digits) <= type_.precision:
                return exact
    remedy = ": round it, or pass it as text or decimal.Decimal" if isinstance(value, float) else ""
    raise ValueProblem(f"{shown(value)} is not {type_.sql}{remedy}")


def _in_utc(value: time) -> time:
    """Return a time of day. A time with a zone is converted to UTC, and a change of day is ignored."""
    if value.tzinfo is None:
        return value
    return datetime.combine(datetime(2000, 1, 2, tzinfo=UTC), value).astimezone(UTC).time()


def unit_of(type_: Type) -> int:
    """Return how many units of a timestamp or time type make up a second."""
    return PER_SECOND[(type_.logical or "").rpartition("-")[2]]


def _timestamp(type_: Type, value: Any) -> int:
    """Return units since the epoch, which Arrow accepts for any unit."""
    per_second = unit_of(type_)
    if isinstance(value, int) and not isinstance(value, bool):
        return _within(type_, value, value * per_second // 1000)
    if isinstance(value, datetime):
        since, zoned = units_of(value, per_second), value.tzinfo is not None
    else:
        expected = "a time such as 2026-01-31T12:00:00Z, or ms since the epoch"
        since, zoned = parsed(value, lambda text: moment_of(text, per_second), expected)
    if zoned and is_local(type_):
        raise ValueProblem(f"{shown(value)} has a time zone, but {type_.sql} has none")
    return _within(type_, value, since)


def is_local(type_: Type) -> bool:
    """Return whether a timestamp has no time zone."""
    return type_.logical is not None and type_.logical.startswith("local")


def _within(type_: Type, value: Any, number: int) -> int:
    bits = 31 if type_.kind == "int" else 63
    least, most = BOUNDED_TIMES.get(type_.logical or "", (-(2**bits), 2**bits - 1))
    if least <= number <= most:
        return number
    raise ValueProblem(f"{shown(value)} is out of range for {type_.sql}")


def parsed(value: Any, parse: Callable[[str], Any], expected: str) -> Any:
    """Parse a text. Raises ValueProblem for invalid text and for values that are not text."""
    try:
        if isinstance(value, str):
            return parse(value)
    except ValueError:
        pass
    raise ValueProblem(f"{shown(value)} is not {expected}")


def is_spelled(type_: Type) -> bool:
    """Return whether values of a type may be text."""
    return type_.logical in _SPELLED or (type_.logical is not None and "timestamp" in type_.logical)


def spelled_alike(type_: Type, texts: pa.StringArray) -> pa.Array | None:
    """Return a column of the values that `spelled` returns for the texts, much faster, or None if Arrow cannot.

    Arrow accepts fewer forms, with the same meaning except for years before the year 1. The result is None if Arrow
    cannot parse a text, or if a year is before 1.
    """
    if type_.logical in ("time-millis", "time-micros"):
        return None
    try:
        values = texts.cast(type_.arrow)
    except pa.ArrowInvalid:
        return None
    if type_.logical != "decimal":
        first = _FIRST_DAY * (1 if type_.logical == "date" else 86_400 * unit_of(type_))
        if (least := pc.min(values.cast(pa.int32() if type_.logical == "date" else pa.int64())).as_py()) is not None:
            return values if least >= first else None
    return values


def scaled(scale: int, value: bytes) -> Decimal:
    """Return the decimal with the given scale and big-endian two's complement digits, as Debezium sends it.

    Raises ValueProblem.
    """
    number = int.from_bytes(value, "big", signed=True)
    if abs(scale) > _MOST_SCALE or len(value) > _MOST_SCALE:
        raise ValueProblem(f"a decimal of {len(value)} bytes and scale {scale} is too large to be read as a number")
    return Decimal(number).scaleb(-scale, context=_DIGITS)
