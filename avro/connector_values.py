"""Convert text and numbers from other systems, which use more forms than `spelled` accepts from people.

TIMESTAMP_NTZ, DATE     text that ends in Z, as Debezium writes times without a zone: isostring, "2026-02-02Z"
DATE, TIME, TIMESTAMP   numbers in the unit that the table declares for the column
TIMESTAMP               numbers without a unit are milliseconds, and must be 0 or times since 1973 or before 1966:
                        numbers in other units, such as seconds, days and microseconds, are seldom in this range
DECIMAL                 Debezium's decimals of variable scale, also in JSON
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from rowkind.avro.decode import BOUNDED_TIMES
from rowkind.avro.mismatch import spelled_out
from rowkind.avro.text_values import ValueProblem, is_local, scaled, shown, spelled, unit_of
from rowkind.avro.ticks import UNITS, TimeUnit
from rowkind.avro.type import Type

_UTC = re.compile(r"(Z|[+-]00:?00)$")
_LEAST_MILLIS, _MOST_MILLIS = 10**11, 10**13
"""The years 1973 and 2286 in milliseconds.

Present-day times are smaller numbers in seconds or days, and larger numbers in microseconds or nanoseconds.
"""


def sent(type_: Type, value: Any, unit: TimeUnit | None = None) -> Any:
    """Convert a value of another system to the form that Arrow expects. Its type must be one that `spelled` supports.

    Raises ValueProblem.
    """
    number = isinstance(value, int) and not isinstance(value, bool)
    match type_.logical:
        case "decimal" if isinstance(value, dict) and value.keys() == {"scale", "value"}:
            return spelled(type_, _variable(value))
        case "decimal":
            return spelled(type_, value)
        case "date" | "time-millis" | "time-micros" if number:
            return _counted(type_, value, unit)
        case "date" if isinstance(value, str):
            return spelled(type_, value.removesuffix("Z"))
        case "date" | "time-millis" | "time-micros":
            return spelled(type_, value)
        case _ if number:
            return _counted(type_, value, unit)
        case _ if isinstance(value, str) and is_local(type_):
            return _local(type_, value)
        case _:
            return spelled(type_, value)


def _local(type_: Type, value: str) -> Any:
    try:
        return spelled(type_, _UTC.sub("", value) if ":" in value else value)
    except ValueProblem:
        raise ValueProblem(
            f"{shown(value)} is not {spelled_out(type_)}, which has no time zone: declare TIMESTAMP"
        ) from None


def _counted(type_: Type, value: int, unit: TimeUnit | None) -> Any:
    """Convert a number of units to a value of the type, in the type's own unit."""
    if type_.logical == "date" and unit is not None:
        return _bounded(type_, value, value)
    if type_.logical == "date" or (unit is None and not _is_timestamp(type_)):
        example = "days" if type_.logical == "date" else "millis"
        raise ValueProblem(
            f"{value} is not {spelled_out(type_)}: the unit of the number is unknown. Set it in the table's `units`, "
            f"for example `units: {{x: {example}}}`, or declare BIGINT"
        )
    if unit is None and value and not _LEAST_MILLIS <= abs(value) < _MOST_MILLIS:
        raise ValueProblem(
            f"{value} is not {spelled_out(type_)}: in milliseconds it would be near 1970 or after 2286, so it probably "
            f"has another unit. Set the unit of the column in the table's `units`, for example `units: {{x: micros}}`, "
            f"or declare BIGINT"
        )
    found = _bounded(type_, value, value * unit_of(type_) // UNITS[unit or "millis"])
    return found if _is_timestamp(type_) else (datetime(2000, 1, 1, tzinfo=UTC) + _since(type_, found)).time()


def _since(type_: Type, units: int) -> timedelta:
    return timedelta(microseconds=units * UNITS["micros"] // unit_of(type_))


def _is_timestamp(type_: Type) -> bool:
    return type_.logical is not None and "timestamp" in type_.logical


def _bounded(type_: Type, value: int, number: int) -> int:
    bits = 31 if type_.kind == "int" else 63
    least, most = BOUNDED_TIMES.get(type_.logical or "", (-(1 << bits), (1 << bits) - 1))
    if least <= number <= most:
        return number
    wide = ": declare BIGINT to keep the number unchanged"
    raise ValueProblem(f"{value} is out of range for {spelled_out(type_)}{wide}")


def _variable(value: dict[str, Any]) -> Decimal:
    scale, digits = value["scale"], value["value"]
    if isinstance(scale, int) and isinstance(digits, str):
        try:
            return scaled(scale, base64.b64decode(digits, validate=True))
        except binascii.Error:
            pass
    raise ValueProblem(f"{shown(value)} is not a decimal: expected a `scale`, and a `value` in base64")


def big_decimal(value: bytes) -> Decimal:
    """Decode an Avro `big-decimal`: the length of its digits in bytes, the digits, and the scale.

    Raises ValueProblem.
    """
    length, at = _varint(value, 0)
    if not 0 <= length <= len(value) - at:
        raise ValueProblem("the decimal is truncated")
    scale, _ = _varint(value, at + length)
    return scaled(scale, value[at : at + length])


def _varint(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(value) and shift < 64:
        number |= (value[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if value[at - 1] < 128:
            return (number >> 1) ^ -(number & 1), at
    raise ValueProblem("the decimal is truncated")
