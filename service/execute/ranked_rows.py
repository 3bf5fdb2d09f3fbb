"""Access to packed rows for a rank: appending of rank numbers, filtering, and reading of bounds and unique keys."""

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
    """Appends rank numbers to each row. `numbers` is the record of the appended columns."""

    numbers: Record

    def __call__(self, payloads: pa.BinaryArray, numbers: Sequence[Int64s]) -> pa.BinaryArray:
        """Return the rows with their rank numbers."""
        columns = zip(self.numbers.names, map(pa.array, numbers), strict=True)
        return codec.concat_rows(payloads, codec.encode(self.numbers, dict(columns)))


@dataclass(frozen=True)
class RowFilter:
    """A condition on a row and its rank numbers. `functions` say how to compute them, and `numbers` is their record."""

    condition: Callable[[pa.BinaryArray, pa.BinaryArray], Mask]
    numbers: Record
    functions: tuple[RankFunction, ...]

    def __call__(self, payloads: pa.BinaryArray, numbers: Mapping[RankFunction, Int64s]) -> Mask:
        """Return a mask of the rows that satisfy the condition. Raises RowFailed if a failure must fail the query."""
        columns = zip(self.numbers.names, self.functions, strict=True)
        given = codec.encode(self.numbers, {name: pa.array(numbers[function]) for name, function in columns})
        return self.condition(payloads, given)


@dataclass(frozen=True)
class Bound:
    """Reads the upper limit of rank numbers from an integer column of packed rows of `record`. NULL becomes 0."""

    record: Record
    column: str

    def __call__(self, payloads: pa.BinaryArray) -> Int64s:
        """Return each row's bound, which is at least 0."""
        values = codec.read(self.record, payloads).column(self.column)
        found: Int64s = pc.fill_null(values.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        return np.maximum(found, 0)


@dataclass(frozen=True)
class Identity:
    """Reads a unique key's columns from packed rows of `record`, as comparable bytes."""

    record: Record
    columns: tuple[str, ...]

    def __call__(self, payloads: pa.BinaryArray) -> pa.BinaryArray:
        """Return the bytes of each row's unique key."""
        rows = codec.read(self.record, payloads)
        return join_bytes([comparable(rows.column(name)) for name in self.columns])
