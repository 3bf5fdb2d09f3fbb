"""Convert columns to JSON values, according to their types."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from itertools import pairwise
from math import isfinite
from typing import Any

import pyarrow as pa

from rowkind.avro.buffers import offsets_of, validity
from rowkind.avro.schema import Type
from rowkind.avro.text_values import is_local, unit_of
from rowkind.avro.time_text import date_text, moment_text, time_text


def json_values(type_: Type, column: pa.Array) -> list[Any]:
    """Return a column's values in the JSON forms that `json_rows` lists."""
    if type_.kind in ("array", "map", "record"):
        return nested_values(type_, column, json_values)
    if type_.logical and "timestamp" in type_.logical:
        per_second, zone = unit_of(type_), "" if is_local(type_) else "Z"
        return _each(column.cast(pa.int64()), lambda since: moment_text(since, per_second) + zone)
    if type_.logical == "date":
        return _each(column.cast(pa.int32()), date_text)
    if type_.logical in ("time-millis", "time-micros"):
        per_second = unit_of(type_)
        plain = pa.int32() if type_.logical == "time-millis" else pa.int64()
        return _each(column.cast(plain), lambda since: time_text(since, per_second))
    if type_.logical == "decimal":
        return _each(column, lambda value: f"{value:f}")
    write = _WRITTEN.get(column.type)
    if write is None and pa.types.is_fixed_size_binary(column.type):
        write = base64_text
    return column.to_pylist() if write is None else _each(column, write)


def nested_values(type_: Type, column: pa.Array, write: Callable[[Type, pa.Array], list[Any]]) -> list[Any]:
    """Return arrays, maps or structs as lists and objects. `write` converts the values inside them."""
    if type_.kind == "array":
        return slices(write(type_.element, column.values), column)
    if type_.kind == "map":
        entries = list(zip(column.keys.to_pylist(), write(type_.element, column.items), strict=True))
        return [None if each is None else dict(each) for each in slices(entries, column)]
    parts = [write(each.type, column.field(number)) for number, each in enumerate(type_.fields)]
    names = [each.name for each in type_.fields]
    rows: Any = zip(*parts, strict=True) if parts else [()] * len(column)
    there = validity(column).tolist()
    return [dict(zip(names, row, strict=True)) if is_ else None for row, is_ in zip(rows, there, strict=True)]


def _each(column: pa.Array, write: Callable[[Any], Any]) -> list[Any]:
    return [None if value is None else write(value) for value in column.to_pylist()]


def slices(values: list[Any], column: pa.Array) -> list[Any]:
    """Return, for each row of an array or map column, the row's slice of all `values`, or None for NULL."""
    there = validity(column).tolist()
    bounds = pairwise(offsets_of(column).tolist())
    return [values[start:end] if is_ else None for (start, end), is_ in zip(bounds, there, strict=False)]


def base64_text(value: bytes) -> str:
    """Return bytes as text in Base64."""
    return base64.b64encode(value).decode()


def json_float(value: float) -> float | str:
    """Return a number as a JSON value. NaN and infinities, which JSON does not have, become texts."""
    if isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124 -- NaN alone differs


_WRITTEN: Mapping[pa.DataType, Callable[[Any], Any]] = {
    pa.binary(): base64_text,
    pa.float32(): json_float,
    pa.float64(): json_float,
}
"""Converters for the types whose values JSON and Python represent differently."""
