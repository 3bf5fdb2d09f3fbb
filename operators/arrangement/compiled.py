"""Finds, cancels and copies rows of sorted runs by a few calls of a small library in C, `runs.c`.

The same work by NumPy and Arrow takes several calls for each column of each segment: for small batches, that was most
of a lookup's time. The library is compiled when Rowkind is installed. Without a compiler, the functions here return
None, and the caller does the work with NumPy, which is also the oracle of the tests.

A *view* describes columns by their addresses. It consists of 29 numbers: the number of rows, whether the hashes are
those of the keys and have no column, and, for each column in `entries.COLUMNS`, the address of its data and the value
of all rows if it has no data (numbers), or the address of the validity bits, the first bit, the addresses of offsets
and data, and the width of all values if it has no offsets (bytes).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from rowkind.native import address
from rowkind.operators.arrangement.entries import COLUMNS, Entries
from rowkind.operators.columns import library
from rowkind.operators.columns.changes import Indices, Int64s, Uint64s

_SPOT = np.dtype([("view", "<i4"), ("row", "<i4")])

ColumnsView = Int64s


def view_of(entries: Entries) -> tuple[ColumnsView, Any]:
    """Return a view of entries, and what must be kept as long as the view is used."""
    numbers, kept = [len(entries), 0], list[Any]()
    for column, dtype in zip(entries.columns, COLUMNS.values(), strict=True):
        if dtype is None:
            numbers += _text(column)
            kept.append(column)
        elif len(column) and column.strides[0] == 0:
            numbers += [0, signed(int(column[0]))]
        else:
            array = np.ascontiguousarray(column, dtype)
            numbers += [array.ctypes.data, 0]
            kept.append(array)
    return np.array(numbers, np.int64), kept


def _text(column: pa.BinaryArray) -> list[int]:
    known, end, data = column.buffers()
    return [
        known.address if column.null_count else 0,
        column.offset,
        0 if end is None else end.address + 4 * column.offset,
        0 if data is None else data.address,
        0,
    ]


def signed(number: int) -> int:
    """Return the int64 with the bits of a uint64."""
    return number - (1 << 64) if number >> 63 > 0 else number


@dataclass(frozen=True, slots=True)
class Intervals:
    """Closed intervals of places, disjoint and ascending, and for each segment the range of those to search it for.

    If `last` is given, it has the greatest seq of rows at the last place of each interval.
    """

    low: Uint64s
    high: Uint64s
    first: Indices
    stop: Indices
    last: Int64s | None = None

    @property
    def addresses(self) -> tuple[ctypes.c_void_p, ...]:
        """The arguments of the library."""
        ranges = (np.ascontiguousarray(each, np.int64) for each in (self.first, self.stop))
        places = (np.ascontiguousarray(each, np.uint64) for each in (self.low, self.high))
        return tuple(map(address, (*ranges, *places)))


@dataclass(frozen=True, slots=True)
class Liveness:
    """The rules by which stored entries become live rows.

    - `expired_until`: rows written at or before this time have expired; None if no row expires.
    - `complement`: the stored seqs have all bits inverted.
    - `replaces`: an entry replaces earlier entries with the same key.
    """

    expired_until: int | None = None
    complement: bool = False
    replaces: bool = False


@dataclass(frozen=True)
class Reached:
    """The range of each key, from the place `low` to (`place`, `seq`) so far. `missing`: rows left to find in a run."""

    low: Uint64s
    place: Uint64s
    seq: Int64s
    missing: Int64s

    @cached_property
    def addresses(self) -> tuple[ctypes.c_void_p, ...]:
        """The arguments of the library."""
        return tuple(map(address, (np.ascontiguousarray(self.low), self.place, self.seq, self.missing)))


@dataclass(frozen=True, slots=True)
class Found:
    """Live rows, whether an entry with a negative weight was met, and how many entries were read."""

    live: Entries
    negative: bool
    read: int


def lookup(
    views: Sequence[ColumnsView],
    intervals: Intervals,
    rules: Liveness,
    *,
    less: tuple[Entries, Indices] | None = None,
    payloads: pa.BinaryArray | None = None,
) -> Found | None:
    """Return the live rows in the intervals of the viewed segments.

    `less`: entries in their stored form, and the indices of those that are treated as stored. If `payloads` is given,
    only stored rows with one of these payloads are returned.
    """
    kernels = library.kernels()
    if kernels is None:
        return None
    parts, _kept = list(views), None
    if less is not None:
        of_less, _kept = view_of(less[0])
        parts.append(of_less)
    table = np.concatenate(parts) if parts else np.empty(0, np.int64)
    more = 0 if less is None else len(less[1])
    room = 2 * int((intervals.stop - intervals.first).sum()) + 64
    while True:
        spots = np.empty(room + more, _SPOT)
        found = kernels.rk_find(
            address(table),
            ctypes.c_int64(len(views)),
            *intervals.addresses,
            None if intervals.last is None else address(np.ascontiguousarray(intervals.last)),
            address(spots),
            ctypes.c_int64(room),
        )
        if found <= room:
            break
        room = found
    read = found + more
    if payloads is not None:
        texts = address(np.array(_text(payloads), np.int64))
        start = address(table), address(spots), ctypes.c_int64(found)
        found = kernels.rk_among(*start, texts, ctypes.c_int64(len(payloads)))
        if found < 0:
            return None
    if less is not None:
        of_less_spots = spots[found : found + more]
        of_less_spots["view"], of_less_spots["row"] = len(views), less[1]
    settled = _settled(table, spots[: found + more], rules)
    return None if settled is None else replace(settled, read=read)


def shorten(view: ColumnsView, ends: tuple[int, int], reached: Reached, many: int | None) -> bool:
    """Shorten the ranges of keys after searching one segment for their first rows. Return whether this could be done.

    `ends`: the segment's first and last place. `many`: the range of a key ends between rows of one place if more than
    this number of them follow; None if it must not.
    """
    kernels = library.kernels()
    if kernels is None:
        return False
    kernels.rk_reach(
        address(view),
        ctypes.c_int64(len(reached.low)),
        *map(ctypes.c_uint64, ends),
        *reached.addresses,
        ctypes.c_int64(-1 if many is None else many),
    )
    return True


def consolidate(parts: Sequence[Entries]) -> Entries | None:
    """Return the same as `summing.consolidate`."""
    if library.kernels() is None:
        return None
    viewed = [view_of(part) for part in parts]
    spots = np.empty(sum(map(len, parts)), _SPOT)
    at = 0
    for number, part in enumerate(parts):
        of_part = spots[at : at + len(part)]
        of_part["view"], of_part["row"] = number, np.arange(len(part))
        at += len(part)
    settled = _settled(np.concatenate([view for view, _ in viewed]), spots, Liveness(), always=True)
    return None if settled is None else settled.live


def count(
    views: Sequence[ColumnsView], intervals: Intervals, keys: pa.BinaryArray, expired_until: int | None
) -> Int64s | None:
    """Return the weight of each key's unexpired rows. Key i has its rows in interval i, perhaps among others."""
    kernels = library.kernels()
    if kernels is None:
        return None
    total = np.zeros(len(keys), np.int64)
    kernels.rk_count(
        address(np.concatenate(views) if views else total),
        ctypes.c_int64(len(views)),
        *intervals.addresses,
        address(np.array(_text(keys), np.int64)),
        _until(expired_until),
        address(total),
    )
    return total


