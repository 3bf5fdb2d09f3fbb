"""The format of a segment: a header, then all columns, each in the smallest form that can be read without decoding.

The header consists of a line with the name and version of the format, and a line of JSON. The JSON has the number of
rows and, for each column in `entries.COLUMNS`, the column's form and the sizes of its parts in bytes. Parts begin at
multiples of `_ALIGN` bytes.

    numbers      ["same", value]        no part: all rows have this value
                 ["of key"]             no part: each hash is that of the row's key
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
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.arrangement import compiled
from rowkind.operators.arrangement.entries import COLUMNS, Entries
from rowkind.operators.columns.changes import Int64s, Uint64s, lengths
from rowkind.operators.columns.grouping import to_mask
from rowkind.operators.columns.hashing import LONGEST, hash64

_OF_KEY = ["of key"]

FORMAT = b"rowkind segment 3\n"
READABLE = (b"rowkind segment 2\n", FORMAT)
"""The formats that can be read, with names of equal length. In the older one, hashes are always stored."""

_ALIGN = 64
_OFFSETS_AT_LEAST = 1 << 16

SegmentPart = np.ndarray[Any, np.dtype[Any]]


def to_blob(entries: Entries) -> pa.Buffer:
    """Serialize the entries as a blob."""
    if len(entries):
        view, _kept = compiled.view_of(entries)
        shape = compiled.shape(view)
        if shape is not None:
            return _stored(entries, view, shape.tolist())
    forms, parts = list[Any](), list[SegmentPart]()
    for name, column in zip(COLUMNS, entries.columns, strict=True):
        if name == "hash" and _is_of_key(entries):
            forms.append([_OF_KEY, []])
            continue
        form, of_column = _of_numbers(column) if isinstance(column, np.ndarray) else _of_bytes(column)
        forms.append([form, [part.nbytes for part in of_column]])
        parts += of_column
    header, places, size = _outline(len(entries), forms)
    blob = pa.allocate_buffer(size)
    octets = np.frombuffer(blob, np.uint8)
    octets[: len(header)] = np.frombuffer(header, np.uint8)
    end = len(header)
    for place, part in zip(places, parts, strict=True):
        octets[end:place] = 0
        end = place + part.nbytes
        octets[place:end] = part.view(np.uint8)
    return blob


@dataclass(frozen=True, slots=True)
class _Header:
    """What the header of a blob says: `parts` are the positions and sizes of each column's parts, in bytes.

    `view` describes the columns with positions in the blob (`compiled`); `addresses` is 1 where it has a position.
    """

    rows: int
    forms: list[list[Any]]
    parts: list[list[tuple[int, int]]]
    end: int
    view: Int64s
    addresses: Int64s


def from_blob(blob: pa.Buffer) -> Entries:
    """Return the entries in a blob of a format in `READABLE`, as views. Raises `ValueError` if the blob is damaged."""
    header = _header_of(blob)
    octets = np.frombuffer(blob, np.uint8)
    columns: dict[str, Any] = {}
    for (name, dtype), form, places in zip(COLUMNS.items(), header.forms, header.parts, strict=True):
        if dtype is None:
            columns[name] = _to_bytes(header.rows, form, [blob.slice(*place) for place in places])
        elif form != _OF_KEY:
            parts = [octets[place : place + size] for place, size in places]
            columns[name] = _to_numbers(header.rows, form, parts, dtype)
    if "hash" not in columns:
        columns["hash"] = hash64(columns["key"])
    return Entries(**columns)


def view_of_blob(blob: pa.Buffer) -> Int64s:
    """Return a view (`compiled`) of the columns of such a blob. Raises `ValueError` if the blob is damaged."""
    header = _header_of(blob)
    view: Int64s = header.view + blob.address * header.addresses
    return view


def place_of_blob(blob: pa.Buffer) -> Uint64s:
    """Return the places of the rows in such a blob. Raises `ValueError` if the blob is damaged."""
    header = _header_of(blob)
    parts = [np.frombuffer(blob, np.uint8, size, place) for place, size in header.parts[0]]
    places: Uint64s = _to_numbers(header.rows, header.forms[0], parts, np.dtype("<u8"))
    return places


def _outline(rows: int, forms: list[Any]) -> tuple[bytes, list[int], int]:
    """Return the header of a blob, the places of its parts, and its size."""
    header = FORMAT + json.dumps([rows, forms], separators=(",", ":")).encode() + b"\n"
    sizes = [size for _, of_column in forms for size in of_column]
    places = [*_places(len(header), sizes)]
    return header, places, places[-1] + sizes[-1] if places else len(header)


def _stored(entries: Entries, view: Int64s, shape: list[int]) -> pa.Buffer:
    """Serialize the entries with the compiled library."""
    rows, same, widths = len(entries), iter(shape[:6]), iter(shape[6:])
    forms = list[Any]()
    for (name, dtype), column in zip(COLUMNS.items(), entries.columns, strict=True):
        if dtype is not None:
            is_same = next(same)
            if name == "hash" and _is_of_key(entries):
                forms.append([_OF_KEY, []])
                continue
            forms.append([["same", int(column[0])], []] if is_same else [["each"], [rows * dtype.itemsize]])
            continue
        width, size = next(widths), next(widths)
        nulls = [(rows + 7) // 8] if column.null_count else []
        forms.append([["offsets"], [*nulls, 4 * (rows + 1), size]] if width < 0 else [["width", width], [*nulls, size]])
    header, places, size = _outline(rows, forms)
    blob = pa.allocate_buffer(size)
    at = iter(places)
    numbers, texts = list[int](), list[int]()
    for column, dtype, (form, sizes) in zip(entries.columns, COLUMNS.values(), forms, strict=True):
        of_column = [next(at) for _ in sizes]
        if dtype is not None:
            numbers += of_column or [0]
        else:
            known = of_column.pop(0) if column.null_count else 0
            texts += [known, of_column.pop(0) if form[0] == "offsets" else 0, *of_column]
    compiled.store(view, blob, [*numbers, *texts])
    np.frombuffer(blob, np.uint8)[: len(header)] = np.frombuffer(header, np.uint8)
    return blob


def _header_of(blob: pa.Buffer) -> _Header:
    text, newline, _ = blob.slice(len(FORMAT), min(blob.size - len(FORMAT), 4096)).to_pybytes().partition(b"\n")
    if not newline:
        raise ValueError("the header is incomplete")
    header = _parsed(text)
    if header.end > blob.size:
        raise ValueError(f"the blob has {blob.size} bytes, expected at least {header.end}")
    return header


# A batch opens the segments that the batch before has opened, and their headers hardly take memory.
@lru_cache(maxsize=1 << 12)
def _parsed(text: bytes) -> _Header:
    rows, forms = json.loads(text)
    places = _places(len(FORMAT) + len(text) + 1, [size for _, sizes in forms for size in sizes])
    parts = [[(next(places), size) for size in sizes] for _, sizes in forms]
    numbers, addresses = [rows, int(_OF_KEY in (form for form, _ in forms))], [0, 0]
    for dtype, (form, _), of_column in zip(COLUMNS.values(), forms, parts, strict=True):
        if dtype is not None:
            numbers += [of_column[0][0], 0] if of_column else [0, compiled.signed(form[-1]) if form != _OF_KEY else 0]
            addresses += [len(of_column), 0]
            continue
        *others, data = (place for place, _ in of_column)
        end = others.pop() if form[0] == "offsets" else 0
        known = others.pop() if others else 0
        width = 0 if end else form[1]
        numbers += [known, 0, end, data, width]
        addresses += [int(known > 0), 0, int(end > 0), 1, 0]
    last = max((place + size for of_column in parts for place, size in of_column), default=0)
    view = np.array(numbers, np.int64)
    return _Header(rows, [form for form, _ in forms], parts, last, view, np.array(addresses, np.int64))


def _places(start: int, sizes: list[int]) -> Iterator[int]:
    """Yield the position at which each part begins, given the sizes of the parts."""
    for size in sizes:
        start += -start % _ALIGN
        yield start
        start += size


def _is_of_key(entries: Entries) -> bool:
    """Return whether each row's hash is that of its key. Hashes hardly compress: they took a third of the state."""
    key = entries.key
    if key.null_count or not len(entries) or int(lengths(key).max()) > LONGEST:
        return False
    return bool((hash64(key) == entries.hash).all())


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
