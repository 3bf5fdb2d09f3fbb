"""Versions: the row that a table with a key has for each key at any time, in an arrangement of layout *ordered*.

An inserted row is a version of its key from its time on. It replaces a version with the same time and no other. The old
row of an update is ignored. A delete ends the key at its own time, which is the time of the row that it carries. From
then on the key has no row, up to the next version. The end of a key is stored as a version with a mark, even if no
version that it ends is known: that version may arrive later.

A delete that carries only its key has no time of its own. It ends the key where the newest version that arrived before
it begins, or at the time that was assigned to it on its way, if that is later (`service.execute.delete_times`). If
there is no such version, the delete is ignored.

The changes are those that the table sent, in the order of seq. So the versions depend only on the changes and their
order, and not on how they are cut into batches.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.resolving import Resolved, entries_of
from rowkind.operators.arrangement.touched_keys import TouchedKeys
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns import number_bytes
from rowkind.operators.columns.changes import Changes, Indices, Int64s
from rowkind.operators.columns.grouping import equal_bytes, group
from rowkind.operators.columns.hashing import mix
from rowkind.operators.temporal_join.nearest import NOWHERE, Line, Points, nearest

Deletes = Literal["with rows", "by key", "by key, timed"]
"""The content of a table's deletes: the row, the key alone, or the key and a time at which the key ends."""

ENDS = 1
"""The mark of a version that ends its key: from its time on the key has no row."""

_LAST = np.iinfo(np.int64).min
_FIRST = np.iinfo(np.int64).max


def resolve_versions(
    rows: Arrangement, keys: TouchedKeys, of_key: Indices, changes: Changes, deletes: Deletes
) -> Resolved:
    """Resolve changes of the keys `of_key` to versions, which are ordered from the latest to the first.

    The sub-key of a version is the position of its time in that order. A delete whose time is NULL is treated as one by
    key.
    """
    at = number_bytes.from_bytes(changes.sub_key)
    ends = changes.kind == RowKind.DELETE
    said = np.flatnonzero(ends | ((changes.weight > 0) & (at != NOWHERE)))
    said = said[np.lexsort((changes.seq[said], of_key[said]))]
    key, at, ends = of_key[said], at[said], ends[said]
    undated = ends & ((deletes != "with rows") | (at == NOWHERE))
    if undated.any():
        latest = _latest(rows, keys, key, np.where(undated, _FIRST, at))
        known = ~undated | (latest < _FIRST)
        own = np.minimum(latest, at) if deletes == "by key, timed" else latest
        at = np.where(undated, own, at)[known]
        said, key, ends = said[known], key[known], ends[known]
    # Of several changes of one version, the last one counts.
    groups = group(mix(key.astype(np.uint64), at.view(np.uint64)), (key, at))
    last = np.empty(groups.count, np.int64)
    last[groups.ids] = np.arange(len(said))
    come = entries_of(rows, replace(changes.take(said[last]), sub_key=number_bytes.to_bytes(at[last])))
    return _replaced(rows, come.relabel(mark=np.where(ends[last], ENDS, 0).astype(np.int8)))


def _latest(rows: Arrangement, keys: TouchedKeys, key: Indices, comes: Int64s) -> Int64s:
    """Return for each change the position of its key's latest version so far, stored or earlier in the batch.

    The end of a key is one of its versions, and ending a key twice changes nothing.
    """
    new = np.append(True, key[1:] != key[:-1])
    first, number = np.flatnonzero(new), np.cumsum(new) - 1
    points = Points(key[first], np.full(len(first), _LAST))
    line = Line.of(keys, nearest(rows, keys, points, Entries.empty()))
    found = line.points.next_of(points)
    stored = np.where(found >= 0, np.append(line.points.at, _FIRST)[found], _FIRST)
    # The running minimum in each key: the numbers are shifted so that those of each key are below all of the previous
    # one.
    levels, rank = np.unique(np.minimum(comes, stored[number]), return_inverse=True)
    base = number * len(levels)
    latest: Int64s = levels[np.minimum.accumulate(rank - base) + base]
    return latest


def _replaced(rows: Arrangement, come: Entries) -> Resolved:
    """Resolve new versions against the stored ones with the same times."""
    stored = rows.at(come.place)
    none = np.empty(0, np.int64)
    if not len(stored):
        return Resolved(come, stored, Entries.empty(), none)
    both = Entries.concat([come, stored])
    groups = group(mix(both.hash, both.place), (both.key, both.sub_key))
    at = np.full(groups.count, -1)
    at[groups.ids[: len(come)]] = np.arange(len(come))
    new = at[groups.ids[len(come) :]]
    gone, new = stored.filter(new >= 0), new[new >= 0]
    pair = come.take(new)
    both_end = (gone.mark == ENDS) & (pair.mark == ENDS)
    same = both_end | (equal_bytes(gone.payload, pair.payload) & (gone.mark == pair.mark))
    stays = np.ones(len(come), np.bool_)
    stays[new[same]] = False
    return Resolved(come.filter(stays), gone.filter(~same), Entries.empty(), none)
