"""Pack columns of numbers and bytes into one column of bytes, and unpack them. State rows are stored in this form.

A packed row has one number per column, followed by the contents of the row's byte strings. For an integer, the number
is the zigzag-encoded value. For a double, it is the bit pattern with reversed bytes, so that trailing zeros take no
space. For a byte string, it is the length plus one, or zero for null. A number below `_SMALL` takes one byte. Any other
number takes a byte for its length, followed by its bytes in little-endian order. (This is a prefix varint, as in
SQLite. Unlike LEB128, it can be read and written a whole column at a time.) The reader must know the columns, so
changing the columns changes the state format. The first columns can be read without knowing the later columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.columns.changes import Indices, Int64s, Uint64s, binary

Column = Any
"""A NumPy array of 64-bit integers or doubles, or an Arrow array of bytes."""

_Octets = npt.NDArray[np.uint8]

_SMALL = 248
"""The smallest number that is not written as a single byte. From this number on, 1 to 8 bytes follow a length byte."""

_MASKS = np.array([(1 << (8 * width)) - 1 for width in range(9)], np.uint64)
"""Masks that keep the lowest bytes of a word, indexed by the number of bytes to keep."""


def pack(columns: Sequence[Column]) -> pa.BinaryArray:
    """Pack one or more columns into one value per row."""
    numbers = _written([_words(column) for column in columns])
    texts = [column.fill_null(b"") for column in columns if not isinstance(column, np.ndarray)]
    return pc.binary_join_element_wise(numbers, *texts, b"") if texts else numbers


def unpack(kinds: str, values: pa.BinaryArray) -> list[Column]:
    """Return the columns that `pack` packed.

    `kinds` has a letter for each column: n for integers, f for doubles, b for bytes.
    """
    at = starts_of(values)
    end = int(at[-1]) if len(at) else 0
    at = at[:-1]
    # Words of 8 bytes are read, and a word that begins in the last bytes extends beyond the end of the data.
    data = np.append(np.frombuffer(values.buffers()[2] or b"", np.uint8)[:end], np.zeros(8, np.uint8))
    words = []
    for _ in kinds:
        word, at = _read(data, at)
        words.append(word)
    columns: list[Column] = []
    for kind, word in zip(kinds, words, strict=True):
        match kind:
            case "n":
                columns.append((word >> np.uint64(1)).view(np.int64) ^ -(word & np.uint64(1)).view(np.int64))
            case "f":
                columns.append(word.byteswap().view(np.float64))
            case _:
                there = word > 0
                lengths = word.view(np.int64) - there
                columns.append(spans(data, at, lengths, None if there.all() else ~there))
                at = at + lengths
    return columns


def fixed_width(data: object, width: int, count: int) -> pa.BinaryArray:
    """Return a column of `count` values of `width` bytes each, which `data` contains one after the other."""
    assert width * count < 1 << 31, "one batch of one shard touches more groups than one Arrow array can hold"
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def without_first(values: pa.BinaryArray, count: int) -> pa.BinaryArray:
    """Return each value without its first `count` bytes. Values must have at least `count` bytes."""
    starts = starts_of(values)
    return spans(np.frombuffer(values.buffers()[2] or b"", np.uint8), starts[:-1] + count, np.diff(starts) - count)


def _words(column: Column) -> Uint64s:
    """Return the number that represents each value of the column in the packed form."""
    if not isinstance(column, np.ndarray):
        lengths: Uint64s = pc.binary_length(column).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
        return lengths.view(np.uint64)
    if column.dtype == np.float64:
        return np.ascontiguousarray(column).view(np.uint64).byteswap()
    return ((column << 1) ^ (column >> 63)).view(np.uint64)


def _written(columns: Sequence[Uint64s]) -> pa.BinaryArray:
    """Encode columns of numbers as one byte string per row.

    First, every row is given as many bytes per column as the column's longest number needs. Then the bytes that a row
    does not need are dropped.
    """
    rows = len(columns[0])
    widths = [_width(words) for words in columns]
    widest = [int(width.max(initial=0)) for width in widths]
    octets = np.empty((rows, len(columns) + sum(widest)), np.uint8)
    needed = np.ones(octets.shape, np.bool_) if any(widest) else None
    lengths = np.full(rows, len(columns), np.int64)
    at = 0
    for words, width, most in zip(columns, widths, widest, strict=True):
        if most == 0:
            octets[:, at] = words
        else:
            assert needed is not None
            octets[:, at] = np.where(width > 0, _SMALL - 1 + width, words)
            octets[:, at + 1 : at + 1 + most] = words.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)[:, :most]
            needed[:, at + 1 : at + 1 + most] = np.arange(most, dtype=np.uint8) < width[:, None]
            lengths += width
        at += 1 + most
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    assert offsets[-1] < 1 << 31, "one batch of one shard touches more groups than one Arrow array can hold"
    data = octets if offsets[-1] == octets.size else octets[needed]
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)])


def _width(words: Uint64s) -> _Octets:
    """Return how many bytes each number takes in addition to its first byte."""
    width = (words >= _SMALL).astype(np.uint8)
    for number in range(1, (int(words.max(initial=0)).bit_length() + 7) // 8):
        width += words >= np.uint64(1 << (8 * number))
    return width


def _read(data: _Octets, at: Indices) -> tuple[Uint64s, Indices]:
    """Return the number at each position, and the position after it. `data` must have 8 extra bytes at the end."""
    first = data[at]
    at = at + 1
    if first.max(initial=0) < _SMALL:
        return first.astype(np.uint64), at
    width = np.maximum(first, _SMALL - 1) - np.uint8(_SMALL - 1)
    every = np.ndarray(len(data) - 7, "<u8", data, strides=(1,))
    return np.where(width > 0, every[at] & _MASKS[width], first), at + width


def starts_of(values: pa.BinaryArray) -> Int64s:
    """Return the offset at which each value begins, and the offset at which the last value ends."""
    offsets = np.frombuffer(values.buffers()[1] or b"\0\0\0\0", np.int32, len(values) + 1, values.offset * 4)
    return offsets.astype(np.int64)


def spans(data: _Octets, begins: Indices, lengths: Int64s, null: npt.NDArray[np.bool_] | None = None) -> pa.BinaryArray:
    """Return the spans of `data` with the given starts and lengths. Where `null` is true, return null instead.

    The starts must ascend, and the spans must not overlap.
    """
    count = len(begins)
    if count == 0:
        return binary(())
    # Build an array in which the gaps between the spans are also values, then take every other value.
    bounds = np.stack([begins, begins + lengths], axis=1).astype(np.int32)
    spans = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    return spans.take(pa.array(2 * np.arange(count), mask=null))
