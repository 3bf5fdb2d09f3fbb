"""Consolidation: what is left of signed rows when equal ones of opposite sign have cancelled.

A set of changes is a multiset with signs: each row counts with its weight, and of equal rows only the sum matters. It
is worked out here and nowhere else, over columns: a weight for each row, and whatever says which rows are equal. That
is all that is known of them. Which row kinds the signs stand for, or that a row has a key, is the caller's business; a
row of weight 0 says nothing, whatever else it is good for.

Most batches have little to cancel, so work is done for rows that may be concerned, and only for these: rows are
compared at a glance, by codes that equal rows share; those that look alike are compared by all of their bytes; equal
ones of both signs are put in order. Where no row looks like another of the opposite sign, one sort of the codes is
all it costs, and nothing at all where all signs are equal.
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
    """The weights when equal rows of opposite sign have cancelled: of equal rows the latest by seq stay.

    Equal rows have equal codes, and so may others (`hashing.sketch64` will do). `columns` and `seq` give all columns
    that equal rows share, and the seqs, of the rows that they are asked for. The result is `weight` itself, and not a
    copy, where nothing cancels.
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
    """As `net_weights`, of rows of weight 1 and -1 that are equal where group and payload are.

    Most groups have one row or two, which are compared with each other and need no sorting.
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
    """The weights when the first row of each group stands for all of them: it has their sum, and the others have 0.

    For rows that are equal in everything, so that it does not matter which of them stay.
    """
    first = np.full(groups.count, -1)
    first[groups.ids[::-1]] = np.arange(len(weight))[::-1]
    result = np.zeros(len(weight), np.int64)
    result[first] = _sums(groups, weight)
    return result


def spelled_out(weight: Int64s) -> Indices:
    """Each row as often as its weight says: all that go, those of negative weight, before all that come."""
    rows = np.concatenate((np.flatnonzero(weight < 0), np.flatnonzero(weight > 0)))
    copies = abs(weight[rows])
    return rows if (copies == 1).all() else np.repeat(rows, copies)


def cancelled_pairs(before: Int64s, after: Int64s) -> Indices:
    """Of each pair that has cancelled the row that came; `before` and `after` are the weights."""
    gone = np.maximum(before, 0) - np.maximum(after, 0)
    return np.repeat(np.arange(len(gone)), gone)


def _alike(codes: Uint64s) -> tuple[Indices, Mask]:
    """The rows that share their code with another row, those of one code together, and where each code begins."""
    ascending = np.argsort(codes)
    ordered = codes[ascending]
    follows = ordered[1:] == ordered[:-1]
    starts = np.concatenate(([True], ~follows))
    alike = ~starts | np.concatenate((follows, [False]))
    return ascending[alike], starts[alike]


def _equal(starts: Mask, columns: Sequence[KeyColumn]) -> Groups:
    """The groups of rows that are equal in all columns, of rows that look alike from one of the `starts` to the next.

    As a rule those that look alike are equal, which shows when each is compared with its neighbour.
    """
    same = functools.reduce(np.logical_and, map(_as_before, columns))
    if (same | starts[1:]).all():
        ids = np.cumsum(starts) - 1
        return Groups(ids, int(ids[-1]) + 1)
    return group(functools.reduce(mix, map(_codes, columns)), columns)


def _as_before(column: KeyColumn) -> Mask:
    """Whether each value but the first equals the one before it."""
    if isinstance(column, np.ndarray):
        same: Mask = column[1:] == column[:-1]
        return same
    return equal_bytes(column[1:], column[:-1])


def _latest(groups: Groups, weight: Int64s, seq: Int64s) -> Int64s:
    """The weights when the sum of each group is that of its latest rows with the sum's sign."""
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
