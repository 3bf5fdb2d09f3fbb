"""Decode single-column record keys in text or long format, as kcat and ksqlDB write them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from rowkind.avro.json_rows import pack
from rowkind.avro.schema import Record, Type
from rowkind.avro.text_values import ValueProblem
from rowkind.operators.columns.changes import binary
from rowkind.service.kafka.bad_records import Faults
from rowkind.service.kafka.value_format import KeyFormat, Raw, scatter

_LONG = struct.Struct(">q")


class TextKey(KeyFormat):
    """Keys that consist of the value as UTF-8 text without quotes: `nails`, `42`, `2026-01-31`."""

    def rows(self, raw: Raw, reader: Record, faults: Faults) -> pa.BinaryArray:
        """Decode keys to rows of `reader`, which has one column."""
        return _rows(raw, reader, faults, lambda key: _said(reader.fields[0].type, key))


class LongKey(KeyFormat):
    """Keys that consist of an integer in 8 bytes, big-endian, as written by Java's LongSerializer."""

    def rows(self, raw: Raw, reader: Record, faults: Faults) -> pa.BinaryArray:
        """Decode keys to rows of `reader`, which has one column."""
        return _rows(raw, reader, faults, _number)


def _rows(raw: Raw, reader: Record, faults: Faults, read: Callable[[bytes], Any]) -> pa.BinaryArray:
    (name,) = reader.names
    found, places = list[dict[str, Any]](), list[int]()
    for at, key in enumerate(raw.bytes.to_pylist()):
        try:
            found.append({name: _there(read, key)})
            places.append(at)
        except ValueProblem as problem:
            faults.add(int(raw.where[at]), "key", f"the record's key: {problem}")
    where = np.array(places, np.int64)
    payload, problems = pack(reader, found)
    for row, flaw in problems.items():
        faults.add(int(raw.where[where[row]]), "key", f"the record's key: {flaw}")
    return scatter([payload], [where], len(raw), b"") if len(where) else binary([b""] * len(raw))


def _there(read: Callable[[bytes], Any], key: bytes | None) -> Any:
    if key is None:
        raise ValueProblem("there is no key")
    return read(key)


def _said(type_: Type, key: bytes) -> Any:
    try:
        text = key.decode()
    except UnicodeDecodeError:
        raise ValueProblem(f"0x{key[:16].hex()} is not UTF-8 text (`key.format: string`)") from None
    if type_.kind in ("int", "long") and type_.logical is None:
        if not text.strip().lstrip("-").isdecimal():
            raise ValueProblem(f"{text[:80]!r} is not {type_.sql} (`key.format: string`)")
        return int(text)
    return {"true": True, "false": False}.get(text, text) if type_.kind == "boolean" else text


def _number(key: bytes) -> int:
    if len(key) != _LONG.size:
        raise ValueProblem(f"expected 8 bytes, got {len(key)} (`key.format: long`)")
    return int(_LONG.unpack(key)[0])
