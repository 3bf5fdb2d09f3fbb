"""The order of the rows in touched partitions, and the rows' numbers before and after a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.columns import order_code
from rowkind.operators.columns.changes import Indices, Int64s, Mask, Uint64s
from rowkind.operators.columns.grouping import group
from rowkind.operators.columns.sorting import order_of
from rowkind.operators.rank.ranking import RankFunction, Ties

_CODE = np.uint64((1 << order_code.BITS) - 1)
_MOST_KEYS = 1 << (64 - order_code.BITS)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Rows that may be in the rank's range before or after the batch, each with weight 1.

    - `was` and `now`: whether the row is present before and after the batch. For a row that stays, both are true.
    - `old` and `new`: the row's numbers in the result before and after the batch; 0 if the row is not in the result.
      There is one column for each number in the output. If the output has no numbers, there is a single column, which
      is 1 for rows in the result.
    - `kept`: whether the row is stored after the batch; never true for a row that is absent after the batch.
    """

    entries: Entries
    was: Mask
    now: Mask
    old: Int64s
    new: Int64s
    kept: Mask

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Concatenate all parts; at least one is required."""
        return cls(
            Entries.concat([part.entries for part in parts]),
            np.concatenate([part.was for part in parts]),
            np.concatenate([part.now for part in parts]),
            np.concatenate([part.old for part in parts]),
            np.concatenate([part.new for part in parts]),
            np.concatenate([part.kept for part in parts]),
        )

    def filter(self, mask: Mask) -> Self:
        """Return the rows for which `mask` is true."""
        if mask.all():
            return self
        return type(self)(
            self.entries.filter(mask), self.was[mask], self.now[mask], self.old[mask], self.new[mask], self.kept[mask]
        )


@dataclass(frozen=True, slots=True)
class Touched:
    """The rows of touched partitions: first the retracted rows, then the inserted rows, then the rows that stay.

    `keys` contains each row's partition number, from 0 to `count` - 1. Stored rows of other partitions are left out.
    """

    entries: Entries
    was: Mask
    now: Mask
    keys: Indices
    count: int

    @classmethod
    def of(cls, gone: Entries, come: Entries, stayed: Entries) -> Self:
        """Combine the three parts; a partition is touched if it contains a retracted or inserted row."""
        entries = Entries.concat([gone, come, stayed])
        groups = group(entries.hash, [entries.key])
        changed = len(gone) + len(come)
        at = np.arange(len(entries))
        was, now = (at < len(gone)) | (at >= changed), at >= len(gone)
        touched = np.zeros(groups.count, np.bool_)
        touched[groups.ids[:changed]] = True
        ids = (np.cumsum(touched) - 1)[groups.ids]
        return cls(entries, was, now, ids, int(touched.sum())).filter(touched[groups.ids])

    def filter(self, mask: Mask) -> Self:
        """Return the rows for which `mask` is true, with unchanged partition numbers."""
        if mask.all():
            return self
        return type(self)(self.entries.filter(mask), self.was[mask], self.now[mask], self.keys[mask], self.count)


@dataclass(frozen=True, slots=True)
class RankOrder:
    """Row indices, ordered by (partition, order key, arrival, payload), and where partitions and ties begin.

    For each row in this order, `partition` is the position of its partition's first row, and `tie` is the position of
    the first row with the same order key.
    """

    rows: Indices
    partition: Indices
    tie: Indices

    @classmethod
    def of(cls, keys: Indices, count: int, entries: Entries, ties: Ties) -> Self:
        """Sort entries of layout *ordered*; `keys` contains each entry's partition number, below `count`."""
        if len(entries) == 0:
            return cls(keys, keys, keys)
        place = _place_in_order(keys, count, entries)
        rows = order_of(place)
        place = place[rows]
        equal = place[1:] == place[:-1]
        different = ~equal
        if equal.any():
            tied = np.append(equal, False) | np.insert(equal, 0, False)
            at = np.flatnonzero(tied)
            order, sub_key = _within_ties(place[at], entries.take(rows[at]), ties)
            rows[at] = rows[at][order]
            of_sub = np.zeros(len(rows), np.int64)
            of_sub[at] = sub_key
            different |= of_sub[1:] != of_sub[:-1]
        new_partition = keys[rows][1:] != keys[rows][:-1]
        return cls(rows, _first_of_each(new_partition), _first_of_each(different))

    def numbers(self, function: RankFunction, there: Mask) -> Int64s:
        """Return the number of each row, counting only the rows in the mask `there`; 0 for the other rows."""
        there = there[self.rows]
        if function == "dense_rank":
            steps = np.zeros(len(there), np.int64)
            steps[self.tie[there]] = 1
            number = (np.cumsum(steps) - _before(steps)[self.partition])[self.tie]
        else:
            before = _before(there.astype(np.int64))
            number = (before[self.tie] if function == "rank" else before) - before[self.partition] + 1
        result = np.empty(len(there), np.int64)
        result[self.rows] = np.where(there, number, 0)
        return result

    def most(self, function: RankFunction, there: Mask, keys: Indices, count: int) -> Int64s:
        """Return each partition's largest number, counting only the rows in the mask `there`; 0 if there are none."""
        result = np.zeros(count, np.int64)
        np.maximum.at(result, keys, self.numbers(function, there))
        return result


def _place_in_order(keys: Indices, count: int, entries: Entries) -> Uint64s:
    """Return a number for each row; the numbers are ordered like (partition, order code)."""
    code = entries.place & _CODE
    if count > _MOST_KEYS:
        # There are too many partitions to number them in the bits above the code, so the codes that occur are numbered
        # instead.
        numbers: Uint64s = np.unique(code, return_inverse=True)[1].astype(np.uint64)
        return keys.astype(np.uint64) * np.uint64(len(code)) + numbers
    return (keys.astype(np.uint64) << np.uint64(order_code.BITS)) | code


def _within_ties(place: Uint64s, entries: Entries, ties: Ties) -> tuple[Indices, Int64s]:
    """Return the order of rows that have equal places with other rows, and each order key's rank in that order."""
    sub_key = byte_ranks(entries.sub_key)
    arrival = entries.seq if ties == "earliest first" else ~entries.seq
    order = np.lexsort((arrival, sub_key, place))
    columns = [column[order] for column in (place, sub_key, arrival)]
    same = np.logical_and.reduce([column[1:] == column[:-1] for column in columns])
    if same.any():
        order = np.lexsort((byte_ranks(entries.payload), arrival, sub_key, place))
    return order, sub_key[order]


def byte_ranks(values: pa.BinaryArray) -> Int64s:
    """Return each value's rank in byte order, from 1; equal values have equal ranks."""
    ranks: Int64s = pc.rank(values, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks


def _before(steps: Int64s) -> Int64s:
    result: Int64s = np.cumsum(steps) - steps
    return result


def _first_of_each(new: Mask) -> Indices:
    """Return, for each row, the position of its group's first row; `new` marks the first row of later groups."""
    at = np.arange(len(new) + 1)
    at[1:][~new] = 0
    result: Indices = np.maximum.accumulate(at)
    return result
