"""Conversions between Arrow buffers and NumPy arrays without a copy, and construction of byte arrays from spans.

A span is a pair of positions in one buffer. Ascending spans become an Arrow array by one gather: in an array over the
same buffer, spans and gaps alternate, and the gather takes every second element. This is several times faster than
moving the bytes in NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]


def words_of(data: Bytes) -> Words:
    """Return a view of `data` that has, at each position, the 8 bytes starting there as a little-endian word.

    The last 7 positions have no word.
    """
    return np.ndarray(shape=(len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))


def primitive(type_: pa.DataType, values: npt.NDArray[Any]) -> pa.Array:
    """Return an Arrow array of a fixed-width type whose buffer is `values`."""
    length = values.size * values.itemsize // (type_.bit_width // 8)
    return pa.Array.from_buffers(type_, length, [None, pa.py_buffer(np.ascontiguousarray(values))])


def values_of(array: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the value buffer of a fixed-width Arrow array; values at null positions are undefined.

    If the array's type is wider than `dtype`, each element becomes as many values as fit into it.
    """
    width = array.type.bit_width // 8
    buffer = array.buffers()[1]
    if not len(array) or buffer is None:
        return np.zeros(len(array) * width // np.dtype(dtype).itemsize, dtype)
    raw = np.frombuffer(buffer, np.uint8, len(array) * width, array.offset * width)
    return raw.view(dtype)


def validity(array: pa.Array) -> Bools:
    """Return a mask of the elements that are not null."""
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def offsets_of(array: pa.BinaryArray) -> npt.NDArray[np.int32]:
    """Return the offsets of a binary, string, list or map array into its whole value buffer.

    There is one more offset than there are rows.
    """
    buffer = array.buffers()[1]
    if buffer is None or not buffer.size:
        return np.zeros(1, np.int32)
    return np.frombuffer(buffer, np.int32, len(array) + 1, array.offset * 4)


def data_of(array: pa.BinaryArray) -> Bytes:
    """Return the whole value buffer of a binary or string array."""
    buffer = array.buffers()[2]
    return np.empty(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


def binary_from(offsets: npt.NDArray[Any], data: Any) -> pa.BinaryArray:
    """Return a binary array with these offsets into `data`; each row ends where the next one begins."""
    return pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(np.ascontiguousarray(offsets, np.int32)), pa.py_buffer(data)]
    )


def spans(data: Any, starts: Ints, ends: Ints) -> pa.BinaryArray:
    """Return a binary array of the bytes from each start to its end. The spans must ascend and must not overlap."""
    rows = len(starts)
    if not rows:
        return binary_from(np.zeros(1, np.int32), b"")
    offsets = np.empty(2 * rows, np.int32)
    offsets[0::2] = starts
    offsets[1::2] = ends
    return binary_from(offsets, data).take(pa.array(np.arange(0, 2 * rows - 1, 2)))


def expand(array: pa.BinaryArray, rows: Bools) -> pa.BinaryArray:
    """Place the elements of `array`, in order, at the rows where `rows` is true, and empty bytes elsewhere.

    No bytes are copied.
    """
    offsets = offsets_of(array)
    counts = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(rows, out=counts[1:])
    return binary_from(offsets[counts], data_of(array))


def spread(array: pa.Array, rows: Bools) -> pa.Array:
    """Place the elements of `array`, in order, at the rows where `rows` is true, and null elsewhere."""
    if not len(array):
        return pa.nulls(len(rows), array.type)
    return array.take(pa.array(np.cumsum(rows) - 1, mask=~rows))


def as_binary(array: pa.Array) -> pa.BinaryArray:
    """Return an array of bytes or strings of any type as binary with 32-bit offsets, without changing the bytes."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if array.type == pa.binary():
        return array
    if pa.types.is_fixed_size_binary(array.type):
        size = array.type.byte_width
        offsets = np.arange(len(array) + 1, dtype=np.int32) * np.int32(size)
        data = values_of(array, np.uint8) if size else b""
        plain = binary_from(offsets, data)
        return plain if not array.null_count else pc.if_else(array.is_valid(), plain, pa.scalar(None, pa.binary()))
    return array.cast(pa.binary())
