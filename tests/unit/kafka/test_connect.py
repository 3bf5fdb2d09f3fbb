"""Kafka Connect and Debezium records besides their types: deletes, keys, several record types, invalid columns."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from rowkind.avro.json_rows import decode, encode
from rowkind.avro.registry import FolderRegistry
from rowkind.avro.schema import Record
from rowkind.operators.changelog import SYMBOLS
from rowkind.service.client.produce import forms
from rowkind.service.job.columns import as_written
from rowkind.service.job.load import loaded
from rowkind.service.kafka.decode import DecodedRecords
from rowkind.service.physical.row_kind import RowKindHeader
from rowkind.service.physical.source_table import SourceTable
from rowkind.service.plan.pipeline import source_table
from tests.unit.kafka.test_formats import avro, read

RECORD = Record.of({"id": "BIGINT NOT NULL", "name": "STRING", "day": "DATE", "amount": "DECIMAL(10,2)"})
TEXT_KEY = Record.of({"id": "STRING NOT NULL", "pieces": "INT"})
CONNECT: dict[str, Any] = {
    "type": "struct",
    "optional": True,
    "name": "shop.public.orders.Value",
    "fields": [
        {"field": "id", "type": "int64", "optional": False},
        {"field": "name", "type": "string", "optional": True},
        {"field": "day", "type": "int32", "optional": True, "name": "io.debezium.time.Date", "version": 1},
        {
            "field": "amount",
            "type": "bytes",
            "optional": True,
            "name": "org.apache.kafka.connect.data.Decimal",
            "version": 1,
            "parameters": {"scale": "2"},
        },
    ],
}
KEY = {"type": "struct", "optional": False, "fields": [{"field": "id", "type": "int64", "optional": False}]}
SHOWN = {"id": 1, "name": "a", "day": "2026-02-02", "amount": "7.25"}


def table(columns: Record, mode: Any, format_: Any = "json", **more: Any) -> SourceTable:
    """Return a table of this mode with the key `id`; a record without a row kind is an insertion."""
    header = RowKindHeader(missing="insert")
    return SourceTable("orders", "orders", mode, columns, ("id",), row_kind=header, format=format_, **more)


def wrapped(schema: Any, payload: Any) -> bytes:
    """Return a payload together with its schema."""
    return json.dumps({"schema": schema, "payload": payload}).encode()


def rows(source: SourceTable, found: DecodedRecords) -> list[tuple[str, dict[str, Any]]]:
    """Return row kinds and rows."""
    shown = decode(source.declared, found.rows.payload)
    return [(SYMBOLS[kind], row) for kind, row in zip(found.rows.kind.tolist(), shown, strict=True)]


PAYLOAD = {"id": 1, "name": "a", "day": 20486, "amount": "AtU="}


def test_json_is_read_by_the_schema_beside_it(tmp_path: Path) -> None:
    """With a schema in the record, days become a date and base64 a decimal, also in the rows of an envelope."""
    plain = table(RECORD, "append")
    found = read(plain, FolderRegistry(tmp_path), (None, wrapped(CONNECT, PAYLOAD)))
    assert rows(plain, found) == [("+I", SHOWN)]

    envelope = {
        "type": "struct",
        "fields": [{"field": "before", **CONNECT}, {"field": "after", **CONNECT}, {"field": "op", "type": "string"}],
    }
    cdc = table(RECORD, "retract", debezium=True, exact=True)
    value = wrapped(envelope, {"before": PAYLOAD, "after": {**PAYLOAD, "name": None}, "op": "u"})
    found = read(cdc, FolderRegistry(tmp_path), (None, value))
    assert rows(cdc, found) == [("-U", SHOWN), ("+U", {**SHOWN, "name": None})]
    assert not found.letters


@pytest.mark.parametrize(
    "nothing", [wrapped(CONNECT, None), wrapped(None, None), b"null", b' { "payload" : null, "schema":{}}']
)
@pytest.mark.parametrize("debezium", [False, True])
def test_a_payload_of_null_deletes(nothing: bytes, *, debezium: bool, tmp_path: Path) -> None:
    """A null payload deletes the row of its key; in a Debezium table it is a tombstone and is ignored."""
    source = table(RECORD, "upsert", debezium=debezium)
    found = read(source, FolderRegistry(tmp_path), (wrapped(KEY, {"id": 1}), nothing))
    assert rows(source, found) == ([] if debezium else [("-D", {"id": 1, "name": None, "day": None, "amount": None})])
    assert not found.letters


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "struct", "fields": [{"type": "int64"}]}, "a field without a name"),
        ({"type": "struct", "fields": [{"field": "id", "type": "int128"}]}, "an unknown type at id"),
        ({"type": "struct", "fields": [{"field": "id", "type": "array"}]}, "an unknown type at id[]"),
        ({"type": "struct", "fields": 2 * [{"field": "id", "type": "int64"}]}, "two columns named 'id'"),
        (
            {"type": "struct", "fields": [{"field": "id", "type": "int64"}, {"field": "amount", "type": "map"}]},
            "has no `keys` at amount",
        ),
    ],
)
def test_a_schema_that_says_nothing_readable_is_a_dead_letter(schema: Any, reason: str, tmp_path: Path) -> None:
    """The dead letter names the place of the error in the schema."""
    found = read(table(RECORD, "append"), FolderRegistry(tmp_path), (None, wrapped(schema, {"id": 1})))
    assert [letter.stage for letter in found.letters] == ["schema"]
    assert reason in found.letters[0].message


def test_a_deep_schema_or_value_is_a_dead_letter(tmp_path: Path) -> None:
    """A schema that is nested too deeply makes a dead letter and does not stop the job."""
    schema: Any = {"type": "int32"}
    for _ in range(300):
        schema = {"type": "array", "items": schema}
    deep = {"type": "struct", "fields": [{"field": "id", "type": "int64"}, {"field": "name", **schema}]}
    found = read(table(RECORD, "append"), FolderRegistry(tmp_path), (None, wrapped(deep, {"id": 1})))
    assert "too deeply" in found.letters[0].message


@pytest.mark.parametrize("format_", ["json", "json with schema", "plain_avro"])
def test_a_bad_record_names_all_its_bad_columns(format_: str, tmp_path: Path) -> None:
    """The dead letter names all invalid columns with their values, in the order of the columns."""
    if format_ == "plain_avro":
        fields = [{"name": "id", "type": "long"}, *({"name": name, "type": "string"} for name in RECORD.names[1:])]
        schema = {"type": "record", "name": "Row", "fields": fields}
        source = table(RECORD, "append", "plain_avro", written=Record.parse(schema))
        value = avro(schema, {"id": 1, "name": "a", "day": "tomorrow", "amount": "NAN"})
    else:
        source = table(RECORD, "append")
        bad = {"id": 1, "name": "a", "day": "tomorrow", "amount": "NAN"}
        said = {
            "type": "struct",
            "fields": [
                {"field": "id", "type": "int64"},
                *({"field": name, "type": "string"} for name in RECORD.names[1:]),
            ],
        }
        value = json.dumps(bad).encode() if format_ == "json" else wrapped(said, bad)
    found = read(source, FolderRegistry(tmp_path), (None, value))
    (letter,) = found.letters
    assert '"tomorrow"' in letter.message
    assert '"NAN"' in letter.message
    assert letter.message.index("day") < letter.message.index("amount")
    assert "name" not in letter.message.replace("column", "")


def test_a_column_that_nobody_reads_is_not_looked_at(tmp_path: Path) -> None:
    """An invalid value in a column that the table does not have is ignored."""
    source = table(Record.of({"id": "BIGINT NOT NULL", "name": "STRING"}), "append")
    found = read(source, FolderRegistry(tmp_path), (None, wrapped(CONNECT, {**PAYLOAD, "amount": "?"})))
    assert rows(source, found) == [("+I", {"id": 1, "name": "a"})]


OTHER = {
    "type": "record",
    "name": "Other",
    "namespace": "ns",
    "fields": [{"name": "id", "type": "long"}, {"name": "reason", "type": "string"}],
}
ROW = {
    "type": "record",
    "name": "Row",
    "namespace": "ns",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
}


def framed(registry: FolderRegistry, schema: Any, value: Any) -> bytes:
    """Return a value with the ID of its schema in front."""
    return struct.pack(">bI", 0, registry.register(f"{schema['name']}-value", Record.parse(schema))) + avro(
        schema, value
    )


@pytest.mark.parametrize("more", [{}, {"known_as": "ns.Row"}, {"known_as": "Row"}])
def test_a_record_of_another_type_is_a_dead_letter(more: dict[str, str], tmp_path: Path) -> None:
    """The dead letter names both record types; the record does not become a row of NULLs."""
    registry, source = FolderRegistry(tmp_path), table(RECORD, "append", "avro", **more)
    other = framed(registry, OTHER, {"id": 2, "reason": "x"})
    found = read(source, registry, (None, framed(registry, ROW, {"id": 1, "name": "a"})), (None, other))
    assert [row["id"] for _, row in rows(source, found)] == [1]
    (letter,) = found.letters
    assert letter.stage == "schema"
    assert "'ns.Other'" in letter.message
    assert "Row'" in letter.message
    assert "`record: " in letter.message


@pytest.mark.parametrize("name", ["ns.Row", "Row"])
def test_records_of_other_types_are_left_out_where_the_table_names_its_own(name: str, tmp_path: Path) -> None:
    """Records of other types are neither rows nor dead letters if the table names its record type."""
    registry, source = FolderRegistry(tmp_path), table(RECORD, "append", "avro", record=name)
    other = framed(registry, OTHER, {"id": 2, "reason": "x"})
    found = read(source, registry, (None, other), (None, framed(registry, ROW, {"id": 1, "name": "a"})), (None, other))
    assert [row["id"] for _, row in rows(source, found)] == [1]
    assert not found.letters


def test_connects_json_has_record_types_too(tmp_path: Path) -> None:
    """In Connect's JSON, the record type is the name of the struct."""
    source = table(RECORD, "append", record="shop.public.orders.Value")
    other = {"type": "struct", "name": "shop.public.returns.Value", "fields": [{"field": "id", "type": "int64"}]}
    found = read(source, FolderRegistry(tmp_path), (None, wrapped(other, {"id": 2})), (None, wrapped(CONNECT, PAYLOAD)))
    assert rows(source, found) == [("+I", SHOWN)]
    assert not found.letters


