"""Parse rows from JSON in topics and files, and print rows as JSON.

Other systems may write values in more forms than people (`avro.connector_values`).

numbers                 as numbers; decimals as text, "12.50"
TIMESTAMP               ISO-8601, in UTC if it has no zone, or a number of ms since the epoch; printed in UTC
TIMESTAMP_NTZ, DATE, TIME    ISO-8601
BINARY                  base64
arrays, maps, structs   as lists and objects
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.buffers import expand
from rowkind.avro.connector_values import sent
from rowkind.avro.defaults import nothing
from rowkind.avro.mismatch import spelled_out
from rowkind.avro.python_values import datetime64_text
from rowkind.avro.schema import Field, Record, Type
from rowkind.avro.text_values import ValueProblem, is_spelled, parsed, shown, spelled, spelled_alike
from rowkind.avro.ticks import TimeUnit
from rowkind.avro.to_json import json_values


class NullProblem(ValueProblem):
    """A NULL in a NOT NULL column."""


def parse_line(text: str) -> Any:
    """Parse JSON with exact decimal numbers. Raises RecursionError, or a ValueError such as JSONDecodeError."""
    return json.loads(text, parse_float=_exact)


def check_row(record: Record, row: Mapping[str, Any]) -> dict[str, Any]:
    """Check a JSON row and return its values for Arrow. A missing column is NULL.

    Raises ValueProblem, which names the column.
    """
    row = {name: _plain_value(value) for name, value in row.items()}
    for name in row:
        if name not in record.names:
            raise ValueProblem(f"there is no column {name!r}; the columns are {', '.join(record.names)}")
    values = {}
    for field in record.fields:
        if row.get(field.name) is None and not field.type.nullable:
            raise ValueProblem(f"{field.name} is {field.type.sql} NOT NULL, but it is missing or null")
        try:
            values[field.name] = _from_json(field.type, row.get(field.name))
        except ValueProblem as problem:
            raise ValueProblem(f"{field.name}: {problem}") from None
    return values


def _plain_value(value: Any) -> Any:
    """Convert a NumPy value to a Python value. A `datetime64` becomes text, whatever its year."""
    if isinstance(value, np.datetime64):
        return datetime64_text(value)
    return value.item() if isinstance(value, np.generic) else value


def parser(record: Record) -> Callable[[bytes], Any]:
    """Return a JSON parser, which keeps numbers exact if a column of `record` needs this.

    The parser raises ValueProblem.
    """
    # Numbers with a decimal point are kept exact only if a column is a decimal, because that takes longer.
    exact = any(inner.logical == "decimal" for field in record.fields for inner in field.type.walk())
    decode = json.JSONDecoder(parse_float=_exact if exact else float).decode

    def parse(data: bytes) -> Any:
        try:
            return decode(data.decode())
        except json.JSONDecodeError as error:
            raise ValueProblem(
                f"the text is not JSON, line {error.lineno}, column {error.colno}: {error.msg}"
            ) from None
        except (ValueError, RecursionError) as error:
            raise ValueProblem(f"the text is not JSON: {error}") from None

    return parse


def _exact(digits: str) -> Decimal:
    try:
        return Decimal(digits)
    except InvalidOperation:
        raise ValueError(f"{digits} is out of range for a number") from None


def pack(
    record: Record, rows: Sequence[Mapping[str, Any]], units: Mapping[str, TimeUnit] | None = None
) -> tuple[pa.BinaryArray, dict[int, ValueProblem]]:
    """Encode parsed JSON objects as payloads. Also return, by index, the problems of objects that are not valid rows.

    An invalid object gets empty bytes, and its problem lists everything that is wrong. A missing member is NULL; a
    member that is not a column is ignored. `units`: the units of numbers, by column.
    """
    problems: dict[int, ValueProblem] = {}
    columns: dict[str, pa.Array] = {}
    for field in record.fields:
        values = [row.get(field.name) for row in rows]
        columns[field.name] = _column(field, values, (units or {}).get(field.name), problems)
    good = np.ones(len(rows), np.bool_)
    good[list(problems)] = False
    if problems:
        columns = {name: column.filter(pa.array(good)) for name, column in columns.items()}
    payload = codec.encode(record, columns, int(good.sum()))
    return expand(payload, good) if problems else payload, problems


_PLAIN: Mapping[str, frozenset[type]] = {
    "boolean": frozenset({bool}),
    "int": frozenset({int}),
    "long": frozenset({int}),
    "float": frozenset({float, int}),
    "double": frozenset({float, int}),
    "string": frozenset({str}),
}
"""The Python types that Arrow accepts unchanged, for each kind of type without a logical type."""


def _column(field: Field, values: list[Any], unit: TimeUnit | None, problems: dict[int, ValueProblem]) -> pa.Array:
    type_, kinds = field.type, set(map(type, values))
    if type_.nullable:
        kinds.discard(type(None))
    if type_.logical is None and kinds <= _PLAIN.get(type_.kind, frozenset()):
        # Arrow rejects numbers out of range and text that is not Unicode. The loop below finds the rejected values.
        with suppress(pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
            return pa.array(values, type_.arrow)
    if is_spelled(type_) and kinds == {str}:
        with suppress(UnicodeEncodeError):
            alike = spelled_alike(type_, pa.array(values, pa.string()))
            if alike is not None:
                return alike

    def read(type_: Type, value: Any) -> Any:
        return sent(type_, value, unit)

    for row, value in enumerate(values):
        try:
            values[row] = _from_json(type_, value, read)
        except ValueProblem as problem:
            told = f"{field.name}: {problem}{_remedy(type_, value, problem)}"
            problems[row] = _with(problems.get(row), type(problem)(told))
            values[row] = None
    return pa.array(values, type_.arrow)


_DECLARE = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", Decimal: "DOUBLE", str: "STRING", list: "ARRAY<…>"}
_JSON = {bool: "a boolean", int: "a number", float: "a number", Decimal: "a number", str: "text", list: "an array"}


def _remedy(type_: Type, value: Any, problem: ValueProblem) -> str:
    """Describe a column's type and the different type of its value, and suggest a declaration."""
    if isinstance(problem, NullProblem) or "`units`" in str(problem):
        return ""
    kind, declare = _JSON.get(type(value), "an object"), _DECLARE.get(type(value), "STRUCT<…> or MAP<STRING, …>")
    declared = f": the column is declared {spelled_out(type_)}, but the JSON value is {kind}"
    same = spelled_out(type_) in declare or (declare[:5] == type_.sql[:5])
    return declared if same else f"{declared}; declare {declare} to keep it unchanged"


