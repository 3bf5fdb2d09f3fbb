"""A generated table in the form of a topic: its records are computed from their offsets instead of fetched.

The table's changes are numbered from 0. Change number i is due at `begun` + i / rate, so the topic grows with the clock
even while no job runs. In a retract table, change i has the offsets 2i and 2i + 1, of which an update needs both; in
other tables it has offset i.

Which row a change concerns, and what that row was before, follows from the number of the change, so that any range can
be read again and nothing is stored. The changes are divided into groups of equal size. Each group has the same number
of new rows at random places, which gives every key a number. Any other change picks one of the latest `keys` rows at
random. What it does to the row depends only on the earlier changes that picked the same row, and the row was inserted
in one of the groups just before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro import codec
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.changes import Int8s, Int64s, Mask, binary
from rowkind.service.kafka.generated_values import GeneratedValues, draws, late, shares, zipf
from rowkind.service.kafka.headers import Headers
from rowkind.service.kafka.record import Records
from rowkind.service.physical.generation import ColumnValues
from rowkind.service.physical.row_kind import spellings
from rowkind.service.physical.source_table import SourceTable

_GROUP = 1_000
"""The number of changes with a fixed number of inserts."""
_WHOLE = ("INT", "BIGINT", "SMALLINT", "TINYINT")
_CHUNK = 50_000
"""The number of offsets that are generated at a time."""


@dataclass(frozen=True)
class GeneratedChanges:
    """Changes of a generated table, in order. Rows have the columns of the table.

    - `kind`, `offset`: the row kind and the offset of each change. `change`: its number.
    - `written`: the number of the change that wrote the row's values. `key`: the number of the row's key.
    """

    kind: Int8s
    offset: Int64s
    change: Int64s
    written: Int64s
    key: Int64s

    def filter(self, mask: Mask) -> GeneratedChanges:
        """Return the changes where `mask` is true."""
        return GeneratedChanges(
            self.kind[mask], self.offset[mask], self.change[mask], self.written[mask], self.key[mask]
        )


class GeneratedTopic:
    """The topic of a generated table. `begun`: the Unix time of its first record, in ms."""

    def __init__(self, table: SourceTable, begun: int) -> None:
        self._table, self._schedule = table, table.schedule(begun)
        self._of, self._stride = self._schedule.of, self._schedule.stride

    def changes(self, start: int, stop: int) -> GeneratedChanges:
        """Return the changes with offsets from `start` up to, but not including, `stop`."""
        first, last = start // self._stride, -(-stop // self._stride)
        if self._table.mode == "append":
            numbers = np.arange(first, last)
            return GeneratedChanges(np.zeros(len(numbers), np.int8), numbers, numbers, numbers, numbers)
        found = self._changes(first, last)
        return found.filter((found.offset >= start) & (found.offset < stop))

    def _changes(self, first: int, last: int) -> GeneratedChanges:
        """Return the changes with numbers from `first` up to, but not including, `last`."""
        numbers, inserts, key = self._picked(first, last)
        updates, deletes = self._of.updates, self._of.deletes
        wanted = ~inserts & (shares(draws(self._of.seed, "/delete", numbers)) * (updates + deletes) < deletes)
        # Sort the changes by key. In each key's changes, those before a given one decide what it does.
        order = np.argsort(key, kind="stable")
        key, numbers, inserts, wanted = key[order], numbers[order], inserts[order], wanted[order]
        # In a row of changes that would all delete, every second one finds no row, and inserts the row again.
        place = np.arange(len(key))
        run = place - np.maximum.accumulate(np.where(wanted, -1, place))
        gone = wanted & (run % 2 == 1)
        before = np.concatenate([[-1], numbers[:-1]])
        was_gone = np.concatenate([[False], gone[:-1]])
        kind = np.where(gone, RowKind.DELETE, np.where(inserts | was_gone, RowKind.INSERT, RowKind.UPDATE_AFTER))
        back = np.argsort(order)
        asked = back[-(last - first) :] if last > first else back[:0]
        kind, before, numbers, key = kind[asked].astype(np.int8), before[asked], numbers[asked], key[asked]
        written = np.where(kind == RowKind.DELETE, before, numbers)
        offset = numbers * self._stride
        if self._table.mode != "retract":
            return GeneratedChanges(kind, offset, numbers, written, key)
        updated = np.flatnonzero(kind == RowKind.UPDATE_AFTER)
        return GeneratedChanges(
            np.insert(kind, updated, RowKind.UPDATE_BEFORE),
            np.insert(offset + (kind == RowKind.UPDATE_AFTER), updated, offset[updated]),
            np.insert(numbers, updated, numbers[updated]),
            np.insert(written, updated, before[updated]),
            np.insert(key, updated, key[updated]),
        )

    def _picked(self, first: int, last: int) -> tuple[Int64s, Mask, Int64s]:
        """Return the changes that matter for those from `first` to `last`: numbers, which insert, and keys.

        The changes begin with the group that inserted the oldest row that change `first` may concern.
        """
        # About as many changes as there are deletes find that their row was deleted, and insert it again.
        new = max(1, round((1 - self._of.updates - 2 * self._of.deletes) * _GROUP))
        oldest = max(0, first // _GROUP * new - self._of.keys)
        begin = oldest // new * _GROUP
        numbers = np.arange(begin, -(-last // _GROUP) * _GROUP)
        groups = numbers.reshape(-1, _GROUP)
        drawn = draws(self._of.seed, "/insert", numbers).reshape(-1, _GROUP)
        inserts = drawn <= np.partition(drawn, new - 1, axis=1)[:, new - 1 : new]
        # There is no row before the first insert.
        inserts[groups[:, 0] == 0] = np.arange(_GROUP) < new
        before = (groups[:, :1] // _GROUP * new + np.cumsum(inserts, axis=1) - inserts).ravel()
        inserts = inserts.ravel()
        known = np.maximum(1, np.minimum(before, self._of.keys))
        age = zipf(shares(draws(self._of.seed, "/row", numbers)), known, self._of.skew)
        key = np.where(inserts, before, before - 1 - age)
        asked = numbers < last
        return numbers[asked], inserts[asked], key[asked]

    def _times_us(self, numbers: Int64s) -> Int64s:
        found: Int64s = self._schedule.begun * 1000 + (numbers * (1e6 / self._of.rows_per_second)).astype(np.int64)
        return found

    def columns(self, changes: GeneratedChanges) -> pa.Table:
        """Return the rows of the changes. The rows have all columns of the table."""
        by_change, by_key = changes.written, changes.key
        times = self._times_us(by_change)
        if self._of.late:
            times = late(times, shares(draws(self._of.seed, "/late", by_change)) < self._of.late)
        columns = []
        for field in self._table.declared.fields:
            of, is_key = self._of.columns.get(field.name, ColumnValues()), field.name in self._table.primary_key
            if of.kind is None:
                counts = is_key and field.type.required.sql in _WHOLE and of.min is None and of.max is None
                of = replace(of, kind="sequence" if counts else "random")
            numbers = by_key if is_key else by_change
            columns.append(GeneratedValues(field.name, field.type, of, self._of.seed, numbers, times).column())
        return pa.table(columns, schema=self._table.declared.arrow)

    def records(self, start: int, stop: int) -> Iterator[Records]:
        """Yield the records from offset `start` up to `stop` in the form in which the table's decoder reads them."""
        bounds = [*range(start, stop, _CHUNK), stop]
        for low, high in pairwise(bounds):
            changes = self.changes(low, high)
            if len(changes.kind):
                yield self._records(changes)

    def _records(self, changes: GeneratedChanges) -> Records:
        rows = self.columns(changes)
        value, key = codec.encode(self._table.declared, rows), pa.nulls(len(rows), pa.binary())
        headers = None
        if self._table.mode == "upsert":
            key = codec.encode(self._table.key, rows)
            deleted = changes.kind == RowKind.DELETE
            value = pc.if_else(pa.array(deleted), pa.scalar(None, pa.binary()), value)
        elif self._table.mode == "retract":
            every, words = np.arange(len(rows) + 1), binary(spellings(self._table.row_kind.values))
            word = words.take(pa.array(changes.kind))
            headers = Headers(every, [self._table.row_kind.header], np.zeros(len(rows), np.int64), word)
        times = self._times_us(changes.change) // 1000
        return Records(self._table.topic, np.zeros(len(rows), np.int64), changes.offset, value, key, headers, times)
