"""Sums of entries: equal entries are combined, and those that cancel are dropped."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement import compiled
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.columns.changes import Indices, Int64s, Mask, Uint64s
from rowkind.operators.columns.consolidation import summed
from rowkind.operators.columns.grouping import group
from rowkind.operators.columns.hashing import hash64, mix
from rowkind.operators.columns.sorting import order_of


def consolidate(*parts: Entries) -> Entries:
    """Add up equal entries of all parts, and return the entries with nonzero weight in order of (place, seq)."""
    parts = tuple(part for part in parts if len(part))
    if len(parts) == 1 and _is_in_order(parts[0].place, parts[0].seq):
        return parts[0].filter(parts[0].weight != 0)
    found = compiled.consolidate(parts) if parts else None
    if found is not None:
        return found
    entries = Entries.concat(parts)
    if _is_in_order(entries.place, entries.seq):
        return entries.filter(entries.weight != 0)
    order = in_order(entries.place, entries.seq)
    place, seq = entries.place[order], entries.seq[order]
    follows = (place[1:] == place[:-1]) & (seq[1:] == seq[:-1])
    if not follows.any():
        return entries.take(order).filter(entries.weight[order] != 0)
    weight, keep = _sum_equal(entries, order, follows)
    return entries.take(order[keep]).relabel(weight=weight[keep])


def counted(*parts: Entries) -> Entries:
    """Add up the entries of equal rows that have the same mark, and return the sums in order of (place, seq).

    Entries that cancel exactly are removed first. Of the other entries of equal rows, the inserted entry with the
    earliest seq is kept. It is given the sum of the weights, and the latest written_at.
    """
    entries = consolidate(*parts)
    follows = entries.place[1:] == entries.place[:-1]
    if not follows.any():
        return entries
    tied = np.flatnonzero(np.append(follows, False) | np.insert(follows, 0, False))
    rows = entries.take(tied)
    codes = mix(mix(rows.place, rows.mark.astype(np.uint64)), hash64(rows.payload))
    groups = group(codes, (rows.mark, rows.place, rows.key, rows.sub_key, rows.payload))
    if groups.count == len(rows):
        return entries
    # The first row of each group in this order represents the group, and keeps its position among the entries.
    order = np.lexsort((np.arange(len(rows)), rows.weight < 0, groups.ids))
    first = order[np.append(True, np.diff(groups.ids[order]) != 0)]
    total, latest = np.zeros(groups.count, np.int64), rows.written_at[first]
    np.add.at(total, groups.ids, rows.weight)
    np.maximum.at(latest, groups.ids, rows.written_at)
    weight, written_at = entries.weight.copy(), entries.written_at.copy()
    weight[tied] = 0
    weight[tied[first]], written_at[tied[first]] = total, latest
    return replace(entries, weight=weight, written_at=written_at).filter(weight != 0)


def _is_in_order(place: Uint64s, seq: Int64s) -> bool:
    """Return whether the rows are strictly ascending by (place, seq)."""
    ties = np.flatnonzero(place[1:] <= place[:-1])
    return bool((place[ties + 1] == place[ties]).all() and (seq[ties + 1] > seq[ties]).all())


def in_order(place: Uint64s, seq: Int64s) -> Indices:
    """Return the indices that sort rows by (place, seq).

    All rows are sorted by place, which is fast. Only rows that share a place are then sorted by seq.
    """
    order = order_of(place)
    ordered = place[order]
    ties = ordered[1:] == ordered[:-1]
    if ties.any():
        tied = np.concatenate((ties, [False])) | np.concatenate(([False], ties))
        rows = order[tied]
        order[tied] = rows[np.lexsort((seq[rows], ordered[tied]))]
    return order


def _sum_equal(entries: Entries, order: Indices, follows: Mask) -> tuple[Int64s, Mask]:
    """Add up equal entries, given the `order` by (place, seq).

    `follows` marks the entries with the same (place, seq) as their predecessor. Return weights in this order, in which
    the first of equal entries has the sum, and a mask of the entries to keep.
    """
    tied = np.concatenate((follows, [False])) | np.concatenate(([False], follows))
    rows = order[tied]
    codes = np.cumsum(~np.concatenate(([False], follows)))[tied].astype(np.uint64)
    numbers = (entries.written_at[rows], entries.mark[rows])
    for number in numbers:
        codes = mix(codes, number.astype(np.uint64))
    at = pa.array(rows)
    columns = (
        *numbers,
        entries.place[rows],
        entries.seq[rows],
        *(column.take(at) for column in (entries.key, entries.sub_key, entries.payload)),
    )
    weight = entries.weight[order]
    weight[tied] = summed(group(codes, columns), weight[tied])
    return weight, weight != 0
