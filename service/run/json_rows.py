"""Rows as JSON, both ways: how `rowkind try` reads and prints them.

numbers                 as numbers; decimals as text, "12.50"
TIMESTAMP               ISO-8601, without a zone UTC, or a number of ms since the epoch; printed in UTC
TIMESTAMP_NTZ, DATE, TIME    ISO-8601
BINARY                  base64
arrays, maps, structs   as lists and objects
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.defaults import nothing
from rowkind.avro.schema import Record, Type

_DIGITS = Context(prec=100)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_LOCAL = datetime(1970, 1, 1)  # noqa: DTZ001 -- a local time has no zone
_PER_SECOND = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}


class ValueProblem(ValueError):  # noqa: N818 -- said to people as it is
    """A JSON value that is none of its column's type."""


def parse_line(text: str) -> Any:
    """JSON with its decimal numbers unharmed. Raises JSONDecodeError."""
    return json.loads(text, parse_float=Decimal)


def check_row(record: Record, row: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON row as values for Arrow, a missing column NULL. Raises ValueProblem naming the column."""
    for name in row:
        if name not in record.names:
            raise ValueProblem(f"there is no column {name!r}; columns are {', '.join(record.names)}")
    values = {}
    for field in record.fields:
        if row.get(field.name) is None and not field.type.nullable:
            raise ValueProblem(f"{field.name} is {field.type.sql} NOT NULL, but it is missing or null")
        try:
            values[field.name] = _from_json(field.type, row.get(field.name))
        except ValueProblem as problem:
            raise ValueProblem(f"{field.name}: {problem}") from None
    return values


def encode(record: Record, rows: Sequence[Mapping[str, Any]]) -> pa.BinaryArray:
    """Checked rows as payloads. Raises ValueProblem."""
    columns = {
        field.name: pa.array([row[field.name] for row in rows], type=field.type.arrow) for field in record.fields
    }
    return codec.encode(record, columns, len(rows))


def encode_keys(record: Record, primary_key: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> pa.BinaryArray:
    """Rows of which only the primary key is known, as the reader makes them of deletes: the rest holds nothing."""
    key = record.select(primary_key)
    columns = [field.name if field.name in key.names else nothing(field.type) for field in record.fields]
    return codec.read(key, encode(key, rows)).assemble(record, columns)


def decode(record: Record, payloads: pa.BinaryArray) -> list[dict[str, Any]]:
    """Payloads as JSON-able rows."""
    decoded = codec.read(record, payloads)
    columns = [_to_json(field.type, decoded.column(field.name)) for field in record.fields]
    return [dict(zip(record.names, values, strict=True)) for values in zip(*columns, strict=True)]


def _from_json(type_: Type, value: Any) -> Any:
    if value is None:
        if not type_.nullable:
            raise ValueProblem("it is NOT NULL, but null")
        return None
    if type_.opaque:
        raise ValueProblem(f"values of type {type_.sql} cannot be written in JSON here")
    if type_.logical == "decimal":
        return _decimal(type_, value)
    if type_.logical and "timestamp" in type_.logical:
        return _timestamp(type_, value)
    if type_.logical == "date":
        return _parsed(value, date.fromisoformat, "a date such as 2026-01-31")
    if type_.logical in ("time-millis", "time-micros"):
        return _parsed(value, time.fromisoformat, "a time such as 12:30:00")
    return _plain(type_, value)


def _plain(type_: Type, value: Any) -> Any:
    match type_.kind:
        case "boolean" if isinstance(value, bool):
            return value
        case "int" | "long" if isinstance(value, int) and not isinstance(value, bool):
            bits = 31 if type_.kind == "int" else 63
            if -(2**bits) <= value < 2**bits:
                return value
            raise ValueProblem(f"{value} is too large for {type_.sql}")
        case "float" | "double" if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
            return float(value)
        case "float" | "double" if value in ("NaN", "Infinity", "-Infinity"):
            return float(value)
        case "string" if isinstance(value, str):
            return value
        case "enum" if value in type_.symbols:
            return value
        case "bytes" | "fixed" if isinstance(value, str):
            return _parsed(value, lambda text: base64.b64decode(text, validate=True), "base64")
        case "array" if isinstance(value, list):
            return [_from_json(type_.element, item) for item in value]
        case "map" if isinstance(value, dict):
            return [(name, _from_json(type_.element, item)) for name, item in value.items()]
        case "record" if isinstance(value, dict):
            return {field.name: _from_json(field.type, value.get(field.name)) for field in type_.fields}
    expected = f"one of {', '.join(type_.symbols)}" if type_.kind == "enum" else type_.sql
    raise ValueProblem(f"{json.dumps(value, default=str)} is not {expected}")


def _decimal(type_: Type, value: Any) -> Decimal:
    if isinstance(value, str | int | Decimal) and not isinstance(value, bool):
        try:
            number = Decimal(value)
            exact = number.quantize(Decimal(1).scaleb(-type_.scale), context=_DIGITS)
        except InvalidOperation:
            pass
        else:
            if exact == number and len(exact.as_tuple().digits) <= type_.precision:
                return exact
    raise ValueProblem(f"{json.dumps(value, default=str)} is not {type_.sql}")


def _timestamp(type_: Type, value: Any) -> int:
    """Units since the epoch, which is what Arrow takes for any unit."""
    assert type_.logical is not None, "the caller looked"
    per_second = _PER_SECOND[type_.logical.rpartition("-")[2]]
    if isinstance(value, int) and not isinstance(value, bool):
        return value * per_second // 1000
    moment = _parsed(value, datetime.fromisoformat, "a time such as 2026-01-31T12:00:00Z, or ms since the epoch")
    if type_.logical.startswith("local"):
        if moment.tzinfo is not None:
            raise ValueProblem(f"{json.dumps(value)} has a time zone, but {type_.sql} has none")
        since = moment - _EPOCH_LOCAL
    else:
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    return int(since / timedelta(microseconds=1)) * per_second // 1_000_000


def _parsed(value: Any, parse: Callable[[str], Any], expected: str) -> Any:
    try:
        if isinstance(value, str):
            return parse(value)
    except ValueError:
        pass
    raise ValueProblem(f"{json.dumps(value, default=str)} is not {expected}")


def _to_json(type_: Type, column: pa.Array) -> list[Any]:
    if type_.logical and "timestamp" in type_.logical:
        unit = type_.logical.rpartition("-")[2]
        zone = "" if type_.logical.startswith("local") else "Z"
        return [None if each is None else _show(each, unit) + zone for each in column.cast(pa.int64()).to_pylist()]
    return [_jsonable(each) for each in column.to_pylist()]


def _show(value: int, unit: str) -> str:
    """ISO-8601 with as many digits of a second as are not zero, in groups of three."""
    seconds, fraction = divmod(value, _PER_SECOND[unit])
    text = (_EPOCH_LOCAL + timedelta(seconds=seconds)).isoformat()
    digits = str(fraction).zfill(len(str(_PER_SECOND[unit])) - 1)
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{text}.{digits}" if digits else text


def _jsonable(value: Any) -> Any:
    match value:
        case Decimal():
            return f"{value:f}"
        case datetime() | date() | time():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case float() if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 -- NaN alone differs
            return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124 -- as above
        case [(_, _), *_] if all(isinstance(each, tuple) for each in value):
            return {name: _jsonable(item) for name, item in value}
        case list():
            return [_jsonable(item) for item in value]
        case dict():
            return {name: _jsonable(item) for name, item in value.items()}
        case _:
            return value