def test_an_older_schema_without_the_newer_columns_is_the_same_type(tmp_path: Path) -> None:
    """A record that has only the key is read, because it has no field that belongs to another type."""
    registry, source = FolderRegistry(tmp_path), table(RECORD, "append", "avro")
    older = {"type": "record", "name": "Older", "fields": [{"name": "id", "type": "long"}]}
    found = read(source, registry, (None, framed(registry, older, {"id": 1})))
    assert [row["id"] for _, row in rows(source, found)] == [1]


KEYS = [
    ("string", TEXT_KEY, b"nails", "nails"),
    ("string", TEXT_KEY, b'"nails"', '"nails"'),
    ("string", RECORD, b"-7", -7),
    ("string", Record.of({"id": "DATE NOT NULL"}), b"2026-01-31", "2026-01-31"),
    ("long", RECORD, struct.pack(">q", -7), -7),
    ("json", TEXT_KEY, b'"nails"', "nails"),
    ("json", RECORD, b'{"id": 7}', 7),
    ("avro", RECORD, None, 7),
]


@pytest.mark.parametrize(("format_", "record", "key", "wanted"), KEYS)
@pytest.mark.parametrize("value_format", ["json", "avro"])
def test_a_key_has_a_format_of_its_own(
    format_: str, record: Record, key: bytes | None, wanted: Any, *, value_format: str, tmp_path: Path
) -> None:
    """The key's format is independent of the value's, as with kcat and ksqlDB."""
    registry, source = FolderRegistry(tmp_path), table(record, "upsert", value_format, key_format=format_)
    schema = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
    found = read(source, registry, (framed(registry, schema, {"id": 7}) if key is None else key, None))
    assert [(kind, row["id"]) for kind, row in rows(source, found)] == [("-D", wanted)]
    assert not found.letters


