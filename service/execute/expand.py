"""Expansion of rows: a row becomes one row per element of its array or map. No state is kept.

A change of an input row becomes a change of every row made from that row, with the same arrival number. If the old and
the new row of an update both have an element at a position, the result is an update. If only one of them has an element
there, the result is an insertion or a retraction. Equal halves cancel downstream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy as np
import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.schema import Record
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.changes import WEIGHTS, Indices, Int8s, Int64s, Mask, Rows
from rowkind.service.execute.updates import updates
from rowkind.service.execute.values import Values, passes
from rowkind.service.physical.calc import Calc
from rowkind.service.physical.expression import PLACE, Expand

_AT_ONCE = 4_096
"""The number of rows that are expanded at a time. It is limited because one row may become many rows.

With windows of 60 panes, this number of rows becomes about 250,000 rows, or a few tens of MB.
"""


def few_at_a_time(rows: Rows, without: Mask | None, at_once: int | None = None) -> Iterator[tuple[Rows, Mask | None]]:
    """Yield the rows in pieces, each with its part of `without`. The two halves of an update are in the same piece.

    Other changes of the same row may be in different pieces. Their results add up (`operators.columns.emission`).
    """
    at_once = _AT_ONCE if at_once is None else at_once
    bounds = [
        bound + int(rows.kind[bound - 1] == RowKind.UPDATE_BEFORE) for bound in range(at_once, len(rows), at_once)
    ]
    for start, end in pairwise([0, *bounds, len(rows)]):
        piece = rows.take(np.arange(start, end)) if bounds else rows
        yield piece, None if without is None else without[start:end]


def expanded(calc: Calc, rows: Rows, without: Mask | None) -> Rows:
    """Apply a calc's expands to rows. Return rows of the record `calc.expanded`. Raises ExpressionError.

    Rows in the mask `without` are always dropped, even if they satisfy the first predicate.
    """
    record, nulls = calc.input, calc.on_error == "null"
    if without is not None:
        rows = _apart(rows, ~without)
    for step in calc.expands:
        rows = _expanded(step, record, rows, nulls=nulls)
        record = step.output
    return rows


def taken_apart(calc: Calc, rows: Rows) -> tuple[Calc, Rows]:
    """Apply the predicate of a calc's only expand. Return the calc without the predicate, and the rows that pass."""
    (step,) = calc.expands
    if step.predicate is not None and len(rows):
        rows = _apart(rows, passes(step.predicate, calc.input, rows.payload, nulls=calc.on_error == "null"))
    return replace(calc, expands=(replace(step, predicate=None),)), rows


def _expanded(step: Expand, record: Record, rows: Rows, *, nulls: bool) -> Rows:
    if step.predicate is not None and len(rows):
        rows = _apart(rows, passes(step.predicate, record, rows.payload, nulls=nulls))
    if not len(rows):
        return rows
    values = Values(record, (step.array, *step.carried), rows, nulls=nulls)
    made = _ExpandedRows.of(step, values)
    of, place = _places(made.elements.counts, outer=step.outer and step.condition is None)
    if step.condition is not None:
        met = passes(step.condition, step.output, made.rows(of, place), nulls=nulls)
        of, place = _with_pads(of[met], place[met], len(rows) if step.outer else 0)
    order, halves = _by_update(updates(rows), of, place)
    of, place = of[order], place[order]
    payload = made.rows(of, place)
    kind = rows.kind[of]
    return Rows(np.where(halves, _alone(kind), kind) if halves.any() else kind, rows.seq[of], payload)


@dataclass(frozen=True)
class _ExpandedRows:
    """The output of an expand: each row's packed `carried` columns (None if there are none) and `elements`."""

    step: Expand
    carried: pa.BinaryArray | None
    elements: _Elements

    @classmethod
    def of(cls, step: Expand, values: Values) -> Self:
        """Expand rows, given their decoded `values`."""
        fields = step.output.fields[: len(step.carried)]
        carried = values.packed(Record("Row", fields), step.carried) if fields else None
        return cls(step, carried, _Elements.of(values.of(step.array), inline=step.inline))

    def rows(self, of: Indices, place: Int64s) -> pa.BinaryArray:
        """Return payloads, one for each pair of an input row in `of` and an element position in `place`."""
        step, carried = self.step, None if self.carried is None else self.carried.take(pa.array(of))
        made = Record("Row", step.output.fields[len(step.carried) :])
        if carried is not None and not made.fields:
            return carried
        columns = {
            field.name: self.elements.column(part, step.first, of, place)
            for field, part in zip(made.fields, step.made, strict=True)
        }
        encoded = codec.encode(made, columns, len(of))
        return encoded if carried is None else codec.concat_rows(carried, encoded)


