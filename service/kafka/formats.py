"""Decode record keys and values to packed rows, according to the format of the table's topic.

    avro          framed: a prefix of the value, or a header, contains the id of a schema in the registry
    plain_avro    the bare Avro value, with the schema that the table declares
    json          an object whose members are the columns (`service.kafka.json_format`)

In each format, a value may be a Debezium envelope: a record with the old row `before`, the new row `after`, and `op`.
Keys and values may have different formats (`service.kafka.key_format`).
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
    """Return the decoder of a table's values."""
    match source.format:
        case "avro":
            return FramedAvro(source, registry)
        case "plain_avro":
            assert source.written is not None, "the plan sets it for this format"
            return PlainAvro(source, source.written)
        case "json":
            return Json(source)


def key_format_of(source: SourceTable, registry: Registry) -> KeyFormat:
    """Return the decoder of a table's keys."""
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
        """Yield each writer's schema, the indices in `raw` of the values written with it, and their Avro bytes."""

    def rows(self, raw: Raw, reader: Record, faults: Faults) -> pa.BinaryArray:
        """Decode keys or values to rows of `reader`."""
        parts, places = list[pa.BinaryArray](), list[Indices]()
        for writer, members, payload in self._groups(raw, faults):
            parts.append(resolved(self.source, writer, reader, Raw(payload, raw.where[members], raw.stage), faults))
            places.append(members)
        return scatter(parts, places, len(raw), b"")

    def envelopes(self, raw: Raw, before: Record, after: Record, faults: Faults) -> Envelopes:
        """Decode values to Debezium envelopes. `before` and `after` are the schemas of their rows."""
        op: list[str | None] = [None] * len(raw)
        readers = {"before": before, "after": after}
        parts: dict[str, list[pa.BinaryArray]] = {name: [] for name in readers}
        places: dict[str, list[Indices]] = {name: [] for name in readers}
        for writer, members, payload in self._groups(raw, faults):
            missing = [name for name in ("op", *readers) if name not in writer.names]
            if missing or any(writer.type(name).kind != "record" for name in readers):
                text = f"{writer.name} is not a Debezium envelope: it must have `op` and the rows `before` and `after`"
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
    """Avro with Confluent framing."""

    registry: Registry

    def _groups(self, raw: Raw, faults: Faults) -> Iterator[tuple[Record, Indices, pa.BinaryArray]]:
        framed = framing.split(raw.bytes, raw.schemas)
        for at in np.flatnonzero(framed.bad).tolist():
            reason = framed.reason(at, raw.stage)
            if raw.stage == "key":
                reason = f"{reason}. {KEY_REMEDY}"
            faults.add(int(raw.where[at]), "framing", reason)
        for number, schema in enumerate(framed.schemas):
            assert schema is not None, "framed values have a schema"
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
    """Avro without framing. The table declares the columns of values and keys."""

    value: Record

    def _groups(self, raw: Raw, faults: Faults) -> Iterator[tuple[Record, Indices, pa.BinaryArray]]:
        del faults  # Bad values are found when they are decoded.
        yield self.value if raw.stage == "value" else self.source.key, np.arange(len(raw)), raw.bytes
