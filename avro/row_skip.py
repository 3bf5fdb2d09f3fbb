"""Skip values in a single row, in plain Python.

This module is used for a few rows with long arrays, for which operations on whole columns are slower. A skipper accepts
only ordinary values. For anything else, it returns -1, and the walk in `walk.py`, which reports faults, examines that
item itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rowkind.avro.type import Type, TypeKind

Skipper = Callable[[memoryview, int, int], int]
"""Takes the bytes, a position and the row's end; returns the position after the value, or -1."""


def skipper(type_: Type) -> Skipper | None:
    """Return a skipper for values of a type, or None if a part of the type can only be skipped by the walk."""
    if type_.optional:
        value = skipper(type_.required)
        return value and _optional(value, 2 if type_.null_first else 0)
    match type_.kind:
        case "enum":
            return _number(0, len(type_.symbols))
        case "fixed":
            return _fixed(type_.size)
        case "record":
            fields = [skipper(field.type) for field in type_.fields]
            return None if None in fields else _record([field for field in fields if field])
        case kind:
            return _SCALARS.get(kind)


def number(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """Return a zigzag-coded number and the position after it, or -1 as the position."""
    coded = shift = 0
    while at < end and shift < 63:
        byte = data[at]
        at += 1
        coded |= (byte & 127) << shift
        if byte < 128:
            return (coded >> 1) ^ -(coded & 1), at
        shift += 7
    return 0, -1


def _number(least: int, bound: int) -> Skipper:
    def skip(data: memoryview, at: int, end: int) -> int:
        if at < end and data[at] < 128 and least < -63 and bound > 63:
            return at + 1
        value, at = number(data, at, end)
        return at if least <= value < bound else -1

    return skip


def _fixed(size: int) -> Skipper:
    return lambda _, at, end: at + size if at + size <= end else -1


def _bytes(data: memoryview, at: int, end: int) -> int:
    length, at = number(data, at, end)
    return at + length if at >= 0 and 0 <= length <= end - at else -1


_SCALARS: Mapping[TypeKind, Skipper] = {
    "null": _fixed(0),
    "boolean": lambda data, at, end: at + 1 if at < end and data[at] < 2 else -1,
    "int": _number(-(1 << 31), 1 << 31),
    "long": _number(-(1 << 63), 1 << 63),
    "float": _fixed(4),
    "double": _fixed(8),
    "bytes": _bytes,
    "string": _bytes,
}


def _optional(value: Skipper, there: int) -> Skipper:
    def skip(data: memoryview, at: int, end: int) -> int:
        if at >= end or data[at] & ~2:
            return -1
        return value(data, at + 1, end) if data[at] == there else at + 1

    return skip


def _record(fields: list[Skipper]) -> Skipper:
    def skip(data: memoryview, at: int, end: int) -> int:
        for field in fields:
            at = field(data, at, end)
            if at < 0:
                break
        return at

    return skip
