"""Layout *last write*: an entry is the complete state of its key, and replaces the key's earlier entries.

An update takes one entry instead of two, because it does not write the old row again to retract it. An entry's *place*
is its 64-bit sort position within a run. In this layout, the upper half of the place is the upper half of the key's
hash, and the lower half is the batch number. The places of a key's entries are therefore in the order in which the
entries were written, even across runs. Only the last entry counts: if its weight is positive, it is the key's row; if
its weight is negative, the key has no row. A negative entry is dropped when all earlier entries have been merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.entries import UPPER, Entries
from rowkind.operators.arrangement.segment import Segment
from rowkind.operators.columns.changes import Indices, Mask, Uint64s, concat_binary
from rowkind.operators.columns.grouping import distinct, equal_bytes, group, is_in
from rowkind.operators.columns.sorting import order_of


def of_batch(entries: Entries, number: int) -> Entries:
    """Return the entries with the places that are assigned to them in batch `number`."""
    assert number <= int(~UPPER), "a batch number must fit into 32 bits"
    return replace(entries, place=(entries.place & UPPER) | np.uint64(number))


def are_last(place: Uint64s, hashes: Uint64s, key: pa.BinaryArray) -> Mask:
    """Return a mask of the last entry of each key. The entries may be in any order."""
    order = order_of(place)
    key_place = place[order] & UPPER
    together = np.flatnonzero(key_place[1:] == key_place[:-1])
    before, after = order[together], order[together + 1]
    same = (hashes[before] == hashes[after]) & equal_bytes(key.take(pa.array(before)), key.take(pa.array(after)))
    result = np.ones(len(place), np.bool_)
    result[before[same]] = False
    if not same.all():
        # If keys share the upper half of a place, their entries are interleaved: a key's entries need not be adjacent.
        rows = order[is_in(key_place, distinct(key_place[together[~same]]))]
        groups = group(hashes[rows], [key.take(pa.array(rows))])
        last = np.zeros(groups.count, np.int64)
        last[groups.ids] = rows
        result[rows] = False
        result[last] = True
    return result


def latest(entries: Entries) -> Entries:
    """Return the last entry of each key. The order of the entries does not change."""
    return entries.filter(are_last(entries.place, entries.hash, entries.key))


def rows_at(found: Sequence[tuple[Segment, Indices]]) -> Entries:
    """Return the current row of each key that has one, given the indices of entries in segments.

    Only the columns of the current rows are read completely.
    """
    if not found:
        return Entries.empty()
    parts = [(segment.entries, rows) for segment, rows in found]
    place, hashes, weight = (
        np.concatenate([getattr(entries, name)[rows] for entries, rows in parts])
        for name in ("place", "hash", "weight")
    )
    key = concat_binary([entries.key.take(pa.array(rows)) for entries, rows in parts])
    wanted = are_last(place, hashes, key) & (weight > 0)
    ends = np.cumsum([len(rows) for _, rows in parts])[:-1]
    of_parts = zip(parts, np.split(wanted, ends), strict=True)
    result = Entries.concat([entries.take(rows[mask]) for (entries, rows), mask in of_parts])
    return replace(result, place=result.place & UPPER)


def is_needless(entries: Entries, before: int | None) -> Mask:
    """Return a mask of the negative entries that can be dropped in a merge that reads all earlier entries.

    `before` is the place up to which entries have already been merged, or None. Some entries of a key at that place may
    already have been written, so the key's negative entries are kept.
    """
    needless: Mask = entries.weight < 0
    if before is not None:
        needless &= (entries.place & UPPER) != (np.uint64(before) & UPPER)
    return needless
