"""The groups that a batch touches, before and after the batch.

A group is stored as one row. The row consists of the packed group columns and the columns of the accumulators in the
order of the spec. If values or views are stored, two times follow: when the group was created, and when its values were
last rewritten. For COUNT(*), SUM and MAX of a double, the accumulators typically take about 30 bytes: 20 for the sum, 9
for the maximum and 1 for each count (`operators.columns.packed_columns`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.aggregate.accumulators import AccumulatorColumn, misfits
from rowkind.operators.aggregate.arranged_values import GroupKeys
from rowkind.operators.aggregate.partial import Lifted
from rowkind.operators.aggregate.spec import AggregateSpec
from rowkind.operators.aggregate.timer_queue import GroupNames
from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import places
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.changes import (
    Changes,
    Indices,
    Int64s,
    Mask,
    Rows,
    Uint64s,
    binary,
    concat_binary,
    constant,
)
from rowkind.operators.columns.grouping import equal_bytes, group
from rowkind.operators.columns.hashing import hash64
from rowkind.operators.columns.packed_columns import Column, pack, unpack


@dataclass(frozen=True, slots=True)
class GroupState:
    """The touched groups by number, with their stored rows.

    - `of_change` contains the group of each change, and `again` contains the group of each refresh.
    - `at` has the index of each group in `stored`, or -1 if the group is not stored. `of_stored` is the inverse.
    - `born` is the time (ms) at which a group was created, and `refreshed` is the time at which its values were last
      rewritten. For new groups, and if no values or views are stored, both times are 0.
    - `packed` and `parts` contain the group columns and the accumulators of the groups in `stored`.
    """

    hash: Uint64s
    key: pa.BinaryArray
    of_change: Indices
    stored: Entries
    of_stored: Indices
    at: Indices
    born: Int64s
    refreshed: Int64s
    packed: pa.BinaryArray
    parts: list[AccumulatorColumn]
    again: Indices

    @classmethod
    def of(cls, spec: AggregateSpec, batch: Batch, arrangement: Arrangement) -> GroupState:
        """Look up a batch's groups. A global aggregate's only group is always included."""
        touched = batch.touched
        hashes, key = touched.hash, touched.key
        if spec.is_global:
            key = concat_binary([key, binary([b""])])
            hashes = np.concatenate([hashes, hash64(binary([b""]))])
        stored = arrangement.lookup(hashes)
        numbers = group(np.concatenate([hashes, stored.hash]), [concat_binary([key, stored.key])])
        named = np.zeros(numbers.count, np.bool_)
        named[numbers.ids[: len(hashes)]] = True
        known = named[numbers.ids[len(hashes) :]]
        stored, of_stored = stored.filter(known), numbers.ids[len(hashes) :][known]
        # Groups that are not touched, but share a hash with a touched group, are not numbered.
        number = np.cumsum(named) - 1
        ids, of_stored = number[numbers.ids[: len(hashes)]], number[of_stored]
        count = int(named.sum())
        first = np.zeros(count, np.int64)
        first[ids] = np.arange(len(hashes))
        at = np.full(count, -1)
        at[of_stored] = np.arange(len(stored))
        packed, parts, columns = _unpacked(spec, stored)
        times = np.zeros((2, count), np.int64)
        if columns:
            times[:, of_stored] = columns
        key = key.take(pa.array(first))
        return cls(
            hashes[first],
            key,
            ids[: len(batch.changes)],
            stored,
            of_stored,
            at,
            times[0],
            times[1],
            packed,
            parts,
            ids[len(batch.changes) : len(touched)],
        )

    @property
    def count(self) -> int:
        """The number of touched groups."""
        return len(self.hash)

    def named(self, numbers: Indices) -> GroupNames:
        """Return the hashes and keys of these groups."""
        return GroupNames(self.hash[numbers], self.key.take(pa.array(numbers)))

    def keys(self, spec: AggregateSpec, lifted: Lifted, now: int) -> GroupKeys:
        """Return the groups in the form that is needed to read and write values and views."""
        written_at = np.full(self.count, now)
        if spec.until is not None:
            written_at = spec.until(_packed(spec, lifted, self, np.arange(self.count)))
        born = np.where(self.at >= 0, self.born, now)
        # Even if the clock is set back, the values of a group must not be older than the group.
        return GroupKeys(self.hash, self.key, born, np.maximum(written_at, born))


def _unpacked(spec: AggregateSpec, stored: Entries) -> tuple[pa.BinaryArray, list[AccumulatorColumn], list[Column]]:
    """Return the packed group columns, the accumulators and the times of the stored groups."""
    kinds = [accumulator.kinds for accumulator in spec.accumulators]
    packed, *columns = unpack("".join(["b", *kinds, _times(spec)]), stored.payload)
    parts = []
    for accumulator, kind in zip(spec.accumulators, kinds, strict=True):
        parts.append(accumulator.of_columns(columns[: len(kind)]))
        columns = columns[len(kind) :]
    return packed, parts, columns


@dataclass(frozen=True, slots=True)
class EmittedGroups:
    """The emitted rows, and the rows of all written groups before (`old`) and after (`new`) the batch.

    `failed` contains the rows that are not emitted because a result does not fit its type.
    """

    emitted: Emitted
    failed: Rows
    old: pa.BinaryArray
    new: pa.BinaryArray


@dataclass(frozen=True, slots=True)
class After:
    """The groups after the batch, and which of them the batch writes.

    `gone` contains the groups whose stored row is removed or replaced. `come` contains the groups for which a new row
    is stored.
    """

    groups: GroupState
    parts: list[AccumulatorColumn]
    gone: Indices
    come: Indices
    packed: pa.BinaryArray
    seq: Int64s

    @classmethod
    def of(
        cls, spec: AggregateSpec, changes: Changes, lifted: Lifted, groups: GroupState, parts: list[AccumulatorColumn]
    ) -> After:
        """Determine the groups that the batch writes, including the group of a new global aggregate."""
        known = groups.at >= 0
        written = np.bincount(groups.of_change, minlength=groups.count) > 0
        written[groups.again] = True
        alive = parts[0][0] > 0
        if spec.is_global:
            written, alive = written | ~known, np.ones(groups.count, np.bool_)
        come = np.flatnonzero(written & alive)
        numbered, none = spec.numbered
        seq = np.full(groups.count, none)
        seq[groups.of_stored] = groups.stored.seq
        numbered.at(seq, groups.of_change, changes.seq)
        seq[seq == none] = 0
        return cls(groups, parts, np.flatnonzero(written & known), come, _packed(spec, lifted, groups, come), seq[come])

    @property
    def replaced(self) -> Mask:
        """A mask of the groups in `gone` that are also in `come`."""
        come = np.zeros(self.groups.count, np.bool_)
        come[self.come] = True
        return come[self.gone]

    def emit(self, spec: AggregateSpec) -> EmittedGroups:
        """Return the old and new rows of groups whose row has changed.

        If the spec has `refreshes`, also return refreshes of the other written groups.
        """
        groups, come = self.groups, self.come
        at, replaced, replacing = groups.at[self.gone], self.replaced, groups.at[come] >= 0
        (old, failed_old), (new, failed_new) = _results(spec, groups.parts, at), _results(spec, self.parts, come)
        differ = ~equal_bytes(old.filter(pa.array(replaced)), new.filter(pa.array(replacing)))
        # A sum of no values is also NULL, so equal bytes do not imply that both results failed.
        differ |= failed_old[replaced] != failed_new[replacing]
        differs_old, differs_new = np.ones(len(at), np.bool_), np.ones(len(come), np.bool_)
        differs_old[replaced], differs_new[replacing] = differ, differ
        old, new = _join(groups.packed.take(pa.array(at)), old), _join(self.packed, new)
        goes = Rows(np.full(len(at), RowKind.DELETE, np.int8), groups.stored.seq[at], old)
        comes = Rows(np.full(len(come), RowKind.INSERT, np.int8), self.seq, new)
        changed = [goes.filter(differs_old & ~failed_old), comes.filter(differs_new & ~failed_new)]
        failed = [goes.filter(differs_old & failed_old), comes.filter(differs_new & failed_new)]
        refreshes = comes.filter(~differs_new & ~failed_new) if spec.refreshes else Rows.empty()
        return EmittedGroups(Emitted(Rows.concat(changed), refreshes), Rows.concat(failed), old, new)

    def entries(self, spec: AggregateSpec, now: int) -> Entries:
        """Return the entries to store: new rows for the groups in `come`, and negative entries for removed groups."""
        groups, come, rows = self.groups, self.come, len(self.come)
        columns: list[Column] = []
        for accumulator, part in zip(spec.accumulators, self.parts, strict=True):
            columns += accumulator.to_columns(part)
        if spec.keeps_times:
            columns += [np.where(groups.at >= 0, groups.born, now), groups.refreshed]
        at = pa.array(come)
        if rows < groups.count:
            columns = [column[come] if isinstance(column, np.ndarray) else column.take(at) for column in columns]
        payload, sub_key = pack([self.packed, *columns]), constant(b"", rows)
        stored = Entries(
            places("last write", groups.hash[come], sub_key, payload),
            groups.hash[come],
            groups.key.take(at),
            sub_key,
            payload,
            np.ones(rows, np.int64),
            np.full(rows, now, np.int64) if spec.until is None else spec.until(self.packed),
            self.seq,
            np.zeros(rows, np.int8),
        )
        return Entries.concat([stored, -groups.stored.take(groups.at[self.gone[~self.replaced]])])


def _times(spec: AggregateSpec) -> str:
    """Return the column kinds of a group's times."""
    return "nn" if spec.keeps_times else ""


