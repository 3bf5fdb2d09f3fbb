"""The changes of a job's tables that can matter for a wanted row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro import codec
from rowkind.avro.same_rows import SameRows
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import WEIGHTS, Int64s, Mask, Rows
from rowkind.service.physical.source_table import SourceTable
from rowkind.service.why.atoms import Atoms, matching


@dataclass(frozen=True)
class SourceChanges:
    """Changes of a table in the order in which the topic's partitions have them, encoded with the declared record.

    - `times`: each record's time in ms since the epoch, -1 if it has none.
    - `ends`: for each partition, the offset after the last record that counts. `later`: the number of offsets after it.
    - `read`: the number of records that were read to find the changes. `undecodable`: those that cannot be decoded.
    """

    source: SourceTable
    rows: Rows
    times: Int64s
    ends: Mapping[int, int]
    read: int
    undecodable: int = 0
    later: int = 0

    def filter(self, mask: Mask) -> SourceChanges:
        """Return only the changes where `mask` is true."""
        return replace(self, rows=self.rows.filter(mask), times=self.times[mask])

    def merged(self, other: SourceChanges) -> SourceChanges:
        """Return the changes of two reads of the table, without duplicates, in order of arrival."""
        rows = Rows.concat([self.rows, other.rows])
        # A Debezium record is up to two changes with the same arrival number.
        sign = (WEIGHTS[rows.kind] > 0).astype(np.int64)
        _, first = np.unique(rows.seq * 2 + sign, return_index=True)
        first = first[np.argsort(rows.seq[first] * 2 + sign[first], kind="stable")]
        times = np.concatenate([self.times, other.times])
        return replace(self, rows=rows.take(first), times=times[first], read=self.read + other.read)

    @property
    def keys(self) -> pa.BinaryArray:
        """The bytes by which a change finds the row that it replaces or retracts."""
        if not self.source.replaces:
            return SameRows(self.source.declared)(self.rows.payload)
        read = codec.read(self.source.declared, self.rows.payload)
        return SameRows(self.source.key)(read.assemble(self.source.key, list(self.source.primary_key)))

    @property
    def arrival_times(self) -> Int64s:
        """The times in ms by which changes are ordered: in each partition, none is before the time of an earlier one.

        If a topic has gained partitions, a key may have moved to another one. Offsets do not order its changes then.
        """
        times, partitions = self.times.copy(), ArrivalNumber.partitions(self.rows.seq)
        for partition in np.unique(partitions).tolist():
            at = np.flatnonzero(partitions == partition)
            at = at[np.argsort(self.rows.seq[at], kind="stable")]
            times[at] = np.maximum.accumulate(times[at])
        return times

    def live(self) -> SourceChanges:
        """Return the changes that inserted the rows which the table has at the end, as insertions."""
        inserts = WEIGHTS[self.rows.kind] > 0
        if not self.source.replaces:
            return self.filter(_live(self.keys, inserts, by_key=False)).inserted()
        order, mask = np.lexsort((self.rows.seq, self.arrival_times)), np.zeros(len(inserts), np.bool_)
        mask[order] = _live(self.keys.take(pa.array(order)), inserts[order], by_key=True)
        return self.filter(mask).inserted()

    def inserted(self) -> SourceChanges:
        """Return the changes that insert a row, as insertions, whether or not the row remains."""
        found = self.filter(WEIGHTS[self.rows.kind] > 0)
        return replace(found, rows=replace(found.rows, kind=np.full(len(found.rows), RowKind.INSERT, np.int8)))


def live_rows(rows: Rows, alike: SameRows) -> Rows:
    """Return the insertions whose rows remain of an exact changelog."""
    inserts = WEIGHTS[rows.kind] > 0
    return rows if inserts.all() else rows.filter(_live(alike(rows.payload), inserts, by_key=False))


def _live(keys: pa.BinaryArray, inserts: Mask, *, by_key: bool) -> Mask:
    """Return a mask of the insertions whose rows remain: the last of each key, or as many equal rows as remain."""
    if not by_key and inserts.all():
        return inserts
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    if by_key:
        backwards = codes[::-1]
        _, first = np.unique(backwards, return_index=True)
        last = np.zeros(len(codes), np.bool_)
        last[len(codes) - 1 - first] = True
        return last & inserts
    left = np.bincount(codes, np.where(inserts, 1, -1)).astype(np.int64) if len(codes) else np.empty(0, np.int64)
    order = np.flatnonzero(inserts)[::-1]
    order = order[np.argsort(codes[order], kind="stable")]
    starts = np.searchsorted(codes[order], codes[order])
    kept = np.arange(len(order)) - starts < left[codes[order]]
    mask = np.zeros(len(codes), np.bool_)
    mask[order[kept]] = True
    return mask


class TableReader(Protocol):
    """Reads the changes of a job's tables."""

    def read(self, source: SourceTable, atoms: Atoms, *, timed: bool = False) -> SourceChanges:
        """Return all changes of the rows that ever satisfy the conditions.

        `timed`: also return rows that move the table's watermark as all of its rows do.
        """


class TablesInMemory:
    """The changes of a job's tables that are given as batches, in order. Line numbers stand for offsets."""

    def __init__(self, batches: Sequence[Mapping[str, Rows]]) -> None:
        self._batches = batches

    def read(self, source: SourceTable, atoms: Atoms, *, timed: bool = False) -> SourceChanges:
        """Return all changes of the rows that ever satisfy the conditions. If `timed` is set, return all rows."""
        rows = Rows.concat([batch[source.table] for batch in self._batches if source.table in batch])
        whole = SourceChanges(source, rows, rows.seq >> 16, {0: len(rows)}, len(rows))
        if not atoms or timed:
            return whole
        found = matching(atoms, source.declared, rows)
        if not source.replaces:
            return whole.filter(found)
        # A replaced row is not named by the change that replaces it, so all changes of its key are needed.
        keys = whole.keys
        return whole.filter(pc.is_in(keys, value_set=keys.filter(pa.array(found))).to_numpy(zero_copy_only=False))
