"""Apply a table's `on_bad_update` policy to a row whose update became a dead letter.

    retract    the row is deleted, because its old value is known to be outdated
    null       the columns that could not be read become NULL if they are nullable; otherwise the row is kept

The policy `keep` needs no action. Under every policy, the record becomes a dead letter. To apply a policy, the record
is decoded again with fewer columns: only the key, or one column at a time to find the bad ones. Good records are
decoded only once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.defaults import nothing
from rowkind.avro.registry import Registry
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import Indices, Rows
from rowkind.service.execute.blocks import rows_by_kind
from rowkind.service.execute.metrics import add, sample
from rowkind.service.execute.promises import OnBroken
from rowkind.service.kafka.bad_records import Faults
from rowkind.service.kafka.dead_letter import DeadLetter
from rowkind.service.kafka.decode import DecodedRecords, Decoder
from rowkind.service.kafka.record import Records
from rowkind.service.physical.node import PhysicalScan

_STAGES = ("framing", "schema", "value")
"""The stages at which a bad record is known to be an update. At other stages, it may be another kind of change."""


def decoder_of(scan: PhysicalScan, registry: Registry, *, tolerate: bool, promises: OnBroken = "warn") -> Decoder:
    """Return a scan's decoder, which applies the table's policy for bad updates."""
    kind = Decoder if scan.source.on_bad_update == "keep" else SalvagingDecoder
    return kind(scan, registry, tolerate=tolerate, promises=promises)


class SalvagingDecoder(Decoder):
    """A `Decoder` that also applies the table's policy to bad updates."""

    def __init__(self, scan: PhysicalScan, registry: Registry, *, tolerate: bool, promises: OnBroken = "warn") -> None:
        super().__init__(scan, registry, tolerate=tolerate, promises=promises)
        self._registry = registry
        self._narrow: dict[Sequence[str], Decoder] = {}

    def decode(self, records: Records) -> DecodedRecords:
        """Return the dead letters, and the rows in record order, including rows derived from bad updates."""
        decoded = super().decode(records)
        key = self._scan.source.primary_key
        numbers = ArrivalNumber.pack(records.offset, records.partition)
        bad = _numbers(each for each in decoded.letters if each.stage in _STAGES)
        at = np.flatnonzero(np.isin(numbers, bad))
        # If a plan does not read the key, it does not use these rows either.
        if not len(at) or not set(key) <= set(self._reader.names):
            return decoded
        salvage = self._retracted if self._scan.source.on_bad_update == "retract" else self._with_nulls
        found = Rows.concat(list(salvage(records.take(at))))
        rows = Rows.concat([decoded.rows, found])
        sorter = np.argsort(numbers)
        place = sorter[np.searchsorted(numbers, rows.seq, sorter=sorter)]
        counters = dict(decoded.counters)
        table = self._scan.source.table
        for symbol, count in rows_by_kind(found.kind).items():
            add(counters, {sample("rowkind_rows_in_total", table=table, kind=symbol): float(count)})
        return replace(decoded, rows=rows.take(np.argsort(place, kind="stable")), counters=counters)

    def _retracted(self, records: Records) -> Iterator[Rows]:
        """Yield a deletion of each given record's row. The key is read from the value, or else from the Kafka key."""
        key = self._scan.source.primary_key
        found = self._narrowed(key).decode(records)
        gone = replace(found.rows, kind=np.full(len(found.rows), RowKind.DELETE, np.int8))
        yield replace(gone, payload=self._widened(key, gone.payload))
        at, faults = self._failed(records, found), Faults(len(records))
        payload = self._deleted_rows(records, at, pa.nulls(len(at), pa.binary()), faults)
        numbers = ArrivalNumber.pack(records.offset[at], records.partition[at])
        deletes = Rows(np.full(len(at), RowKind.DELETE, np.int8), numbers, payload)
        yield deletes.filter(~faults.bad[at])

    def _with_nulls(self, records: Records) -> Iterator[Rows]:
        """Yield the given records' rows with NULL in unreadable columns. Skip a row if such a column is NOT NULL."""
        key = self._scan.source.primary_key
        wrong: dict[int, list[str]] = {row: [] for row in range(len(records))}
        for name in self._reader.names:
            narrow = self._narrowed(key if name in key else (*key, name))
            for row in self._failed(records, narrow.decode(records)).tolist():
                wrong[row].append(name)
        nullable = {field.name for field in self._reader.fields if field.type.nullable} - set(key)
        rows = sorted((names, row) for row, names in wrong.items() if set(names) <= nullable)
        for names, same in groupby(rows, key=lambda each: each[0]):
            good = tuple(name for name in self._reader.names if name not in names)
            found = self._narrowed(good).decode(records.take(np.array([row for _, row in same])))
            yield replace(found.rows, payload=self._widened(good, found.rows.payload))

    def _narrowed(self, names: Sequence[str]) -> Decoder:
        """Return a decoder that reads only the given columns."""
        if names not in self._narrow:
            calc = replace(self._scan.calc, input=self._reader.select(names))
            self._narrow[names] = Decoder(replace(self._scan, calc=calc), self._registry, tolerate=True)
        return self._narrow[names]

    def _widened(self, names: Collection[str], payload: pa.BinaryArray) -> pa.BinaryArray:
        """Extend rows that have only the given columns to all columns. Added columns are NULL, or empty if NOT NULL."""
        columns = [field.name if field.name in names else nothing(field.type) for field in self._reader.fields]
        return codec.read(self._reader.select(names), payload).assemble(self._reader, columns)

    @staticmethod
    def _failed(records: Records, decoded: DecodedRecords) -> Indices:
        """Return the indices of the records that could not be decoded."""
        bad = _numbers(decoded.letters)
        return np.flatnonzero(np.isin(ArrivalNumber.pack(records.offset, records.partition), bad))


def _numbers(letters: Iterator[DeadLetter] | Sequence[DeadLetter]) -> Indices:
    """Return the arrival numbers of the records that became the given dead letters."""
    places = [(each.offset, each.partition) for each in letters]
    offsets, partitions = np.array(places, np.int64).reshape(-1, 2).T
    return ArrivalNumber.pack(offsets, partitions)