@pytest.mark.parametrize(
    ("format_", "value_format", "record", "key", "reason"),
    [
        (None, "avro", RECORD, b"1", "the key begins with byte 0x31"),
        (None, "json", RECORD, b"nails", "the record's key: the text is not JSON"),
        ("string", "avro", RECORD, b"nails", "'nails' is not BIGINT"),
        ("string", "avro", TEXT_KEY, b"\xff\xfe", "0xfffe is not UTF-8 text"),
        ("string", "avro", RECORD, b"9223372036854775808", "out of range for BIGINT"),
        ("long", "avro", RECORD, b"1", "expected 8 bytes, got 1"),
        ("long", "avro", RECORD, None, "there is no key"),
    ],
)
def test_a_key_that_cannot_be_read_is_told_of_as_a_key(
    format_: str | None, value_format: str, record: Record, key: bytes | None, *, reason: str, tmp_path: Path
) -> None:
    """The error is about the key, and says how to declare its format."""
    source = table(record, "upsert", value_format, key_format=format_)
    found = read(source, FolderRegistry(tmp_path), (key, None))
    (letter,) = found.letters
    assert letter.stage == ("key" if format_ or value_format == "json" else "framing")
    assert reason in letter.message
    assert "the value" not in letter.message
    assert "`key.format" in letter.message or "there is no key" in letter.message or "out of range" in letter.message


@pytest.mark.parametrize("format_", [None, "string", "long", "json", "avro"])
@pytest.mark.parametrize("value_format", ["json", "avro", "plain_avro"])
def test_what_is_produced_for_a_table_is_read_by_it(format_: str | None, value_format: str, tmp_path: Path) -> None:
    """`rowkind produce` writes keys in the format that the table declares, and the table reads them."""
    of_key = f", key.format: {format_}" if format_ else ""
    text = f"""
job: j
registry: {{folder: {tmp_path}}}
tables:
  orders: {{mode: upsert, format: {value_format}, columns: {{id: BIGINT}}, primary_key: id{of_key}}}
sinks:
  out: {{topic: o, mode: upsert, key: id, sql: SELECT id FROM orders}}
"""
    job = loaded(text, tmp_path / "job.yaml")
    source = source_table(job, "orders")
    form = forms(job, source, as_written(job, "orders"), source.key).key
    assert form is not None
    key = form(encode(source.key, [{"id": 1 << 40}]))[0].as_py()
    found = read(source, FolderRegistry(tmp_path), (key, None))
    assert [(kind, row["id"]) for kind, row in rows(source, found)] == [("-D", 1 << 40)]
