"""Convert fields' default values, which schemas contain as JSON, to packed bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

from rowkind.avro.errors import SchemaError
from rowkind.avro.type import Field, Type, TypeKind, null_branch


def default_bytes(field: Field) -> bytes | None:
    """Return a field's default as packed bytes, or None if there is no default. Raises SchemaError if it is invalid."""
    if field.default is None:
        return None
    value = json.loads(field.default)
    try:
        return _pack(field.type, value)
    except (TypeError, ValueError, AttributeError, struct.error, OverflowError):
        raise SchemaError(
            f"field {field.name!r}: the default {field.default} does not fit the type {field.type.sql}"
        ) from None


def nothing(type_: Type) -> bytes:
    """Return packed NULL or, for a NOT NULL type, a packed zero value: zero, empty text, or no elements."""
    return _pack(type_, _zero(type_))


_ZEROS: Mapping[TypeKind, Any] = {
    "boolean": False,
    **dict.fromkeys(("int", "long", "float", "double"), 0),
    **dict.fromkeys(("bytes", "string"), ""),
    "array": (),
    "map": {},
}


def _zero(type_: Type) -> Any:
    if type_.nullable:
        return None
    match type_.kind:
        case "bytes" if type_.logical == "decimal":
            return "\0"
        case "fixed":
            return "\0" * type_.size
        case "enum":
            return type_.symbols[0]
        case "record":
            return {inner.name: _zero(inner.type) for inner in type_.fields}
        case "union":
            return _zero(type_.branches[0])
        case kind:
            return _ZEROS.get(kind)


def varint(number: int) -> bytes:
    """Return a number as a zigzag-coded varint."""
    coded = (number << 1) ^ (number >> 63)
    out = bytearray()
    while coded > 127:
        out.append(coded & 127 | 128)
        coded >>= 7
    out.append(coded)
    return bytes(out)


def _pack(type_: Type, value: Any) -> bytes:
    if type_.optional:
        null, there = (b"\x00", b"\x02") if type_.null_first else (b"\x02", b"\x00")
        return null if value is None else there + _pack(type_.required, value)
    match type_.kind:
        case "enum":
            return varint(type_.symbols.index(value))
        case "record":
            return b"".join(_member(field, value) for field in type_.fields)
        case "array":
            return _block([_pack(type_.element, item) for item in value])
        case "map":
            return _block([_SCALARS["string"](key) + _pack(type_.element, item) for key, item in value.items()])
        case "union":
            branch = null_branch(type_) if value is None and type_.nullable else 0
            return varint(branch) + _pack(type_.branches[branch], value)
        case "reference":
            raise TypeError(type_.kind)
        case scalar:
            return _SCALARS[scalar](value)


_SCALARS: Mapping[TypeKind, Callable[[Any], bytes]] = {
    "null": lambda _: b"",
    "boolean": lambda value: bytes([bool(value)]),
    "int": lambda value: varint(int(value)),
    "long": lambda value: varint(int(value)),
    "float": lambda value: struct.pack("<f", float(value)),
    "double": lambda value: struct.pack("<d", float(value)),
    "bytes": lambda value: _sized(value.encode("latin-1")),
    "fixed": lambda value: bytes(value.encode("latin-1")),
    "string": lambda value: _sized(value.encode()),
}


def _sized(raw: bytes) -> bytes:
    return varint(len(raw)) + raw


def _block(items: list[bytes]) -> bytes:
    return (varint(len(items)) + b"".join(items) if items else b"") + b"\x00"


def _member(field: Field, value: dict[str, Any]) -> bytes:
    if field.name in value:
        return _pack(field.type, value[field.name])
    default = default_bytes(field)
    if default is None:
        raise ValueError(field.name)
    return default
