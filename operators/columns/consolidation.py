"""Consolidation: cancel equal signed rows of opposite sign, and keep the rest.

A set of changes is a multiset with signs: each row counts with its weight, and only the sum over equal rows matters.
All such sums are computed here, over columns: a weight for each row, and columns that decide which rows are equal. This
module uses nothing else of the rows. The caller knows which row kinds the signs stand for, and whether a row has a key.
A row of weight 0 does not count, even if it serves another purpose.

Most batches have little to cancel, so only rows that may cancel cost work. Rows are first compared by codes, which are
equal for equal rows. Rows with equal codes are compared by all of their bytes. Equal rows of both signs are put in
order. If no row shares its code with a row of the opposite sign, the only cost is one sort of the codes; if all signs
are equal, there is no cost at all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from rowkind.operators.columns.changes import Indices, Int64s, Mask, Uint64s
from rowkind.operators.columns.grouping import Groups, KeyColumn, equal_bytes, firsts_and_lasts, group
from rowkind.operators.columns.hashing import hash64, mix, sketch64


def net_weights(
    codes: Uint64s,
    weight: Int64s,
    columns: Callable[[Indices], Sequence[KeyColumn]],
    seq: Callable[[Indices], Int64s],
) -> Int64s:
    """Return the weights after equal rows of opposite sign have cancelled; of equal rows, the latest by seq stay.

    Equal rows must have equal codes; different rows may have equal codes too (`hashing.sketch64` suffices). `columns`
    and `seq` are called with row indices, and return all columns that decide equality, and the seqs, of those rows. If
    nothing cancels, the result is `weight` itself, not a copy.
    """
    negative = weight < 0
    if not negative.any() or negative.all():
        return weight
    rows, starts = _alike(codes)
    if not negative[rows].any() or negative[rows].all():
        return weight
    groups = _equal(starts, columns(rows))
    contested = np.bincount(groups.ids[negative[rows]], minlength=groups.count) > 0
    contested &= np.bincount(groups.ids[weight[rows] > 0], minlength=groups.count) > 0
    among = np.flatnonzero(contested[groups.ids])
    if len(among) == 0:
        return weight
    rows = rows[among]
    result = weight.copy()
    result[rows] = _latest(Groups(groups.ids[among], groups.count), weight[rows], seq(rows))
    return result


def net_in_groups(groups: Groups, payload: pa.BinaryArray, weight: Int64s, seq: Int64s) -> Int64s:
    """Return the weights as `net_weights` does, for rows of weight 1 and -1 that are equal if group and payload are.

    Most groups have one or two rows, which are compared with each other and need no sorting.
    """
    counts = np.bincount(groups.ids, minlength=groups.count)
    first, last = (rows[counts == 2] for rows in firsts_and_lasts(groups))
    opposite = weight[first] != weight[last]
    first, last = first[opposite], last[opposite]
    same = equal_bytes(payload.take(pa.array(first)), payload.take(pa.array(last)))
    several = np.flatnonzero((counts > 2)[groups.ids])
    if not same.any() and not len(several):
        return weight
    result = weight.copy()
    result[first[same]] = result[last[same]] = 0
    if len(several):
        ids, values, numbers = groups.ids[several], payload.take(pa.array(several)), seq[several]
        result[several] = net_weights(
            mix(ids.astype(np.uint64), sketch64(values)),
            weight[several],
            lambda rows: [ids[rows], values.take(pa.array(rows))],
            numbers.__getitem__,
        )
    return result


def summed(groups: Groups, weight: Int64s) -> Int64s:
    """Return weights in which the first row of each group has the sum of the group, and its other rows have 0.

    The rows of a group must be equal in all columns, because the first row then stands for all of them.
    """
    first = np.full(groups.count, -1)
    first[groups.ids[::-1]] = np.arange(len(weight))[::-1]
    result = np.zeros(len(weight), np.int64)
    result[first] = _sums(groups, weight)
    return result


def spelled_out(weight: Int64s) -> Indices:
    """Return each row as many times as its weight says: all retractions (negative weights) before all insertions."""
    rows = np.concatenate((np.flatnonzero(weight < 0), np.flatnonzero(weight > 0)))
    copies = abs(weight[rows])
    return rows if (copies == 1).all() else np.repeat(rows, copies)


def cancelled_pairs(before: Int64s, after: Int64s) -> Indices:
    """Return the inserted row of each pair that has cancelled; `before` and `after` are the weights."""
    gone = np.maximum(before, 0) - np.maximum(after, 0)
    return np.repeat(np.arange(len(gone)), gone)


def _alike(codes: Uint64s) -> tuple[Indices, Mask]:
    """Return the rows that share their code with another row, sorted by code, and where each code begins."""
    ascending = np.argsort(codes)
    ordered = codes[ascending]
    follows = ordered[1:] == ordered[:-1]
    starts = np.concatenate(([True], ~follows))
    alike = ~starts | np.concatenate((follows, [False]))
    return ascending[alike], starts[alike]


def _equal(starts: Mask, columns: Sequence[KeyColumn]) -> Groups:
    """Return the groups of rows that are equal in all columns; rows with equal codes lie between two `starts`.

    Rows with equal codes are usually equal, which a comparison of each row with its neighbour shows.
    """
    same = functools.reduce(np.logical_and, map(_as_before, columns))
    if (same | starts[1:]).all():
        ids = np.cumsum(starts) - 1
        return Groups(ids, int(ids[-1]) + 1)
    return group(functools.reduce(mix, map(_codes, columns)), columns)


def _as_before(column: KeyColumn) -> Mask:
    """Return whether each value but the first equals its predecessor."""
    if isinstance(column, np.ndarray):
        same: Mask = column[1:] == column[:-1]
        return same
    return equal_bytes(column[1:], column[:-1])


def _latest(groups: Groups, weight: Int64s, seq: Int64s) -> Int64s:
    """Return the weights that put the sum of each group on its latest rows with the sum's sign."""
    sums = _sums(groups, weight)
    left = sums[groups.ids]
    rows = np.flatnonzero(np.sign(weight) * np.sign(left) > 0)
    rows = rows[np.lexsort((~seq[rows], groups.ids[rows]))]
    ids, size = groups.ids[rows], abs(weight[rows])
    before = np.cumsum(size) - size
    first = np.concatenate(([True], ids[1:] != ids[:-1]))[: len(ids)]
    before -= before[first][np.cumsum(first) - 1]
    result = np.zeros(len(weight), np.int64)
    result[rows] = np.sign(weight[rows]) * np.clip(abs(left[rows]) - before, 0, size)
    return result


def _sums(groups: Groups, weight: Int64s) -> Int64s:
    sums = np.zeros(groups.count, np.int64)
    np.add.at(sums, groups.ids, weight)
    return sums


def _codes(column: KeyColumn) -> Uint64s:
    return column.astype(np.uint64) if isinstance(column, np.ndarray) else hash64(column)
