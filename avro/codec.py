"""A codec between packed rows and Arrow columns.

A packed row, or payload, is just the Avro encoding of its record. `read` finds the position of every field in every row
in one walk. Single columns are then decoded into Arrow arrays on request, and new rows are assembled from the unchanged
bytes of fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro.buffers import Bools, Bytes, Ints, data_of, expand, spans, spread
from rowkind.avro.convert import convert
from rowkind.avro.cursor import FRONT, Cursor, Fault, PaddedBytes
from rowkind.avro.decode import decode
from rowkind.avro.encode import null_value, write
from rowkind.avro.errors import EncodeError
from rowkind.avro.mismatch import misfit
from rowkind.avro.rows import RowBuilder
from rowkind.avro.schema import Field, Record
from rowkind.avro.spans import Span, merge_adjacent, pool_spans
from rowkind.avro.text_values import shown
from rowkind.avro.to_json import json_values
from rowkind.avro.type import Type
from rowkind.avro.walk import skip

__all__ = ["Decoded", "concat_rows", "encode", "null_row", "read"]


def read(record: Record, payloads: pa.BinaryArray) -> Decoded:
    """Find every field of every row. Bad rows raise no error: `Decoded` marks them and gives the reason for each."""
    return Decoded(record, PaddedBytes(payloads))


_Flaw = tuple[int, Fault, Type | None]
"""The index of a field, the fault of its value, and the type to which the value was to be converted."""


def table(record: Record, payloads: pa.BinaryArray) -> pa.Table:
    """Decode the rows into a table with one column per field."""
    decoded = read(record, payloads)
    return pa.table([decoded.column(each) for each in record.names], schema=record.arrow)


def encode(
    record: Record, columns: Mapping[str, pa.Array] | pa.RecordBatch | pa.Table, rows: int | None = None
) -> pa.BinaryArray:
    """Encode columns as rows of a record. Columns are found by name; columns that the record lacks are ignored.

    `rows`: the number of rows, which is needed only for a record without columns. Raises EncodeError for a value that
    does not fit.
    """
    if rows is None:
        rows = len(columns[record.fields[0].name]) if record.fields else getattr(columns, "num_rows", 0)
    builder = RowBuilder(rows)
    for field in record.fields:
        write(field.type, columns[field.name], builder, field.name)
    return builder.finish()


def null_row(record: Record) -> bytes:
    """Return the row whose columns are all NULL. Raises EncodeError if a column is NOT NULL."""
    parts = [null_value(field.type) for field in record.fields]
    for field, part in zip(record.fields, parts, strict=True):
        if part is None:
            raise EncodeError(f"column {field.name!r} is NOT NULL, so a row cannot consist of NULLs only")
    return b"".join(part for part in parts if part is not None)


def concat_rows(left: pa.BinaryArray, right: pa.BinaryArray) -> pa.BinaryArray:
    """Concatenate each row of `left` with the row of `right` at the same index, into rows of `Record.concat`."""
    return pc.binary_join_element_wise(left, right, b"")


class _Written(NamedTuple):
    """A field that is encoded from a column."""

    field: Field
    column: pa.Array


class Decoded:
    """Rows of one record whose fields have been located; columns are decoded on request.

    `bad` marks the rows that cannot be read. After `read`, these are the rows whose structure is broken. Decoding a
    column can add rows in which the column's value is invalid (see `decode`). Rows that have passed `resolve.resolve`
    are entirely valid, so `bad` stays empty for them.
    """

    def __init__(self, record: Record, source: PaddedBytes) -> None:
        self.record = record
        self._source = source
        self._field: Ints = np.full(len(source.starts), -1)
        self._columns: dict[str, pa.Array] = {}
        self._flaws: dict[int, list[_Flaw]] = {}
        cursor = Cursor(source, source.starts, source.ends)
        if source.missing is not None:
            cursor.fail(source.missing, Fault.MISSING)
        self._starts: list[Ints] = [cursor.position]
        for i, field in enumerate(record.fields):
            skip(field.type, cursor, {})
            if cursor.faulty:
                self._field[(cursor.fault != 0) & (self._field < 0)] = i
            self._starts.append(cursor.position)
        cursor.fail(cursor.position < cursor.end, Fault.TRAILING)
        self._fault: Bytes = cursor.fault
        self._good: Ints | None = cursor.good() if cursor.faulty else None

    def __len__(self) -> int:
        return len(self._source.starts)

    @property
    def bad(self) -> Bools:
        """A mask of the rows that are known to be unreadable so far."""
        bad: Bools = self._fault != 0
        return bad

    def fault(self, row: int) -> Fault:
        """Return the fault of a row."""
        return Fault(int(self._fault[row]))

    def reason(self, row: int) -> str:
        """Describe what is wrong with a bad row, for messages. Every invalid field is listed."""
        fault = self.fault(row)
        if row in self._flaws:
            return "; ".join(dict.fromkeys(self._told(row, *flaw) for flaw in self._flaws[row]))
        if fault in (Fault.NONE, Fault.MISSING, Fault.TRAILING):
            return fault.text
        return self._told(row, int(self._field[row]), fault, None)

    def _told(self, row: int, field: int, fault: Fault, target: Type | None) -> str:
        own = self.record.fields[field]
        told = f"field {own.name!r}: {fault.text}"
        if fault in (Fault.NOT_NULL, Fault.UTF8) or row not in self._flaws:
            return told
        column = self._columns[own.name].slice(row, 1) if own.name in self._columns else None
        value = None if column is None or own.type.opaque else json_values(own.type, column)[0]
        what = "" if value is None else f": {shown(value)}"
        return f"{told}{what}: {misfit(own.type, target or own.type)}"

    def column(self, name: str) -> pa.Array:
        """Decode a column into an Arrow array of its type; values in bad rows are null.

        Raises SchemaError for an unknown name.
        """
        if name not in self._columns:
            i = self.record.index(name)
            rows = self._good
            starts, ends = self._starts[i], self._starts[i + 1]
            cursor = Cursor(self._source, *((starts, ends) if rows is None else (starts[rows], ends[rows])))
            values = decode(self.record.fields[i].type, cursor, {})
            assert not cursor.faulty, "the walk has found every broken row"
            if cursor.flaw is not None:
                self._mark(np.arange(len(self)) if rows is None else rows, cursor.flaw, i)
                sound = cursor.flaw == 0
                values = spread(values.filter(pa.array(sound)), sound)
            self._columns[name] = values if rows is None else spread(values, self._mask(rows))
        return self._columns[name]

    def packed(self, name: str) -> pa.BinaryArray:
        """Return a field's bytes in every row, without the null branch. They are null in bad rows and for NULL."""
        i = self.record.index(name)
        starts, there = self._starts[i], ~self.bad
        own = self.record.fields[i].type
        if own.optional:
            there &= self._source.data[starts] != (0 if own.null_first else 2)
            starts = starts + 1
        rows = np.flatnonzero(there)
        data = self._source.data[FRONT:]
        return spread(spans(data, starts[rows] - FRONT, self._starts[i + 1][rows] - FRONT), there)

    def fail(self, name: str, rows: Bools, fault: Fault, target: Type | None = None) -> None:
        """Mark rows as bad because a column's value has a fault. `target`: the type to which it was to be converted."""
        if rows.any():
            at = np.flatnonzero(rows)
            self._mark(at, np.full(len(at), fault, np.uint8), self.record.index(name), target)

    def assemble(self, target: Record, sources: Sequence[str | pa.Array | bytes]) -> pa.BinaryArray:
        """Build a row of `target` from each row. Bad rows get empty bytes.

        `sources` has one element for each field of `target`: the name of a field of this record, an Arrow array, or one
        packed value for all rows. The bytes of a named field are copied if the types allow this. If a named field's
        value does not fit the target's type, its row becomes bad. If a value of an array does not fit, EncodeError is
        raised.
        """
        layout: list[Span | bytes | _Written] = []
        for field, source in zip(target.fields, sources, strict=True):
            if isinstance(source, bytes):
                layout.append(source)
            elif not isinstance(source, str):
                layout.append(_Written(field, source))
            elif same_span(self.record.type(source), field.type):
                layout.extend(self._packed(source, field.type))
            else:
                column = self.column(source)
                values, wrong = convert(column, self.record.type(source), field.type)
                if wrong.any():
                    null = np.asarray(column.is_null().to_numpy(zero_copy_only=False), np.bool_)
                    self.fail(source, wrong & null & ~self._flawed(source), Fault.NOT_NULL)
                    self.fail(source, wrong & ~null, Fault.CONVERSION, field.type)
                layout.append(_Written(field, values))
        keep = ~self.bad
        rows = None if keep.all() else np.flatnonzero(keep)
        merged = merge_adjacent(layout)
        whole = (0, 2 * len(self.record.fields))
        if rows is None and [isinstance(part, Span) and (part.low, part.high) for part in merged] == [whole]:
            return self._source.payloads
        builder = RowBuilder(len(self) if rows is None else len(rows))
        pieces = iter(pool_spans([part for part in merged if isinstance(part, Span)], self._source.data, rows))
        for part in merged:
            match part:
                case Span():
                    builder.bytes(*next(pieces))
                case bytes():
                    builder.constant(part)
                case _Written(field, values):
                    column = values if rows is None else values.take(pa.array(rows))
                    write(field.type, column, builder, field.name)
        built = builder.finish()
        return built if rows is None else expand(built, keep)

    def is_canonical(self, name: str) -> bool:
        """Return whether every good row contains this column exactly as `encode` packs it, in the shortest form."""
        i = self.record.index(name)
        column = self.column(name)
        keep = ~self.bad
        if not keep.all():
            column = column.filter(pa.array(keep))
        builder = RowBuilder(len(column))
        write(self.record.fields[i].type, column, builder, name)
        length = (self._starts[i + 1] - self._starts[i])[keep].sum()
        return bool(len(data_of(builder.finish())) == length)

    def _packed(self, name: str, target: Type) -> list[Span | bytes]:
        """Return the pieces that convert a field to `target`: its span, with a null branch added or removed."""
        i = self.record.index(name)
        own = self.record.fields[i].type
        starts, ends = self._starts[i], self._starts[i + 1]
        if own.optional == target.optional:
            return [Span(starts, ends, 2 * i, 2 * i + 2)]
        if target.optional:
            return [b"\x02" if target.null_first else b"\x00", Span(starts, ends, 2 * i, 2 * i + 2)]
        self.fail(name, self._source.data[starts] == (0 if own.null_first else 2), Fault.NOT_NULL)
        return [Span(starts + 1, ends, 2 * i + 1, 2 * i + 2)]

    def _mask(self, rows: Ints) -> Bools:
        mask = np.zeros(len(self), np.bool_)
        mask[rows] = True
        return mask

    def _mark(self, rows: Ints, fault: Bytes, field: int, target: Type | None = None) -> None:
        for row, what in zip(rows[fault != 0].tolist(), fault[fault != 0].tolist(), strict=True):
            if not self._fault[row] or row in self._flaws:
                self._flaws.setdefault(row, []).append((field, Fault(what), target))
                if not self._fault[row]:
                    self._fault[row], self._field[row] = what, field

    def _flawed(self, name: str) -> Bools:
        """Return a mask of the rows in which a column is known to be invalid."""
        field = self.record.index(name)
        rows = [row for row, flaws in self._flaws.items() if any(each == field for each, *_ in flaws)]
        return self._mask(np.array(rows, np.int64))


def same_span(source: Type, target: Type) -> bool:
    """Return whether both types pack values in the same way, apart from a null branch that only one type has."""
    if source.optional == target.optional:
        return source.same_value(target)
    return source.required.same_value(target.required)
