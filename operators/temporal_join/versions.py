"""Versions: what a table with a key says of each key at any time, in an arrangement of layout *ordered*.

A row that is inserted is a version of its key from its time on. It replaces a version of the same time and no other.
The old row of an update is ignored. A delete ends the key at its own time, which is that of the row that it brings:
from there on the key has no row, up to the next version. What ends a key is stored as a version with a mark, even if no
version is known that it ends: that one may still come.

A delete that brings its key alone has no time of its own. It ends the key where the newest version begins that came
before it, or at the time that it got on its way, if that is later (`service.execute.delete_times`). Without such a
version it is ignored.

The changes are those of the table as it sent them, in the order of seq. So the versions depend on these changes and on
their order, and not on the batches in which they come.
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
"""What the deletes of a table bring: the row, or the key alone; and then maybe a time at which the key ends."""

ENDS = 1
"""The mark of a version from which on its key has no row."""

_LAST = np.iinfo(np.int64).min
_FIRST = np.iinfo(np.int64).max


def resolve_versions(
    rows: Arrangement, keys: TouchedKeys, of_key: Indices, changes: Changes, deletes: Deletes
) -> Resolved:
    """What changes, of the keys `of_key`, do to versions that lie from the latest one to the first.

    Their sub-keys are the places of their times in that order. A delete whose time is NULL is one by its key.
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
    # Of changes of one version the last one counts.
    groups = group(mix(key.astype(np.uint64), at.view(np.uint64)), (key, at))
    last = np.empty(groups.count, np.int64)
    last[groups.ids] = np.arange(len(said))
    come = entries_of(rows, replace(changes.take(said[last]), sub_key=number_bytes.to_bytes(at[last])))
    return _replaced(rows, come.relabel(mark=np.where(ends[last], ENDS, 0).astype(np.int8)))


def _latest(rows: Arrangement, keys: TouchedKeys, key: Indices, comes: Int64s) -> Int64s:
    """For each change, in order, the place of the latest version of its key up to it: stored, or come with the others.

    What has ended a key is one of its versions, and to end it once more changes nothing.
    """
    new = np.append(True, key[1:] != key[:-1])
    first, number = np.flatnonzero(new), np.cumsum(new) - 1
    points = Points(key[first], np.full(len(first), _LAST))
    line = Line.of(keys, nearest(rows, keys, points, Entries.empty()))
    found = line.points.next_of(points)
    stored = np.where(found >= 0, np.append(line.points.at, _FIRST)[found], _FIRST)
    # The least so far in each key: as numbers of which those of a key are less than all of the key before.
    levels, rank = np.unique(np.minimum(comes, stored[number]), return_inverse=True)
    base = number * len(levels)
    latest: Int64s = levels[np.minimum.accumulate(rank - base) + base]
    return latest


def _replaced(rows: Arrangement, come: Entries) -> Resolved:
    """What versions do to those that are there at the same time."""
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
