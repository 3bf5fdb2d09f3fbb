"""Convert columns from one Avro type to another: Avro's schema resolution, applied to Arrow arrays.

The specification compares only base types. This module also respects units and digits: dates, times and timestamps of
different units are rescaled, decimals are widened, and `fixed` and `enum` may be read as BINARY and STRING. Names of
records, enums and fixed types need not match, except inside general unions. A local timestamp corresponds to the
instant with the same time in UTC. A number without a unit is neither a date nor a time. Text is parsed if the target is
a decimal, a date or a time. Debezium's decimals of variable scale are read as decimals.

`check` decides once, by types, whether values can be converted. `convert` converts values and reports the rows whose
values do not fit.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro.buffers import Bools, Ints, as_binary, offsets_of, validity
from rowkind.avro.connector_values import big_decimal, sent
from rowkind.avro.cursor import Cursor, PaddedBytes
from rowkind.avro.decode import BOUNDED_TIMES, decode, text
from rowkind.avro.defaults import default_bytes
from rowkind.avro.encode import write
from rowkind.avro.errors import ResolutionError
from rowkind.avro.mismatch import MOST_DIGITS, refusal
from rowkind.avro.rows import RowBuilder
from rowkind.avro.text_values import ValueProblem, is_spelled, scaled, spelled_alike
from rowkind.avro.ticks import Ticks, readable, ticks
from rowkind.avro.type import Field, Type
from rowkind.avro.walk import skip

_PROMOTIONS = {
    "int": ("int", "long", "float", "double"),
    "long": ("long", "float", "double"),
    "float": ("float", "double"),
    "double": ("double",),
    "string": ("string", "bytes"),
    "bytes": ("bytes", "string"),
    "enum": ("enum", "string"),
    "fixed": ("bytes",),
}
_VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"
_BITS = "io.debezium.data.Bits"


def check(source: Type, target: Type, path: str) -> None:
    """Raise ResolutionError, naming `path`, if values of `source` cannot be read as `target`."""
    if source.same_value(target) or (source.kind == "null" and target.nullable):
        return
    if source.kind == "union" and not _odd(target):
        _check_branches(source, target, path)
    if _odd(source) or _odd(target):
        return  # Only the value shows which branch it belongs to.
    match source.kind, target.kind:
        case "record", "record":
            matched = match_fields(source.fields, target.fields, path)
            if matched and all(origin is None for _, origin in matched):
                raise ResolutionError(path, refusal(path, source, target))  # Every field would get its default.
            for field, origin in matched:
                if origin is not None:
                    check(origin.type, field.type, f"{path}.{field.name}")
            return
        case ("array", "array") | ("map", "map"):
            check(source.element, target.element, f"{path}[]")
            return
    if not _scalar(source, target):
        raise ResolutionError(path, refusal(path, source, target))


def _check_branches(source: Type, target: Type, path: str) -> None:
    """Raise ResolutionError if no branch of a union can be read, or if an integer would be mistaken for a time."""
    readable_: dict[Type, bool] = {}
    for branch in source.branches:
        try:
            check(branch, target, path)
            readable_[branch] = True
        except ResolutionError:
            readable_[branch] = False
    numbers = [branch for branch in source.branches if branch.kind in ("int", "long")]
    taken = ticks(target) is not None and not all(readable_[branch] for branch in numbers)
    if taken or not any(readable_[branch] for branch in source.branches if branch.kind != "null"):
        raise ResolutionError(path, refusal(path, source, target))


def _odd(type_: Type) -> bool:
    return type_.kind in ("union", "reference")


def _by_value(source: Type, target: Type) -> Callable[[Any], Any] | None:
    """Return a converter of single values if their content decides whether they fit, or None if the type decides."""
    if source.kind == "string":
        return (lambda value: sent(target, value)) if is_spelled(target) else None
    if source.kind == "fixed" and source.logical == "uuid" and target.kind == "string":
        return lambda value: str(uuid.UUID(bytes=value))
    return _as_decimal(source, target) if target.logical == "decimal" else None


def _as_decimal(source: Type, target: Type) -> Callable[[Any], Any] | None:
    if source.name == _VARIABLE_SCALE:
        return lambda value: sent(target, scaled(**value))
    if source.says == "big-decimal":
        return lambda value: sent(target, big_decimal(value))
    if source.kind == "float":
        return lambda value: sent(target, Decimal(str(np.float32(value))))
    number = source.kind in ("int", "long", "double") and ticks(source) is None
    wide = source.logical == "decimal" and source.precision > MOST_DIGITS and source.scale <= target.scale
    return (lambda value: sent(target, value)) if number or wide else None


def _scalar(source: Type, target: Type) -> bool:
    if _by_value(source, target) is not None:
        return True
    if source.logical == "decimal" or target.logical == "decimal":
        return (
            source.logical == target.logical
            and target.scale >= source.scale
            and target.precision - target.scale >= source.precision - source.scale
        )
    if (wanted := ticks(target)) is not None:
        counted = ticks(source, wanted)
        return counted is not None and readable(counted, wanted)
    if source.kind == "fixed" and target.kind == "fixed":
        return source.size == target.size
    if ticks(source) is not None and target.kind in ("float", "double"):
        return False
    if target.kind not in _PROMOTIONS.get(source.kind, (source.kind,)) or (
        source.says == _BITS and target.kind == "string"
    ):
        return False
    if source.logical in (None, "uuid") or target.logical in (None, "uuid"):
        return target.kind not in ("float", "double") or source.logical is None
    return source.logical == target.logical


def match_fields(
    source: tuple[Field, ...], target: tuple[Field, ...], path: str = ""
) -> list[tuple[Field, Field | None]]:
    """Return, for each target field, the source field with its name or alias, or None if the default is used.

    Raises ResolutionError for a field that the source does not have and that has no default.
    """
    by_name = {field.name: field for field in source}
    matched: list[tuple[Field, Field | None]] = []
    for field in target:
        origin = next((by_name[name] for name in (field.name, *field.aliases) if name in by_name), None)
        if origin is None and field.default is None:
            name = f"{path}.{field.name}" if path else field.name
            raise ResolutionError(
                name,
                f"the writer's schema has no field {name!r}, and the column has no default value (it is NOT NULL, or "
                f"its schema gives no default); the writer's schema has {', '.join(by_name) or 'no fields'}",
            )
        matched.append((field, origin))
    return matched


def convert(column: pa.Array, source: Type, target: Type) -> tuple[pa.Array, Bools]:
    """Convert a column of `source.arrow` to `target.arrow`, and mark the rows whose values do not fit.

    Values that do not fit become null. The types must have passed `check`.
    """
    if source.kind == "null":
        return pa.nulls(len(column), target.arrow), np.zeros(len(column), np.bool_)
    wrong = np.zeros(len(column), np.bool_)
    if source.same_value(target):
        return column, wrong
    if _odd(source) or _odd(target):
        values, wrong = _transcode(column, source, target)
    elif (read := _by_value(source, target)) is not None:
        values, wrong = _each(column, source, target, read)
    elif source.kind == "record":
        values, wrong = _record(column, source, target)
    elif source.kind in ("array", "map"):
        values, wrong = _items(column, source, target)
    elif source.kind == "enum":
        values = column
        if target.kind == "enum":
            values, wrong = _symbols(column, target)
    elif source.kind == "bytes" and target.kind == "string":
        values, wrong = _text(column)
    elif (wanted := ticks(target)) is not None and (counted := ticks(source, wanted)) is not None:
        values, wrong = _rescaled(column, target, counted, wanted)
    else:
        values = _cast(column, source, target)
    if not target.nullable and values.null_count:
        wrong = wrong | (np.asarray(values.is_null().to_numpy(zero_copy_only=False), np.bool_))
    return values, wrong


def _cast(column: pa.Array, source: Type, target: Type) -> pa.Array:
    """Cast numbers, bytes and decimals. `check` has already ensured that every value fits."""
    if column.type == target.arrow:
        return column
    if pa.types.is_fixed_size_binary(column.type):
        return as_binary(column)
    if source.logical != "decimal" and source.kind in ("int", "long"):
        column = _numbers(column)
    return column.cast(target.arrow, safe=target.kind not in ("float", "double"))


def _numbers(column: pa.Array) -> pa.Array:
    """Return the numbers that encode dates, times and timestamps. Other numbers are returned unchanged."""
    return column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())


def _rescaled(column: pa.Array, target: Type, counted: Ticks, wanted: Ticks) -> tuple[pa.Array, Bools]:
    """Convert dates, times and timestamps to the target's unit. Digits beyond this unit's precision are cut off."""
    numbers, there = _numbers(column), validity(column)
    values: Ints = numbers.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False)
    bits = 31 if target.kind == "int" else 63
    least, most = BOUNDED_TIMES.get(target.logical or "", (-(1 << bits), (1 << bits) - 1))
    if wanted.per_second > counted.per_second:
        factor = wanted.per_second // counted.per_second
        wrong = (values < -(-least // factor)) | (values > most // factor)
        values = np.where(wrong, 0, values) * factor
    else:
        values = values // max(counted.per_second // max(wanted.per_second, 1), 1)
        wrong = (values < least) | (values > most)
    wrong &= there
    plain = pa.array(np.where(wrong, 0, values), pa.int64(), mask=wrong | ~there)
    return (plain.cast(pa.int32()) if bits == 31 else plain).cast(target.arrow), wrong


def _symbols(column: pa.Array, target: Type) -> tuple[pa.Array, Bools]:
    known = pc.is_in(column, value_set=pa.array(target.symbols, pa.string()))
    unknown = ~np.asarray(known.to_numpy(zero_copy_only=False), np.bool_) & validity(column)
    stand_in = pa.scalar(target.default, pa.string())
    values = pc.if_else(pa.array(unknown), stand_in, column) if unknown.any() else column
    return values, unknown if target.default is None else np.zeros(len(column), np.bool_)


def _each(column: pa.Array, source: Type, target: Type, read: Callable[[Any], Any]) -> tuple[pa.Array, Bools]:
    wrong = np.zeros(len(column), np.bool_)
    if source.kind == "string" and (alike := spelled_alike(target, column)) is not None:
        return alike, wrong
    values = column.to_pylist()
    for row, value in enumerate(values):
        try:
            if value is not None:
                values[row] = read(value)
        except ValueProblem:
            values[row], wrong[row] = None, True
    return pa.array(values, target.arrow), wrong


def _text(column: pa.Array) -> tuple[pa.Array, Bools]:
    cursor = Cursor(
        PaddedBytes(pa.array([], pa.binary())), np.zeros(len(column), np.int64), np.zeros(len(column), np.int64)
    )
    values = text(as_binary(column), cursor)
    return values, np.zeros(len(column), np.bool_) if cursor.flaw is None else cursor.flaw != 0


def _record(column: pa.Array, source: Type, target: Type) -> tuple[pa.Array, Bools]:
    wrong = np.zeros(len(column), np.bool_)
    names = [field.name for field in source.fields]
    there = validity(column)
    children = []
    for field, origin in match_fields(source.fields, target.fields):
        if origin is None:
            children.append(constant(field, len(column)))
            continue
        values, bad = convert(column.field(names.index(origin.name)), origin.type, field.type)
        wrong |= bad & there
        children.append(values)
    mask = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
    return pa.Array.from_buffers(target.arrow, len(column), [mask], children=children), wrong


def _items(column: pa.Array, source: Type, target: Type) -> tuple[pa.Array, Bools]:
    offsets: Ints = offsets_of(column).astype(np.int64) if len(column) else np.zeros(1, np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    items = column.items if source.kind == "map" else column.values
    values, bad = convert(items[first:last], source.element, target.element)
    wrong = np.zeros(len(column), np.bool_)
    if bad.any():
        wrong[np.searchsorted(offsets - first, np.flatnonzero(bad), side="right") - 1] = True
    children = [values]
    if source.kind == "map":
        entries = target.arrow.field(0).type
        children = [pa.Array.from_buffers(entries, last - first, [None], children=[column.keys[first:last], values])]
    there = validity(column)
    buffers = [
        None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little")),
        pa.py_buffer((offsets - first).astype(np.int32)),
    ]
    return pa.Array.from_buffers(target.arrow, len(column), buffers, children=children), wrong


def constant(field: Field, rows: int) -> pa.Array:
    """Return a column with the field's default in every row."""
    packed = default_bytes(field)
    assert packed is not None, "a field without a default has an origin"
    values, _ = _unpack(field.type, pa.array([packed], pa.binary()))
    return values.take(pa.array(np.zeros(rows, np.int64)))


