"""Packed columns: columns of numbers and of bytes as one column of bytes, and back; the form of what a row of state is.

A row is its numbers, 8 bytes each, then the length of each of its byte strings as a number, then those strings.
Everything is little-endian. Which columns there are is known to the reader; a state format change is a change of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from operators.changes import Indices, Int64s
from operators.grouping import members

Column = Any
"""A NumPy array of 64-bit integers or an Arrow array of bytes."""


def pack(columns: Sequence[Column]) -> pa.BinaryArray:
    """One value per row; at least one column, bytes without nulls."""
    numbers = [column for column in columns if isinstance(column, np.ndarray)]
    texts = [column for column in columns if not isinstance(column, np.ndarray)]
    lengths = [pc.binary_length(text).to_numpy(zero_copy_only=False).astype(np.int64) for text in texts]
    words = np.ascontiguousarray(np.stack([*numbers, *lengths], axis=1), "<i8")
    fixed = fixed_width(words, words.shape[1] * 8, len(words))
    return pc.binary_join_element_wise(fixed, *texts, b"") if texts else fixed


def unpack(kinds: str, values: pa.BinaryArray) -> list[Column]:
    """The columns that were packed; `kinds` has a letter for each, n for numbers and b for bytes."""
    count = len(kinds)
    starts = _starts(values)
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    words = np.empty((len(values), count), "<i8")
    if len(values):
        windows = np.ndarray((max(len(data) - 8 * count + 1, 0), 8 * count), np.uint8, data, strides=(1, 1))
        words = windows[starts].view("<i8")
    numbers, lengths = kinds.count("n"), words[:, kinds.count("n") :]
    begins = starts + 8 * count
    texts = []
    for number in range(count - numbers):
        texts.append(_spans(data, begins, lengths[:, number]))
        begins = begins + lengths[:, number]
    plain = iter(np.ascontiguousarray(words[:, number], np.int64) for number in range(numbers))
    bytes_ = iter(texts)
    return [next(plain) if kind == "n" else next(bytes_) for kind in kinds]


def fixed_width(data: object, width: int, count: int) -> pa.BinaryArray:
    """A column of `count` values of `width` bytes each, which stand in `data` one after the other."""
    assert width * count < 1 << 31, "one batch of one shard touches more groups than one Arrow array can hold"
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def without_first(values: pa.BinaryArray, count: int) -> pa.BinaryArray:
    """Each value without its first `count` bytes; none is shorter."""
    starts = _starts(values)
    lengths = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64) - count
    return _spans(np.frombuffer(values.buffers()[2] or b"", np.uint8), starts + count, lengths)


def _starts(values: pa.BinaryArray) -> Int64s:
    offsets = np.frombuffer(values.buffers()[1] or b"\0\0\0\0", np.int32, len(values) + 1, values.offset * 4)
    return offsets[:-1].astype(np.int64)


def _spans(data: np.ndarray[tuple[int], np.dtype[np.uint8]], begins: Indices, lengths: Int64s) -> pa.BinaryArray:
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    owner, rank = members(lengths)
    return pa.Array.from_buffers(
        pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data[begins[owner] + rank])]
    )
