"""Keys and values of records as packed rows, by the format in which a table's topic has them.

    avro          framed: a schema of the registry is named before the value, or in a header
    plain_avro    the bare Avro value, under the schema that the table declares
    json          an object whose members are the columns (`avro.json_rows`)

A value may be a Debezium envelope in any of them: a record with the row as it was `before`, as it is `after`, and `op`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from rowkind.avro import codec, framing
from rowkind.avro.errors import RegistryError, RegistryUnreachableError, SchemaError
from rowkind.avro.json_rows import NullProblem, pack, parser
from rowkind.avro.registry import Registry
from rowkind.avro.resolve import resolve
from rowkind.avro.schema import Record
from rowkind.avro.spelled import ValueProblem
from rowkind.operators.columns.changes import Indices, binary, concat_binary
from rowkind.service.kafka.faults import Faults
from rowkind.service.source_table import SourceTable


@dataclass(frozen=True)
class Raw:
    """Keys or values of the records at `where`; `schemas` are their headers with the schema's id, null for none."""

    bytes: pa.BinaryArray
    where: Indices
    stage: Literal["value", "key"] = "value"
    schemas: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.bytes)


@dataclass(frozen=True)
class Envelopes:
    """Of each value: the operation, and the row before and after it, null for none and for bad records."""

    op: Sequence[str | None]
    before: pa.BinaryArray
    after: pa.BinaryArray


class ValueFormat(ABC):
    """One of the formats. What is no row is noted among the faults, and has empty bytes."""

    @abstractmethod
    def rows(self, raw: Raw, reader: Record, faults: Faults) -> pa.BinaryArray:
        """Keys or values as rows of `reader`."""

    @abstractmethod
    def envelopes(self, raw: Raw, before: Record, after: Record, faults: Faults) -> Envelopes:
        """Values as envelopes, with the rows in them under these records."""


def format_of(source: SourceTable, registry: Registry) -> ValueFormat:
    """How the topic of a table is read."""
    match source.format:
        case "avro":
            return FramedAvro(registry)
        case "plain_avro":
            assert source.written is not None, "the plan has it for this format"
            return PlainAvro(source.written, source.key)
        case "json":
            return Json()


class _Avro(ValueFormat):
    @abstractmethod
    def _groups(self, raw: Raw, faults: Faults) -> Iterator[tuple[Record, Indices, pa.BinaryArray]]:
        """The Avro values by the schema under which they were written, and which of `raw` they are."""

    def rows(self, raw: Raw, reader: Record, faults: Faults) -> pa.BinaryArray:
        """Keys or values as rows of `reader`."""
        parts, places = list[pa.BinaryArray](), list[Indices]()
        for writer, members, payload in self._groups(raw, faults):
            parts.append(_resolved(writer, reader, Raw(payload, raw.where[members], raw.stage), faults))
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
                parts[name].append(_resolved(inner, reader, some, faults))
                places[name].append(members[there])
        return Envelopes(op, *(scatter(parts[name], places[name], len(raw), None) for name in readers))


@dataclass(frozen=True)
class FramedAvro(_Avro):
    """Avro with Confluent's frame."""

    registry: Registry

    def _groups(self, raw: Raw, faults: Faults) -> Iterator[tuple[Record, Indices, pa.BinaryArray]]:
        framed = framing.split(raw.bytes, raw.schemas)
        for at in np.flatnonzero(framed.bad).tolist():
            faults.add(int(raw.where[at]), "framing", framed.reason(at))
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
    key: Record

    def _groups(self, raw: Raw, faults: Faults) -> Iterator[tuple[Record, Indices, pa.BinaryArray]]:
        del faults  # What is wrong will be found when the values are read.
        yield self.value if raw.stage == "value" else self.key, np.arange(len(raw)), raw.bytes


