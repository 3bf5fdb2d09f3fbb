"""An encoding of integers as bytes that sort in numeric order: a marker byte, then 8 bytes with the sign bit flipped.

The encoded integers can be used as the sub-keys of an arrangement in layout *ordered* (`order_code`).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rowkind.operators.columns.changes import Int64s

_SIGN = np.int64(np.iinfo(np.int64).min)
_WIDTH = 9


def to_bytes(numbers: Int64s) -> pa.BinaryArray:
    """Return the encoded bytes of each number."""
    count = len(numbers)
    octets = np.empty((count, _WIDTH), np.uint8)
    octets[:, 0] = 1
    octets[:, 1:] = (numbers ^ _SIGN).astype(">i8").view(np.uint8).reshape(count, 8)
    offsets = np.arange(count + 1, dtype=np.int32) * _WIDTH
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(octets)])


def from_bytes(values: pa.BinaryArray) -> Int64s:
    """Return the numbers that `to_bytes` encoded."""
    count = len(values)
    if not count:
        return np.empty(0, np.int64)
    first = int(np.frombuffer(values.buffers()[1], np.int32, count + 1, values.offset * 4)[0])
    octets = np.frombuffer(values.buffers()[2], np.uint8, count * _WIDTH, first).reshape(count, _WIDTH)
    numbers: Int64s = np.ascontiguousarray(octets[:, 1:]).view(">i8").ravel().astype(np.int64) ^ _SIGN
    return numbers
