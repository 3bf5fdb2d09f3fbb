"""Entries: the rows of an arrangement, as columns.

An entry records that a row was inserted `weight` times or, if the weight is negative, retracted -`weight` times. The
live rows are the sum of all entries: entries that differ only in weight are combined into one entry with the sum of
their weights, and the entry is dropped if that sum is zero.

Equal rows are *counted* if it does not matter when each of them was inserted. Entries that differ only in weight,
written_at and seq are then combined in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self

import numpy as np
import pyarrow as pa

from rowkind.operators.columns.changes import Indices, Int8s, Int64s, Mask, Uint64s, binary, concat_binary
from rowkind.operators.columns.consolidation import summed
from rowkind.operators.columns.grouping import group
from rowkind.operators.columns.hashing import hash64, mix

UPPER = np.uint64(0xFFFFFFFF00000000)
"""A mask of the upper half of a place, which comes from the key's hash."""

COLUMNS: dict[str, np.dtype[Any] | None] = {
    "place": np.dtype("<u8"),
    "hash": np.dtype("<u8"),
    "key": None,
    "sub_key": None,
    "payload": None,
    "weight": np.dtype("<i8"),
    "written_at": np.dtype("<i8"),
    "seq": np.dtype("<i8"),
    "mark": np.dtype("i1"),
}
"""The columns of a segment on disk and their types; None stands for bytes. A change requires a new format version."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Rows of an arrangement with their weights.

    - `place` orders entries: the upper half of the hash, then 32 bits that distinguish the rows of a key.
    - `hash`, `key`, `sub_key`, `seq` and `payload` are those of the change that inserted the row.
    - `weight` is the number of insertions of the row minus the number of its retractions.
    - `written_at` is the time of the batch that wrote the row, in ms since the epoch, or the time until which the row
      is kept (`ArrangementSpec.until`).
    - `mark` is a small number that each operator uses for its own purpose.
    """

    place: Uint64s
    hash: Uint64s
    key: pa.BinaryArray
    sub_key: pa.BinaryArray
    payload: pa.BinaryArray
    weight: Int64s
    written_at: Int64s
    seq: Int64s
    mark: Int8s

    def __len__(self) -> int:
        return len(self.place)

    @property
    def size(self) -> int:
        """The size of all columns in bytes."""
        return sum(column.nbytes for column in self.columns)

    @property
    def columns(self) -> tuple[Any, ...]:
        """The columns in the order of `COLUMNS`."""
        return (
            self.place,
            self.hash,
            self.key,
            self.sub_key,
            self.payload,
            self.weight,
            self.written_at,
            self.seq,
            self.mark,
        )

    @classmethod
    @cache
    def empty(cls) -> Self:
        """Return an empty set of entries."""
        hashes, numbers, none = np.empty(0, np.uint64), np.empty(0, np.int64), binary(())
        return cls(hashes, hashes, none, none, none, numbers, numbers, numbers, np.empty(0, np.int8))

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the parts."""
        parts = [part for part in parts if len(part)]
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls.empty()
        return cls(*(_concat(columns) for columns in zip(*(part.columns for part in parts), strict=True)))

    def take(self, indices: Indices) -> Self:
        """Return the entries at `indices`, in that order."""
        at = pa.array(indices)
        return type(self)(
            *(column[indices] if isinstance(column, np.ndarray) else column.take(at) for column in self.columns)
        )

    def filter(self, mask: Mask) -> Self:
        """Return the entries where `mask` is true, in order."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def slice(self, first: int, stop: int) -> Self:
        """Return views of the entries from index `first` up to, but not including, index `stop`."""
        return type(self)(
            *(
                column[first:stop] if isinstance(column, np.ndarray) else column.slice(first, stop - first)
                for column in self.columns
            )
        )

    def __neg__(self) -> Self:
        """Return the same entries with negated weights, which cancel these entries."""
        return self.relabel(weight=-self.weight)

    @property
    def units(self) -> Self:
        """The same rows as entries with weight 1: an entry with weight n is repeated n times. Weights must be >= 0."""
        if (self.weight == 1).all():
            return self
        rows = self.take(np.repeat(np.arange(len(self)), self.weight))
        return rows.relabel(weight=np.ones(len(rows), np.int64))

    def relabel(self, *, weight: Int64s | None = None, mark: Int8s | None = None) -> Self:
        """Return the same rows with the given weights or marks."""
        return replace(self, weight=self.weight if weight is None else weight, mark=self.mark if mark is None else mark)


def _concat(columns: Sequence[Any]) -> Any:
    return np.concatenate(columns) if isinstance(columns[0], np.ndarray) else concat_binary(columns)


def consolidate(entries: Entries) -> Entries:
    """Add up equal entries, and return the entries with nonzero weight in order of (place, seq)."""
    if _is_in_order(entries.place, entries.seq):
        return entries.filter(entries.weight != 0)
    order = in_order(entries.place, entries.seq)
    place, seq = entries.place[order], entries.seq[order]
    follows = (place[1:] == place[:-1]) & (seq[1:] == seq[:-1])
    if not follows.any():
        return entries.take(order).filter(entries.weight[order] != 0)
    weight, keep = _sum_equal(entries, order, follows)
    return entries.take(order[keep]).relabel(weight=weight[keep])


def counted(entries: Entries) -> Entries:
    """Add up the entries of equal rows that have the same mark, and return the sums in order of (place, seq).

    Entries that cancel exactly are removed first. Of the other entries of equal rows, the inserted entry with the
    earliest seq is kept. It is given the sum of the weights, and the latest written_at.
    """
    entries = consolidate(entries)
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
    order = np.argsort(place)
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
