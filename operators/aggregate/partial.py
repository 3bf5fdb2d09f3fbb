"""Partial aggregates: a task's changes, added up by group before the shuffle.

`add_up` is stateless. For each group, it returns at most two rows: one with the sums of the insertions, and one with
the sums of the retractions. In addition, it returns one row for each value that DISTINCT, MIN or MAX must store, with
the net number of rows that have this value. Regardless of its number of changes, a hot group therefore causes a task to
send at most two rows per batch, plus one row per distinct value. `partial` adds up changes only if that reduces the
number of rows enough. Raw rows have side 0, and partial rows have side 1. The final operator accepts raw and partial
rows in one batch; `lift` converts them to parts of accumulators.

A hot group with too many distinct values for one shard is split by value. COUNT(DISTINCT x) grouped by g then becomes
two aggregates. The first has no calls, is grouped by (g, x), and is spread over the shards. The second is COUNT(x)
grouped by g over the first aggregate's rows. It also has partial aggregates before the shuffle.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rowkind.operators.aggregate.accumulators import AccumulatorColumn, AccumulatorPiece
from rowkind.operators.aggregate.arranged_values import ValueRows
from rowkind.operators.aggregate.arrivals import arrivals
from rowkind.operators.aggregate.function import ARRIVALS
from rowkind.operators.aggregate.spec import AggregateSpec
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns import value_bytes
from rowkind.operators.columns.changes import Changes, Indices, Int64s, Mask, Uint64s, concat_binary, constant
from rowkind.operators.columns.grouping import group, to_mask
from rowkind.operators.columns.hashing import hash64, mix
from rowkind.operators.columns.packed_columns import pack, unpack

RAW, PARTIAL = 0, 1
"""The side of raw rows, and the side of partial rows."""

WORTH = 0.2
"""The maximum number of partial rows per change with which adding up pays off.

Measured with `tests.bench.operator_aggregate`, including blocks and the final operator. At 0.02 rows per change,
partial sums take 0.6 to 0.9 times the CPU time of raw changes. Between 0.1 and 0.2 rows per change, they take the same
CPU time and a third of the bytes. From 0.3 rows per change, they take 10% to 50% more CPU time. The final operator's
cost depends mostly on the number of groups: 100,000 raw changes of a hot group take 24 ms.
"""

_SUMS = -1
"""The tag of partial rows with sums. The tag of any other partial row is the number of its stream."""


@dataclass(frozen=True, slots=True)
class Form:
    """Changes of one form, raw or partial, as elements. An element is a single raw row or the sums of several rows.

    `row` contains the index of each element's change. `parts` contains the parts of those accumulators that read input
    rows directly. `values` contains the rows of each stream. If `packed` is set, `payload` contains each element's
    packed group columns; otherwise, it has a row for each element, from which `spec.group` derives the group columns.
    """

    row: Indices
    parts: list[AccumulatorColumn]
    values: list[ValueRows]
    payload: pa.BinaryArray
    packed: bool

    def groups(self, spec: AggregateSpec, elements: Indices) -> pa.BinaryArray:
        """Return the group columns of these elements."""
        payload = self.payload.take(pa.array(elements))
        return payload if self.packed else spec.group(payload)


@dataclass(frozen=True, slots=True)
class Lifted:
    """A batch's changes as parts of accumulators, separately for raw and partial changes."""

    forms: list[Form]

    @property
    def row(self) -> Indices:
        """The index of each element's change."""
        return np.concatenate([form.row for form in self.forms])

    @property
    def rows(self) -> Int64s:
        """The number of rows that each element represents."""
        return np.concatenate([form.parts[0][0] for form in self.forms])

    @property
    def values(self) -> list[ValueRows]:
        """The rows of each stream."""
        return [ValueRows.concat(streams) for streams in zip(*(form.values for form in self.forms), strict=True)]

    def pieces(self, of_change: Indices, weight: Int64s) -> Iterator[list[AccumulatorPiece]]:
        """Yield, for each accumulator that reads input rows directly, the pieces to add up."""
        for parts in zip(*(form.parts for form in self.forms), strict=True):
            yield [(part, of_change[form.row], weight[form.row]) for part, form in zip(parts, self.forms, strict=True)]

    def groups(self, spec: AggregateSpec, elements: Indices) -> pa.BinaryArray:
        """Return the group columns of these elements."""
        bounds = np.cumsum([0, *(len(form.row) for form in self.forms)])
        form_of = np.searchsorted(bounds, elements, side="right") - 1
        order = np.argsort(form_of, kind="stable")
        parts = [
            form.groups(spec, elements[form_of == number] - bounds[number]) for number, form in enumerate(self.forms)
        ]
        return concat_binary(parts).take(pa.array(np.argsort(order)))