def _packed(spec: AggregateSpec, lifted: Lifted, groups: GroupState, come: Indices) -> pa.BinaryArray:
    """Return the packed group columns of the groups `come`, from the stored row or from any of the group's changes."""
    if spec.is_global:
        return constant(b"", len(come))
    element = np.full(groups.count, -1)
    row = lifted.row
    element[groups.of_change[row]] = np.arange(len(row))
    new = come[groups.at[come] < 0]
    where = groups.at[come].copy()
    where[groups.at[come] < 0] = len(groups.stored) + np.arange(len(new))
    return concat_binary([groups.packed, lifted.groups(spec, element[new])]).take(pa.array(where))


def _results(spec: AggregateSpec, parts: list[AccumulatorColumn], groups: Indices) -> tuple[pa.BinaryArray, Mask]:
    """Return the packed results of the calls for these groups, and a mask of the groups that failed."""
    failed = np.zeros(len(groups), np.bool_)
    if not spec.calls or len(groups) == 0:
        return constant(b"", len(groups)), failed
    at = pa.array(groups)
    pairs = zip(spec.accumulators[1:], parts[1:], strict=True)
    results = [accumulator.finish(part).take(at) for accumulator, part in pairs]
    for call in spec.fallible:
        if results[call].null_count:
            counts, _ = parts[1 + call]
            failed |= misfits(results[call], counts[groups])
    return spec.result(results), failed


def _join(packed: pa.BinaryArray, results: pa.BinaryArray) -> pa.BinaryArray:
    """Return the rows to emit: the group columns followed by the results."""
    return pc.binary_join_element_wise(packed, results, b"")
