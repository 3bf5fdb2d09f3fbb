"""Decode JSON keys and values: objects whose members are the columns (`avro.json_rows`).

Kafka Connect may have wrapped a value together with its schema. The value is then decoded with that schema, as Avro is
with its writer's schema (`avro.connect_values`). An empty schema is ignored. A null payload means that there is no
value.

A single-column key may be the bare value; if the value is text, its quotes may be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro.connect_values import is_complete, is_wrapped, payloads, record_of
from rowkind.avro.errors import SchemaError
from rowkind.avro.json_rows import NullProblem, pack, parser
from rowkind.avro.schema import Record
from rowkind.avro.text_values import ValueProblem
from rowkind.operators.columns.changes import Indices, binary
from rowkind.service.kafka.bad_records import Faults
from rowkind.service.kafka.value_format import KEY_REMEDY, Envelopes, Raw, ValueFormat, resolved, scatter
from rowkind.service.physical.source_table import SourceTable

_NOTHING = r'^\s*null\s*$|"payload"\s*:\s*null'
_ROWS = ("before", "after")
_FEW = 8
"""How many of the latest schemas are compared with a value's schema."""


@dataclass(frozen=True)
class _Found:
    """Parsed values or keys (None if bad), with the number of the Connect schema of each (0 if it has none)."""

    values: list[Any]
    numbers: list[int]
    schemas: list[Any]

    def add(self, value: Any, stage: str) -> None:
        """Add a value, which may be wrapped with its schema. Raises ValueProblem."""
        number = 0
        if is_wrapped(value):
            schema, value = value["schema"], value["payload"]
            number = self._number(schema)
        if stage == "value" and not isinstance(value, dict):
            raise ValueProblem("it is not a JSON object")
        self.values.append(value)
        self.numbers.append(number)

    def _number(self, schema: Any) -> int:
        # Nearly always, all values have the same schema, so the latest schema is compared first.
        last = len(self.schemas)
        try:
            number = next(
                (each for each in range(last, max(last - _FEW, 0), -1) if self.schemas[each - 1] == schema), 0
            )
        except RecursionError:
            raise ValueProblem("the record's `schema` is nested too deeply") from None
        if not number:
            self.schemas.append(schema)
        return number or len(self.schemas)

    def groups(self) -> list[tuple[Any, Indices]]:
        """Return the schemas (None for no schema), each with the indices of the good values with this schema."""
        pairs = zip(self.values, self.numbers, strict=True)
        there = np.array([number if value is not None else -1 for value, number in pairs], np.int64)
        schemas = [None, *self.schemas]
        return [(schemas[number], np.flatnonzero(there == number)) for number in np.unique(there) if number >= 0]