def lift(spec: AggregateSpec, changes: Changes) -> Lifted:
    """Convert changes, which may be raw and partial, to parts of accumulators."""
    partial_ones = changes.side == PARTIAL
    if not partial_ones.any():
        return Lifted([_rows(spec, changes, np.arange(len(changes)))])
    unpacked = _unpack(spec, changes, np.flatnonzero(partial_ones))
    if partial_ones.all():
        return Lifted([unpacked])
    return Lifted([_rows(spec, changes, np.flatnonzero(~partial_ones)), unpacked])


def partial(spec: AggregateSpec, changes: Changes) -> Changes:
    """Return the partial sums of these raw changes or, if adding up does not pay off, the changes themselves.

    An `Aggregate` may receive raw and partial changes in one batch, even for the same group.
    """
    worth = WORTH * len(changes)
    if least_distinct(changes.hash) > worth:
        return changes
    summed = add_up(spec, changes)
    return summed if len(summed) <= worth else changes


def one_of_each_group(refreshes: Changes) -> Changes:
    """Reduce a task's refreshes to one per group."""
    groups = group(refreshes.hash, [refreshes.key])
    return refreshes.take(firsts(groups.ids, groups.count))


def least_distinct(hashes: Uint64s) -> int:
    """Return a lower bound, close to the number of distinct hashes, at a tenth of the cost of sorting the hashes."""
    slots = np.zeros(1 << (8 * len(hashes)).bit_length(), np.bool_)
    slots[hashes & np.uint64(len(slots) - 1)] = True
    return int(np.count_nonzero(slots))


@dataclass(frozen=True, slots=True)
class Targets:
    """The groups of changes of which each belongs to several groups.

    `of[s, i]` is the index in `rows` of the s-th group of change i.
    """

    rows: Changes
    of: Indices


def add_up(spec: AggregateSpec, changes: Changes, into: Targets | None = None) -> Changes:
    """Add up raw changes by group, and return partial changes. If `into` is given, it determines the groups."""
    assert not changes.side.any(), "only rows of side 0 are pre-aggregated"
    if len(changes) == 0:
        return changes
    into = into or Targets(changes, np.arange(len(changes))[None])
    form = _rows(spec, changes, np.arange(len(changes)))
    groups = group(into.rows.hash, [into.rows.key])
    rows, ids = into.rows.take(firsts(groups.ids, groups.count)), groups.ids[into.of]
    sums = _sums(spec, changes, form, rows, ids)
    return Changes.concat([sums, *(_net_values(spec, changes, each, rows, ids) for each in enumerate(form.values))])


def group_of_sums(spec: AggregateSpec, payloads: pa.BinaryArray) -> pa.BinaryArray:
    """Return the packed group columns of unmatched partial changes, which are always rows with sums."""
    groups: pa.BinaryArray = unpack("nb" + spec.row_kinds, payloads)[1]
    return groups


def packed_groups(spec: AggregateSpec, changes: Changes) -> pa.BinaryArray:
    """Return the packed group columns of an aggregate's changes, which may be raw and partial."""
    summed = np.flatnonzero(changes.side == PARTIAL)
    if len(summed) == 0:
        return spec.group(changes.payload)
    tags = unpack("n", changes.payload.take(pa.array(summed)))[0]
    summed = summed[np.flatnonzero(tags == _SUMS)]
    raw = np.flatnonzero(changes.side == RAW)
    packed = [group_of_sums(spec, changes.payload.take(pa.array(summed)))]
    packed += [spec.group(changes.payload.take(pa.array(raw)))] if len(raw) else []
    # A partial row with the count of a value is always sent together with a row that has the sums of the same group.
    groups = group(changes.hash, [changes.key])
    place = np.zeros(groups.count, np.int64)
    place[groups.ids[np.concatenate([summed, raw])]] = np.arange(len(summed) + len(raw))
    return concat_binary(packed).take(pa.array(place[groups.ids]))


def _rows(spec: AggregateSpec, changes: Changes, row: Indices) -> Form:
    """Convert the raw changes, which are at the indices `row`, to parts of accumulators."""
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
    """Convert the partial changes, which are at the indices `partial_rows`, to parts of accumulators."""
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
    """Return one row with sums for each combination of group and sign that has changes.

    `ids` contains the groups of each change, and `rows` contains one row per group.
    """
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
    """Return one row for each group and value of a stream. Values whose net number of rows is zero are omitted."""
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
    """Return partial changes with the hashes and keys of `rows`, and with the given payloads, seqs and signs."""
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
    """Return each group's arrival number, given the seqs of the changes and one or more arrays with their group ids."""
    numbered, none = spec.numbered
    found = np.full(count, none)
    for each in ids:
        numbered.at(found, each, seq)
    return found


def firsts(ids: Indices, count: int) -> Indices:
    """Return the index of each group's first row."""
    first = np.zeros(count, np.int64)
    first[ids[::-1]] = np.arange(len(ids))[::-1]
    return first
