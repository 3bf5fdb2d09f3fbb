"""Debezium's types, which are Kafka Connect types with their own names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.matrix.sent import Right, Sent, moments, named, numbers, spelled, text, times

_TIME = "io.debezium.time"
_DATA = "io.debezium.data"
_MICROS = 1_767_614_400_123_456
_AT = "2026-01-05T12:00:00.123456789"
_NOON = 43_200_123_456_789
_AVRO = {"int32": "int", "int64": "long", "string": "string", "bytes": "bytes"}
_DAY_US = 86_400_000_000


def _sent(kind: str, name: str, value: Any, right: Right, *, json: Any = None, plain: Right | None = None) -> Sent:
    """Return a named type of Debezium, with the same value in JSON unless another is given."""
    avro = {"type": _AVRO[kind], "connect.version": 1, "connect.name": name}
    return Sent(name, avro, value, named(kind, name), value if json is None else json, right, plain)


def _value(what: str, sent: Sent) -> Sent:
    """Return another value of the same type, with its description."""
    return replace(sent, name=f"{sent.name} ({what})")


def _said(name: str, value: str, right: Right | None = None, space: str = _DATA) -> Sent:
    """Return a named text type; `right` has its values in columns of other types."""
    plain = {"STRING": value, "UUID": value}
    return _sent(
        "string",
        f"{space}.{name}",
        value,
        {**plain, "BINARY": text(value.encode()), **(right or {})},
        plain={**plain, **(right or {})},
    )


def _number(value: int, kind: str = "long") -> Right:
    return numbers(value, kind=kind, unit=True)


def _plain(value: int, more: Right | None = None) -> Right:
    """Return the results for a number in JSON without a schema, by the types that can store it."""
    return {**numbers(value, kind="int" if abs(value) < 1 << 31 else "long"), **(more or {})}


def _struct(name: str, *fields: tuple[str, str, Any]) -> tuple[Any, Any]:
    """Return the schemas of a struct in Avro and Connect, from (field, Connect's type, …)."""
    avro = {
        "type": "record",
        "name": name,
        "connect.name": name,
        "fields": [{"name": each, "type": _AVRO.get(kind, kind)} for each, kind, _ in fields],
    }
    return avro, named(
        "struct", name, fields=[{"field": each, "type": kind, "optional": False} for each, kind, _ in fields]
    )


_WKB = bytes([1, 1, 0, 0, 0]) + bytes(16)
_SCALED = {"scale": 2, "value": (1234).to_bytes(2, "big")}
_SCALED_JSON = {"scale": 2, "value": text((1234).to_bytes(2, "big"))}
_VARIABLE = _struct(f"{_DATA}.VariableScaleDecimal", ("scale", "int32", 2), ("value", "bytes", b""))
_GEOMETRY = _struct(f"{_DATA}.geometry.Geometry", ("wkb", "bytes", b""), ("srid", "int32", 0))
_POINT = _struct(
    f"{_DATA}.geometry.Point", ("x", "double", 0), ("y", "double", 0), ("wkb", "bytes", b""), ("srid", "int32", 0)
)
_STRUCT_OF_WKB, _STRUCT_OF_XY = "STRUCT<wkb: BINARY, srid: INT>", "STRUCT<x: DOUBLE, y: DOUBLE>"
_DECIMALS: Right = {
    "DECIMAL(10,2)": "12.34",
    "DECIMAL(38,9)": "12.340000000",
    "STRUCT<scale: INT, value: BINARY>": _SCALED_JSON,
}
_PLACE: dict[str, Any] = {"wkb": text(_WKB), "srid": 4326}
_XY: dict[str, Any] = {"x": 1.0, "y": 2.0}
_INSTANTS = {each: shown for each, shown in spelled("2026-01-05T12:00:00.123456").items() if "NTZ" not in each}

DEBEZIUM = (
    _sent(
        "int64",
        f"{_TIME}.Timestamp",
        _MICROS // 1000,
        moments(_AT[:23], 3) | {"BIGINT": _MICROS // 1000},
        plain=_plain(_MICROS // 1000, moments(_AT[:23], 3)),
    ),
    _sent(
        "int64", f"{_TIME}.MicroTimestamp", _MICROS, moments(_AT[:26], 6) | {"BIGINT": _MICROS}, plain=_plain(_MICROS)
    ),
    _value(
        "infinity",
        _sent(
            "int64",
            f"{_TIME}.MicroTimestamp",
            9_223_372_036_825_200_000,
            {
                "TIMESTAMP": "+294247-01-10T04:00:25.200Z",
                "TIMESTAMP_NTZ": "+294247-01-10T04:00:25.200",
                "BIGINT": 9_223_372_036_825_200_000,
            },
            plain=_plain(9_223_372_036_825_200_000),
        ),
    ),
    _sent(
        "int64",
        f"{_TIME}.NanoTimestamp",
        _MICROS * 1000 + 789,
        moments(_AT, 9) | {"BIGINT": _MICROS * 1000 + 789},
        plain=_plain(_MICROS * 1000 + 789),
    ),
    _sent(
        "int32",
        f"{_TIME}.Time",
        43_200_123,
        times("12:00:00.123000", 3) | _number(43_200_123, "int"),
        plain=_plain(43_200_123),
    ),
    _sent(
        "int64",
        f"{_TIME}.MicroTime",
        _NOON // 1000,
        times("12:00:00.123456", 6) | _number(_NOON // 1000),
        plain=_plain(_NOON // 1000),
    ),
    _value("TIME of MySQL below 0", _sent("int64", f"{_TIME}.MicroTime", -1, _number(-1), plain=_plain(-1))),
    _value(
        "TIME of MySQL from 24 h on",
        _sent("int64", f"{_TIME}.MicroTime", 90_000_000_000, _number(90_000_000_000), plain=_plain(90_000_000_000)),
    ),
    _sent("int64", f"{_TIME}.NanoTime", _NOON, times("12:00:00.123456", 9) | _number(_NOON), plain=_plain(_NOON)),
    _said("ZonedTimestamp", "2026-01-05T13:00:00.123456+01:00", _INSTANTS, space=_TIME),
    _said("ZonedTime", "12:00:00+02:00", {"TIME(3)": "10:00:00", "TIME": "10:00:00"}, space=_TIME),
    _sent(
        "int32", f"{_TIME}.Date", 20_458, {"DATE": "2026-01-05", "INT": 20_458, "BIGINT": 20_458}, plain=_plain(20_458)
    ),
    _value(
        "year 20000",
        _sent(
            "int32",
            f"{_TIME}.Date",
            6_585_322,
            {"DATE": "+20000-01-01", "INT": 6_585_322, "BIGINT": 6_585_322},
            plain=_plain(6_585_322),
        ),
    ),
    _value(
        "44 BC",
        _sent(
            "int32",
            f"{_TIME}.Date",
            -735_160,
            {"DATE": "-0043-03-15", "INT": -735_160, "BIGINT": -735_160},
            plain=_plain(-735_160),
        ),
    ),
    _said("IsoDate", "2026-02-02Z", {"DATE": "2026-02-02"}, space=_TIME),
    _said("IsoTime", "12:00:00.123456Z", {"TIME(3)": "12:00:00.123000", "TIME": "12:00:00.123456"}, space=_TIME),
    _said("IsoTimestamp", "2026-01-05T12:00:00.123456Z", spelled("2026-01-05T12:00:00.123456"), space=_TIME),
    _sent("int32", f"{_TIME}.Year", 2026, numbers(2026, kind="int"), plain=_plain(2026)),
    _said("Interval", "P1Y2M3DT4H5M6.78S", space=_TIME),
    _sent("int64", f"{_TIME}.MicroDuration", _DAY_US, numbers(_DAY_US), plain=_plain(_DAY_US)),
    _sent("int64", f"{_TIME}.NanoDuration", _DAY_US * 1000, numbers(_DAY_US * 1000), plain=_plain(_DAY_US * 1000)),
    Sent(f"{_DATA}.VariableScaleDecimal", _VARIABLE[0], _SCALED, _VARIABLE[1], _SCALED_JSON, _DECIMALS),
    _sent(
        "bytes",
        f"{_DATA}.Bits",
        b"\x05",
        {"BINARY": text(b"\x05")},
        json=text(b"\x05"),
        plain={"BINARY": text(b"\x05"), "STRING": text(b"\x05"), "UUID": text(b"\x05")},
    ),
    Sent(
        f"{_DATA}.geometry.Geometry",
        _GEOMETRY[0],
        {"wkb": _WKB, "srid": 4326},
        _GEOMETRY[1],
        _PLACE,
        {_STRUCT_OF_WKB: _PLACE},
    ),
    Sent(
        f"{_DATA}.geometry.Point",
        _POINT[0],
        {**_XY, "wkb": _WKB, "srid": 4326},
        _POINT[1],
        {**_XY, **_PLACE},
        {_STRUCT_OF_WKB: _PLACE, _STRUCT_OF_XY: _XY},
    ),
    _said("Json", '{"a": 1}'),
    _said("Xml", "<a/>"),
    _said("Uuid", "6f2d0f3a-93f5-4a04-8a8e-0d7f4c9f2b11"),
    _said("Enum", "large"),
    _said("EnumSet", "large,small"),
    _said("Ltree", "a.b"),
)
"""Debezium's types."""
