"""Lists of values as bytes: the length of each in four bytes, the lowest first, and the value behind it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.columns.changes import Indices, binary, lengths
from rowkind.operators.columns.packed_columns import fixed_width, spans, starts_of

_WIDTH = 4


def lists_of(values: pa.BinaryArray, bounds: Indices) -> pa.BinaryArray:
    """Values as lists, the i-th of those from `bounds[i]` up to `bounds[i + 1]`, which are one after the other."""
    widths = fixed_width(lengths(values).astype("<u4"), _WIDTH, len(values))
    written = pc.binary_join_element_wise(widths, values, b"") if len(values) else binary(())
    offsets = starts_of(written)[bounds].astype(np.int32)
    data = written.buffers()[2] or pa.py_buffer(b"")
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(offsets), data])


def members_of(lists: pa.BinaryArray) -> tuple[Indices, pa.BinaryArray]:
    """The values of lists, one list after the other, and of which list each is."""
    starts = starts_of(lists)
    data = np.frombuffer(lists.buffers()[2] or b"", np.uint8)
    owner, at, ends = np.arange(len(lists)), starts[:-1], starts[1:]
    owners, begins, sizes = [owner[:0]], [at[:0]], [at[:0]]
    # One round for each place in a list: the first values of all, then the second ones.
    while (more := at < ends[owner]).any():
        owner, at = owner[more], at[more]
        size = data[at[:, None] + np.arange(_WIDTH)].view("<u4")[:, 0].astype(np.int64)
        owners.append(owner)
        begins.append(at + _WIDTH)
        sizes.append(size)
        at = at + _WIDTH + size
    place = np.concatenate(begins)
    order = np.argsort(place)
    return np.concatenate(owners)[order], spans(data, place[order], np.concatenate(sizes)[order])
