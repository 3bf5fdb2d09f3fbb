"""Partial aggregates: the changes of a task, added up by group before they are shuffled.

`partial` is stateless. For each group it sends one row with the sums of the insertions and one with those of the
retractions, if there are any; and for each value that DISTINCT, MIN or MAX must keep, one row that says how many more
or fewer rows have it. So a hot group costs a task two rows per batch and its different values, however many changes it
has. `lift` gives the final operator both forms, raw changes and partial ones, as one.

A hot group with too many different values for one shard is split by them: COUNT(DISTINCT x) by g is an aggregate
without calls by (g, x), which spreads over the shards, and over its rows COUNT(x) by g, two-phase itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from operators import value_bytes
from operators.accumulators import Part
from operators.aggregate_spec import AggregateSpec
from operators.arranged_values import ValueRows
from operators.changes import Changes, Indices, Int64s, Mask, RowKind, constant
from operators.grouping import group, to_mask
from operators.hashing import hash64, mix
from operators.packed_columns import pack, unpack

_SUMS = -1
"""Where a partial row has the number of its stream, this says that it has sums."""


@dataclass(frozen=True, slots=True)
class Lifted:
    """Changes as what accumulators add up.

    `row` is the change of each element of the `parts`, which are those of the accumulators that take rows; `values` has
    the rows by what they have in each stream. The group's columns of element i are in `payload`, packed or to be made.
    """

    row: Indices
    parts: list[Part]
    values: list[ValueRows]
    payload: pa.BinaryArray
    packed: bool

    def groups(self, spec: AggregateSpec, elements: Indices) -> pa.BinaryArray:
        """The group columns of these elements."""
        payload = self.payload.take(pa.array(elements))
        return payload if self.packed else spec.group(payload)


def lift(spec: AggregateSpec, changes: Changes) -> Lifted:
    """Raw changes."""
    everything = np.ones(len(changes), np.bool_)
    named = any(call.argument is not None or call.filter is not None for call in spec.calls)
    arguments = spec.arguments(changes.payload) if named else {}

    def counted(name: str | None) -> Mask:
        return everything if name is None else to_mask(arguments[name].fill_null(fill_value=False))

    parts = [spec.accumulators[0].lift(None, everything)]
    for call, accumulator, source in zip(spec.calls, spec.accumulators[1:], spec.sources[1:], strict=True):
        if source is None:
            values = None if call.argument is None else arguments[call.argument]
            parts.append(accumulator.lift(values, counted(call.filter)))
    values = [_values(arguments[stream.argument], counted(stream.filter), changes) for stream in spec.streams]
    return Lifted(np.arange(len(changes)), parts, values, changes.payload, packed=False)


def partial(spec: AggregateSpec, changes: Changes) -> Changes:
    """The changes added up by group, for an `Aggregate` that is told to merge them; there must be no dead letters."""
    if len(changes) == 0:
        return changes
    lifted = lift(spec, changes)
    groups = group(changes.hash, [changes.key])
    sums = _sums(spec, changes, lifted, groups.ids * 2 + (changes.weight < 0))
    values = [_net_values(changes, number, values, groups.ids) for number, values in enumerate(lifted.values)]
    return Changes.concat([sums, *values])


def unpack_partial(spec: AggregateSpec, changes: Changes) -> Lifted:
    """Changes as `partial` made them."""
    tags = unpack("n", changes.payload)[0]

    row = np.flatnonzero(tags == _SUMS)
    _, packed, *columns = unpack("nb" + spec.row_kinds, changes.payload.take(pa.array(row)))
    parts = []
    for accumulator, source in zip(spec.accumulators, spec.sources, strict=True):
        if source is None:
            width = len(accumulator.kinds)
            parts.append(accumulator.of_columns(columns[:width]))
            columns = columns[width:]
    values = []
    for number in range(len(spec.streams)):
        of = np.flatnonzero(tags == number)
        _, weight, value = unpack("nnb", changes.payload.take(pa.array(of)))
        values.append(ValueRows(of, value, np.asarray(weight) * changes.weight[of]))
    return Lifted(row, parts, values, packed, packed=True)


def _values(argument: pa.Array, counted: Mask, changes: Changes) -> ValueRows:
    rows = np.flatnonzero(counted & to_mask(argument.is_valid()))
    return ValueRows(rows, value_bytes.to_bytes(argument.take(pa.array(rows))), changes.weight[rows])


def _sums(spec: AggregateSpec, changes: Changes, lifted: Lifted, ids: Indices) -> Changes:
    """One row for each group of `ids`, whose changes are all of one sign."""
    used = np.flatnonzero(np.bincount(ids))
    number = np.zeros(used[-1] + 1, np.int64)
    number[used] = np.arange(len(used))
    ids = number[ids]
    pieces = [(part, ids, np.ones(len(ids), np.int64)) for part in lifted.parts]
    of_rows = [
        accumulator for accumulator, source in zip(spec.accumulators, spec.sources, strict=True) if source is None
    ]
    columns = [
        column
        for accumulator, piece in zip(of_rows, pieces, strict=True)
        for column in accumulator.to_columns(accumulator.total([piece], len(used)))
    ]
    first = _firsts(ids, len(used))
    payload = pack([np.full(len(used), _SUMS), lifted.groups(spec, first), *columns])
    return _changes(changes, ids, first, payload, changes.weight[first])


def _net_values(changes: Changes, number: int, values: ValueRows, ids: Indices) -> Changes:
    of = ids[values.row]
    same = group(mix(of.astype(np.uint64), hash64(values.value)), [of, values.value])
    weight = np.zeros(same.count, np.int64)
    np.add.at(weight, same.ids, values.weight)
    first = _firsts(same.ids, same.count)
    payload = pack([np.full(same.count, number), abs(weight), values.value.take(pa.array(first))])
    subset = changes.take(values.row)
    return _changes(subset, same.ids, first, payload, weight).filter(weight != 0)


def _changes(changes: Changes, ids: Indices, first: Indices, payload: pa.BinaryArray, weight: Int64s) -> Changes:
    """One change for each group of `ids`, as late as the latest of its changes."""
    seq = np.full(len(first), np.iinfo(np.int64).min)
    np.maximum.at(seq, ids, changes.seq)
    at = pa.array(first)
    return Changes(
        changes.side[first],
        np.where(weight > 0, RowKind.INSERT, RowKind.DELETE).astype(np.int8),
        changes.hash[first],
        changes.key.take(at),
        constant(b"", len(first)),
        seq,
        payload,
    )


def _firsts(ids: Indices, count: int) -> Indices:
    first = np.zeros(count, np.int64)
    first[ids[::-1]] = np.arange(len(ids))[::-1]
    return first