@dataclass(frozen=True)
class _Elements:
    """The elements of all rows' arrays or maps, concatenated.

    `counts` and `starts` say which elements belong to each row. `parts` contains the parts of the elements.
    """

    counts: Int64s
    starts: Int64s
    parts: tuple[pa.Array, ...]

    @classmethod
    def of(cls, array: pa.Array, *, inline: bool) -> Self:
        there = array.is_valid().to_numpy(zero_copy_only=False)
        offsets = array.offsets.to_numpy().astype(np.int64)
        counts = np.where(there, offsets[1:] - offsets[:-1], 0)
        # The offsets index the whole child array, even if the array is a slice.
        if pa.types.is_map(array.type):
            whole = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field]))).values
            return cls(counts, offsets[:-1], tuple(whole.flatten()))
        return cls(counts, offsets[:-1], tuple(array.values.flatten()) if inline else (array.values,))

    def column(self, part: int, first: int, of: Indices, place: Int64s) -> pa.Array:
        """Return one part of the elements at the positions `place` of the rows `of`, or NULL for negative positions."""
        none = place < 0
        if part == PLACE:
            return pa.array((place + first).astype(np.int32), mask=none)
        return self.parts[part].take(pa.array(self.starts[of] + place, mask=none))


def _places(counts: Int64s, *, outer: bool) -> tuple[Indices, Int64s]:
    """Return, for each output row, the input row and the element position.

    If `outer` is set, a row without elements has one output row, with position -1.
    """
    times = np.maximum(counts, 1) if outer else counts
    of = np.repeat(np.arange(len(counts)), times)
    place = np.arange(len(of)) - np.repeat(np.cumsum(times) - times, times)
    return of, np.where(counts[of] == 0, -1, place)


def _with_pads(of: Indices, place: Int64s, rows: int) -> tuple[Indices, Int64s]:
    """Add an output row with position -1 for each of the first `rows` rows that has no output row."""
    missing = np.setdiff1d(np.arange(rows), of)
    of, place = np.concatenate([of, missing]), np.concatenate([place, np.full(len(missing), -1)])
    order = np.argsort(of, kind="stable")
    return of[order], place[order]


def _by_update(update: Int64s, of: Indices, place: Int64s) -> tuple[Indices, Mask]:
    """Sort the output so that the two update halves of each position are adjacent. Mark halves without a partner."""
    if not update.any():
        return np.arange(len(of)), np.zeros(len(of), np.bool_)
    second = np.zeros(len(update), np.bool_)
    second[1:] = (update[1:] > 0) & (update[1:] == update[:-1])
    pair = (np.arange(len(update)) - second)[of]
    order = np.lexsort((of, place, pair))
    same = (np.diff(pair[order]) == 0) & (np.diff(place[order]) == 0)
    whole = np.append(same, False) | np.insert(same, 0, False)
    return order, (update[of][order] > 0) & ~whole


def _apart(rows: Rows, kept: Mask) -> Rows:
    """Return the rows in the mask `kept`. An update half whose other half is dropped becomes an insert or a delete."""
    if kept.all():
        return rows
    update = updates(rows)[kept]
    rows = rows.filter(kept)
    alone = update > 0
    first = np.flatnonzero((update[:-1] > 0) & (update[:-1] == update[1:]))
    alone[first] = alone[first + 1] = False
    return replace(rows, kind=np.where(alone, _alone(rows.kind), rows.kind))


def _alone(kind: Int8s) -> Int8s:
    return np.where(WEIGHTS[kind] > 0, np.int8(RowKind.INSERT), np.int8(RowKind.DELETE))