def _settled(table: Int64s, spots: Any, rules: Liveness, *, always: bool = False) -> Found | None:
    """Add up the entries at `spots`. `always`: also put them in order if nothing can cancel."""
    kernels = library.kernels()
    assert kernels is not None
    weight, sizes = np.empty(len(spots), np.int64), np.zeros(7, np.int64)
    start = (address(table), address(spots), ctypes.c_int64(len(spots)), address(weight), _until(rules.expired_until))
    if rules.replaces:
        count = kernels.rk_last(*start, address(sizes))
    else:
        count = kernels.rk_consolidate(*start, int(always), int(rules.complement), address(sizes))
    if count < 0 or sizes[:3].max() > np.iinfo(np.int32).max:  # Arrow's offsets have 32 bits.
        return None
    if count == 0:
        return Found(Entries.empty(), bool(sizes[6]), len(spots))
    entries = _copied(kernels, table, spots, weight[:count], sizes)
    if rules.complement:
        entries = replace(entries, seq=~entries.seq)
    return Found(entries, bool(sizes[6]), len(spots))


def _until(expired_until: int | None) -> Any:
    return None if expired_until is None else ctypes.byref(ctypes.c_int64(expired_until))


def _copied(kernels: ctypes.CDLL, table: Int64s, spots: Any, weight: Int64s, sizes: Int64s) -> Entries:
    """Copy the columns of rows to one new buffer."""
    count = len(weight)
    texts = [
        ((count + 7) // 8 if nulls else 0, 4 * (count + 1), size)
        for nulls, size in zip(sizes[3:6].tolist(), sizes[:3].tolist(), strict=True)
    ]
    parts = [8 * count] * 4 + [count] + [size for of_text in texts for size in of_text]
    starts = [0, *accumulate(size + -size % 8 for size in parts)]
    block = pa.allocate_buffer(starts[-1])
    target = [block.address + start if size else 0 for start, size in zip(starts, parts, strict=False)]
    kernels.rk_copy(address(table), address(spots), ctypes.c_int64(count), address(np.array(target, np.int64)))
    place, hash_ = (np.frombuffer(block, np.uint64, count, start) for start in starts[:2])
    written_at, seq = (np.frombuffer(block, np.int64, count, start) for start in starts[2:4])
    mark = np.frombuffer(block, np.int8, count, starts[4])
    buffers = [block.slice(start, size) for start, size in zip(starts, parts, strict=False)]
    key, sub_key, payload = (
        pa.Array.from_buffers(pa.binary(), count, [buffers[at] if parts[at] else None, *buffers[at + 1 : at + 3]])
        for at in (5, 8, 11)
    )
    return Entries(place, hash_, key, sub_key, payload, weight, written_at, seq, mark)


def shape(view: ColumnsView) -> Int64s | None:
    """Return how a segment's columns can be stored: 6 numbers for the columns of numbers, then 2 for each of bytes.

    The former are 1 if all rows have the same value. The latter are the width of all values, or -1, and their size.
    There must be a row.
    """
    kernels = library.kernels()
    if kernels is None:
        return None
    result = np.empty(12, np.int64)
    kernels.rk_shape(address(view), address(result))
    return result


def store(view: ColumnsView, blob: pa.Buffer, places: Sequence[int]) -> None:
    """Write the parts of a segment's columns to their places in a blob, and zeros between them.

    `places`: those of the numbers, then of the validity bits, offsets and data of each column of bytes; 0 for none.
    """
    kernels = library.kernels()
    assert kernels is not None
    kernels.rk_store(
        address(view), ctypes.c_void_p(blob.address), ctypes.c_int64(blob.size), address(np.array(places, np.int64))
    )
