"""The outcome of a value from a writer, for each format and declared type."""

from __future__ import annotations

import io
import json
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import fastavro
import numpy as np
import pyarrow as pa

from rowkind.avro.json_rows import decode
from rowkind.avro.registry import FolderRegistry, identify
from rowkind.avro.schema import Record
from rowkind.service.kafka.decode import Decoder
from rowkind.service.kafka.record import Records
from rowkind.service.physical.node import PhysicalScan
from rowkind.service.physical.row_kind import RowKindHeader
from rowkind.service.physical.source_table import SourceTable
from tests.kafka.tables import pass_on
from tests.matrix.avro_types import AVRO, CONNECT
from tests.matrix.debezium_types import DEBEZIUM
from tests.matrix.sent import DECLARED, NO_SCHEMA, Right, Sent

Form = Literal["Avro", "JSON with schema", "JSON"]
FORMS: tuple[Form, ...] = ("Avro", "JSON with schema", "JSON")
SENT = (*AVRO, *CONNECT, *DEBEZIUM)


@dataclass(frozen=True)
class Cell:
    """A value in one format, and the right results by declared type."""

    sent: Sent
    form: Form
    right: Right


def cells() -> Iterator[Cell]:
    """Yield all values in all formats in which they are sent."""
    for sent in SENT:
        if sent.avro is not NO_SCHEMA:
            yield Cell(sent, "Avro", sent.right)
        if sent.connect is not NO_SCHEMA:
            yield Cell(sent, "JSON with schema", sent.right)
            yield Cell(sent, "JSON", sent.right if sent.plain is None else sent.plain)


def without_logical(schema: Any) -> Any:
    """Return a schema without logical types, whose values fastavro writes unchanged."""
    match schema:
        case dict():
            return {name: without_logical(each) for name, each in schema.items() if name != "logicalType"}
        case list():
            return [without_logical(each) for each in schema]
    return schema


@cache
def _folder() -> str:
    return tempfile.mkdtemp(prefix="matrix-")


def message(cell: Cell) -> tuple[bytes, FolderRegistry]:
    """Return a record with the value in column `x` in its writer's format, and a registry with its schema."""
    sent, registry = cell.sent, FolderRegistry(Path(_folder()))
    if cell.form == "JSON":
        return json.dumps({"id": 1, "x": sent.json}).encode(), registry
    if cell.form == "JSON with schema":
        fields = [{"field": "id", "type": "int64", "optional": False}, {"field": "x", **sent.connect}]
        schema = {"type": "struct", "fields": fields, "optional": False, "name": "Row"}
        return json.dumps({"schema": schema, "payload": {"id": 1, "x": sent.json}}).encode(), registry

    def row(of: Any) -> dict[str, Any]:
        return {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}, {"name": "x", "type": of}]}

    output = io.BytesIO()
    fastavro.schemaless_writer(
        output, fastavro.parse_schema(row(without_logical(sent.avro))), {"id": 1, "x": sent.value}
    )
    schema = Record.parse(row(sent.avro))
    # Each schema has its own subject, so that there are no versions to compare with.
    number = registry.register(f"x-{identify(schema)[1]}", schema)
    return struct.pack(">bI", 0, number) + output.getvalue(), registry


def nested(cell: Cell, inside: str) -> Cell:
    """Return the value nested in an array, a map or a struct: `ARRAY<{}>`, `MAP<STRING, {}>` or `STRUCT<a: {}>`."""
    sent = cell.sent
    match inside.partition("<")[0]:
        case "ARRAY":
            avro = {"type": "array", "items": sent.avro}
            connect = {"type": "array", "items": sent.connect}
            return replace(cell, sent=replace(sent, avro=avro, value=[sent.value], connect=connect, json=[sent.json]))
        case "MAP":
            avro = {"type": "map", "values": sent.avro}
            connect = {"type": "map", "keys": {"type": "string"}, "values": sent.connect}
        case _:
            avro = {"type": "record", "name": "Nested", "fields": [{"name": "a", "type": sent.avro}]}
            connect = {"type": "struct", "fields": [{"field": "a", **_or_nothing(sent.connect)}]}
    value, json_ = {"a": sent.value}, {"a": sent.json}
    return replace(cell, sent=replace(sent, avro=avro, value=value, connect=connect, json=json_))


def _or_nothing(schema: Any) -> dict[str, Any]:
    return schema if isinstance(schema, dict) else {}


_OUTCOMES: dict[tuple[Form, str], dict[str, tuple[Any, str]]] = {}


def outcomes(cell: Cell) -> dict[str, tuple[Any, str]]:
    """Return, by declared type, the value as `rowkind` prints it and the reason for a refusal; one of them is empty."""
    known = cell.form, cell.sent.name
    if known not in _OUTCOMES:
        value, registry = message(cell)
        _OUTCOMES[known] = {declared: read(value, registry, declared, cell.form) for declared in DECLARED}
    return _OUTCOMES[known]


def read(value: bytes, registry: FolderRegistry, declared: str, form: Form, **more: Any) -> tuple[Any, str]:
    """Read a value in a table whose column `x` has the declared type."""
    record = Record.of({"id": "BIGINT NOT NULL", "x": declared})
    header = RowKindHeader(missing="insert")
    format_: Literal["avro", "json"] = "avro" if form == "Avro" else "json"
    source = SourceTable("t", "t", "append", record, (), row_kind=header, format=format_, **more)
    found = Decoder(PhysicalScan("scan", source, pass_on(record)), registry, tolerate=True).decode(
        Records(
            "t",
            np.zeros(1, np.int64),
            np.zeros(1, np.int64),
            pa.array([value], pa.binary()),
            pa.nulls(1, pa.binary()),
            None,
            np.zeros(1, np.int64),
        )
    )
    rows = decode(record, found.rows.payload)
    assert len(rows) + len(found.letters) == 1, "a record is a row or a dead letter"
    return (rows[0]["x"], "") if rows else (None, found.letters[0].message)