class Json(ValueFormat):
    """JSON objects, also as Connect wraps them together with their schema.

    A key of one column may be the bare value, and if that is text, without quotes.
    """

    def rows(self, raw: Raw, reader: Record, faults: Faults) -> pa.BinaryArray:
        """Keys or values as rows of `reader`."""
        found = self._objects(raw, reader, faults)
        there = np.flatnonzero([each is not None for each in found])
        return scatter([_packed(found, raw, there, reader, faults)], [there], len(raw), b"")

    def envelopes(self, raw: Raw, before: Record, after: Record, faults: Faults) -> Envelopes:
        """Values as envelopes, with the rows in them under these records."""
        found = self._objects(raw, after, faults)
        images = []
        for name, reader in (("before", before), ("after", after)):
            rows = [None if each is None else each.get(name) for each in found]
            for at in (row for row, each in enumerate(rows) if not isinstance(each, dict | None)):
                faults.add(int(raw.where[at]), raw.stage, f"{name!r} is no JSON object")
            there = np.flatnonzero([isinstance(each, dict) for each in rows])
            images.append(scatter([_packed(rows, raw, there, reader, faults)], [there], len(raw), None))
        return Envelopes([None if each is None else each.get("op") for each in found], *images)

    @staticmethod
    def _objects(raw: Raw, reader: Record, faults: Faults) -> list[dict[str, Any] | None]:
        found: list[dict[str, Any] | None] = []
        parse = parser(reader)
        for at, data in zip(raw.where.tolist(), raw.bytes.to_pylist(), strict=True):
            try:
                found.append(_object(data, parse) if raw.stage == "value" else _key(data, reader, parse))
            except ValueProblem as problem:
                faults.add(at, raw.stage, str(problem))
                found.append(None)
        return found


def _object(data: bytes | None, parse: Callable[[bytes], Any]) -> dict[str, Any]:
    if data is None:
        raise ValueProblem("there is no value")
    found = _unwrapped(parse(data))
    if not isinstance(found, dict):
        raise ValueProblem("it is no JSON object")
    return found


def _unwrapped(found: Any) -> Any:
    """What Connect has wrapped together with its schema, or what it is."""
    return found["payload"] if isinstance(found, dict) and found.keys() == {"schema", "payload"} else found


def _key(data: bytes | None, reader: Record, parse: Callable[[bytes], Any]) -> dict[str, Any]:
    if data is None:
        raise ValueProblem("there is no key")
    text = len(reader.fields) == 1 and reader.fields[0].type.kind == "string"
    try:
        found = _unwrapped(parse(data))
    except ValueProblem:
        if not text:
            raise
        found = data.decode(errors="surrogateescape")
    if not isinstance(found, dict) and len(reader.fields) == 1:
        found = {reader.names[0]: data.decode() if text and not isinstance(found, str) else found}
    if not isinstance(found, dict):
        raise ValueProblem(f"it is no JSON object with {', '.join(reader.names)}")
    return found


def scatter(
    parts: Sequence[pa.BinaryArray], places: Sequence[Indices], length: int, nothing: bytes | None
) -> pa.BinaryArray:
    """The parts' values at their places, `nothing` elsewhere."""
    if len(parts) == 1 and len(places[0]) == length:
        return parts[0]
    pool = concat_binary([*parts, pa.array([nothing], pa.binary())])
    index = np.full(length, len(pool) - 1, np.int64)
    if places:
        index[np.concatenate(places)] = np.arange(len(pool) - 1)
    return pool.take(pa.array(index))


def _resolved(writer: Record, reader: Record, raw: Raw, faults: Faults) -> pa.BinaryArray:
    """Rows of one schema under another; empty bytes where the schemas do not go together."""
    try:
        resolved, decoded = resolve(writer, reader, raw.bytes)
    except SchemaError as error:
        faults.add_all(raw.where, "schema", str(error))
        return binary([b""] * len(raw))
    faults.add_decoded(raw.where, raw.stage, decoded)
    return resolved


def _packed(rows: Sequence[Any], raw: Raw, there: Indices, reader: Record, faults: Faults) -> pa.BinaryArray:
    """The JSON objects that are `there` as rows."""
    payload, problems = pack(reader, [rows[row] for row in there.tolist()])
    for row, problem in problems.items():
        at = int(raw.where[there[row]])
        faults.add(at, raw.stage, str(problem))
        if isinstance(problem, NullProblem):
            faults.nulls.append(at)
    return payload
