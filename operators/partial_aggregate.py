"""Partial aggregates: the changes of a task, added up by group before they are shuffled.

`add_up` is stateless. For each group it makes one row with the sums of the insertions and one with those of the
retractions, if there are any; and for each value that DISTINCT, MIN or MAX must keep, one row that says how many more
or fewer rows have it. So a hot group costs a task two rows per batch and its different values, however many changes it
has. `partial` does so only where that makes few rows of many. What is added up has side 1 and what is not has side 0,
and `lift` gives the final operator both, in one batch too, as what accumulators add up.

A hot group with too many different values for one shard is split by them: COUNT(DISTINCT x) by g is an aggregate
without calls by (g, x), which spreads over the shards, and over its rows COUNT(x) by g, two-phase itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rowkind.operators.accumulators import AccumulatorColumn, AccumulatorPiece
from rowkind.operators.aggregate_function import ARRIVALS
from rowkind.operators.aggregate_spec import AggregateSpec
from rowkind.operators.arranged_values import ValueRows
from rowkind.operators.arrivals import arrivals
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns import value_bytes
from rowkind.operators.columns.changes import Changes, Indices, Int64s, Mask, Uint64s, concat_binary, constant
from rowkind.operators.columns.grouping import group, to_mask
from rowkind.operators.columns.hashing import hash64, mix
from rowkind.operators.columns.packed_columns import pack, unpack

RAW, PARTIAL = 0, 1
"""The side of rows as they are, and of rows that `partial` made."""

WORTH = 0.2
"""How many rows may be sent per change for sums to pay. Measured in `tests.bench.operator_aggregate`, blocks and the
final operator included: at 0.02 rows per change sums cost 0.6 to 0.9 times the CPU of the changes as they are, between
0.1 and 0.2 as much and a third of the bytes, from 0.3 on a tenth to a half more. What the final operator does is mostly
per group; 100,000 changes of a hot group, sent as they are, cost it 24 ms."""

_SUMS = -1
"""Where a partial row has the number of its stream, this says that it has sums."""


@dataclass(frozen=True, slots=True)
class Form:
    """Changes of one form as elements, each one raw row or the sums of some.

    `row` is the change of each element of the `parts`, which are those of the accumulators that take rows; `values` has
    the rows by what they have in each stream. The group's columns of element i are in `payload`, packed or to be made.
    """

    row: Indices
    parts: list[AccumulatorColumn]
    values: list[ValueRows]
    payload: pa.BinaryArray
    packed: bool

    def groups(self, spec: AggregateSpec, elements: Indices) -> pa.BinaryArray:
        """The group columns of these elements."""
        payload = self.payload.take(pa.array(elements))
        return payload if self.packed else spec.group(payload)


@dataclass(frozen=True, slots=True)
class Lifted:
    """The changes of a batch as what accumulators add up: their elements, form by form."""

    forms: list[Form]

    @property
    def row(self) -> Indices:
        """The change of each element."""
        return np.concatenate([form.row for form in self.forms])

    @property
    def rows(self) -> Int64s:
        """How many rows each element stands for."""
        return np.concatenate([form.parts[0][0] for form in self.forms])

    @property
    def values(self) -> list[ValueRows]:
        """The rows by what they have in each stream."""
        return [ValueRows.concat(streams) for streams in zip(*(form.values for form in self.forms), strict=True)]

    def pieces(self, of_change: Indices, weight: Int64s) -> Iterator[list[AccumulatorPiece]]:
        """For each accumulator that takes rows what it has to add up, by the group and the sign of each change."""
        for parts in zip(*(form.parts for form in self.forms), strict=True):
            yield [(part, of_change[form.row], weight[form.row]) for part, form in zip(parts, self.forms, strict=True)]

    def groups(self, spec: AggregateSpec, elements: Indices) -> pa.BinaryArray:
        """The group columns of these elements."""
        bounds = np.cumsum([0, *(len(form.row) for form in self.forms)])
        form_of = np.searchsorted(bounds, elements, side="right") - 1
        order = np.argsort(form_of, kind="stable")
        parts = [
            form.groups(spec, elements[form_of == number] - bounds[number]) for number, form in enumerate(self.forms)
        ]
        return concat_binary(parts).take(pa.array(np.argsort(order)))


def lift(spec: AggregateSpec, changes: Changes) -> Lifted:
    """Raw changes, partial ones or both."""
    partial_ones = changes.side == PARTIAL
    if not partial_ones.any():
        return Lifted([_rows(spec, changes, np.arange(len(changes)))])
    unpacked = _unpack(spec, changes, np.flatnonzero(partial_ones))
    if partial_ones.all():
        return Lifted([unpacked])
    return Lifted([_rows(spec, changes, np.flatnonzero(~partial_ones)), unpacked])


def partial(spec: AggregateSpec, changes: Changes) -> Changes:
    """What a task sends in place of these changes of side `RAW`: their sums, or the changes where sums do not pay.

    Both sides may reach an `Aggregate` in one batch, and of one group.
    """
    worth = WORTH * len(changes)
    if least_distinct(changes.hash) > worth:
        return changes
    summed = add_up(spec, changes)
    return summed if len(summed) <= worth else changes


def one_of_each_group(refreshes: Changes) -> Changes:
    """What a task sends in place of these refreshes."""
    groups = group(refreshes.hash, [refreshes.key])
    return refreshes.take(firsts(groups.ids, groups.count))


def least_distinct(hashes: Uint64s) -> int:
    """A number of different hashes that there are at least, nearly all of them; for a tenth of what sorting costs."""
    slots = np.zeros(1 << (8 * len(hashes)).bit_length(), np.bool_)
    slots[hashes & np.uint64(len(slots) - 1)] = True
    return int(np.count_nonzero(slots))


@dataclass(frozen=True, slots=True)
class Targets:
    """The groups of changes of which each counts in several: rows of these groups, and `of[s, i]` that of change i."""

    rows: Changes
    of: Indices


def add_up(spec: AggregateSpec, changes: Changes, into: Targets | None = None) -> Changes:
    """These changes of side `RAW` added up by group, as changes of side `PARTIAL`; their own group, or these."""
    assert not changes.side.any(), "what is added up has one side, 0"
    if len(changes) == 0:
        return changes
    into = into or Targets(changes, np.arange(len(changes))[None])
    form = _rows(spec, changes, np.arange(len(changes)))
    groups = group(into.rows.hash, [into.rows.key])
    rows, ids = into.rows.take(firsts(groups.ids, groups.count)), groups.ids[into.of]
    sums = _sums(spec, changes, form, rows, ids)
    return Changes.concat([sums, *(_net_values(spec, changes, each, rows, ids) for each in enumerate(form.values))])


def group_of_sums(spec: AggregateSpec, payloads: pa.BinaryArray) -> pa.BinaryArray:
    """The packed group columns in the payloads of partial changes that came back unmatched: such are always sums."""
    groups: pa.BinaryArray = unpack("nb" + spec.row_kinds, payloads)[1]
    return groups


def packed_groups(spec: AggregateSpec, changes: Changes) -> pa.BinaryArray:
    """The packed group columns of each of these changes, raw ones, partial ones or both, as they reach an aggregate."""
    summed = np.flatnonzero(changes.side == PARTIAL)
    if len(summed) == 0:
        return spec.group(changes.payload)
    tags = unpack("n", changes.payload.take(pa.array(summed)))[0]
    summed = summed[np.flatnonzero(tags == _SUMS)]
    raw = np.flatnonzero(changes.side == RAW)
    packed = [group_of_sums(spec, changes.payload.take(pa.array(summed)))]
    packed += [spec.group(changes.payload.take(pa.array(raw)))] if len(raw) else []
    # What says how many rows have a value comes with the sums of its group.
    groups = group(changes.hash, [changes.key])
    place = np.zeros(groups.count, np.int64)
    place[groups.ids[np.concatenate([summed, raw])]] = np.arange(len(summed) + len(raw))
    return concat_binary(packed).take(pa.array(place[groups.ids]))


def _rows(spec: AggregateSpec, changes: Changes, row: Indices) -> Form:
    """The raw changes among them, which are those at `row`."""
    if len(row) < len(changes):
        changes = changes.take(row)
    everything = np.ones(len(changes), np.bool_)
    named = any(call.argument is not None or call.filter is not None for call in spec.calls)
    arguments = spec.arguments(changes.payload) if named else {}

    def counted(name: str | None) -> Mask:
        return everything if name is None else to_mask(arguments[name].fill_null(fill_value=False))

    parts = [spec.accumulators[0].lift(None, everything)]
    for call, accumulator, source in zip(spec.calls, spec.accumulators[1:], spec.sources[1:], strict=True):
        if source is None:
            values = None if call.argument is None else arguments[call.argument]
            if call.function in ARRIVALS:
                values = arrivals(changes.seq, values)
            parts.append(accumulator.lift(values, counted(call.filter)))
    values = []
    for stream in spec.streams:
        there = np.flatnonzero(counted(stream.filter) & to_mask(arguments[stream.argument].is_valid()))
        value = value_bytes.to_bytes(arguments[stream.argument].take(pa.array(there)))
        if stream.placed_by == "arrival":
            value = arrivals(changes.seq[there], value)
        values.append(ValueRows(row[there], value, changes.weight[there]))
    return Form(row, parts, values, changes.payload, packed=False)


def _unpack(spec: AggregateSpec, changes: Changes, partial_rows: Indices) -> Form:
    """The partial changes among them, which are those at `partial_rows`."""
    payloads = changes.payload if len(partial_rows) == len(changes) else changes.payload.take(pa.array(partial_rows))
    tags = unpack("n", payloads)[0]

    at = np.flatnonzero(tags == _SUMS)
    _, packed, *columns = unpack("nb" + spec.row_kinds, payloads.take(pa.array(at)))
    parts = []
    for accumulator, source in zip(spec.accumulators, spec.sources, strict=True):
        if source is None:
            width = len(accumulator.kinds)
            parts.append(accumulator.of_columns(columns[:width]))
            columns = columns[width:]
    values = []
    for number in range(len(spec.streams)):
        of = np.flatnonzero(tags == number)
        _, weight, value = unpack("nnb", payloads.take(pa.array(of)))
        row = partial_rows[of]
        values.append(ValueRows(row, value, np.asarray(weight) * changes.weight[row]))
    return Form(partial_rows[at], parts, values, packed, packed=True)


def _sums(spec: AggregateSpec, changes: Changes, form: Form, rows: Changes, ids: Indices) -> Changes:
    """One row for each group of `ids` and sign, where there are changes of it; `rows` has one of each group."""
    signed = ids * 2 + (changes.weight < 0)
    used = np.flatnonzero(np.bincount(signed.ravel()))
    number = np.zeros(used[-1] + 1, np.int64)
    number[used] = np.arange(len(used))
    numbers, once = number[signed], np.ones(len(changes), np.int64)
    of_rows = [
        accumulator for accumulator, source in zip(spec.accumulators, spec.sources, strict=True) if source is None
    ]
    columns = [
        column
        for accumulator, part in zip(of_rows, form.parts, strict=True)
        for column in accumulator.to_columns(accumulator.total([(part, each, once) for each in numbers], len(used)))
    ]
    rows = rows.take(used // 2)
    payload = pack([np.full(len(used), _SUMS), spec.group(rows.payload), *columns])
    return _changes(rows, payload, _seq(spec, changes.seq, numbers, len(used)), 1 - 2 * (used % 2))


def _net_values(
    spec: AggregateSpec, changes: Changes, stream: tuple[int, ValueRows], rows: Changes, ids: Indices
) -> Changes:
    """One row for each value of a stream in each group, where the changes leave more or fewer of it."""
    number, values = stream
    of = ids[:, values.row].ravel()
    value = values.value.take(pa.array(np.tile(np.arange(len(values.row)), len(ids)))) if len(ids) > 1 else values.value
    same = group(mix(of.astype(np.uint64), hash64(value)), [of, value])
    weight = np.zeros(same.count, np.int64)
    np.add.at(weight, same.ids, np.tile(values.weight, len(ids)))
    first = firsts(same.ids, same.count)
    payload = pack([np.full(same.count, number), abs(weight), value.take(pa.array(first))])
    seq = _seq(spec, np.tile(changes.seq[values.row], len(ids)), same.ids[None], same.count)
    return _changes(rows.take(of[first]), payload, seq, weight).filter(weight != 0)


def _changes(rows: Changes, payload: pa.BinaryArray, seq: Int64s, weight: Int64s) -> Changes:
    """What has been added up, under the keys of these rows."""
    return Changes(
        np.full(len(rows), PARTIAL, np.int8),
        np.where(weight > 0, RowKind.INSERT, RowKind.DELETE).astype(np.int8),
        rows.hash,
        rows.key,
        constant(b"", len(rows)),
        seq,
        payload,
    )


def _seq(spec: AggregateSpec, seq: Int64s, ids: Indices, count: int) -> Int64s:
    """The arrival number of each group of some sets of groups."""
    numbered, none = spec.numbered
    found = np.full(count, none)
    for each in ids:
        numbered.at(found, each, seq)
    return found


def firsts(ids: Indices, count: int) -> Indices:
    """The first row of each group."""
    first = np.zeros(count, np.int64)
    first[ids[::-1]] = np.arange(len(ids))[::-1]
    return first