@dataclass(frozen=True)
class Json(ValueFormat):
    """JSON objects, plain or wrapped by Kafka Connect together with their schema."""

    source: SourceTable

    def rows(self, raw: Raw, reader: Record, faults: Faults) -> pa.BinaryArray:
        """Decode keys or values to rows of `reader`."""
        found = self._parsed(raw, reader, faults)
        parts, places = list[pa.BinaryArray](), list[Indices]()
        for schema, members in found.groups():
            values = [found.values[row] for row in members.tolist()]
            some = replace(raw, bytes=raw.bytes.take(pa.array(members)), where=raw.where[members])
            parts.append(self._typed(schema, values, some, reader, faults))
            places.append(members)
        return scatter(parts, places, len(raw), b"")

    def envelopes(self, raw: Raw, before: Record, after: Record, faults: Faults) -> Envelopes:
        """Decode values to Debezium envelopes. `before` and `after` are the schemas of their rows."""
        found = self._parsed(raw, after, faults)
        images = {name: (list[pa.BinaryArray](), list[Indices]()) for name in _ROWS}
        for schema, members in found.groups():
            for name, reader in zip(_ROWS, (before, after), strict=True):
                rows = [found.values[row].get(name) for row in members.tolist()]
                for at in (row for row, each in zip(members, rows, strict=True) if not isinstance(each, dict | None)):
                    faults.add(int(raw.where[at]), raw.stage, f"{name!r} is not a JSON object")
                inner = np.array([isinstance(each, dict) for each in rows], np.bool_)
                there = members[inner]
                values = [each for each in rows if isinstance(each, dict)]
                some = replace(raw, bytes=raw.bytes.take(pa.array(there)), where=raw.where[there])
                parts, places = images[name]
                parts.append(self._typed(_member(schema, name), values, some, reader, faults))
                places.append(there)
        return Envelopes(
            [None if each is None else each.get("op") for each in found.values],
            *(scatter(*images[name], len(raw), None) for name in _ROWS),
        )

    def without_nothing(self, values: pa.BinaryArray) -> pa.BinaryArray:
        """Replace each JSON `null`, whether it is a bare value or the payload next to a schema, with an Arrow null."""
        suspects = pc.match_substring_regex(values, _NOTHING)
        if not pc.any(suspects).as_py():
            return values
        parse = parser(Record("", ()))
        nothing = [
            bool(suspect) and _is_nothing(value, parse)
            for suspect, value in zip(suspects.to_pylist(), values.to_pylist(), strict=True)
        ]
        return pc.if_else(pa.array(nothing), pa.scalar(None, pa.binary()), values)

    def _typed(self, schema: Any, values: list[Any], raw: Raw, reader: Record, faults: Faults) -> pa.BinaryArray:
        """Convert values that have the same schema to rows of `reader`."""
        if not is_complete(schema):
            rows = [_object(value, reader, raw, at, faults) for at, value in enumerate(values)]
            there = np.flatnonzero([each is not None for each in rows])
            return scatter(
                [self._packed([each for each in rows if each is not None], raw, there, reader, faults)],
                [there],
                len(raw),
                b"",
            )
        try:
            writer = record_of(schema, reader.names[0] if reader.names else "value")
        except SchemaError as error:
            faults.add_all(raw.where, "schema", str(error))
            return binary([b""] * len(raw))
        if writer.bare:
            values = [{writer.names[0]: value} for value in values]
        read = writer if writer.bare else _read(writer, reader)
        payload, problems = payloads(read, values)
        for row, problem in problems.items():
            faults.add(int(raw.where[row]), raw.stage, str(problem))
        good = np.setdiff1d(np.arange(len(raw)), np.array(list(problems), np.int64))
        whole = Raw(payload.take(pa.array(good)), raw.where[good], raw.stage)
        return scatter([resolved(self.source, read, reader, whole, faults, of=writer)], [good], len(raw), b"")

    def _packed(self, rows: Sequence[Any], raw: Raw, there: Indices, reader: Record, faults: Faults) -> pa.BinaryArray:
        """Pack JSON objects without a schema as rows."""
        payload, problems = pack(reader, rows, dict(self.source.units))
        for row, problem in problems.items():
            at = int(raw.where[there[row]])
            faults.add(at, raw.stage, str(problem))
            if isinstance(problem, NullProblem):
                faults.nulls.append(at)
        return payload

    @staticmethod
    def _parsed(raw: Raw, reader: Record, faults: Faults) -> _Found:
        found = _Found([], [], [])
        parse = parser(reader)
        for at, data in zip(raw.where.tolist(), raw.bytes.to_pylist(), strict=True):
            try:
                found.add(_value(data, parse) if raw.stage == "value" else _key(data, reader, parse), raw.stage)
            except ValueProblem as problem:
                faults.add(at, raw.stage, str(problem) if raw.stage == "value" else f"the record's key: {problem}")
                found.values.append(None)
                found.numbers.append(0)
        return found


def _is_nothing(data: bytes, parse: Callable[[bytes], Any]) -> bool:
    try:
        found = parse(data)
    except ValueProblem:
        return False
    return found is None or (is_wrapped(found) and found["payload"] is None)


def _value(data: bytes | None, parse: Callable[[bytes], Any]) -> Any:
    if data is None:
        raise ValueProblem("there is no value")
    return parse(data)


def _key(data: bytes | None, reader: Record, parse: Callable[[bytes], Any]) -> Any:
    if data is None:
        raise ValueProblem("there is no key")
    text = len(reader.fields) == 1 and reader.fields[0].type.kind == "string"
    try:
        found = parse(data)
    except ValueProblem as problem:
        if not text:
            raise ValueProblem(f"{problem}. {KEY_REMEDY}") from None
        return data.decode(errors="surrogateescape")
    if text and not isinstance(found, str | dict):
        return data.decode()
    return {} if found is None else found


def _object(value: Any, reader: Record, raw: Raw, at: int, faults: Faults) -> dict[str, Any] | None:
    """Return a value or key without a schema as an object. A bare single-column key is wrapped in an object."""
    if isinstance(value, dict):
        return value
    if raw.stage == "key" and len(reader.fields) == 1:
        return {reader.names[0]: value}
    what = f"the record's key: it is not a JSON object with {', '.join(reader.names)}"
    faults.add(int(raw.where[at]), raw.stage, what if raw.stage == "key" else "it is not a JSON object")
    return None


def _member(schema: Any, name: str) -> Any:
    """Return the schema of a struct's member, or None if the struct has no such member."""
    if not is_complete(schema) or schema.get("type") != "struct":
        return None
    return next((each for each in schema["fields"] if isinstance(each, dict) and each.get("field") == name), None)


def _read(writer: Record, reader: Record) -> Record:
    """Reduce a writer's record to the columns that `reader` may use, by name or alias. Other columns are ignored."""
    wanted = {name for field in reader.fields for name in (field.name, *field.aliases)}
    return replace(writer, fields=tuple(field for field in writer.fields if field.name in wanted))
