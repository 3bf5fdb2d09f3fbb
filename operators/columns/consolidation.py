"""Consolidation: cancel equal rows of opposite sign, and keep the rest.

A set of changes is a multiset of rows with signed weights; only the sum of the weights of equal rows matters. All such
sums are computed here, from one weight per row and the columns that decide which rows are equal. The caller knows which
row kinds the signs represent, and whether a row has a key. A row with weight 0 does not count, even if the caller uses
it for another purpose.

Most batches have little to cancel, so work is spent only on rows that may cancel. Rows are first compared by codes,
which are the same for equal rows. Rows with the same code are then compared byte by byte, and equal rows of both signs
are sorted by seq. If no row shares its code with a row of the opposite sign, the only cost is one sort of the codes. If
all rows have the same sign, there is no cost at all.
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
    """Return the weights left after equal rows of opposite sign cancel; of equal rows, the latest by seq are kept.

    Equal rows must have the same code; different rows may share a code (`hashing.sketch64` suffices). `columns` and
    `seq` take row indices: `columns` returns all columns that decide whether these rows are equal, and `seq` returns
    their seqs. If nothing cancels, the result is `weight` itself, not a copy.
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
    """Return the net weights of rows with weight 1 or -1, which are equal if their groups and payloads are.

    Rows cancel as in `net_weights`. Most groups have one or two rows, which are compared with each other and need no
    sorting.
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
    """Return weights that give each group's sum to its first row, and 0 to its other rows.

    The rows of a group must be equal in all columns, because the first row then represents all of them.
    """
    first = np.full(groups.count, -1)
    first[groups.ids[::-1]] = np.arange(len(weight))[::-1]
    result = np.zeros(len(weight), np.int64)
    result[first] = _sums(groups, weight)
    return result


def spelled_out(weight: Int64s) -> Indices:
    """Return each row's index, repeated by its weight: all retractions (negative weights) before all insertions."""
    rows = np.concatenate((np.flatnonzero(weight < 0), np.flatnonzero(weight > 0)))
    copies = abs(weight[rows])
    return rows if (copies == 1).all() else np.repeat(rows, copies)


def cancelled_pairs(before: Int64s, after: Int64s) -> Indices:
    """Return the inserted row of each cancelled pair, given the weights before and after cancelling."""
    gone = np.maximum(before, 0) - np.maximum(after, 0)
    return np.repeat(np.arange(len(gone)), gone)


def _alike(codes: Uint64s) -> tuple[Indices, Mask]:
    """Return the rows that share a code with another row, sorted by code, and a mask of the first row of each code."""
    ascending = np.argsort(codes)
    ordered = codes[ascending]
    follows = ordered[1:] == ordered[:-1]
    starts = np.concatenate(([True], ~follows))
    alike = ~starts | np.concatenate((follows, [False]))
    return ascending[alike], starts[alike]


def _equal(starts: Mask, columns: Sequence[KeyColumn]) -> Groups:
    """Group the rows that are equal in all columns; `starts` marks the first of the rows with the same code.

    Rows with the same code are usually equal. A comparison of each row with its neighbour is then sufficient.
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
    """Return weights that assign each group's sum to the latest of its rows that have the same sign as the sum."""
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
