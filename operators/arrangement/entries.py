"""Entries: the rows of an arrangement, as columns.

An entry records that a row was inserted `weight` times or, if the weight is negative, retracted. The live rows are the
sum of all entries: entries that differ only in weight are added up into one, and an entry whose weights add up to zero
does not exist.

Equal rows are *counted* if it does not matter when each of them was inserted. Entries that differ only in weight,
written_at and seq are then also added up into one.
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
"""The mask of the half of a place that comes from the key's hash."""

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
"""The columns of a segment on disk and their types, None for bytes; any change requires a new format version."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Rows of an arrangement with their weights.

    - `place` orders entries: the upper half of the hash, then 32 bits that distinguish the rows of a key.
    - `hash`, `key`, `sub_key`, `seq`, `payload` are those of the change that inserted the row.
    - `weight` is the number of insertions of the row minus the number of its retractions.
    - `written_at` is the time of the batch that wrote the row, in ms since the epoch, or the time until which the row
      is kept (`ArrangementSpec.until`).
    - `mark` is a small number for the operator's own use.
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
        """Return views of the entries from `first` up to but excluding `stop`."""
        return type(self)(
            *(
                column[first:stop] if isinstance(column, np.ndarray) else column.slice(first, stop - first)
                for column in self.columns
            )
        )

    def __neg__(self) -> Self:
        """Return the entries that cancel these."""
        return self.relabel(weight=-self.weight)

    @property
    def units(self) -> Self:
        """The same rows with weight 1, each repeated by its weight. No weight may be negative."""
        if (self.weight == 1).all():
            return self
        rows = self.take(np.repeat(np.arange(len(self)), self.weight))
        return rows.relabel(weight=np.ones(len(rows), np.int64))

    def relabel(self, *, weight: Int64s | None = None, mark: Int8s | None = None) -> Self:
        """Return the same rows with these weights or marks."""
        return replace(self, weight=self.weight if weight is None else weight, mark=self.mark if mark is None else mark)


def _concat(columns: Sequence[Any]) -> Any:
    return np.concatenate(columns) if isinstance(columns[0], np.ndarray) else concat_binary(columns)


def consolidate(entries: Entries) -> Entries:
    """Add up equal entries, and return those with nonzero weight in order of (place, seq)."""
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
    """Add up the entries of equal rows that have the same mark, and return them in order of (place, seq).

    Entries that cancel exactly are removed first. The entry that remains for equal rows has the earliest seq of the
    inserted ones, and the latest written_at.
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
    """Return the order by (place, seq): a fast sort by place, then a slower sort of the rows that share a place."""
    order = np.argsort(place)
    ordered = place[order]
    ties = ordered[1:] == ordered[:-1]
    if ties.any():
        tied = np.concatenate((ties, [False])) | np.concatenate(([False], ties))
        rows = order[tied]
        order[tied] = rows[np.lexsort((seq[rows], ordered[tied]))]
    return order


def _sum_equal(entries: Entries, order: Indices, follows: Mask) -> tuple[Int64s, Mask]:
    """Return the weights in `order`, with the sum of equal entries at the first one, and which entries to keep."""
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
