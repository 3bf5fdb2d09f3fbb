"""The interface of key and value formats, which decode record bytes to packed rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from rowkind.avro.errors import SchemaError
from rowkind.avro.resolve import resolve
from rowkind.avro.schema import Record
from rowkind.avro.ticks import with_units
from rowkind.operators.columns.changes import Indices, binary, concat_binary
from rowkind.service.kafka.bad_records import Faults
from rowkind.service.physical.source_table import SourceTable


@dataclass(frozen=True)
class Raw:
    """The keys or values of the records at `where`.

    `schemas`: the contents of the records' schema id headers, null for none.
    """

    bytes: pa.BinaryArray
    where: Indices
    stage: Literal["value", "key"] = "value"
    schemas: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.bytes)


@dataclass(frozen=True)
class Envelopes:
    """Debezium envelopes: the operation of each, and the rows before and after it, null where missing or bad."""

    op: Sequence[str | None]
    before: pa.BinaryArray
    after: pa.BinaryArray


class KeyFormat(ABC):
    """A decoder of keys. A key that cannot be decoded is marked in the faults and becomes empty bytes."""

    @abstractmethod
    def rows(self, raw: Raw, reader: Record, faults: Faults) -> pa.BinaryArray:
        """Decode keys or values to rows of `reader`."""


class ValueFormat(KeyFormat):
    """A decoder of values, and of keys unless the table has a `key.format`."""

    @abstractmethod
    def envelopes(self, raw: Raw, before: Record, after: Record, faults: Faults) -> Envelopes:
        """Decode values to Debezium envelopes. `before` and `after` are the schemas of their rows."""

    def without_nothing(self, values: pa.BinaryArray) -> pa.BinaryArray:
        """Replace each value that represents "no value" in its format with null."""
        return values


KEY_REMEDY = (
    "If keys and values have different formats, set the key format in the table: `key.format: string`, `long`, `json` "
    "or `avro`"
)


def resolved(
    source: SourceTable, writer: Record, reader: Record, raw: Raw, faults: Faults, *, of: Record | None = None
) -> pa.BinaryArray:
    """Convert rows from the writer's schema to rows of `reader`. Rows that do not fit `reader` become empty.

    `of`: the writer's complete record, if `writer` is only a part of it.
    """
    if raw.stage == "value" and not writer.bare:
        whole = of or writer
        if source.leaves_out(whole):
            faults.leave_out(raw.where)
            return binary([b""] * len(raw))
        if (reason := source.stranger(whole)) is not None:
            faults.add_all(raw.where, "schema", reason)
            return binary([b""] * len(raw))
    try:
        rows, decoded = resolve(with_units(writer, source.units), reader, raw.bytes)
    except SchemaError as error:
        faults.add_all(raw.where, "schema", str(error))
        return binary([b""] * len(raw))
    faults.add_decoded(raw.where, raw.stage, decoded)
    return rows


def scatter(
    parts: Sequence[pa.BinaryArray], places: Sequence[Indices], length: int, nothing: bytes | None
) -> pa.BinaryArray:
    """Return an array with the parts' values at their positions and `nothing` elsewhere."""
    if len(parts) == 1 and len(places[0]) == length:
        return parts[0]
    pool = concat_binary([*parts, pa.array([nothing], pa.binary())])
    index = np.full(length, len(pool) - 1, np.int64)
    if places:
        index[np.concatenate(places)] = np.arange(len(pool) - 1)
    return pool.take(pa.array(index))
