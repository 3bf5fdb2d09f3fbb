"""Packed rows as a topic has them."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

import pyarrow as pa

from rowkind.avro.connect_json import rows_with_schema
from rowkind.avro.framing import frame
from rowkind.avro.json_rows import decode
from rowkind.avro.schema import Record
from rowkind.operators.columns.changes import binary


@dataclass(frozen=True)
class AsAvro:
    """Avro, framed with the id of its schema in the registry."""

    schema: int

    def __call__(self, payloads: pa.BinaryArray) -> pa.BinaryArray:
        """The bytes of each row."""
        return frame(self.schema, payloads)


@dataclass(frozen=True)
class AsJson:
    """JSON objects with the columns of the record; equal rows are equal bytes."""

    record: Record

    def __call__(self, payloads: pa.BinaryArray) -> pa.BinaryArray:
        """The bytes of each row."""
        rows = decode(self.record, payloads)
        return binary([json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() for row in rows])


@dataclass(frozen=True)
class AsConnectJson:
    """JSON objects with Connect's schema beside the columns of the record; equal rows are equal bytes."""

    record: Record

    def __call__(self, payloads: pa.BinaryArray) -> pa.BinaryArray:
        """The bytes of each row."""
        return binary(rows_with_schema(self.record, payloads))


@dataclass(frozen=True)
class AsPlainAvro:
    """Avro without a frame."""

    def __call__(self, payloads: pa.BinaryArray) -> pa.BinaryArray:
        """The bytes of each row, which are those that it is packed in."""
        return payloads


@dataclass(frozen=True)
class AsText:
    """The one column as text without quotes, as kcat and ksqlDB write keys."""

    record: Record

    def __call__(self, payloads: pa.BinaryArray) -> pa.BinaryArray:
        """The bytes of each row."""
        (name,) = self.record.names
        values = [row[name] for row in decode(self.record, payloads)]
        return binary([(each if isinstance(each, str) else json.dumps(each)).encode() for each in values])


@dataclass(frozen=True)
class AsLong:
    """The one column as 8 bytes, the highest first, as Java's LongSerializer writes keys."""

    record: Record

    def __call__(self, payloads: pa.BinaryArray) -> pa.BinaryArray:
        """The bytes of each row."""
        (name,) = self.record.names
        return binary([struct.pack(">q", row[name]) for row in decode(self.record, payloads)])


Written = AsAvro | AsPlainAvro | AsJson | AsText | AsLong | AsConnectJson


@dataclass(frozen=True)
class Forms:
    """How a topic's values are written, and its keys where it has any."""

    value: Written
    key: Written | None
