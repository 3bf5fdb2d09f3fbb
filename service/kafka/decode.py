"""Decode a topic's records to a table's rows: row kinds from a header, values according to the scan's schema.

A record that cannot be decoded becomes a dead letter with its origin and the stage at which it failed: row kind,
changelog (the table's mode does not allow the row kind), framing, schema, value, or key (of a deleted row). If an
expression of the query fails on a row, the row's record may become a dead letter too, with the stage expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro import codec, framing
from rowkind.avro.buffers import validity
from rowkind.avro.defaults import nothing
from rowkind.avro.registry import Registry
from rowkind.avro.same_rows import SameRows
from rowkind.operators.changelog import SYMBOLS, RowKind
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import WEIGHTS, Indices, Int8s, Mask, Rows, concat_binary
from rowkind.operators.columns.grouping import equal_bytes
from rowkind.service.execute.blocks import rows_by_kind
from rowkind.service.execute.expressions import ExpressionError
from rowkind.service.execute.failures import LeftOut
from rowkind.service.execute.metrics import sample
from rowkind.service.execute.promises import Broken, OnBroken
from rowkind.service.kafka.bad_records import Faults
from rowkind.service.kafka.dead_letter import EXPRESSION, DeadLetter
from rowkind.service.kafka.debezium import turns
from rowkind.service.kafka.errors import UndecodableRowError
from rowkind.service.kafka.formats import format_of, key_format_of
from rowkind.service.kafka.headers import MISSING, UNKNOWN, Headers, row_kinds
from rowkind.service.kafka.record import Records
from rowkind.service.kafka.unavailable_values import refusal, unavailable
from rowkind.service.kafka.value_format import Envelopes, Raw, scatter
from rowkind.service.physical.node import PhysicalScan


@dataclass(frozen=True)
class DecodedRecords:
    """The rows and dead letters that a set of records was decoded to, with counters.

    `truncation`: the arrival number of the last record that truncates the table, or None if no record does.
    """

    rows: Rows
    letters: tuple[DeadLetter, ...]
    counters: dict[str, float]
    truncation: int | None = None


class Decoder:
    """Decodes the records of one scan.

    If `tolerate` is set, bad records become dead letters; otherwise the first one raises UndecodableRowError. With the
    row kind policy `fail`, a bad row kind always raises UndecodableRowError. If `promises` is "fail", a NULL in a NOT
    NULL column raises BrokenPromiseError. If the registry does not answer, RegistryUnreachableError is raised, because
    the record is not at fault.
    """

    def __init__(self, scan: PhysicalScan, registry: Registry, *, tolerate: bool, promises: OnBroken = "warn") -> None:
        self._scan = scan
        self._tolerate = tolerate
        self._promises = promises
        self._reader = scan.calc.input
        self._format = format_of(scan.source, registry)
        self._keys_format = key_format_of(scan.source, registry)
        self._deleted = _deleted_row(scan)

    def decode(self, records: Records) -> DecodedRecords:
        """Return the rows in record order, and a dead letter for each bad record."""
        faults = Faults(len(records))
        seen, source = records, self._scan.source
        if source.debezium or source.mode == "upsert":
            # Change a copy, because a dead letter must contain its record unchanged.
            seen = replace(records, value=self._format.without_nothing(records.value))
        kind, of, payload, empty = (self._envelopes if source.debezium else self._values)(seen, faults)
        numbers = ArrivalNumber.pack(records.offset, records.partition)
        rows = Rows(kind, numbers[of], payload)
        broken = self._nulls(records, faults.nulls)
        letters = tuple(self._letter(records, at, *faults.reasons[at]) for at in sorted(faults.reasons))
        good = rows.filter(~faults.bad[of])
        truncation = int(numbers[empty].max()) if len(empty) else None
        return DecodedRecords(good, letters, self._count(good, letters, records.value) | broken, truncation)

    def _values(self, records: Records, faults: Faults) -> tuple[Int8s, Indices, pa.BinaryArray, Indices]:
        """Read row kinds from headers and rows from values. Each record has one row, and no record is a truncation."""
        values = records.value
        kind = np.full(len(records), MISSING, np.int8)
        if records.headers is not None:
            kind = row_kinds(records.headers, self._scan.source.row_kind)
        kind = self._kinds(kind, records, faults)
        dead_key = ~validity(values) & (self._scan.source.mode == "upsert")
        schemas = None if records.headers is None else _schema_headers(records.headers)
        payload = self._payloads(values, schemas, ~(faults.bad | dead_key), faults)
        self._refuse_unavailable(payload, np.arange(len(records)), faults)
        if dead_key.any():
            at = np.flatnonzero(dead_key)
            rows = self._deleted_rows(records, at, pa.nulls(len(at), pa.binary()), faults)
            rest = np.flatnonzero(~dead_key)
            payload = scatter([payload.take(pa.array(rest)), rows], [rest, at], len(records), b"")
        return kind, np.arange(len(records)), payload, np.empty(0, np.int64)

    def _envelopes(self, records: Records, faults: Faults) -> tuple[Int8s, Indices, pa.BinaryArray, Indices]:
        """Read row kinds, rows and truncations from Debezium envelopes. A tombstone after a delete is skipped."""
        source, where = self._scan.source, np.flatnonzero(validity(records.value))
        schemas = None if records.headers is None else _schema_headers(records.headers.take(where))
        raw = Raw(records.value.take(pa.array(where)), where, schemas=schemas)
        whole = source.mode == "retract"
        found = self._format.envelopes(raw, self._reader if whole else source.key, self._reader, faults)
        self._refuse_unavailable(found.after, where, faults)
        if whole:
            self._refuse_unavailable(found.before, where, faults)
        moved = np.zeros(len(where), np.bool_) if whole else self._moved(found)
        each = turns(found, where, faults, source=source, moved=moved)
        gone = found.before.take(pa.array(each.goes))
        if not whole:
            gone = self._deleted_rows(records, where[each.goes], gone, faults)
        payload = concat_binary([gone, found.after.take(pa.array(each.comes))])
        of = where[np.concatenate([each.goes, each.comes])]
        # The sort is stable, so that a record's retraction stays before its insertion.
        order = np.argsort(of, kind="stable")
        kind = np.concatenate([each.goes_as, each.comes_as])
        return kind[order], of[order], payload.take(pa.array(order)), where[each.empty]

    def _refuse_unavailable(self, payload: pa.BinaryArray, where: Indices, faults: Faults) -> None:
        """Mark a row as bad if one of its values has been replaced by Debezium's placeholder."""
        if (placeholder := self._scan.source.unavailable) is not None:
            for row, columns in unavailable(self._reader, payload, placeholder).items():
                faults.add(int(where[row]), "value", refusal(columns, placeholder))

    def _moved(self, found: Envelopes) -> Mask:
        """Return a mask of the envelopes whose old and new rows have different primary keys."""
        key, moved = self._scan.source.key, np.zeros(len(found.op), np.bool_)
        at = np.flatnonzero(validity(found.before) & validity(found.after))
        # If a plan does not read the key, it does not use these rows either.
        if len(at) and set(key.names) <= set(self._reader.names):
            same = SameRows(key)
            old, new = found.before.take(pa.array(at)), found.after.take(pa.array(at))
            new = codec.read(self._reader, new).assemble(key, key.names)
            moved[at] = ~equal_bytes(same(old), same(new))
        return moved

    def left_out(self, records: Records, left_out: LeftOut) -> list[DeadLetter]:
        """Return a dead letter for each inserted row on which an expression failed. Retracted rows are left out."""
        numbers = ArrivalNumber.pack(records.offset, records.partition)
        order = np.argsort(numbers)
        at = order[np.searchsorted(numbers[order], left_out.rows.seq)]
        comes = WEIGHTS[left_out.rows.kind] > 0
        told = zip(at[comes].tolist(), compress(left_out.reasons, comes), strict=True)
        return [self._told(records, row, EXPRESSION, ExpressionError.__name__, reason) for row, reason in told]

    def _kinds(self, kind: Int8s, records: Records, faults: Faults) -> Int8s:
        """Adjust row kinds from headers to the table's mode. Apply the policies for missing and unknown kinds."""
        if self._scan.source.mode == "upsert":
            taken_back = (kind == RowKind.DELETE) | (kind == RowKind.UPDATE_BEFORE)
            taken_back |= ~validity(records.value)
            return np.where(taken_back, RowKind.DELETE, RowKind.UPDATE_AFTER).astype(np.int8)
        if (kind < 0).any():
            self._apply_policy(kind, records, faults)
        if self._scan.source.mode == "append":
            for at in np.flatnonzero((kind > 0) & ~faults.bad):
                symbol = SYMBOLS[kind[at]]
                faults.add(
                    int(at),
                    "changelog",
                    f"row kind {symbol} is not allowed in table {self._scan.source.table}, which has mode append",
                )
        return kind

    def _apply_policy(self, kind: Int8s, records: Records, faults: Faults) -> None:
        header = self._scan.source.row_kind
        for code, policy in ((MISSING, header.missing), (UNKNOWN, header.unknown)):
            where = np.flatnonzero(kind == code)
            kind[where] = RowKind.INSERT
            if policy == "insert":
                continue
            for at in where:
                reason = f"the record has no header {header.header!r} with its row kind"
                if code == UNKNOWN:
                    value = [value for name, value in _headers(records, int(at)) if name == header.header][-1]
                    reason = f"the header {header.header!r} has the unknown row kind {value!r}"
                if policy == "fail":
                    raise self._error(records, int(at), reason)
                faults.add(int(at), "row kind", reason)

    def _payloads(self, values: pa.Array, schemas: pa.Array | None, wanted: Mask, faults: Faults) -> pa.BinaryArray:
        """Decode the `wanted` values to rows of the scan's schema. Bad and unwanted rows become empty bytes."""
        if wanted.all():
            return self._format.rows(Raw(values, np.arange(len(values)), schemas=schemas), self._reader, faults)
        where = np.flatnonzero(wanted)
        at = pa.array(where)
        raw = Raw(values.take(at), where, schemas=None if schemas is None else schemas.take(at))
        return scatter([self._format.rows(raw, self._reader, faults)], [where], len(values), b"")

    def _deleted_rows(self, records: Records, at: Indices, keys: pa.BinaryArray, faults: Faults) -> pa.BinaryArray:
        """Return the rows that the given records delete, built from `keys` or, where a key is null, the Kafka key."""
        source = self._scan.source
        missing = np.flatnonzero(~validity(keys))
        if len(missing):
            there = np.setdiff1d(np.arange(len(at)), missing)
            of_key = self._keys(records, at[missing], faults)
            keys = scatter([keys.take(pa.array(there)), of_key], [there, missing], len(at), b"")
        return codec.read(source.key, keys).assemble(self._reader, self._deleted)

    def _keys(self, records: Records, at: Indices, faults: Faults) -> pa.BinaryArray:
        """Decode the given records' Kafka keys to primary keys."""
        schemas = None if records.headers is None else _schema_headers(records.headers.take(at), framing.KEY_HEADER)
        raw = Raw(records.key.take(pa.array(at)), at, "key", schemas)
        return self._keys_format.rows(raw, self._scan.source.key, faults)

    def _letter(self, records: Records, at: int, stage: str, reason: str) -> DeadLetter:
        error = self._error(records, at, reason)
        if not self._tolerate:
            raise error
        return self._told(records, at, stage, type(error).__name__, reason)

    def _told(self, records: Records, at: int, stage: str, error: str, reason: str) -> DeadLetter:
        timestamp = int(records.timestamp[at])
        return DeadLetter(
            table=self._scan.source.table,
            stage=stage,
            error=error,
            message=reason,
            topic=records.topic,
            partition=int(records.partition[at]),
            offset=int(records.offset[at]),
            timestamp=timestamp if timestamp >= 0 else None,
            key=records.key[at].as_py(),
            value=records.value[at].as_py(),
            headers=tuple(_headers(records, at)),
        )

    def _nulls(self, records: Records, rows: Sequence[int]) -> dict[str, float]:
        """Count the rows with a NULL in a NOT NULL column. Raises BrokenPromiseError if `promises` is "fail"."""
        if not rows:
            return {}
        partition, offset = int(records.partition[rows[0]]), int(records.offset[rows[0]])
        broken = Broken(self._scan.source.table, "not_null", len(rows), partition, offset)
        if self._promises == "fail":
            raise broken.error
        return broken.counters

    def _error(self, records: Records, at: int, reason: str) -> UndecodableRowError:
        return UndecodableRowError(records.topic, int(records.partition[at]), int(records.offset[at]), reason)

    def _count(self, rows: Rows, letters: Sequence[DeadLetter], values: pa.Array) -> dict[str, float]:
        table = self._scan.source.table
        counters: dict[str, float] = {
            sample("rowkind_rows_in_total", table=table, kind=symbol): float(count)
            for symbol, count in rows_by_kind(rows.kind).items()
        }
        counters[sample("rowkind_bytes_in_total", table=table)] = pc.sum(pc.binary_length(values)).as_py() or 0
        for letter in letters:
            name = sample("rowkind_dead_letters_total", table=table, reason=letter.stage)
            counters[name] = counters.get(name, 0) + 1
        return counters


def _headers(records: Records, at: int) -> Sequence[tuple[str, bytes | None]]:
    """Return the headers of one record."""
    return () if records.headers is None else records.headers[at]


def _schema_headers(headers: Headers, wanted: str = framing.VALUE_HEADER) -> pa.Array | None:
    """Return each record's schema id header (null if the record lacks it), or None if no record has this header."""
    records, ids = headers.last(wanted)
    if ids.null_count == len(ids):
        return None
    return scatter([ids], [records], len(headers), None)


def _deleted_row(scan: PhysicalScan) -> list[str | bytes]:
    """Return, for a row of which only the key is known, the names of key columns, and zero values for other columns."""
    key = scan.source.primary_key
    return [field.name if field.name in key else nothing(field.type) for field in scan.calc.input.fields]
