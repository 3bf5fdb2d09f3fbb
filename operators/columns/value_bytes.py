"""An encoding of values as bytes, and an order of values. MIN, MAX and DISTINCT store and compare values in this form.

Two values have the same bytes if and only if SQL considers the values equal: -0.0 is written as 0.0, and every NaN as
the same NaN. The order is that of Spark SQL: NaN is the greatest double, false is less than true, and text is compared
byte by byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.columns.changes import Int64s, Uint64s
from rowkind.operators.columns.packed_columns import fixed_width

_SIGN = np.int64(-(1 << 63))


def to_bytes(column: pa.Array) -> pa.BinaryArray:
    """Return each value as bytes. The column must not contain NULL, and `from_bytes` must support the column's type."""
    type_ = column.type
    if _has_any_length(type_):
        return column.cast(pa.binary())
    if pa.types.is_boolean(type_):
        column = column.cast(pa.int8())
    width = column.type.bit_width // 8
    if pa.types.is_floating(type_):
        return fixed_width(_canonical(column.to_numpy(zero_copy_only=False)), width, len(column))
    return fixed_width(column.buffers()[1][column.offset * width :][: len(column) * width], width, len(column))


def from_bytes(values: pa.BinaryArray, type_: pa.DataType) -> pa.Array:
    """Return the values that `to_bytes` encoded for a column of this type. Nulls are not allowed."""
    if _has_any_length(type_):
        return values.cast(type_)
    stored = pa.int8() if pa.types.is_boolean(type_) else type_
    if len(values) == 0:
        return pa.array([], type_)
    width = stored.bit_width // 8
    offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * 4)
    assert int(offsets[-1] - offsets[0]) == width * len(values), "the state contains values of a different type"
    data = values.buffers()[2][int(offsets[0]) : int(offsets[-1])]
    # Arrow requires values at addresses that are multiples of their width.
    column = pa.Array.from_buffers(stored, len(values), [None, pa.py_buffer(np.frombuffer(data, np.uint8).copy())])
    return column.cast(type_)


def canonical(column: pa.Array) -> pa.Array:
    """Return the column with -0.0 replaced by 0.0, and every NaN by the same NaN; NULL stays NULL."""
    if not pa.types.is_floating(column.type):
        return column
    values = _canonical(column.fill_null(0.0).to_numpy(zero_copy_only=False))
    return pa.array(values, column.type, mask=column.is_null().to_numpy(zero_copy_only=False))


def ranks(column: pa.Array) -> Int64s:
    """Return numbers that sort in the same order as the values. The column must not contain NULL.

    Numbers from different calls must not be compared.
    """
    type_ = column.type
    if pa.types.is_floating(type_):
        bits = _canonical(column.cast(pa.float64()).to_numpy(zero_copy_only=False)).view(np.int64)
        ordered: Int64s = np.where(bits < 0, ~bits ^ _SIGN, bits)
        return ordered
    if pa.types.is_boolean(type_):
        column = column.cast(pa.int8())
    elif pa.types.is_decimal(type_) or _has_any_length(type_) or pa.types.is_fixed_size_binary(type_):
        result: Int64s = pc.rank(column, tiebreaker="dense").to_numpy(zero_copy_only=False).astype(np.int64)
        return result
    return _integers(column)


def order_codes(column: pa.Array) -> Uint64s:
    """Return a 32-bit code for each value, made from a 32-bit float or the value's first four bytes.

    Sorting by codes never contradicts sorting by values.
    """
    type_ = column.type
    if _has_any_length(type_) or pa.types.is_fixed_size_binary(type_):
        return _first_letters(to_bytes(column))
    if pa.types.is_boolean(type_):
        column = column.cast(pa.int8())
    if pa.types.is_decimal(type_):
        numbers = _rough_decimals(column)
    elif pa.types.is_floating(type_):
        numbers = _canonical(column.cast(pa.float64()).to_numpy(zero_copy_only=False))
    else:
        numbers = _integers(column).astype(np.float64)
    with np.errstate(over="ignore"):
        bits = numbers.astype(np.float32).view(np.uint32)
    codes: Uint64s = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31)).astype(np.uint64)
    return codes


def _has_any_length(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_))


def _canonical(values: Any) -> Any:
    # Adding zero makes -0.0 positive.
    return np.where(np.isnan(values), np.array(np.nan, values.dtype), values + np.array(0, values.dtype))


def _integers(column: pa.Array) -> Int64s:
    width = column.type.bit_width
    result: Int64s = column.view(f"int{width}").to_numpy(zero_copy_only=False).astype(np.int64)
    return result


def _rough_decimals(column: pa.Array) -> Any:
    """Return approximate doubles that never contradict the decimals' order.

    The lower word of a decimal is used only if the upper word is 0 or -1.
    """
    words = np.frombuffer(column.buffers()[1], np.int64, 2 * len(column), column.offset * 16).reshape(-1, 2)
    lower, upper = words[:, 0].view(np.uint64), words[:, 1]
    word = 2.0**64
    rough = np.where(upper == -1, -(~lower).astype(np.float64) - 1.0, upper.astype(np.float64) * word)
    return np.where(upper == 0, lower.astype(np.float64), rough)


def _first_letters(values: pa.BinaryArray) -> Uint64s:
    offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * 4).astype(np.int64)
    data = np.append(np.frombuffer(values.buffers()[2] or b"", np.uint8), np.zeros(4, np.uint8))
    codes = np.zeros(len(values), np.uint64)
    for number in range(4):
        letter = data[np.minimum(offsets[:-1] + number, len(data) - 1)]
        there = offsets[:-1] + number < offsets[1:]
        codes = (codes << np.uint64(8)) | np.where(there, letter, 0).astype(np.uint64)
    return codes