def _with(before: ValueProblem | None, problem: ValueProblem) -> ValueProblem:
    """Combine two problems of the same row in one."""
    if before is None:
        return problem
    kind = NullProblem if isinstance(before, NullProblem) else type(problem)
    return kind(f"{before}; {problem}")


def encode(record: Record, rows: Sequence[Mapping[str, Any]]) -> pa.BinaryArray:
    """Encode rows that `check_row` has returned as payloads. Raises EncodeError."""
    columns = {
        field.name: pa.array([row[field.name] for row in rows], type=field.type.arrow) for field in record.fields
    }
    return codec.encode(record, columns, len(rows))


def encode_keys(record: Record, primary_key: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> pa.BinaryArray:
    """Encode rows of which only the primary key is known, as the reader does for deletes.

    The other columns are NULL or, if NOT NULL, zero values (`defaults.nothing`).
    """
    key = record.select(primary_key)
    columns = [field.name if field.name in key.names else nothing(field.type) for field in record.fields]
    return codec.read(key, encode(key, rows)).assemble(record, columns)


def decode(record: Record, payloads: pa.BinaryArray) -> list[dict[str, Any]]:
    """Decode payloads into rows of JSON-serializable values."""
    decoded = codec.read(record, payloads)
    columns = [json_values(field.type, decoded.column(field.name)) for field in record.fields]
    return [dict(zip(record.names, values, strict=True)) for values in zip(*columns, strict=True)]


_Reads = Callable[[Type, Any], Any]
"""Parses a value that may be text, given its type."""


def _from_json(type_: Type, value: Any, read: _Reads = spelled) -> Any:
    if value is None:
        if not type_.nullable:
            raise NullProblem("the column is NOT NULL, but the value is missing or null")
        return None
    if type_.opaque:
        raise ValueProblem(f"values of type {type_.sql} are not supported in JSON")
    if is_spelled(type_):
        return read(type_, value)
    return _plain(type_, value, read)


def _plain(type_: Type, value: Any, read: _Reads) -> Any:
    match type_.kind:
        case "array" if isinstance(value, list):
            return [_from_json(type_.element, item, read) for item in value]
        case "map" if isinstance(value, dict):
            return [(name, _from_json(type_.element, item, read)) for name, item in value.items()]
        case "record" if isinstance(value, dict) and (not value or any(each.name in value for each in type_.fields)):
            return {field.name: _from_json(field.type, value.get(field.name), read) for field in type_.fields}
        case _:
            return _scalar(type_, value)


def _scalar(type_: Type, value: Any) -> Any:
    match type_.kind:
        case "boolean" if isinstance(value, bool):
            return value
        case "int" | "long" if isinstance(value, int) and not isinstance(value, bool):
            bits = 31 if type_.kind == "int" else 63
            if -(2**bits) <= value < 2**bits:
                return value
            raise ValueProblem(f"{value} is out of range for {type_.sql}")
        case "float" | "double" if _is_number(value) or value in ("NaN", "Infinity", "-Infinity"):
            return float(value)
        case "string" if isinstance(value, str):
            return parsed(value, lambda text: text.encode() and text, "Unicode text")
        case "enum" if value in type_.symbols:
            return value
        case "bytes" | "fixed" if isinstance(value, bytes):
            return value
        case "bytes" | "fixed" if isinstance(value, str):
            return parsed(value, lambda text: base64.b64decode(text, validate=True), "base64")
    expected = f"one of {', '.join(type_.symbols)}" if type_.kind == "enum" else type_.sql
    raise ValueProblem(f"{shown(value)} is not {expected}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)
