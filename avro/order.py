"""Comparable bytes: byte strings that compare as the SQL values do, and are equal if SQL considers the values equal.

Every value becomes a marker byte, which says whether it is NULL, followed by its bytes. No value's bytes are a prefix
of another's, so the concatenated bytes of several columns compare like tuples. The formats are those of the
memcomparable family (MyRocks, CockroachDB, FoundationDB's tuples): big-endian numbers with the sign bit flipped, text
with its zero bytes escaped.

Columns of different widths can be compared with each other: integers are widened to 64 bits, FLOAT to DOUBLE, times to
microseconds, timestamps to microseconds and the remaining nanoseconds. Decimals can be compared if their scales are
equal. NaN equals NaN and is the greatest number; -0.0 equals 0.0. Text compares by its UTF-8 bytes, as in Spark.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro.buffers import (
    Bools,
    Bytes,
    Ints,
    as_binary,
    binary_from,
    data_of,
    offsets_of,
    spans,
    validity,
    values_of,
)
from rowkind.avro.errors import SchemaError

TIMESTAMP_BYTES = 11
"""The number of bytes of a TIMESTAMP that is not NULL."""

_SIGN = np.uint64(1 << 63)
_ABSENT_FIRST, _PRESENT, _ABSENT_LAST = 0, 1, 2


def comparable(column: pa.Array, *, descending: bool = False, nulls_first: bool = True) -> pa.BinaryArray:
    """Return the comparable bytes of a column, never null. Raises SchemaError for a type without an order.

    `descending` reverses the order of the values; `nulls_first` alone determines the position of NULL.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    there = validity(column)
    absent = _ABSENT_FIRST if nulls_first else _ABSENT_LAST
    if _is_bytes(column.type):
        return _escaped(column, there, absent, descending)
    body = _fixed_width(column)
    if descending:
        body = ~body
    table = np.empty((len(column), body.shape[1] + 1), np.uint8)
    table[:, 0] = _PRESENT
    table[:, 1:] = body
    if there.all():
        return binary_from(np.arange(len(column) + 1, dtype=np.int64) * table.shape[1], table)
    table[~there, 0] = absent
    starts = np.arange(len(column), dtype=np.int64) * table.shape[1]
    return spans(table, starts, starts + np.where(there, table.shape[1], 1))


def join_bytes(parts: Sequence[pa.BinaryArray]) -> pa.BinaryArray:
    """Concatenate the bytes of several columns. The results compare like tuples of the columns' values."""
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, b"")


def _is_bytes(type_: pa.DataType) -> bool:
    return any(
        check(type_)
        for check in (
            pa.types.is_string,
            pa.types.is_binary,
            pa.types.is_large_string,
            pa.types.is_large_binary,
            pa.types.is_string_view,
            pa.types.is_binary_view,
            pa.types.is_fixed_size_binary,
        )
    )


def _fixed_width(column: pa.Array) -> Bytes:
    """Return a row of bytes for each value; the bytes of NULLs are arbitrary."""
    type_ = column.type
    if pa.types.is_boolean(type_):
        return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False), np.uint8)[:, None]
    if pa.types.is_integer(type_):
        return _big_endian(_flipped(_integers(column)))
    if pa.types.is_floating(type_):
        return _big_endian(_float_bits(column))
    if pa.types.is_decimal(type_):
        if type_.bit_width < 128:
            column = column.cast(pa.decimal128(type_.precision, type_.scale))
        words = values_of(column, np.uint64).reshape(len(column), column.type.bit_width // 64)[:, ::-1].copy()
        words[:, 0] ^= _SIGN
        return _big_endian(words)
    if pa.types.is_date32(type_):
        return _big_endian(_flipped(values_of(column, np.int32).astype(np.int64)))
    if pa.types.is_time(type_):
        unit = {"s": 1_000_000, "ms": 1000, "us": 1}.get(type_.unit)
        if unit is not None:
            return _big_endian(_flipped(values_of(column, f"i{type_.bit_width // 8}").astype(np.int64) * unit))
    if pa.types.is_timestamp(type_):
        return _timestamp(column)
    raise SchemaError(f"type {type_} has no order: it cannot be used in a key, in ORDER BY or in PARTITION BY")


def _integers(column: pa.Array) -> Ints:
    if pa.types.is_uint64(column.type):
        raise SchemaError("type uint64 cannot be ordered: Avro has no such type")
    return values_of(column, column.type.to_pandas_dtype()).astype(np.int64)


def _flipped(values: Ints) -> npt.NDArray[np.uint64]:
    return values.view(np.uint64) ^ _SIGN


def _big_endian(words: npt.NDArray[np.uint64]) -> Bytes:
    count = 1 if words.ndim == 1 else words.shape[1]
    return np.ascontiguousarray(words).byteswap().view(np.uint8).reshape(len(words), 8 * count)


def _float_bits(column: pa.Array) -> npt.NDArray[np.uint64]:
    """Return bits that compare like the numbers: negative numbers have all bits flipped, others only the sign bit."""
    with np.errstate(invalid="ignore"):  # A signalling NaN is converted without a warning.
        values = values_of(column, column.type.to_pandas_dtype()).astype(np.float64)
    bits = values.view(np.uint64)
    bits = np.where(np.isnan(values), np.uint64(0x7FF8000000000000), bits)
    bits = np.where(bits == _SIGN, np.uint64(0), bits)
    return np.where(bits & _SIGN != 0, ~bits, bits ^ _SIGN)


def _timestamp(column: pa.Array) -> Bytes:
    """Return microseconds, rounded down, and the remaining nanoseconds in two bytes."""
    values = values_of(column, np.int64)
    rest = np.zeros(len(values), np.uint16)
    if column.type.unit == "ns":
        values, left = np.divmod(values, 1000)
        rest = left.astype(np.uint16)
    else:
        values = values * {"s": 1_000_000, "ms": 1000, "us": 1}[column.type.unit]
    return np.concatenate(
        [_big_endian(_flipped(values)), rest.byteswap().view(np.uint8).reshape(len(values), 2)], axis=1
    )


def _escaped(column: pa.Array, there: Bools, absent: int, descending: bool) -> pa.BinaryArray:
    """Escape text and bytes: a zero byte becomes 00 FF, and 00 01 ends the value. If descending, bits are flipped."""
    values = as_binary(column)
    if values.null_count:
        values = values.fill_null(b"")
    values = _replaced(values)
    turned = values
    end = b"\x00\x01"
    if descending:
        turned = binary_from(offsets_of(values), ~data_of(values)) if len(values) else values
        end = b"\xff\xfe"
    if there.all():
        return pc.binary_join_element_wise(pa.scalar(bytes([_PRESENT])), turned, pa.scalar(end), b"")
    marker = pc.if_else(pa.array(there), pa.scalar(bytes([_PRESENT])), pa.scalar(bytes([absent])))
    ends = pc.if_else(pa.array(there), pa.scalar(end), pa.scalar(b""))
    return pc.binary_join_element_wise(marker, turned, ends, b"")


def _replaced(values: pa.BinaryArray) -> pa.BinaryArray:
    """Escape zero bytes. They are rare, and one scan of the whole buffer shows whether there are any."""
    offsets = offsets_of(values).astype(np.int64)
    if len(offsets) <= len(values):
        return values
    data = data_of(values)[offsets[0] : offsets[-1]]
    zeros = np.flatnonzero(data == 0)
    if not len(zeros):
        return values
    offsets = offsets - offsets[0]
    grown = np.insert(data, zeros + 1, np.uint8(255))
    return binary_from(offsets + np.searchsorted(zeros, offsets), grown)
