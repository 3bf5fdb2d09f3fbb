"""Access to packed rows for window functions: decoding of arguments and the ordering column, and packing of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.schema import Record
from rowkind.operators.aggregate.accumulators import AccumulatorCall
from rowkind.operators.columns.changes import Int64s
from rowkind.operators.columns.grouping import to_mask
from rowkind.operators.over.order_distance import LARGEST, LEAST, codes
from rowkind.operators.over.window_call import OverCall
from rowkind.service.execute.column_times import in_us
from rowkind.service.physical.operators import OrderMeasure
from rowkind.service.physical.over_call import PhysicalWindowCall


@dataclass(frozen=True)
class ColumnsOf:
    """Reads columns from packed rows of `record`."""

    record: Record
    names: tuple[str, ...]

    def __call__(self, payloads: pa.BinaryArray) -> Mapping[str, pa.Array]:
        """Return the columns, keyed by name."""
        rows = codec.read(self.record, payloads)
        return {name: rows.column(name) for name in self.names}


@dataclass(frozen=True)
class Measured:
    """Reads the ordering column from packed rows of `record`, as ascending whole numbers.

    Times become microseconds, DECIMALs become whole numbers in units of their last digit, and doubles become
    order-preserving codes.
    """

    record: Record
    by: OrderMeasure

    def __call__(self, payloads: pa.BinaryArray) -> Int64s:
        """Return the number of each row. NULL becomes the smallest or the largest number."""
        values = codec.read(self.record, payloads).column(self.by.column)
        if pa.types.is_date(values.type) or pa.types.is_timestamp(values.type):
            # The smallest and the largest number represent NULL.
            in_order = np.clip(in_us(values), LEAST + 1, LARGEST - 1)
            values = pa.array(in_order, mask=~to_mask(values.is_valid()))
        elif pa.types.is_decimal(values.type):
            values = in_digits(values)
        elif pa.types.is_floating(values.type):
            of_doubles = codes(values.fill_null(0).to_numpy(zero_copy_only=False))
            values = pa.array(of_doubles, mask=~to_mask(values.is_valid()))
        numbers: Int64s = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        numbers = -numbers if self.by.descending else numbers
        return np.where(to_mask(values.is_valid()), numbers, LEAST if self.by.nulls_first else LARGEST)


def in_digits(values: pa.Array) -> pa.Array:
    """Convert decimals to whole numbers, in units of their last digit."""
    whole = pa.decimal128(values.type.precision, 0)
    return pa.Array.from_buffers(whole, len(values), values.buffers(), offset=values.offset)


@dataclass(frozen=True)
class PackedResults:
    """Packs the results of calls into rows with the columns of `record`."""

    record: Record

    def __call__(self, columns: Sequence[pa.Array]) -> pa.BinaryArray:
        """Return one packed row per result row."""
        return codec.encode(self.record, dict(zip(self.record.names, columns, strict=True)))


def over_call(call: PhysicalWindowCall, record: Record) -> OverCall:
    """Convert a call over rows of `record` to the operator's form."""
    argument = call.arguments[0] if call.arguments else None
    match call.function:
        case "count" | "sum" | "avg" | "bool_and" | "bool_or" | "min" | "max":
            type_ = None if argument is None else record.type(argument).arrow
            aggregate = AccumulatorCall(call.function, call.type.arrow, argument, type_, call.filter)
            return OverCall(call.function, call.frame, aggregate)
        case _:
            default = call.arguments[1] if len(call.arguments) > 1 else None
            return OverCall(call.function, call.frame, None, argument, call.nth, default, call.skips)
