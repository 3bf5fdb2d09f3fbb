"""Exact grouping and matching of rows by bytes, with 64-bit codes as the fast path.

A code is a number computed from the columns that decide whether rows are equal. One sort groups the rows by code.
Comparing the bytes of neighbouring rows then confirms nearly every group. If rows with different values share a code,
they are distinguished by numbering all of their values. A collision therefore costs time, but never gives a wrong
result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.columns.changes import Indices, Mask, Uint64s
from rowkind.operators.columns.sorting import in_order_of_code, order_of

KeyColumn = Any
"""A NumPy array of numbers or an Arrow array of bytes; nulls are equal to each other."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The group number of each row, from 0 to `count` - 1."""

    ids: Indices
    count: int


def group(codes: Uint64s, columns: Sequence[KeyColumn]) -> Groups:
    """Group the rows that are equal in all columns. Equal rows must have the same code."""
    if len(codes) == 0:
        return Groups(np.empty(0, np.int64), 0)
    order = order_of(codes)
    ordered = codes[order]
    new = ordered[1:] != ordered[:-1]
    numbers = np.concatenate(([0], np.cumsum(new)))
    count = int(numbers[-1]) + 1
    ids = np.empty(len(codes), np.int64)
    ids[order] = numbers
    tied = np.flatnonzero(~new)
    if len(tied) == 0:
        return Groups(ids, count)
    same = equal(columns, order[tied], order[tied + 1])
    if same.all():
        return Groups(ids, count)
    suspect = np.zeros(count, np.bool_)
    suspect[numbers[tied[~same]]] = True
    return _tell_apart(ids, count, np.flatnonzero(suspect[ids]), columns)


def firsts_and_lasts(groups: Groups) -> tuple[Indices, Indices]:
    """Return the indices of the first and the last row of each group. Groups must not be empty."""
    rows = np.arange(len(groups.ids))
    first, last = np.zeros((2, groups.count), np.int64)
    first[groups.ids[::-1]], last[groups.ids] = rows[::-1], rows
    return first, last


def in_turn(groups: Groups, major: Any, minor: Any) -> Indices:
    """Return the indices of all rows; the rows of each group are adjacent, in order of `major`, then `minor`.

    Most groups have one or two rows, which need no sorting.
    """
    counts = np.bincount(groups.ids, minlength=groups.count)
    first, last = (rows[counts == 2] for rows in firsts_and_lasts(groups))
    turned = (major[first] > major[last]) | ((major[first] == major[last]) & (minor[first] > minor[last]))
    pairs = np.column_stack([np.where(turned, last, first), np.where(turned, first, last)])
    of_row = counts[groups.ids]
    several = np.flatnonzero(of_row > 2)
    several = several[np.lexsort((minor[several], major[several], groups.ids[several]))]
    return np.concatenate([np.flatnonzero(of_row == 1), pairs.ravel(), several])


def equal(columns: Sequence[KeyColumn], left: Indices, right: Indices) -> Mask:
    """Return, for each i, whether row `left[i]` equals row `right[i]` in all columns."""
    result = np.ones(len(left), np.bool_)
    for column in columns:
        if isinstance(column, np.ndarray):
            result &= column[left] == column[right]
        else:
            result &= equal_bytes(column.take(pa.array(left)), column.take(pa.array(right)))
    return result


def equal_bytes(left: pa.BinaryArray, right: pa.BinaryArray) -> Mask:
    """Compare two arrays element by element; null equals null."""
    same = pc.equal(left, right)
    if same.null_count == 0:
        return to_mask(same)
    return to_mask(pc.if_else(pc.is_valid(same), same, pc.and_(pc.is_null(left), pc.is_null(right))))


def to_mask(booleans: pa.BooleanArray) -> Mask:
    """Convert an Arrow array of booleans without nulls to a NumPy mask."""
    result: Mask = booleans.to_numpy(zero_copy_only=False)
    return result


def _tell_apart(ids: Indices, count: int, suspects: Indices, columns: Sequence[KeyColumn]) -> Groups:
    """Split groups whose rows share a code but differ, by numbering the values of the rows `suspects`.

    The first part of a split group keeps the group's number.
    """
    number = ids[suspects]
    for column in columns:
        if isinstance(column, np.ndarray):
            own = np.unique(column[suspects], return_inverse=True)[1]
        else:
            own = column.take(pa.array(suspects)).dictionary_encode(null_encoding="encode").indices.to_numpy()
        if own.any():
            number = np.unique(number * len(suspects) + own, return_inverse=True)[1]
    _, first, number = np.unique(number, return_index=True, return_inverse=True)
    old = ids[suspects[first]]
    moves = np.ones(len(first), np.bool_)
    moves[np.unique(old, return_index=True)[1]] = False
    ids[suspects] = np.where(moves, count + np.cumsum(moves) - 1, old)[number]
    return Groups(ids, count + int(moves.sum()))


def distinct(values: Uint64s) -> Uint64s:
    """Return the distinct values in ascending order. They are sorted, which is many times faster than hashing them."""
    ordered = in_order_of_code(values)
    result: Uint64s = ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))[: len(values)]]
    return result


def is_in(values: Uint64s, ascending: Uint64s) -> Mask:
    """Return which values are in the sorted array `ascending`. This is fastest if most of `values` ascends, too."""
    if len(ascending) == 0:
        return np.zeros(len(values), np.bool_)
    result: Mask = ascending[np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)] == values
    return result


def members(counts: Indices) -> tuple[Indices, Indices]:
    """Return each element's group and its index within the group. Group i consists of `counts[i]` adjacent elements."""
    owner = np.repeat(np.arange(len(counts)), counts)
    starts = np.cumsum(counts) - counts
    return owner, np.arange(len(owner)) - starts[owner]
