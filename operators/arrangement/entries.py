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
