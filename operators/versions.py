"""Versions: what a table with a key says of each key at any time, in an arrangement of layout *ordered*.

A row that comes is a version of its key from its time on, and takes nothing back but a version of the same time. So the
old row of an update says nothing. A deletion ends the key: it has no time of its own, and so the latest version that is
known goes, and from there on the key has none; from the watermark on, where that is later. What ends a key is kept as a
version with a mark.

The changes are those of the table as it sent them, in the order of seq.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.resolving import Resolved, entries_of
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns import number_bytes
from rowkind.operators.columns.changes import Changes, Indices, Int64s
from rowkind.operators.columns.grouping import equal_bytes, group
from rowkind.operators.columns.hashing import mix
from rowkind.operators.nearest import NOWHERE, Line, Points, nearest
from rowkind.operators.touched_keys import TouchedKeys

ENDS = 1
"""The mark of a version from which on its key has no row."""

_LAST = np.iinfo(np.int64).min
_FIRST = np.iinfo(np.int64).max


def resolve_versions(rows: Arrangement, keys: TouchedKeys, of_key: Indices, changes: Changes, reached: int) -> Resolved:
    """What changes, of the keys `of_key`, do to versions that lie from the latest one to the first.

    Their sub-keys are the places of their times in that order, and `reached` is that of the watermark.
    """
    at = number_bytes.from_bytes(changes.sub_key)
    ends = changes.weight < 0
    said = np.where(ends, changes.kind == RowKind.DELETE, (changes.kind != RowKind.REFRESH) & (at != NOWHERE))
    counts = np.flatnonzero(said)
    counts = counts[np.lexsort((changes.seq[counts], of_key[counts]))]
    key, at, ends = of_key[counts], at[counts], ends[counts]
    if ends.any():
        latest = _latest(rows, keys, key, np.where(ends, _FIRST, at))
        known = ~ends | (latest < _FIRST)
        counts, key, ends = counts[known], key[known], ends[known]
        at = np.where(ends, np.minimum(latest[known], reached), at[known])
    # Of changes of one version the last one counts.
    groups = group(mix(key.astype(np.uint64), at.view(np.uint64)), (key, at))
    last = np.empty(groups.count, np.int64)
    last[groups.ids] = np.arange(len(counts))
    come = entries_of(rows, replace(changes.take(counts[last]), sub_key=number_bytes.to_bytes(at[last])))
    return _replaced(rows, come.relabel(mark=np.where(ends[last], ENDS, 0).astype(np.int8)))


def _latest(rows: Arrangement, keys: TouchedKeys, key: Indices, comes: Int64s) -> Int64s:
    """For each change, in order, the place of the latest version of its key up to it: stored, or come with the others.

    What has ended a key is one of its versions, and to end it once more says nothing new.
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
