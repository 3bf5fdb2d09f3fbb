"""Encode Arrow columns as packed rows, one column at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro.buffers import (
    Bools,
    Ints,
    Words,
    as_binary,
    binary_from,
    data_of,
    expand,
    offsets_of,
    validity,
    values_of,
)
from rowkind.avro.errors import EncodeError
from rowkind.avro.rows import RowBuilder
from rowkind.avro.type import Type, null_branch


def write(type_: Type, column: pa.Array, rows: RowBuilder, name: str) -> None:
    """Append a column's values to the rows. The column's type must be `type_.arrow` or castable to it.

    Raises EncodeError, naming the column, for a NULL in a NOT NULL type and for a value that does not fit.
    """
    column = fitting(type_, column, name)
    if not type_.optional:
        if column.null_count and not type_.nullable:
            raise EncodeError(
                f"column {name!r} is NOT NULL, but its value is NULL in {column.null_count} of {len(column)} rows"
            )
        _value(type_, column, None, rows, name)
        return
    there, missing = (b"\x02", b"\x00") if type_.null_first else (b"\x00", b"\x02")
    if not column.null_count:
        rows.constant(there)
        _value(type_.required, column, None, rows, name)
    elif column.null_count == len(column):
        rows.constant(missing)
    else:
        mask = validity(column)
        rows.words(np.where(mask, np.uint64(there[0]), np.uint64(missing[0])), 1, 1)
        _value(type_.required, column, mask, rows, name)


def null_value(type_: Type) -> bytes | None:
    """Return the bytes of NULL, or None for a NOT NULL type."""
    if type_.optional:
        return b"\x00" if type_.null_first else b"\x02"
    if type_.kind == "null":
        return b""
    if type_.nullable:
        one = RowBuilder(1)
        one.varint(np.array([null_branch(type_)]))
        return one.finish()[0].as_py()  # type: ignore[no-any-return]
    return None


def fitting(type_: Type, column: pa.Array, name: str) -> pa.Array:
    """Return the column as one array of `type_.arrow`. Raises EncodeError for values that do not fit."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.type == type_.arrow:
        return column
    try:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        return column.cast(type_.arrow)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise EncodeError(f"column {name!r}: {column.type} does not fit {type_.sql}: {error}") from None


def _value(type_: Type, column: pa.Array, mask: Bools | None, rows: RowBuilder, name: str) -> None:
    """Append values of a type without its null branch. Nothing is appended where `mask` is false."""
    if type_.logical == "decimal":
        _decimal(type_, column, mask, rows, name)
    elif type_.kind not in ("union", "reference", "record", "array", "map"):
        _scalar(type_, column, mask, rows, name)
    elif mask is None:
        _nested(type_, column, rows, name)
    else:
        # Nested values are encoded for the rows that have them, and then spread over all rows.
        present = RowBuilder(int(mask.sum()))
        _nested(type_, column.filter(pa.array(mask)), present, name)
        rows.bytes(expand(present.finish(), mask))


def _nested(type_: Type, column: pa.Array, rows: RowBuilder, name: str) -> None:
    match type_.kind:
        case "union" if column.null_count:
            rows.bytes(as_binary(column).fill_null(null_value(type_)))
        case "union" | "reference":
            rows.bytes(as_binary(column))
        case "record":
            for i, field in enumerate(type_.fields):
                write(field.type, column.field(i), rows, f"{name}.{field.name}")
        case _:
            _items(type_, column, rows, name)


def _scalar(type_: Type, column: pa.Array, mask: Bools | None, rows: RowBuilder, name: str) -> None:
    match type_.kind:
        case "boolean":
            bits = column if mask is None else column.fill_null(False)
            values = np.asarray(bits.to_numpy(zero_copy_only=False), np.bool_)
            rows.words(values.astype(np.uint64), _lengths(1, mask), 1)
        case "int":
            rows.varint(values_of(column, np.int32).astype(np.int64), mask)
        case "long":
            rows.varint(values_of(column, np.int64), mask)
        case "float":
            rows.words(values_of(column, np.uint32).astype(np.uint64), _lengths(4, mask), 4)
        case "double":
            rows.words(values_of(column, np.uint64), _lengths(8, mask), 8)
        case "bytes" | "string":
            values_ = as_binary(column)
            rows.varint(np.diff(offsets_of(values_)).astype(np.int64) if len(values_) else _none(), mask)
            rows.bytes(values_)
        case "fixed":
            rows.bytes(as_binary(column))
        case "enum":
            rows.varint(_symbols(type_, column, name), mask)


def _none() -> Ints:
    return np.zeros(0, np.int64)


def _lengths(length: int, mask: Bools | None) -> Ints | int:
    return length if mask is None else mask.astype(np.int64) * length


