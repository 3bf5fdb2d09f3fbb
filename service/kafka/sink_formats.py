"""Sink formats: encode packed rows as the values and keys of a topic."""

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
        """Return the bytes of each row."""
        return frame(self.schema, payloads)


@dataclass(frozen=True)
class AsJson:
    """JSON objects with the columns of the record. Equal rows have equal bytes."""

    record: Record

    def __call__(self, payloads: pa.BinaryArray) -> pa.BinaryArray:
        """Return the bytes of each row."""
        rows = decode(self.record, payloads)
        return binary([json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() for row in rows])


@dataclass(frozen=True)
class AsConnectJson:
    """JSON objects with Kafka Connect's schema next to the payload. Equal rows have equal bytes."""

    record: Record

    def __call__(self, payloads: pa.BinaryArray) -> pa.BinaryArray:
        """Return the bytes of each row."""
        return binary(rows_with_schema(self.record, payloads))


@dataclass(frozen=True)
class AsPlainAvro:
    """Avro without framing."""

    def __call__(self, payloads: pa.BinaryArray) -> pa.BinaryArray:
        """Return the packed bytes of each row unchanged."""
        return payloads


@dataclass(frozen=True)
class AsText:
    """The only column as text without quotes, as kcat and ksqlDB write keys."""

    record: Record

    def __call__(self, payloads: pa.BinaryArray) -> pa.BinaryArray:
        """Return the bytes of each row."""
        (name,) = self.record.names
        values = [row[name] for row in decode(self.record, payloads)]
        return binary([(each if isinstance(each, str) else json.dumps(each)).encode() for each in values])


@dataclass(frozen=True)
class AsLong:
    """The only column as 8 bytes, big-endian, as Java's LongSerializer writes keys."""

    record: Record

    def __call__(self, payloads: pa.BinaryArray) -> pa.BinaryArray:
        """Return the bytes of each row."""
        (name,) = self.record.names
        return binary([struct.pack(">q", row[name]) for row in decode(self.record, payloads)])


Written = AsAvro | AsPlainAvro | AsJson | AsText | AsLong | AsConnectJson


@dataclass(frozen=True)
class Forms:
    """The formats of a topic's values and keys; `key` is None if records have no keys."""

    value: Written
    key: Written | None
