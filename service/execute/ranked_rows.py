"""What a rank needs to know of packed rows: how a number is put behind one, and which row one is."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.order import comparable, join_bytes
from rowkind.avro.schema import Record
from rowkind.operators.columns.changes import Int64s


@dataclass(frozen=True)
class Numbered:
    """Puts the number of each row behind it; `number` is the record of that one column."""

    number: Record

    def __call__(self, payloads: pa.BinaryArray, numbers: Int64s) -> pa.BinaryArray:
        """The rows with their numbers."""
        return codec.concat_rows(payloads, codec.encode(self.number, {self.number.names[0]: pa.array(numbers)}))


@dataclass(frozen=True)
class Identity:
    """The comparable bytes of some columns, a unique key, of packed rows of `record`."""

    record: Record
    columns: tuple[str, ...]

    def __call__(self, payloads: pa.BinaryArray) -> pa.BinaryArray:
        """The bytes of each row's unique key."""
        rows = codec.read(self.record, payloads)
        return join_bytes([comparable(rows.column(name)) for name in self.columns])
