"""Columns of one Avro type as columns of another: Avro's schema resolution, on Arrow arrays.

Beyond the letter of the specification, which knows only base types, units and digits are respected: timestamps of
different units are rescaled, decimals widened, `fixed` and `enum` may be read as BINARY and STRING. Names of records,
enums and fixed types need not agree, except inside general unions. A number without a logical type is taken as it is
where a date or time is wanted, and a local timestamp is an instant's in UTC. Text where a decimal, a date or a time is
wanted is what it spells, and Debezium's decimals of variable scale are decimals.

`check` decides on types, once; `convert` on values, and says in which rows they do not fit.
"""

from __future__ import annotations

import io
import re

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro.buffers import Bools, Ints, as_binary, offsets_of, validity
from rowkind.avro.cursor import Cursor, PaddedBytes
from rowkind.avro.decode import decode, text
from rowkind.avro.defaults import default_bytes
from rowkind.avro.encode import write
from rowkind.avro.errors import ResolutionError
from rowkind.avro.rows import RowBuilder
from rowkind.avro.spelled import ValueProblem, is_spelled, scaled, spelled, spelled_alike
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
_UNIT = re.compile(r"(local-)?(timestamp|time)-(\w+)")
_UNITS = ("millis", "micros", "nanos")


def check(source: Type, target: Type, path: str) -> None:
    """Raise ResolutionError, naming `path`, if values of `source` cannot be read as `target`."""
    if source.same_value(target) or (source.kind == "null" and target.nullable):
        return
    if _odd(source) or _odd(target):
        return  # Only the value shows which branch it has.
    match source.kind, target.kind:
        case "record", "record":
            for field, origin in match_fields(source.fields, target.fields, path):
                if origin is not None:
                    check(origin.type, field.type, f"{path}.{field.name}")
            return
        case ("array", "array") | ("map", "map"):
            check(source.element, target.element, f"{path}[]")
            return
    if not _scalar(source, target):
        raise ResolutionError(
            path,
            f"column {path!r} is declared {target.sql}, but the writer's schema has {_describe(source)}: "
            f"declare a type that can hold it",
        )


def _describe(type_: Type) -> str:
    return f"{type_.sql} ({type_.logical or type_.kind})"


def _odd(type_: Type) -> bool:
    return type_.kind in ("union", "reference")


def _is_spelled(source: Type, target: Type) -> bool:
    """Whether values are digits or ISO-8601 in text, or decimals with a scale each, as Debezium has them."""
    if target.logical == "decimal" and source.name == _VARIABLE_SCALE:
        return True
    return source.kind == "string" and is_spelled(target)


def _scalar(source: Type, target: Type) -> bool:
    if _is_spelled(source, target):
        return True
    if source.logical == "decimal" or target.logical == "decimal":
        return (
            source.logical == target.logical
            and target.scale >= source.scale
            and target.precision - target.scale >= source.precision - source.scale
        )
    if source.kind == "fixed" and target.kind == "fixed":
        return source.size == target.size
    if target.kind not in _PROMOTIONS.get(source.kind, (source.kind,)):
        return False
    ours, theirs = _UNIT.fullmatch(source.logical or ""), _UNIT.fullmatch(target.logical or "")
    if ours and theirs:
        return ours[2] == theirs[2] and _UNITS.index(theirs[3]) >= _UNITS.index(ours[3])
    if source.logical in (None, "uuid") or target.logical in (None, "uuid"):
        return target.kind not in ("float", "double") or source.logical is None
    return source.logical == target.logical


def match_fields(
    source: tuple[Field, ...], target: tuple[Field, ...], path: str = ""
) -> list[tuple[Field, Field | None]]:
    """For each wanted field the one that it is read from, by name or by alias, or None where its default stands in.

    Raises ResolutionError for one that is not there and has no default.
    """
    by_name = {field.name: field for field in source}
    matched: list[tuple[Field, Field | None]] = []
    for field in target:
        origin = next((by_name[name] for name in (field.name, *field.aliases) if name in by_name), None)
        if origin is None and field.default is None:
            name = f"{path}.{field.name}" if path else field.name
            raise ResolutionError(
                name,
                f"the writer's schema has no field {name!r}, and the column is NOT NULL or has no default: "
                f"the writer has {', '.join(by_name) or 'no fields'}",
            )
        matched.append((field, origin))
    return matched


