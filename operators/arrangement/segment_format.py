"""The format of a segment: a header, then all columns, each in the smallest form that can be read without decoding.

The header consists of a line with the name and version of the format, and a line of JSON. The JSON has the number of
rows and, for each column in `entries.COLUMNS`, the column's form and the sizes of its parts in bytes. Parts begin at
multiples of `_ALIGN` bytes.

    numbers      ["same", value]        no part: all rows have this value
                 ["each"]               the array, little-endian
    byte strings ["width", bytes]       the bytes of all values, which have equal lengths
                 ["offsets"]            the 32-bit offsets of the values, and the bytes of the values
                 if there are nulls, both forms have an additional first part with one bit per row

Columns are read as views of the blob. A column with the same value in all rows is read with a stride of zero. For
columns of byte strings with equal lengths, all segments share the same array of offsets.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.arrangement.entries import COLUMNS, Entries
from rowkind.operators.columns.grouping import to_mask

FORMAT = b"rowkind segment 2\n"
_ALIGN = 64
_OFFSETS_AT_LEAST = 1 << 16

SegmentPart = np.ndarray[Any, np.dtype[Any]]


def to_blob(entries: Entries) -> pa.Buffer:
    """Serialize the entries as a blob."""
    forms, parts = [], []
    for column in entries.columns:
        form, of_column = _of_numbers(column) if isinstance(column, np.ndarray) else _of_bytes(column)
        forms.append([form, [part.nbytes for part in of_column]])
        parts += of_column
    header = FORMAT + json.dumps([len(entries), forms], separators=(",", ":")).encode() + b"\n"
    places = [*_places(len(header), [part.nbytes for part in parts])]
    size = places[-1] + parts[-1].nbytes if parts else len(header)
    blob = pa.allocate_buffer(size)
    octets = np.frombuffer(blob, np.uint8)
    octets[: len(header)] = np.frombuffer(header, np.uint8)
    end = len(header)
    for place, part in zip(places, parts, strict=True):
        octets[end:place] = 0
        end = place + part.nbytes
        octets[place:end] = part.view(np.uint8)
    return blob


def from_blob(blob: pa.Buffer) -> Entries:
    """Return the entries in a blob that begins with `FORMAT`, as views. Raises `ValueError` if the blob is damaged."""
    octets = np.frombuffer(blob, np.uint8)
    text, newline, _ = blob.slice(len(FORMAT), min(blob.size - len(FORMAT), 4096)).to_pybytes().partition(b"\n")
    if not newline:
        raise ValueError("the header is incomplete")
    rows, forms = json.loads(text)
    places = _places(len(FORMAT) + len(text) + 1, [size for _, sizes in forms for size in sizes])
    columns = []
    for dtype, (form, sizes) in zip(COLUMNS.values(), forms, strict=True):
        parts = []
        for size in sizes:
            place = next(places)
            if place + size > blob.size:
                raise ValueError(f"the blob has {blob.size} bytes, expected at least {place + size}")
            parts.append(blob.slice(place, size) if dtype is None else octets[place : place + size])
        columns.append(_to_bytes(rows, form, parts) if dtype is None else _to_numbers(rows, form, parts, dtype))
    return Entries(*columns)


def _places(start: int, sizes: list[int]) -> Iterator[int]:
    """Yield the position at which each part begins, given the sizes of the parts."""
    for size in sizes:
        start += -start % _ALIGN
        yield start
        start += size


def _of_numbers(column: SegmentPart) -> tuple[list[Any], list[SegmentPart]]:
    if len(column) and (column == column[0]).all():
        return ["same", int(column[0])], []
    return ["each"], [np.ascontiguousarray(column)]


def _to_numbers(rows: int, form: list[Any], parts: list[SegmentPart], dtype: np.dtype[Any]) -> SegmentPart:
    if form[0] == "same":
        return np.broadcast_to(np.array(form[1], dtype), rows)
    return parts[0].view(dtype)


def _of_bytes(column: pa.BinaryArray) -> tuple[list[Any], list[SegmentPart]]:
    rows = len(column)
    _, offsets_buffer, data = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, rows + 1, column.offset * 4)
    octets = np.frombuffer(data or b"", np.uint8)[offsets[0] : offsets[-1]]
    nulls = [np.packbits(to_mask(pc.is_valid(column)), bitorder="little")] if column.null_count else []
    width = len(octets) // max(1, rows)
    if rows and (np.diff(offsets) == width).all():
        return ["width", width], [*nulls, octets]
    return ["offsets"], [*nulls, offsets - offsets[0], octets]


def _to_bytes(rows: int, form: list[Any], parts: list[pa.Buffer]) -> pa.BinaryArray:
    *others, data = parts
    offsets = _offsets_of(form[1], max(rows, _OFFSETS_AT_LEAST)) if form[0] == "width" else others.pop()
    return pa.Array.from_buffers(pa.binary(), rows, [others[0] if others else None, offsets, data])


@lru_cache(maxsize=64)
def _offsets_of(width: int, rows: int) -> pa.Buffer:
    """Return the offsets of `rows` values with `width` bytes each. Equally wide columns share one array of offsets."""
    return pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * np.int32(width))
