"""A segment: an immutable blob of entries in order of (place, seq), named by its digest.

An entry's *place* is its 64-bit sort position within a run (`operators.arrangement.layout`). Entries with the same
place are ordered by seq.

Reading a blob copies no data, because the columns are views of the blob (`operators.arrangement.segment_format`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Self

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.segment_format import (
    FORMAT,
    READABLE,
    from_blob,
    place_of_blob,
    to_blob,
    view_of_blob,
)
from rowkind.operators.arrangement.store import digest
from rowkind.operators.columns.changes import Indices, Int64s, Uint64s
from rowkind.operators.columns.grouping import equal_bytes, members
from rowkind.operators.errors import StateCorrupted, StateFormatUnknown

LAST_SEQ = (1 << 63) - 1
"""The greatest seq."""

SEGMENT_ROWS = 1 << 16
"""The maximum number of rows in a segment."""

SEGMENT_BYTES = 4 << 20
"""The target size in bytes of a segment's columns. A segment with more than one row has at most twice this size."""


class Segment:
    """A segment whose blob has been read. `view` describes its columns (`compiled`); it holds no references."""

    def __init__(self, blob: pa.Buffer) -> None:
        """Raises `ValueError` or `TypeError` if the blob is damaged."""
        self._blob = blob
        self.view = view_of_blob(blob)

    @cached_property
    def entries(self) -> Entries:
        """The entries, as views of the blob."""
        return from_blob(self._blob)

    @classmethod
    def open(cls, blob: pa.Buffer, name: str, arrangement: str) -> Self:
        """Open the segment in `blob`; `name` and `arrangement` are used in error messages.

        Raises `StateFormatUnknown` or `StateCorrupted`.
        """
        header = blob.slice(0, min(len(FORMAT), blob.size)).to_pybytes()
        if header not in READABLE:
            raise StateFormatUnknown(arrangement, name, header.decode("ascii", "replace"), FORMAT.decode())
        try:
            return cls(blob)
        except (ValueError, TypeError) as error:
            raise StateCorrupted(arrangement, name, str(error)) from error

    @cached_property
    def place(self) -> Uint64s:
        """The places of all rows, as a view of the blob."""
        return place_of_blob(self._blob)

    def find(self, low: Uint64s, high: Uint64s) -> Indices:
        """Return the indices of rows with places in the closed intervals, which must be disjoint and ascending."""
        places = self.place
        if len(places) <= len(low):
            interval = np.searchsorted(low, places, side="right") - 1
            return np.flatnonzero((interval >= 0) & (places <= high[np.maximum(interval, 0)]))
        first = np.searchsorted(places, low)
        hits = np.flatnonzero(places[np.minimum(first, len(places) - 1)] <= high)
        first = first[hits]
        counts = np.searchsorted(places, high[hits], side="right") - first
        owner, rank = members(counts)
        return first[owner] + rank

    def find_nth(self, low: Uint64s, high: Uint64s, numbers: Int64s) -> tuple[Indices, Int64s]:
        """Return the index of the n-th row in each closed interval, or -1 if the interval has fewer than n rows.

        The intervals must be disjoint and ascending. `numbers` has n, which counts from 1, for each interval. The
        second result is n minus the number of rows in the interval.
        """
        places = self.place
        first = np.searchsorted(places, low)
        counts = np.searchsorted(places, high, side="right") - first
        return np.where(counts >= numbers, first + numbers - 1, -1), numbers - counts

    def find_up_to(self, low: Uint64s, place: Uint64s, seq: Int64s) -> Indices:
        """Return the indices of rows from each place in `low` up to and including (`place`, `seq`).

        The ranges must not overlap.
        """
        places = self.place
        first, stop = np.searchsorted(places, low), np.searchsorted(places, place, side="right")
        for at in np.flatnonzero((seq != LAST_SEQ) & (stop > first)):
            stop[at] = self.after(int(place[at]), int(seq[at]))
        owner, rank = members(stop - first)
        return first[owner] + rank

    def subs_at(self, place: int) -> set[bytes | None]:
        """Return a set with the sub-key that all rows at this place have, or with None if their sub-keys differ.

        If there are no rows at this place, the set is empty.
        """
        places = self.place
        first, stop = (int(np.searchsorted(places, np.uint64(place), side=side)) for side in ("left", "right"))
        if first == stop:
            return set()
        sub_key = self.entries.sub_key
        offsets = np.frombuffer(sub_key.buffers()[1], np.int32, stop - first + 1, (sub_key.offset + first) * 4)
        width = int(offsets[1] - offsets[0])
        if (np.diff(offsets) != width).any():
            return {None}
        octets = np.frombuffer(sub_key.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
        return {None} if (octets[width:] != octets[: len(octets) - width]).any() else {octets[:width].tobytes()}

    def after(self, place: int, seq: int) -> int:
        """Return the index of the first row after (`place`, `seq`)."""
        places = self.place
        first = int(np.searchsorted(places, np.uint64(place)))
        stop = int(np.searchsorted(places, np.uint64(place), side="right"))
        return first + int(np.searchsorted(self.entries.seq[first:stop], seq, side="right"))


def weigh(entries: Entries, low: Uint64s, high: Uint64s, keys: pa.BinaryArray, expired_until: int | None) -> Int64s:
    """Return the total weight of each key's unexpired rows among entries in order, in the key's closed interval.

    If the intervals have many rows, the rows of an interval are usually summed without comparing each row's key,
    because they all have the same key.
    """
    weight = entries.weight
    if expired_until is not None:
        weight = np.where(entries.written_at > expired_until, weight, 0)
    first = np.searchsorted(entries.place, low)
    stop = np.searchsorted(entries.place, high, side="right")
    result = np.zeros(len(low), np.int64)
    severally = np.flatnonzero(stop > first)
    if int((stop - first).sum()) > len(entries) // 4:
        new_key = ~equal_bytes(entries.key[1:], entries.key[:-1])
        number, total = (np.concatenate(([0], np.cumsum(steps))) for steps in (new_key, weight))
        of_one_key = number[first[severally]] == number[stop[severally] - 1]
        whole, severally = severally[of_one_key], severally[~of_one_key]
        whole = whole[equal_bytes(entries.key.take(pa.array(first[whole])), keys.take(pa.array(whole)))]
        result[whole] = total[stop[whole]] - total[first[whole]]
    owner, rank = members((stop - first)[severally])
    of_key, row = severally[owner], first[severally][owner] + rank
    same = equal_bytes(entries.key.take(pa.array(row)), keys.take(pa.array(of_key)))
    np.add.at(result, of_key[same], weight[row[same]])
    return result


def encode(entries: Entries) -> tuple[str, pa.Buffer]:
    """Return the name and the blob of a segment with these entries, which must be in order."""
    blob = to_blob(entries)
    return digest(blob), blob


def cut(entries: Entries) -> Iterator[Entries]:
    """Split the entries into pieces of which each fits into one segment."""
    average = max(1, entries.size // max(1, len(entries)))
    rows = max(1, min(SEGMENT_ROWS, SEGMENT_BYTES // average))
    for first in range(0, len(entries), rows):
        piece = entries.slice(first, min(first + rows, len(entries)))
        if len(piece) > 1 and piece.size > 2 * SEGMENT_BYTES:
            yield from cut(piece)
        else:
            yield piece
