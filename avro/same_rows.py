"""The canonical form of rows that are equal in SQL although their bytes differ.

0.0 equals -0.0, NaN equals NaN with any bits, and maps with the same entries in a different order are equal, also
inside arrays, maps and structs. Where rows are looked up by their content, they are compared in canonical form. The
canonical form is also a row. Stored and emitted rows keep the bytes with which they were sent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro import codec
from rowkind.avro.buffers import offsets_of, validity
from rowkind.avro.schema import Record


@dataclass(frozen=True)
class SameRows:
    """A picklable converter from packed rows of `record` to bytes, which are equal if the rows are equal in SQL."""

    record: Record

    def __call__(self, payloads: pa.BinaryArray) -> pa.BinaryArray:
        """Return the canonical form of each row."""
        names = [field.name for field in self.record.fields if field.type.varies]
        if not names or not len(payloads):
            return payloads
        decoded = codec.read(self.record, payloads)
        changed = {name: same for name in names if (same := _same(decoded.column(name))) is not None}
        if not changed:
            return payloads
        return decoded.assemble(self.record, [changed.get(name, name) for name in self.record.names])


def _same(column: pa.Array) -> pa.Array | None:
    """Return the column in canonical form, with equal bytes for equal values, or None if it already has this form."""
    type_ = column.type
    if pa.types.is_floating(type_):
        return _floats(column)
    if pa.types.is_struct(type_):
        parts = [column.field(number) for number in range(type_.num_fields)]
        same = [_same(part) for part in parts]
        if all(part is None for part in same):
            return None
        children = [part if other is None else other for part, other in zip(parts, same, strict=True)]
        return pa.Array.from_buffers(type_, len(column), [_bitmap(column)], children=children)
    if pa.types.is_list(type_) or pa.types.is_map(type_):
        return _items(column)
    return None


def _floats(column: pa.Array) -> pa.Array | None:
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    same = np.where(np.isnan(values), np.full(1, np.nan, values.dtype), values + values.dtype.type(0))
    if same.tobytes() == values.tobytes():
        return None
    return pa.array(same, column.type, mask=~validity(column))


def _items(column: pa.Array) -> pa.Array | None:
    """Return arrays or maps in canonical form; the entries of a map are sorted by key."""
    is_map = pa.types.is_map(column.type)
    offsets = offsets_of(column).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    values = (column.items if is_map else column.values)[first:last]
    same = _same(values)
    children = [values if same is None else same]
    if is_map:
        keys = column.keys[first:last]
        rows = np.repeat(np.arange(len(column)), np.diff(offsets))
        by = [("row", "ascending"), ("key", "ascending")]
        order = pc.sort_indices(pa.table({"row": rows, "key": keys}), sort_keys=by)
        in_order = bool((np.diff(order.to_numpy().astype(np.int64)) == 1).all())
        if same is None and in_order:
            return None
        entries = [keys, *children] if in_order else [each.take(order) for each in (keys, *children)]
        children = [pa.Array.from_buffers(column.type.field(0).type, last - first, [None], children=entries)]
    elif same is None:
        return None
    buffers = [_bitmap(column), pa.py_buffer((offsets - first).astype(np.int32))]
    return pa.Array.from_buffers(column.type, len(column), buffers, children=children)


def _bitmap(column: pa.Array) -> pa.Buffer | None:
    there = validity(column)
    return None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
