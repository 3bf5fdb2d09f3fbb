"""Arguments of aggregate functions: the values that a call reads from a row, and the decoding of the call's results.

    column    an unchanged column
    doubles   one or two columns as DOUBLE, or NULL if one of them is NULL: for variances and similar functions
    packed    several columns packed into bytes, or NULL if one of them is NULL: for COUNT(DISTINCT a, b)
    ranked    comparable bytes of the ordering value, then the value; NULL if the first is NULL: for MIN_BY and MAX_BY
    entry     columns packed as a row: for FIRST and LAST, and gathered values
    structs   unchanged columns, as the fields of a struct: for job functions

Floating-point numbers are packed in canonical form, with 0.0 for -0.0, so that equal values have equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro import codec
from rowkind.avro.buffers import data_of, offsets_of, spans, spread
from rowkind.avro.codec import Decoded
from rowkind.avro.order import comparable, join_bytes
from rowkind.avro.schema import Record, Type
from rowkind.operators.aggregate.function import ARRIVALS, GATHERED, MOMENTS
from rowkind.operators.columns.changes import Mask
from rowkind.operators.columns.grouping import to_mask
from rowkind.operators.columns.packed_columns import fixed_width
from rowkind.operators.columns.value_bytes import canonical
from rowkind.service.physical.aggregation import PhysicalAggregateCall
from rowkind.service.python.function import PythonFunction

_LENGTH = 4


class Argument(Protocol):
    """The values that a call reads from each row. Arguments with the same `name` are equal."""

    @property
    def name(self) -> str:
        """The name by which calls refer to the argument."""

    @property
    def type(self) -> pa.DataType:
        """The argument's Arrow type."""

    def of(self, rows: Decoded) -> pa.Array:
        """Return the argument's value for each row."""


def argument_of(call: PhysicalAggregateCall, record: Record) -> Argument | None:
    """Return the argument of a call over rows of `record`, or None for COUNT(*)."""
    if not call.arguments:
        return None
    if isinstance(call.function, PythonFunction):
        types = tuple(record.type(each).arrow for each in call.arguments)
        return Structs(call.arguments, types, call.function.called_on_null)
    if call.function in ("min_by", "max_by"):
        value, order = call.arguments
        return Ranked(record.select([value]), order)
    if call.function in ARRIVALS or call.function in GATHERED:
        names = dict.fromkeys([*call.arguments, *call.ordered_by])
        return Entry(record.select(names))
    if call.function in MOMENTS and call.stage in ("whole", "first"):
        return AsDoubles(call.arguments)
    if len(call.arguments) > 1:
        return Packed(call.arguments)
    return OneColumn(call.arguments[0], record.type(call.arguments[0]).arrow)


def whole_type(call: PhysicalAggregateCall, types: Sequence[Type]) -> pa.DataType:
    """Return the argument type of a two-step call, given the types of the columns that the first step reads."""
    if call.function in MOMENTS:
        return AsDoubles(tuple(map(str, range(len(types))))).type
    return types[0].arrow if types else pa.int64()


@dataclass(frozen=True)
class OneColumn:
    """An argument that is an unchanged column."""

    name: str
    type: pa.DataType

    def of(self, rows: Decoded) -> pa.Array:
        """Return the column."""
        return rows.column(self.name)


@dataclass(frozen=True)
class AsDoubles:
    """An argument that is one column as DOUBLE, or a struct of two DOUBLEs that is NULL if one of them is NULL."""

    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        """A name that consists of the column names and a prefix for doubles."""
        return "\0".join(("doubles", *self.columns))

    @property
    def type(self) -> pa.DataType:
        """The Arrow type: a double, or a struct of two doubles."""
        if len(self.columns) == 1:
            return pa.float64()
        return pa.struct([pa.field(str(number), pa.float64()) for number in range(len(self.columns))])

    def of(self, rows: Decoded) -> pa.Array:
        """Return the columns as doubles."""
        doubles = [rows.column(name).cast(pa.float64(), safe=False) for name in self.columns]
        if len(doubles) == 1:
            return doubles[0]
        none = ~_all_there(doubles)
        return pa.StructArray.from_arrays(doubles, fields=list(self.type), mask=pa.array(none))