def _symbols(type_: Type, column: pa.Array, name: str) -> Ints:
    found = pc.index_in(column, value_set=pa.array(type_.symbols, pa.string()))
    if found.null_count > column.null_count:
        known = pa.array(validity(found) | ~validity(column))
        wrong = column.filter(pc.invert(known))[0].as_py()
        raise EncodeError(f"column {name!r}: {wrong!r} is not one of the enum's symbols {', '.join(type_.symbols)}")
    return values_of(found, np.int32).astype(np.int64)


def _items(type_: Type, column: pa.Array, rows: RowBuilder, name: str) -> None:
    """Append arrays or maps: one block with all items, if there are any, followed by the end marker."""
    offsets = offsets_of(column).astype(np.int64) if len(column) else np.zeros(1, np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    items = RowBuilder(last - first)
    if type_.kind == "map":
        write(Type("string"), column.keys[first:last], items, f"{name} (key)")
        write(type_.element, column.items[first:last], items, f"{name} (value)")
    else:
        write(type_.element, column.values[first:last], items, f"{name} (item)")
    packed = items.finish()
    counts = np.diff(offsets)
    rows.varint(counts, counts > 0)
    rows.bytes(binary_from(offsets_of(packed)[offsets - first], data_of(packed)))
    rows.constant(b"\x00")


def _decimal(type_: Type, column: pa.Array, mask: Bools | None, rows: RowBuilder, name: str) -> None:
    """Append decimals as big-endian two's complement: shortest for `bytes`, as in Java; sign-extended for `fixed`."""
    count = column.type.bit_width // 64
    words: Words = values_of(column, np.uint64).reshape(len(column), count)
    signs = words[:, -1].view(np.int64) >> 63 if len(words) else _none()
    low = words[:, 0].copy().view(np.int64)
    size = type_.size
    narrow = (
        all(bool((words[:, i].view(np.int64) == (low >> 63)).all()) for i in range(1, count)) if len(words) else True
    )
    if narrow and (type_.kind == "bytes" or size <= 8):
        lengths = _byte_lengths((low ^ (low >> 63)).view(np.uint64))
        if type_.kind == "fixed":
            _check_size(lengths, mask, size, name)
            lengths = np.full(len(low), size)
        shift = ((8 - lengths) * 8).astype(np.uint64)
        body = (low.view(np.uint64) << np.minimum(shift, np.uint64(63))).byteswap()
        if type_.kind == "bytes":
            rows.varint(lengths, mask)
        rows.words(body, lengths if mask is None else np.where(mask, lengths, 0), 8)
        return
    lengths = np.ones(len(column), np.int64)
    for i in range(count):
        magnitude = words[:, i] ^ signs.view(np.uint64)
        # The topmost word that does not consist only of sign bits determines the length.
        full = _byte_lengths(magnitude)
        own = (magnitude != 0) | (i == 0)
        lengths = np.where(own, full + 8 * i, lengths)
    width = 8 * count
    big = np.ascontiguousarray(words[:, ::-1]).byteswap().view(np.uint8).reshape(len(column), width)
    if type_.kind == "fixed":
        _check_size(lengths, mask, size, name)
        lengths = np.full(len(column), size)
        if size > width:
            head = np.repeat(signs.astype(np.uint8)[:, None], size - width, axis=1)
            big = np.concatenate([head, big], axis=1)
            width = size
    else:
        # A word whose top bit is set needs a ninth byte for the sign, 8 * i + 9 in all, but never more than `width`.
        lengths = np.minimum(lengths, width)
        rows.varint(lengths, mask)
    ends = (np.arange(len(column), dtype=np.int64) + 1) * width
    offsets = np.zeros(2 * len(column) + 1, np.int64)
    offsets[1::2] = ends - (lengths if mask is None else np.where(mask, lengths, 0))
    offsets[2::2] = ends
    rows.bytes(binary_from(offsets, np.ascontiguousarray(big)), first=1, step=2)


def _byte_lengths(magnitude: Words) -> Ints:
    """Return a number's size in bytes in two's complement, given the number or, if negative, its complement."""
    lengths = np.ones(len(magnitude), np.int64)
    greatest = int(magnitude.max(initial=np.uint64(0)))
    for i in range(1, 9):
        if greatest < 1 << (8 * i - 1):
            break
        lengths += magnitude >= np.uint64(1 << (8 * i - 1))
    return lengths


def _check_size(lengths: Ints, mask: Bools | None, size: int, name: str) -> None:
    if (lengths if mask is None else lengths[mask]).max(initial=0) > size:
        raise EncodeError(f"column {name!r}: a decimal does not fit into the {size} bytes of its fixed type")
