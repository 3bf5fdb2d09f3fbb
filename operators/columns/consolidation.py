"""Consolidation: cancel equal rows of opposite sign, and keep the rest.

A set of changes is a multiset of rows with signed weights; equal rows count only by the sum of their weights. All of
these sums are computed here, from one weight per row and the columns that decide which rows are equal. The caller knows
which row kinds the signs represent, and whether rows have keys. A row with weight 0 is ignored, although the caller may
use the row for another purpose.

Most batches have little to cancel, so work is spent only on rows that may cancel. Rows are first compared by codes,
which are the same for equal rows. Rows with the same code are then compared byte by byte, and equal rows of opposite
sign are sorted by seq. If no row shares its code with a row of the opposite sign, the only cost is one sort of the
codes. If all rows have the same sign, not even this sort is needed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from rowkind.operators.columns.changes import Indices, Int64s, Mask, Uint64s
from rowkind.operators.columns.grouping import Groups, KeyColumn, equal_bytes, firsts_and_lasts, group
from rowkind.operators.columns.hashing import hash64, mix, sketch64
from rowkind.operators.columns.sorting import order_of


def net_weights(
    codes: Uint64s,
    weight: Int64s,
    columns: Callable[[Indices], Sequence[KeyColumn]],
    seq: Callable[[Indices], Int64s],
) -> Int64s:
    """Return the weights left after equal rows of opposite sign cancel. Of equal rows, the latest by seq remain.

    Equal rows must have the same code; different rows may share a code (`hashing.sketch64` suffices). `columns` and
    `seq` are functions that take row indices: `columns` returns all columns that decide whether the rows are equal, and
    `seq` returns the seqs of the rows. If nothing cancels, the result is `weight` itself, not a copy.
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
    """Return the net weights of rows with weight 1 or -1. Rows are equal if they have the same group and payload.

    Rows cancel as in `net_weights`. Most groups have only one or two rows, for which a comparison suffices; only larger
    groups are sorted.
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
    """Return weights in which each group's first row has the sum of the group's weights, and the other rows have 0.

    All rows of a group must be equal in all columns, because the first row then represents the group.
    """
    first = np.full(groups.count, -1)
    first[groups.ids[::-1]] = np.arange(len(weight))[::-1]
    result = np.zeros(len(weight), np.int64)
    result[first] = _sums(groups, weight)
    return result


def spelled_out(weight: Int64s) -> Indices:
    """Return the indices of rows with nonzero weight, each repeated |weight| times: first retractions, then insertions.

    Retractions are the rows with negative weight.
    """
    rows = np.concatenate((np.flatnonzero(weight < 0), np.flatnonzero(weight > 0)))
    copies = abs(weight[rows])
    return rows if (copies == 1).all() else np.repeat(rows, copies)


def cancelled_pairs(before: Int64s, after: Int64s) -> Indices:
    """Return the index of the inserted row of each cancelled pair, given the weights before and after cancelling."""
    gone = np.maximum(before, 0) - np.maximum(after, 0)
    return np.repeat(np.arange(len(gone)), gone)


def _alike(codes: Uint64s) -> tuple[Indices, Mask]:
    """Return the rows whose code is not unique, sorted by code, and a mask of the first row with each code."""
    order = order_of(codes)
    ordered = codes[order]
    follows = ordered[1:] == ordered[:-1]
    starts = np.concatenate(([True], ~follows))
    alike = ~starts | np.concatenate((follows, [False]))
    return order[alike], starts[alike]


def _equal(starts: Mask, columns: Sequence[KeyColumn]) -> Groups:
    """Group the rows that are equal in all columns. Rows are sorted by code; `starts` marks the first row of each code.

    Rows with the same code are usually equal. In that case, it is enough to compare each row with its predecessor.
    """
    same = functools.reduce(np.logical_and, map(_as_before, columns))
    if (same | starts[1:]).all():
        ids = np.cumsum(starts) - 1
        return Groups(ids, int(ids[-1]) + 1)
    return group(functools.reduce(mix, map(_codes, columns)), columns)


def _as_before(column: KeyColumn) -> Mask:
    """Return which values equal their predecessors, for all values except the first."""
    if isinstance(column, np.ndarray):
        same: Mask = column[1:] == column[:-1]
        return same
    return equal_bytes(column[1:], column[:-1])


def _latest(groups: Groups, weight: Int64s, seq: Int64s) -> Int64s:
    """Return weights that distribute each group's sum over the latest of those rows whose sign is that of the sum."""
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
