"""Arranged values: for each group, an argument's distinct values and the number of rows with each value.

Arranged values are needed for DISTINCT and functions of all values and, if rows may be retracted, for MIN and MAX. One
arrangement stores the values of all arguments of an aggregate that are needed in this form. Each of these arguments is
called a *stream*. An entry consists of a group, a stream and a value. Its weight is the number of input rows with the
value. If this number changes, the entry is replaced.

An entry's *place* is its 64-bit sort position within a run: the upper half of the group's hash, followed by 32 bits
derived from the value. If values are only counted, these are bits of the value's hash. If the minimum or maximum is
needed, these bits represent the value's order. If a group's minimum is retracted, the next minimum is then found by
reading upwards from the old place, in growing steps, instead of reading the whole group. Text is represented by its
first four bytes; if all values of a group begin with the same four bytes, the whole group is read. An arrival's place
is derived from the hash of its value, so that a retraction finds the oldest arrival of the value. To find the next
arrival, the whole group is read.

Retracting a value that is not present has no effect. Values live as long as their group. With a TTL, a group expires as
a whole, so its values are stored with twice the group's TTL. If a group is written at least a TTL after the last
rewrite of its values, all of its values are rewritten. Values that are older than their group are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.aggregate.arrivals import Arrivals, arrived, settled
from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.arrangement.entries import UPPER, Entries
from rowkind.operators.columns import value_bytes
from rowkind.operators.columns.changes import Indices, Int64s, Mask, Uint64s, binary, concat_binary, constant
from rowkind.operators.columns.grouping import Groups, group
from rowkind.operators.columns.hashing import hash64, mix
from rowkind.operators.columns.order_code import BITS, order_code
from rowkind.operators.columns.packed_columns import without_first

_LOWER = np.uint64(0x00000000FFFFFFFF)

_FIRST_STEP = 1 << 8
_GROWTH = 16


@dataclass(frozen=True, slots=True)
class Stream:
    """An argument whose values are stored, for the rows in which `filter` is true.

    `placed_by` says what the lower half of a place is derived from: the value's hash ("hash"), the value's order
    ("order"), its order as comparable bytes ("key"), or the hash of the value without its arrival number ("arrival").
    """

    argument: str
    filter: str | None
    type: pa.DataType
    placed_by: Literal["hash", "order", "key", "arrival"]

    @property
    def ordered(self) -> bool:
        """Whether the order of places reflects the order of values."""
        return self.placed_by in ("order", "key")


@dataclass(frozen=True, slots=True)
class ValueRows:
    """Rows of one stream: the value and multiplicity of each row, and the index of the change to which it belongs."""

    row: Indices
    value: pa.BinaryArray
    weight: Int64s

    @classmethod
    def concat(cls, parts: Sequence[ValueRows]) -> ValueRows:
        """Concatenate all parts."""
        if len(parts) == 1:
            return parts[0]
        values = concat_binary([part.value for part in parts])
        return cls(
            np.concatenate([part.row for part in parts]), values, np.concatenate([part.weight for part in parts])
        )


@dataclass(frozen=True, slots=True)
class GroupKeys:
    """The touched groups, by number.

    Values that were written before the group's `born` time are ignored. New values are written with the time
    `written_at`.
    """

    hash: Uint64s
    key: pa.BinaryArray
    born: Int64s
    written_at: Int64s


@dataclass(frozen=True, slots=True)
class TouchedValues:
    """Values of one stream, the group of each, and the number of rows with each value before and after the batch."""

    stream: Stream
    group: Indices
    value: pa.BinaryArray
    before: Int64s
    after: Int64s

    def filter(self, mask: Mask) -> TouchedValues:
        """Return the values for which `mask` is true."""
        rows = np.flatnonzero(mask)
        at = pa.array(rows)
        return TouchedValues(self.stream, self.group[rows], self.value.take(at), self.before[rows], self.after[rows])


@dataclass(frozen=True, slots=True)
class _PlacedRows:
    """The rows of all streams, with the group, stream, sub-key, sub-key hash (`code`) and place of each row."""

    group: Indices
    stream: Indices
    sub_key: pa.BinaryArray
    code: Uint64s
    place: Uint64s


class ArrangedValues:
    """The values of all streams within one batch."""

    def __init__(self, arrangement: Arrangement, streams: Sequence[Stream], groups: GroupKeys) -> None:
        self.arrangement = arrangement
        self._streams = streams
        self._groups = groups
        self._touched_sub = binary(())
        self._touched_group = np.empty(0, np.int64)
        self._touched: list[TouchedValues] = []

    def apply(self, rows: Sequence[tuple[Indices, ValueRows]]) -> list[TouchedValues]:
        """Update the stored counts of values with each stream's rows, and return the values whose counts changed.

        `rows` contains one item per stream: the group of each row, and the rows.
        """
        rows = [
            self._settled(number, *each) if stream.placed_by == "arrival" else each
            for number, (stream, each) in enumerate(zip(self._streams, rows, strict=True))
        ]
        placed = self._placed(rows)
        stored = self.arrangement.at(placed.place)
        same = self._same(placed, stored)
        ids, of_stored = same.ids[: len(placed.group)], same.ids[len(placed.group) :]
        first = np.full(same.count, -1)
        first[ids[::-1]] = np.arange(len(ids))[::-1]
        owner = np.full(same.count, 0)
        touched = first >= 0
        owner[touched] = placed.group[first[touched]]

        step, before = np.zeros(same.count, np.int64), np.zeros(same.count, np.int64)
        np.add.at(step, ids, np.concatenate([values.weight for _, values in rows]))
        alive = touched[of_stored] & (stored.written_at >= self._groups.born[owner[of_stored]])
        np.add.at(before, of_stored[alive], stored.weight[alive])
        after = np.maximum(before + step, 0)
        changed = touched & (after != before)

        gone = stored.filter((changed[of_stored]) | (touched[of_stored] & ~alive))
        self.arrangement.append(gone.relabel(weight=-gone.weight))
        come = np.flatnonzero(changed & (after > 0))
        at = first[come]
        self.arrangement.append(
            self._entries(owner[come], placed.sub_key.take(pa.array(at)), placed.place[at], after[come])
        )

        at = first[changed]
        self._touched_group, self._touched_sub = owner[changed], placed.sub_key.take(pa.array(at))
        values = without_first(self._touched_sub, 1)
        self._touched = [
            TouchedValues(stream, owner[changed], values, before[changed], after[changed]).filter(
                placed.stream[at] == number
            )
            for number, stream in enumerate(self._streams)
        ]
        return self._touched

    def _placed(self, rows: Sequence[tuple[Indices, ValueRows]]) -> _PlacedRows:
        groups = np.concatenate([of for of, _ in rows])
        streams = np.repeat(np.arange(len(rows)), [len(of) for of, _ in rows])
        sub_key = concat_binary([_sub(number, values.value) for number, (_, values) in enumerate(rows)])
        code = hash64(sub_key)
        place = np.concatenate([self._codes(number, values.value) for number, (_, values) in enumerate(rows)])
        by_hash = np.array([stream.placed_by == "hash" for stream in self._streams], np.bool_)[streams]
        place[by_hash] = code[by_hash] >> np.uint64(32)
        place |= self._groups.hash[groups] & UPPER
        return _PlacedRows(groups, streams, sub_key, code, place)

    def _same(self, placed: _PlacedRows, stored: Entries) -> Groups:
        """Group equal values of the same group and stream. The grouped values are the rows, then the stored entries."""
        hashes, key = self._groups.hash[placed.group], self._groups.key.take(pa.array(placed.group))
        codes = np.concatenate([mix(hashes, placed.code), mix(stored.hash, hash64(stored.sub_key))])
        return group(codes, [concat_binary([key, stored.key]), concat_binary([placed.sub_key, stored.sub_key])])

    def every(self, numbers: Sequence[int]) -> list[TouchedValues]:
        """Return all values of all groups in these streams, including values that the batch does not touch."""
        wanted = np.arange(len(self._groups.hash))
        of, entries = self._of_groups(self.arrangement.lookup(self._groups.hash), wanted)
        found = []
        for number in numbers:
            touched, rows = self._touched[number], np.flatnonzero(_begins_with(entries.sub_key, number))
            rows, times = _once(of, entries, rows)
            value = concat_binary([touched.value, without_first(entries.sub_key.take(pa.array(rows)), 1)])
            before, after = (np.concatenate([known, times]) for known in (touched.before, touched.after))
            found.append(TouchedValues(touched.stream, np.concatenate([touched.group, of[rows]]), value, before, after))
        return found

    def next_values(
        self, stream: Stream, wanted: Indices, start: pa.BinaryArray, *, upwards: bool
    ) -> tuple[Indices, pa.BinaryArray]:
        """Read each group's values from `start`, upwards or downwards, until the group's next value has been read.

        Return the values with their groups. Values that the batch touches are not returned. Groups without further
        values are missing from the result.
        """
        groups, number = self._groups, self._streams.index(stream)
        if not stream.ordered:
            of, entries = self._of_groups(self.arrangement.lookup(groups.hash[wanted]), wanted)
            rows = np.flatnonzero(_begins_with(entries.sub_key, number))
            return of[rows], without_first(entries.sub_key.take(pa.array(rows)), 1)
        begin = self._codes(number, start).astype(np.int64)
        if not upwards:
            begin = _LOWER.astype(np.int64) - begin
        step, last = 0, int(_LOWER)
        found: list[tuple[Indices, pa.BinaryArray]] = []
        while len(wanted):
            end = np.minimum(begin + step, last)
            low, high = (begin, end) if upwards else (last - end, last - begin)
            upper = groups.hash[wanted] & UPPER
            entries = self.arrangement.between(*_intervals(upper, low, high))
            entries = entries.filter(_begins_with(entries.sub_key, number))
            of, entries = self._of_groups(entries, wanted)
            found.append((of, without_first(entries.sub_key, 1)))
            more = ~np.isin(wanted, of) & (end < last)
            wanted, begin = wanted[more], end[more] + 1
            step = max(step * _GROWTH, _FIRST_STEP)
        return np.concatenate([np.empty(0, np.int64), *(of for of, _ in found)]), concat_binary(
            [values for _, values in found]
        )

    def refresh(self, wanted: Indices) -> None:
        """Rewrite all values of these groups, except the values that the batch writes anyway."""
        if len(wanted) == 0:
            return
        of, entries = self._of_groups(self.arrangement.lookup(self._groups.hash[wanted]), wanted)
        self.arrangement.append(entries.relabel(weight=-entries.weight))
        self.arrangement.append(self._entries(of, entries.sub_key, entries.place, entries.weight))

    def _of_groups(self, entries: Entries, wanted: Indices) -> tuple[Indices, Entries]:
        """Return entries of the groups `wanted`, and the group of each entry.

        Entries that the batch touches, and entries older than their group, are omitted.
        """
        groups = self._groups
        numbers = group(
            np.concatenate([groups.hash[wanted], entries.hash]),
            [concat_binary([groups.key.take(pa.array(wanted)), entries.key])],
        )
        owner = np.full(numbers.count, -1)
        owner[numbers.ids[: len(wanted)]] = wanted
        of = owner[numbers.ids[len(wanted) :]]
        fits = (of >= 0) & (entries.written_at >= groups.born[of])
        of, entries = of[fits], entries.filter(fits)
        sub_key = concat_binary([self._touched_sub, entries.sub_key])
        of_both = np.concatenate([self._touched_group, of])
        values = group(mix(of_both.astype(np.uint64), hash64(sub_key)), [of_both, sub_key])
        touched = np.zeros(values.count, np.bool_)
        touched[values.ids[: len(self._touched_group)]] = True
        untouched = ~touched[values.ids[len(self._touched_group) :]]
        return of[untouched], entries.filter(untouched)

    def _settled(self, number: int, of: Indices, rows: ValueRows) -> tuple[Indices, ValueRows]:
        """Resolve each retraction in a stream of arrivals to the arrival that it removes."""
        taken = np.flatnonzero(rows.weight < 0)
        if len(taken) == 0:
            return of, rows
        hashes = self._groups.hash[of[taken]]
        entries = self.arrangement.at(self._codes(number, rows.value.take(pa.array(taken))) | (hashes & UPPER))
        entries = entries.filter(_begins_with(entries.sub_key, number))
        of_stored, entries = self._of_groups(entries, np.unique(of[taken]))
        there = Arrivals(of_stored, without_first(entries.sub_key, 1), entries.weight)
        found = settled(Arrivals(of, rows.value, rows.weight), there)
        return found.group, ValueRows(found.group, found.value, found.times)

    def _codes(self, number: int, values: pa.BinaryArray) -> Uint64s:
        stream = self._streams[number]
        match stream.placed_by:
            case "hash":
                return np.zeros(len(values), np.uint64)
            case "arrival":
                return hash64(arrived(values)) >> np.uint64(32)
            case "key":
                return order_code(values) >> np.uint64(BITS - 32)
        return value_bytes.order_codes(value_bytes.from_bytes(values, stream.type))

    def _entries(self, of: Indices, sub_key: pa.BinaryArray, place: Uint64s, weight: Int64s) -> Entries:
        rows = len(of)
        return Entries(
            place,
            self._groups.hash[of],
            self._groups.key.take(pa.array(of)),
            sub_key,
            constant(b"", rows),
            weight,
            self._groups.written_at[of],
            np.zeros(rows, np.int64),
            np.zeros(rows, np.int8),
        )


def _sub(number: int, values: pa.BinaryArray) -> pa.BinaryArray:
    return pc.binary_join_element_wise(constant(bytes([number]), len(values)), values, b"")


def _once(of: Indices, entries: Entries, rows: Indices) -> tuple[Indices, Int64s]:
    """Return the index of one entry for each value of each group, and the value's total multiplicity.

    A value may have two entries: if the clock is set back, two batches may write the value with the same time.
    """
    sub_key = entries.sub_key.take(pa.array(rows))
    values = group(mix(of[rows].astype(np.uint64), hash64(sub_key)), [of[rows], sub_key])
    times = np.zeros(values.count, np.int64)
    np.add.at(times, values.ids, entries.weight[rows])
    first = np.zeros(values.count, np.int64)
    first[values.ids] = rows
    return first, times


def _begins_with(sub_key: pa.BinaryArray, number: int) -> Mask:
    if len(sub_key) == 0:
        return np.zeros(0, np.bool_)
    offsets = np.frombuffer(sub_key.buffers()[1], np.int32, len(sub_key) + 1, sub_key.offset * 4)
    result: Mask = np.frombuffer(sub_key.buffers()[2], np.uint8)[offsets[:-1]] == number
    return result


def _intervals(upper: Uint64s, low: Int64s, high: Int64s) -> tuple[Uint64s, Uint64s]:
    """Return intervals of places. If groups share an upper half, one interval covers the intervals of these groups."""
    order = np.argsort(upper)
    upper, low, high = upper[order], low[order], high[order]
    starts = np.flatnonzero(np.concatenate(([True], upper[1:] != upper[:-1])))
    lows, highs = np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)
    return upper[starts] | lows.astype(np.uint64), upper[starts] | highs.astype(np.uint64)