def _unpack(type_: Type, packed: pa.BinaryArray) -> tuple[pa.Array, Bools]:
    source = PaddedBytes(packed)
    cursor = Cursor(source, source.starts, source.ends)
    skip(type_, cursor, {})
    assert not cursor.faulty, "a value that was just packed is valid"
    cursor = Cursor(source, source.starts, source.ends)
    values = decode(type_, cursor, {})
    return values, np.zeros(len(packed), np.bool_) if cursor.flaw is None else cursor.flaw != 0


def _transcode(column: pa.Array, source: Type, target: Type) -> tuple[pa.Array, Bools]:
    """Convert general unions and recursive records value by value through fastavro, which is slower."""
    rows = RowBuilder(len(column))
    write(source, column, rows, "value")
    writer, reader = fastavro.parse_schema(source.avro), fastavro.parse_schema(target.avro)
    packed: list[bytes | None] = []
    for value in rows.finish().to_pylist():
        out = io.BytesIO()
        try:
            read = fastavro.schemaless_reader(io.BytesIO(value), writer, reader, return_record_name=True)
            fastavro.schemaless_writer(out, reader, read)
            packed.append(out.getvalue())
        except (fastavro.read.SchemaResolutionError, ValueError, TypeError, KeyError, IndexError, EOFError):
            packed.append(None)
    wrong = np.array([value is None for value in packed], np.bool_)
    values, bad = _unpack(target, pa.array([value for value in packed if value is not None], pa.binary()))
    assert not bad.any(), "fastavro has already read these values"
    if wrong.any():
        at = pa.array(np.cumsum(~wrong) - 1, mask=wrong)
        values = values.take(at) if len(values) else pa.nulls(len(wrong), values.type)
    return values, wrong
