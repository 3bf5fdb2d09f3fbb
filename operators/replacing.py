"""Replacing: the layout in which an entry says all there is to say of its key, and replaces what was said before.

An update is one entry and not two: the old row need not be written again to go. The upper half of a place is that of
the key's hash, the lower half the number of the batch, so that the entries of a key stand in the order in which they
were written, whichever runs they come from. The last one counts: with a positive weight it is the key's row, with a
negative one it says that there is none any more. That is forgotten too once everything before it has been merged.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from operators.changes import Mask
from operators.entries import Entries
from operators.grouping import distinct, equal_bytes, group, is_in

UPPER = np.uint64(0xFFFFFFFF00000000)


def of_batch(entries: Entries, number: int) -> Entries:
    """The entries as the batch with this number writes them."""
    assert number <= int(~UPPER), "the number of a batch has 32 bits"
    return replace(entries, place=(entries.place & UPPER) | np.uint64(number))


def latest(entries: Entries) -> Entries:
    """The last entry of each key, of entries in order of place."""
    key_place = entries.place & UPPER
    together = np.flatnonzero(key_place[1:] == key_place[:-1])
    if len(together) == 0:
        return entries
    before, after = (entries.key.take(pa.array(rows)) for rows in (together, together + 1))
    same = (entries.hash[together] == entries.hash[together + 1]) & equal_bytes(before, after)
    replaced = np.zeros(len(entries), np.bool_)
    replaced[together] = same
    if not same.all():
        # Entries of keys that share a place stand mixed, so that the next one of a key need not be its neighbour.
        rows = np.flatnonzero(is_in(key_place, distinct(key_place[together[~same]])))
        groups = group(entries.hash[rows], [entries.key.take(pa.array(rows))])
        last = np.zeros(groups.count, np.int64)
        last[groups.ids] = rows
        replaced[rows] = True
        replaced[last] = False
    return entries.filter(~replaced)


def rows_of(entries: Entries) -> Entries:
    """The row of each key that has one, of entries in order of place."""
    last = latest(entries)
    rows = last.filter(last.weight > 0)
    return replace(rows, place=rows.place & UPPER)


def is_needless(entries: Entries, before: int | None) -> Mask:
    """Which entries say that there is no row where nothing else says that there was one: those before are all merged.

    `before` is the place up to which they have been merged already, None for nowhere: there a key may be half done.
    """
    needless: Mask = entries.weight < 0
    if before is not None:
        needless &= (entries.place & UPPER) != (np.uint64(before) & UPPER)
    return needless
