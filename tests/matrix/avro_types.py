"""Avro's own types, including logical ones, and Kafka Connect's types."""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np

from tests.matrix.sent import Sent, moments, named, numbers, text, times

_UUID = "6f2d0f3a-93f5-4a04-8a8e-0d7f4c9f2b11"
_DAY = 20_458
_MICROS = 1_767_614_400_123_456
_AT = "2026-01-05T12:00:00.123456"
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_12_34 = (1234).to_bytes(2, "big", signed=True)
_EXACT: dict[str, Any] = {"DECIMAL(10,2)": "12.34", "DECIMAL(38,9)": "12.340000000"}
_MILLIS_IN_JSON = moments("2026-01-05T12:00:00.123", 3) | numbers(_MICROS // 1000)
_NUMBER = numbers(7)


def _logical(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "logicalType": name}


def _timestamp(name: str, unit: str, value: int, digits: int) -> Sent:
    text_ = f"{_AT}789"[: 20 + digits]
    return Sent(name, _logical("long", f"{name}"), value, right=moments(text_, digits) | {"BIGINT": value}, note=unit)


AVRO = (
    Sent("boolean", "boolean", True, {"type": "boolean"}, True, {"BOOLEAN": True}),
    Sent("int", "int", 7, {"type": "int32"}, 7, numbers(7, kind="int"), plain=numbers(7, kind="int")),
    Sent("long", "long", 7, {"type": "int64"}, 7, numbers(7), plain=numbers(7, kind="int")),
    Sent(
        "float",
        "float",
        1.5,
        {"type": "float"},
        1.5,
        {"FLOAT": 1.5, "DOUBLE": 1.5, "DECIMAL(10,2)": "1.50", "DECIMAL(38,9)": "1.500000000"},
    ),
    Sent(
        "double",
        "double",
        1.5,
        {"type": "double"},
        1.5,
        {"DOUBLE": 1.5, "DECIMAL(10,2)": "1.50", "DECIMAL(38,9)": "1.500000000"},
        plain={"FLOAT": 1.5, "DOUBLE": 1.5, "DECIMAL(10,2)": "1.50", "DECIMAL(38,9)": "1.500000000"},
    ),
    Sent(
        "string",
        "string",
        "nails",
        {"type": "string"},
        "nails",
        {"STRING": "nails", "UUID": "nails", "BINARY": text(b"nails")},
        plain={"STRING": "nails", "UUID": "nails"},
    ),
    Sent(
        "bytes",
        "bytes",
        b"nail",
        {"type": "bytes"},
        text(b"nail"),
        {"BINARY": text(b"nail"), "STRING": "nail", "UUID": "nail"},
        plain={"BINARY": text(b"nail"), "STRING": text(b"nail"), "UUID": text(b"nail")},
    ),
    Sent("fixed", {"type": "fixed", "name": "F", "size": 4}, b"nail", right={"BINARY": text(b"nail")}),
    Sent("enum", {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", right={"STRING": "B", "UUID": "B"}),
    Sent("date", _logical("int", "date"), _DAY, right={"DATE": "2026-01-05", "INT": _DAY, "BIGINT": _DAY}),
    Sent(
        "time-millis",
        _logical("int", "time-millis"),
        43_200_123,
        right=times("12:00:00.123000", 3) | numbers(43_200_123, kind="int", unit=True),
    ),
    Sent(
        "time-micros",
        _logical("long", "time-micros"),
        43_200_123_456,
        right=times("12:00:00.123456", 6) | numbers(43_200_123_456, unit=True),
    ),
    _timestamp("timestamp-millis", "", _MICROS // 1000, 3),
    _timestamp("timestamp-micros", "", _MICROS, 6),
    _timestamp("timestamp-nanos", "", _MICROS * 1000 + 789, 9),
    _timestamp("local-timestamp-millis", "", _MICROS // 1000, 3),
    _timestamp("local-timestamp-micros", "", _MICROS, 6),
    _timestamp("local-timestamp-nanos", "", _MICROS * 1000 + 789, 9),
    Sent(
        "timestamp-micros (year 10000)",
        _logical("long", "timestamp-micros"),
        253_402_300_800_000_000,
        right={
            "TIMESTAMP": "+10000-01-01T00:00:00Z",
            "TIMESTAMP_NTZ": "+10000-01-01T00:00:00",
            "BIGINT": 253_402_300_800_000_000,
        },
    ),
    Sent("decimal", {**_logical("bytes", "decimal"), "precision": 10, "scale": 2}, _12_34, right=_EXACT),
    Sent(
        "decimal (fixed)",
        {"type": "fixed", "name": "D", "size": 5, "logicalType": "decimal", "precision": 10, "scale": 2},
        b"\0\0\0" + _12_34,
        right=_EXACT,
    ),
    Sent(
        "big-decimal",
        _logical("bytes", "big-decimal"),
        b"\x04" + _12_34 + b"\x04",
        right=_EXACT | {"BINARY": text(b"\x04" + _12_34 + b"\x04")},
    ),
    Sent(
        "uuid",
        _logical("string", "uuid"),
        _UUID,
        right={"UUID": _UUID, "STRING": _UUID, "BINARY": text(_UUID.encode())},
    ),
    Sent(
        "uuid (fixed)",
        {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"},
        uuid.UUID(_UUID).bytes,
        right={"UUID": _UUID, "STRING": _UUID, "BINARY": text(uuid.UUID(_UUID).bytes)},
    ),
    Sent(
        "duration",
        {"type": "fixed", "name": "L", "size": 12, "logicalType": "duration"},
        bytes(12),
        right={"BINARY": text(bytes(12))},
    ),
    Sent(
        "array",
        {"type": "array", "items": "int"},
        [1, 2],
        {"type": "array", "items": {"type": "int32"}},
        [1, 2],
        {"ARRAY<INT>": [1, 2]},
    ),
    Sent(
        "map",
        {"type": "map", "values": "int"},
        {"a": 1},
        {"type": "map", "keys": {"type": "string"}, "values": {"type": "int32"}},
        {"a": 1},
        {"MAP<STRING, INT>": {"a": 1}},
        plain={"STRUCT<a: INT>": {"a": 1}, "MAP<STRING, INT>": {"a": 1}},
    ),
    Sent(
        "record",
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]},
        {"a": 1},
        {"type": "struct", "fields": [{"field": "a", "type": "int32"}]},
        {"a": 1},
        {"STRUCT<a: INT>": {"a": 1}},
        plain={"STRUCT<a: INT>": {"a": 1}, "MAP<STRING, INT>": {"a": 1}},
    ),
)
"""Avro's types."""


def _connect(name: str) -> str:
    return f"org.apache.kafka.connect.data.{name}"


def _decimal(precision: int, **parameters: str) -> tuple[dict[str, Any], dict[str, Any]]:
    said = {"scale": "2", **parameters}
    avro = {
        "type": "bytes",
        "logicalType": "decimal",
        "precision": precision,
        "scale": 2,
        "connect.name": _DECIMAL,
        "connect.parameters": said,
    }
    return avro, named("bytes", _DECIMAL, parameters=said)


_WIDE, _NARROW = _decimal(64), _decimal(10, **{"connect.decimal.precision": "10"})
CONNECT = (
    Sent("int8", "int", 7, {"type": "int8"}, 7, numbers(7, kind="int"), plain=numbers(7, kind="int")),
    Sent(
        f"{_DECIMAL} (precision 64)",
        _WIDE[0],
        _12_34,
        _WIDE[1],
        text(_12_34),
        _EXACT,
        plain={"STRING": text(_12_34), "UUID": text(_12_34), "BINARY": text(_12_34)},
    ),
    Sent(
        f"{_DECIMAL} (precision 10)",
        _NARROW[0],
        _12_34,
        _NARROW[1],
        text(_12_34),
        _EXACT,
        plain={"STRING": text(_12_34), "UUID": text(_12_34), "BINARY": text(_12_34)},
    ),
    Sent(
        f"{_DECIMAL} (decimal.format NUMERIC)",
        connect=_WIDE[1],
        json=12.34,
        right=_EXACT,
        plain=_EXACT | {"FLOAT": float(np.float32(12.34)), "DOUBLE": 12.34},
    ),
    Sent(
        _connect("Date"),
        {"type": "int", "connect.name": _connect("Date"), "logicalType": "date"},
        _DAY,
        named("int32", _connect("Date")),
        _DAY,
        {"DATE": "2026-01-05", "INT": _DAY, "BIGINT": _DAY},
        plain=numbers(_DAY, kind="int"),
    ),
    Sent(
        _connect("Time"),
        {"type": "int", "connect.name": _connect("Time"), "logicalType": "time-millis"},
        43_200_123,
        named("int32", _connect("Time")),
        43_200_123,
        times("12:00:00.123000", 3) | numbers(43_200_123, kind="int", unit=True),
        plain=numbers(43_200_123, kind="int"),
    ),
    Sent(
        _connect("Timestamp"),
        {"type": "long", "connect.name": _connect("Timestamp"), "logicalType": "timestamp-millis"},
        _MICROS // 1000,
        named("int64", _connect("Timestamp")),
        _MICROS // 1000,
        moments("2026-01-05T12:00:00.123", 3) | {"BIGINT": _MICROS // 1000},
        plain=_MILLIS_IN_JSON,
    ),
)
"""Kafka Connect's types; decimals have its default precision and another one."""
