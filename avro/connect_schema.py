"""Kafka Connect's schema of a row, as its JsonConverter writes it.

DECIMAL                        bytes, Decimal
DATE                           int32, Date: days since 1970
TIME                           int32, Time: milliseconds
TIMESTAMP, TIMESTAMP_NTZ       int64, Timestamp: milliseconds since 1970
other bytes                    bytes
arrays, maps, structs          array, map, struct
UUID, enums                    string

Connect's times have a precision of milliseconds; further digits are cut off. Two different key values may therefore
become equal.
"""

from __future__ import annotations

from typing import Any

from rowkind.avro.schema import Record
from rowkind.avro.type import Type

_PLAIN = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "bytes": "bytes",
    "fixed": "bytes",
    "string": "string",
    "enum": "string",
}
_LOGICAL = "org.apache.kafka.connect.data."

ConnectSchema = dict[str, Any]


def struct_schema(record: Record) -> ConnectSchema:
    """Return Connect's schema of the rows of a record."""
    fields = [{"field": field.name, **_schema(field.type)} for field in record.fields]
    return {"type": "struct", "optional": False, "fields": fields}


def without_form(type_: Type) -> Type | None:
    """Return the first part of a type that Connect cannot represent, or None if there is no such part."""
    return next((each for each in type_.walk() if each.opaque or each.kind == "null"), None)


def loses_time(type_: Type) -> bool:
    """Return whether the type is a time that is finer than Connect's milliseconds."""
    return is_time(type_) and not str(type_.logical).endswith("millis")


def _schema(type_: Type) -> ConnectSchema:
    said: ConnectSchema
    match type_.kind:
        case _ if type_.logical == "decimal":
            said = _named("bytes", "Decimal")
            said["parameters"] = {"scale": str(type_.scale), "connect.decimal.precision": str(type_.precision)}
        case _ if type_.logical == "date":
            said = _named("int32", "Date")
        case _ if is_time(type_):
            said = _named("int64", "Timestamp") if "timestamp" in str(type_.logical) else _named("int32", "Time")
        case "array":
            said = {"type": "array", "items": _schema(type_.element)}
        case "map":
            key = {"type": "string", "optional": False}
            said = {"type": "map", "keys": key, "values": _schema(type_.element)}
        case "record":
            said = {"type": "struct", "fields": [{"field": each.name, **_schema(each.type)} for each in type_.fields]}
        case _ if type_.logical == "uuid":
            said = {"type": "string"}
        case _:
            said = {"type": _PLAIN[type_.kind]}
    return {**said, "optional": type_.nullable}


def _named(kind: str, name: str) -> ConnectSchema:
    return {"type": kind, "name": f"{_LOGICAL}{name}", "version": 1}


def is_time(type_: Type) -> bool:
    """Return whether values of the type are times of day or timestamps."""
    return type_.logical is not None and ("timestamp" in type_.logical or type_.logical.startswith("time-"))
