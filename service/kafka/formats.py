"""Keys and values of records as packed rows, by the format in which a table's topic has them.

    avro          framed: a schema of the registry is named before the value, or in a header
    plain_avro    the bare Avro value, under the schema that the table declares
    json          an object whose members are the columns (`service.kafka.json_format`)

A value may be a Debezium envelope in any of them: a record with the row as it was `before`, as it is `after`, and `op`.
A key may have another format than the value (`service.kafka.key_format`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rowkind.avro import codec, framing
from rowkind.avro.errors import RegistryError, RegistryUnreachableError, SchemaError
from rowkind.avro.registry import Registry
from rowkind.avro.schema import Record
from rowkind.operators.columns.changes import Indices
from rowkind.service.kafka.bad_records import Faults
from rowkind.service.kafka.json_format import Json
from rowkind.service.kafka.key_format import LongKey, TextKey
from rowkind.service.kafka.value_format import KEY_REMEDY, Envelopes, KeyFormat, Raw, ValueFormat, resolved, scatter
from rowkind.service.physical.source_table import SourceTable


def format_of(source: SourceTable, registry: Registry) -> ValueFormat:
    """How the topic of a table is read."""
    match source.format:
        case "avro":
            return FramedAvro(source, registry)
        case "plain_avro":
            assert source.written is not None, "the plan has it for this format"
            return PlainAvro(source, source.written)
        case "json":
            return Json(source)


def key_format_of(source: SourceTable, registry: Registry) -> KeyFormat:
    """How the keys of a table's topic are read."""
    match source.key_format:
        case "string":
            return TextKey()
        case "long":
            return LongKey()
        case "json":
            return Json(source)
        case "avro":
            return FramedAvro(source, registry)
        case None:
            return format_of(source, registry)


@dataclass(frozen=True)
class _Avro(ValueFormat):
    source: SourceTable

    @abstractmethod
    def _groups(self, raw: Raw, faults: Faults) -> Iterator[tuple[Record, Indices, pa.BinaryArray]]:
        """The Avro values by the schema under which they were written, and which of `raw` they are."""

    def rows(self, raw: Raw, reader: Record, faults: Faults) -> pa.BinaryArray:
        """Keys or values as rows of `reader`."""
        parts, places = list[pa.BinaryArray](), list[Indices]()
        for writer, members, payload in self._groups(raw, faults):
            parts.append(resolved(self.source, writer, reader, Raw(payload, raw.where[members], raw.stage), faults))
            places.append(members)
        return scatter(parts, places, len(raw), b"")

    def envelopes(self, raw: Raw, before: Record, after: Record, faults: Faults) -> Envelopes:
        """Values as envelopes, with the rows in them under these records."""
        op: list[str | None] = [None] * len(raw)
        readers = {"before": before, "after": after}
        parts: dict[str, list[pa.BinaryArray]] = {name: [] for name in readers}
        places: dict[str, list[Indices]] = {name: [] for name in readers}
        for writer, members, payload in self._groups(raw, faults):
            missing = [name for name in ("op", *readers) if name not in writer.names]
            if missing or any(writer.type(name).kind != "record" for name in readers):
                text = f"{writer.name} is no Debezium envelope: that has the rows `before` and `after`, and `op`"
                faults.add_all(raw.where[members], "schema", text)
                continue
            decoded = codec.read(writer, payload)
            for row, what in zip(members.tolist(), decoded.column("op").to_pylist(), strict=True):
                op[row] = what
            faults.add_decoded(raw.where[members], raw.stage, decoded)
            for name, reader in readers.items():
                packed = decoded.packed(name)
                there = np.flatnonzero(packed.is_valid().to_numpy(zero_copy_only=False))
                inner = Record(writer.type(name).name, writer.type(name).fields)
                some = Raw(packed.take(pa.array(there)), raw.where[members[there]])
                parts[name].append(resolved(self.source, inner, reader, some, faults))
                places[name].append(members[there])
        return Envelopes(op, *(scatter(parts[name], places[name], len(raw), None) for name in readers))


@dataclass(frozen=True)
class FramedAvro(_Avro):
    """Avro with Confluent's frame."""

    registry: Registry

    def _groups(self, raw: Raw, faults: Faults) -> Iterator[tuple[Record, Indices, pa.BinaryArray]]:
        framed = framing.split(raw.bytes, raw.schemas)
        for at in np.flatnonzero(framed.bad).tolist():
            reason = framed.reason(at, raw.stage)
            if raw.stage == "key":
                reason = f"{reason}. {KEY_REMEDY}"
            faults.add(int(raw.where[at]), "framing", reason)
        for number, schema in enumerate(framed.schemas):
            assert schema is not None, "values are framed"
            members = np.flatnonzero(framed.schema == number)
            payload = framed.payload if len(members) == len(raw) else framed.payload.take(pa.array(members))
            try:
                writer = self.registry.schema_by_id(schema)
            except RegistryUnreachableError:
                raise
            except (RegistryError, SchemaError) as error:
                faults.add_all(raw.where[members], "schema", str(error))
                continue
            yield writer, members, payload


@dataclass(frozen=True)
class PlainAvro(_Avro):
    """Avro without a frame, under the columns and the key that the table declares."""

    value: Record

    def _groups(self, raw: Raw, faults: Faults) -> Iterator[tuple[Record, Indices, pa.BinaryArray]]:
        del faults  # What is wrong will be found when the values are read.
        yield self.value if raw.stage == "value" else self.source.key, np.arange(len(raw)), raw.bytes