@dataclass(frozen=True)
class Structs:
    """An argument that is a struct of columns. It is NULL if a field is NULL, unless the function accepts NULLs."""

    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    with_nulls: bool

    @property
    def name(self) -> str:
        """A name that consists of the column names and a prefix for structs."""
        return "\0".join(("structs", str(self.with_nulls), *self.columns))

    @property
    def type(self) -> pa.DataType:
        """A struct with one field per column. Field names are numbers."""
        return pa.struct([pa.field(f"{number}", each) for number, each in enumerate(self.types)])

    def of(self, rows: Decoded) -> pa.StructArray:
        """Return the columns as structs."""
        columns = [rows.column(name) for name in self.columns]
        none = None if self.with_nulls else ~_all_there(columns)
        mask = None if none is None or not none.any() else pa.array(none)
        return pa.StructArray.from_arrays(columns, [f"{number}" for number in range(len(columns))], mask=mask)


@dataclass(frozen=True)
class Packed:
    """An argument that packs columns into bytes, as COUNT(DISTINCT a, b) needs it.

    The bytes of two rows are equal if all columns are equal. If a column is NULL, the argument is NULL.
    """

    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        """A name that consists of the column names."""
        return "\0".join(self.columns)

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of bytes."""
        return pa.binary()

    def of(self, rows: Decoded) -> pa.Array:
        """Return the packed columns of each row."""
        columns = [rows.column(name) for name in self.columns]
        there = _all_there(columns)
        packed = join_bytes([comparable(column) for column in columns])
        return packed if there.all() else pc.if_else(pa.array(there), packed, pa.scalar(None, pa.binary()))


@dataclass(frozen=True)
class Ranked:
    """An argument that packs the bytes of `order`, the value as a row of `record`, and that row's length.

    The packed bytes sort in the same order as `order`.
    """

    record: Record
    order: str

    @property
    def name(self) -> str:
        """A name that consists of the names of the ordering column and the value, and a prefix for ranked values."""
        return "\0".join(("ranked", self.order, *self.record.names))

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of bytes."""
        return pa.binary()

    def of(self, rows: Decoded) -> pa.Array:
        """Return each row's packed ordering value and value, or NULL if the ordering value is NULL."""
        order, value = rows.column(self.order), _packed(rows, self.record)
        length = pc.binary_length(value).cast(pa.int32()).to_numpy(zero_copy_only=False)
        bytes_ = join_bytes([comparable(order), value, fixed_width(length, _LENGTH, len(value))])
        return pc.if_else(order.is_valid(), bytes_, pa.scalar(None, pa.binary())) if order.null_count else bytes_

    def value(self, column: pa.BinaryArray) -> pa.Array:
        """Decode the values in bytes of this argument. NULL remains NULL."""

        def cut(ranked: pa.BinaryArray) -> pa.BinaryArray:
            data, ends = data_of(ranked), offsets_of(ranked)[1:].astype(np.int64)
            lengths = data[ends[:, None] + np.arange(-_LENGTH, 0)].copy().view(np.int32)[:, 0]
            return spans(data, ends - _LENGTH - lengths, ends - _LENGTH)

        return _of_valid(column, lambda ranked: codec.read(self.record, cut(ranked)).column(self.record.names[0]))


@dataclass(frozen=True)
class Entry:
    """An argument that packs columns as a row of `record`. The first column is the value."""

    record: Record

    @property
    def name(self) -> str:
        """A name that consists of the column names and a prefix for packed rows."""
        return "\0".join(("entry", *self.record.names))

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of bytes."""
        return pa.binary()

    def of(self, rows: Decoded) -> pa.Array:
        """Return the packed columns of each row."""
        return _packed(rows, self.record)

    def value(self, column: pa.BinaryArray) -> pa.Array:
        """Decode the values in bytes of this argument. NULL remains NULL."""
        return _of_valid(column, lambda packed: codec.read(self.record, packed).column(self.record.names[0]))


def _packed(rows: Decoded, record: Record) -> pa.BinaryArray:
    return rows.assemble(
        record,
        [
            canonical(rows.column(field.name)) if pa.types.is_floating(field.type.arrow) else field.name
            for field in record.fields
        ],
    )


def _of_valid(column: pa.BinaryArray, read: Callable[[pa.BinaryArray], pa.Array]) -> pa.Array:
    if not column.null_count:
        return read(column)
    return spread(read(column.drop_null()), to_mask(column.is_valid()))


def _all_there(columns: Sequence[pa.Array]) -> Mask:
    there = np.ones(len(columns[0]), np.bool_)
    for column in columns:
        if column.null_count:
            there &= to_mask(column.is_valid())
    return there
