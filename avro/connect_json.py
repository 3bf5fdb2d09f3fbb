"""Rows as JSON with Kafka Connect's schema, as Connect's JsonConverter reads them with `schemas.enable`.

A decimal is written as its unscaled integer in base64, a time as milliseconds (`avro.connect_schema`). NaN and the
infinities are written as Python's json module writes them. Connect cannot represent these values, and its converter
rejects the record instead of reading the value as 0.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from decimal import Context
from typing import Any

import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.connect_schema import is_time, struct_schema
from rowkind.avro.schema import Record, Type
from rowkind.avro.text_values import unit_of
from rowkind.avro.to_json import json_values, nested_values

_EXACT = Context(prec=100)
"""A context with more digits than any decimal has."""


def rows_with_schema(record: Record, payloads: pa.BinaryArray) -> list[bytes]:
    """Return packed rows, none of them null, as JSON objects with `schema` and `payload`."""
    decoded = codec.read(record, payloads)
    columns = [_values(field.type, decoded.column(field.name)) for field in record.fields]
    head = b'{"schema":' + _text(struct_schema(record)) + b',"payload":'
    return [head + _text(dict(zip(record.names, row, strict=True))) + b"}" for row in zip(*columns, strict=True)]


def _text(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _values(type_: Type, column: pa.Array) -> list[Any]:
    """Return a column's values as they are written in a payload."""
    if type_.kind in ("array", "map", "record"):
        return nested_values(type_, column, _values)
    if type_.logical == "decimal":
        return _each(column, lambda value: _digits(int(value.scaleb(type_.scale, context=_EXACT))))
    if type_.logical == "date":
        return _each(column.cast(pa.int32()), int)
    if is_time(type_):
        per_ms = unit_of(type_) // 1_000
        plain = pa.int32() if type_.logical == "time-millis" else pa.int64()
        return _each(column.cast(plain), lambda since: since // per_ms)
    if type_.kind in ("float", "double"):
        return _each(column, float)
    return json_values(type_, column)


def _each(column: pa.Array, write: Callable[[Any], Any]) -> list[Any]:
    return [None if value is None else write(value) for value in column.to_pylist()]


def _digits(number: int) -> str:
    """Return an integer's shortest two's complement, as Java's BigInteger writes it, in base64."""
    length = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return base64.b64encode(number.to_bytes(length, "big", signed=True)).decode()
