"""What a rank needs to know of packed rows: their numbers behind them, which are admitted, and which one is which."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro import codec
from rowkind.avro.order import comparable, join_bytes
from rowkind.avro.schema import Record
from rowkind.operators.columns.changes import Int64s, Mask
from rowkind.operators.rank.ranking import RankFunction


@dataclass(frozen=True)
class Numbered:
    """Puts numbers of each row behind it; `numbers` is the record of these columns."""

    numbers: Record

    def __call__(self, payloads: pa.BinaryArray, numbers: Sequence[Int64s]) -> pa.BinaryArray:
        """The rows with their numbers."""
        columns = zip(self.numbers.names, map(pa.array, numbers), strict=True)
        return codec.concat_rows(payloads, codec.encode(self.numbers, dict(columns)))


@dataclass(frozen=True)
class RowFilter:
    """The condition on a row and its numbers, which are by these functions and come under the record `numbers`."""

    condition: Callable[[pa.BinaryArray, pa.BinaryArray], Mask]
    numbers: Record
    functions: tuple[RankFunction, ...]

    def __call__(self, payloads: pa.BinaryArray, numbers: Mapping[RankFunction, Int64s]) -> Mask:
        """For which rows it is true. Raises ExpressionError if the query is to fail."""
        columns = zip(self.numbers.names, self.functions, strict=True)
        given = codec.encode(self.numbers, {name: pa.array(numbers[function]) for name, function in columns})
        return self.condition(payloads, given)


@dataclass(frozen=True)
class Bound:
    """A column of packed rows of `record`, a whole number that bounds the number of the row; 0 where it is NULL."""

    record: Record
    column: str

    def __call__(self, payloads: pa.BinaryArray) -> Int64s:
        """The bound of each row, 0 at least."""
        values = codec.read(self.record, payloads).column(self.column)
        found: Int64s = pc.fill_null(values.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        return np.maximum(found, 0)


@dataclass(frozen=True)
class Identity:
    """The comparable bytes of some columns, a unique key, of packed rows of `record`."""

    record: Record
    columns: tuple[str, ...]

    def __call__(self, payloads: pa.BinaryArray) -> pa.BinaryArray:
        """The bytes of each row's unique key."""
        rows = codec.read(self.record, payloads)
        return join_bytes([comparable(rows.column(name)) for name in self.columns])