def convert(column: pa.Array, source: Type, target: Type) -> tuple[pa.Array, Bools]:
    """A column of `source.arrow` as one of `target.arrow`, and the rows whose value does not fit, which are null.

    The types must have passed `check`.
    """
    if source.kind == "null":
        return pa.nulls(len(column), target.arrow), np.zeros(len(column), np.bool_)
    wrong = np.zeros(len(column), np.bool_)
    if source.same_value(target):
        return column, wrong
    if _odd(source) or _odd(target):
        values, wrong = _transcode(column, source, target)
    elif _is_spelled(source, target):
        values, wrong = _spelled(column, source, target)
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
    else:
        values = _cast(column, source, target)
    if not target.nullable and values.null_count:
        wrong = wrong | (np.asarray(values.is_null().to_numpy(zero_copy_only=False), np.bool_))
    return values, wrong


def _cast(column: pa.Array, source: Type, target: Type) -> pa.Array:
    """Numbers, times and decimals; `check` has made sure that every value fits, but for the bounds of nanoseconds."""
    if column.type == target.arrow:
        return column
    if pa.types.is_fixed_size_binary(column.type):
        return as_binary(column)
    if source.kind == "int" and target.kind == "long":
        column = column.cast(pa.int32()).cast(pa.int64()) if source.logical is None else column
    if target.kind in ("float", "double"):
        return column.cast(target.arrow, safe=False)
    if source.logical and target.logical is None:
        column = column.cast(pa.int32() if source.kind == "int" else pa.int64())
    if target.logical and target.logical.endswith("nanos"):
        limit = np.iinfo(np.int64).max // (1000 if str(source.logical).endswith("micros") else 1_000_000)
        inside = pc.less_equal(pc.abs(column.cast(pa.int64())), limit) if source.logical else None
        if inside is not None:
            column = pc.if_else(inside, column, pa.scalar(None, column.type))
    return column.cast(target.arrow)


def _symbols(column: pa.Array, target: Type) -> tuple[pa.Array, Bools]:
    known = pc.is_in(column, value_set=pa.array(target.symbols, pa.string()))
    unknown = ~np.asarray(known.to_numpy(zero_copy_only=False), np.bool_) & validity(column)
    stand_in = pa.scalar(target.default, pa.string())
    values = pc.if_else(pa.array(unknown), stand_in, column) if unknown.any() else column
    return values, unknown if target.default is None else np.zeros(len(column), np.bool_)


def _spelled(column: pa.Array, source: Type, target: Type) -> tuple[pa.Array, Bools]:
    wrong = np.zeros(len(column), np.bool_)
    if source.kind == "string" and (alike := spelled_alike(target, column)) is not None:
        return alike, wrong
    values = column.to_pylist()
    for row, value in enumerate(values):
        try:
            if value is not None:
                plain = value if source.kind == "string" else scaled(**value)
                values[row] = spelled(target, plain)
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
    """A column with the field's default in every row."""
    packed = default_bytes(field)
    assert packed is not None, "a field without a default has an origin"
    values, _ = _unpack(field.type, pa.array([packed], pa.binary()))
    return values.take(pa.array(np.zeros(rows, np.int64)))


def _unpack(type_: Type, packed: pa.BinaryArray) -> tuple[pa.Array, Bools]:
    source = PaddedBytes(packed)
    cursor = Cursor(source, source.starts, source.ends)
    skip(type_, cursor, {})
    assert not cursor.faulty, "what was just packed is whole"
    cursor = Cursor(source, source.starts, source.ends)
    values = decode(type_, cursor, {})
    return values, np.zeros(len(packed), np.bool_) if cursor.flaw is None else cursor.flaw != 0


def _transcode(column: pa.Array, source: Type, target: Type) -> tuple[pa.Array, Bools]:
    """General unions and records that contain themselves: value by value through fastavro, off the fast path."""
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
    assert not bad.any(), "fastavro has read these values before"
    if wrong.any():
        at = pa.array(np.cumsum(~wrong) - 1, mask=wrong)
        values = values.take(at) if len(values) else pa.nulls(len(wrong), values.type)
    return values, wrong
