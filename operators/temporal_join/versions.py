"""Table versions: for each key of a table, the rows and the times at which they become valid.

The versions are stored in an arrangement of layout *ordered*. An inserted row is its key's version starting at the
row's time. It replaces only a version with the same time. The old row of an update is ignored. A delete ends its key at
the delete's own time, which is the time of the row that the delete carries. From that time until the next version, the
key has no row. A key's end is stored as a version with a mark. It is stored even if the version before it is unknown,
because that version may arrive later.

A delete that carries only its key has no time of its own. It ends the key at the start of the latest version that
arrived before the delete. If an upstream step has assigned a later time to the delete, the key ends at that time
(`service.execute.delete_times`). If no version arrived before the delete, the delete is ignored.

Changes are applied in the order in which the table sent them, which is `seq` order. So the versions depend only on the
changes and their order, and not on how the changes are split into batches.
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
"""What a table's deletes contain: the row, the key alone, or the key and a time at which the key ends."""

ENDS = 1
"""The mark of a version that ends its key: starting at the version's time, the key has no row."""

_LAST = np.iinfo(np.int64).min
_FIRST = np.iinfo(np.int64).max


def resolve_versions(
    rows: Arrangement, keys: TouchedKeys, of_key: Indices, changes: Changes, deletes: Deletes
) -> Resolved:
    """Resolve changes to versions, which are ordered from the latest to the earliest.

    `of_key` contains the number of each change's key. A version's sub-key is the position of its time in that order. A
    delete whose time is NULL is treated as a delete by key.
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
    # If several changes concern the same version, the last change wins.
    groups = group(mix(key.astype(np.uint64), at.view(np.uint64)), (key, at))
    last = np.empty(groups.count, np.int64)
    last[groups.ids] = np.arange(len(said))
    come = entries_of(rows, replace(changes.take(said[last]), sub_key=number_bytes.to_bytes(at[last])))
    return _replaced(rows, come.relabel(mark=np.where(ends[last], ENDS, 0).astype(np.int8)))


def _latest(rows: Arrangement, keys: TouchedKeys, key: Indices, comes: Int64s) -> Int64s:
    """Return, for each change, the position of its key's latest version up to that change.

    The version may be stored, or come from the batch. A key's end counts as a version, so ending a key twice changes
    nothing.
    """
    new = np.append(True, key[1:] != key[:-1])
    first, number = np.flatnonzero(new), np.cumsum(new) - 1
    points = Points(key[first], np.full(len(first), _LAST))
    line = Line.of(keys, nearest(rows, keys, points, Entries.empty()))
    found = line.points.next_of(points)
    stored = np.where(found >= 0, np.append(line.points.at, _FIRST)[found], _FIRST)
    # To compute a running minimum within each key, the numbers are shifted so that each key's numbers are below those
    # of the previous key.
    levels, rank = np.unique(np.minimum(comes, stored[number]), return_inverse=True)
    base = number * len(levels)
    latest: Int64s = levels[np.minimum.accumulate(rank - base) + base]
    return latest


def _replaced(rows: Arrangement, come: Entries) -> Resolved:
    """Resolve new versions against the stored versions with the same keys and times."""
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
