"""Tables over topics that other systems write: Debezium envelopes, JSON, and Avro without a frame.

Values are written by fastavro and json, with the schemas that Debezium's connectors register.
"""

from __future__ import annotations

import io
import json
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from rowkind.avro.json_rows import decode
from rowkind.avro.registry import FolderRegistry
from rowkind.avro.schema import Record
from rowkind.operators.changelog import SYMBOLS
from rowkind.service.kafka.decode import DecodedRecords, Decoder
from rowkind.service.kafka.record import Records
from rowkind.service.physical.node import PhysicalScan
from rowkind.service.physical.row_kind import RowKindHeader
from rowkind.service.physical.source_table import SourceTable
from tests.kafka.tables import pass_on

ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {
            "name": "amount",
            "type": ["null", {"type": "bytes", "scale": 2, "precision": 10, "logicalType": "decimal"}],
            "default": None,
        },
        {
            "name": "placed",
            "type": [
                "null",
                {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.MicroTimestamp"},
            ],
            "default": None,
        },
        {"name": "day", "type": ["null", {"type": "int", "connect.name": "io.debezium.time.Date"}], "default": None},
    ],
    "connect.name": "shop.public.orders.Value",
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.public.orders",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": "long"}]}},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}
COLUMNS = {
    "id": "BIGINT NOT NULL",
    "name": "STRING",
    "amount": "DECIMAL(10,2)",
    "placed": "TIMESTAMP",
    "day": "DATE",
}
RECORD = Record.of(COLUMNS)
PLACED, DAY = 1_767_614_400_000_000, 20_458
A: dict[str, Any] = {"id": 1, "name": "a", "amount": Decimal("1.50"), "placed": PLACED, "day": DAY}
B = A | {"name": "b"}
SHOWN_A = {"id": 1, "name": "a", "amount": "1.50", "placed": "2026-01-05T12:00:00Z", "day": "2026-01-05"}
SHOWN_B = SHOWN_A | {"name": "b"}
KEY_ONLY = {"id": 1, "name": None, "amount": None, "placed": None, "day": None}


def read(source: SourceTable, registry: FolderRegistry, *records: tuple[bytes | None, bytes | None]) -> DecodedRecords:
    """Decode the records (key, value) of a topic, in this order."""
    count = len(records)
    decoder = Decoder(PhysicalScan("scan", source, pass_on(source.declared)), registry, tolerate=True)
    return decoder.decode(
        Records(
            source.topic,
            np.zeros(count, np.int64),
            np.arange(count),
            pa.array([value for _, value in records], pa.binary()),
            pa.array([key for key, _ in records], pa.binary()),
            None,
            np.zeros(count, np.int64),
        )
    )


def shown(found: DecodedRecords) -> list[tuple[str, int, dict[str, Any]]]:
    """Return row kinds, offsets and rows."""
    rows = decode(RECORD, found.rows.payload)
    return [
        (SYMBOLS[kind], seq >> 16, row)
        for kind, seq, row in zip(found.rows.kind.tolist(), found.rows.seq.tolist(), rows, strict=True)
    ]


def avro(schema: Any, value: Any) -> bytes:
    """Return a value as fastavro writes it."""
    output = io.BytesIO()
    fastavro.schemaless_writer(output, fastavro.parse_schema(schema), value)
    return output.getvalue()


class Debezium:
    """A topic of envelopes in Avro or JSON."""

    def __init__(self, folder: Path, form: str, *, exact: bool = False) -> None:
        self.json = form == "json"
        self.registry = FolderRegistry(folder)
        self.table = SourceTable(
            "orders",
            "orders",
            "retract" if exact else "upsert",
            RECORD,
            ("id",),
            exact=exact,
            format="json" if self.json else "avro",
            debezium=True,
        )

    def value(self, op: str, before: Any, after: Any) -> bytes:
        """Return an envelope."""
        envelope = {"before": before, "after": after, "op": op, "source": {"lsn": 1}, "ts_ms": None}
        if self.json:
            # With `time.precision.mode: connect` and `decimal.handling.mode: string`.
            plain = {**envelope, "before": _plain(before), "after": _plain(after)}
            return json.dumps({"schema": {"type": "struct"}, "payload": plain}).encode()
        number = self.registry.register("orders-value", Record.parse(ENVELOPE))
        return struct.pack(">bI", 0, number) + avro(ENVELOPE, envelope)

    def key(self) -> bytes:
        """Return the key of `A`."""
        if self.json:
            return json.dumps({"schema": {}, "payload": {"id": 1}}).encode()
        schema = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
        return struct.pack(">bI", 0, self.registry.register("orders-key", Record.parse(schema))) + avro(schema, A)

    def read(self, *values: bytes | None) -> DecodedRecords:
        """Decode these values, all with one key."""
        return read(self.table, self.registry, *((self.key(), value) for value in values))


def _plain(row: dict[str, Any] | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {**row, "amount": str(row["amount"]), "placed": "2026-01-05T12:00:00", "day": "2026-01-05"}


@pytest.mark.parametrize("form", ["avro", "json"])
def test_of_an_envelope_the_new_row_counts(form: str, tmp_path: Path) -> None:
    """Only the new row is used: `before` may be missing, a key is enough for a delete, tombstones are ignored."""
    topic = Debezium(tmp_path, form)
    found = topic.read(
        topic.value("r", None, A),
        topic.value("u", None, B),
        topic.value("u", A, B),
        topic.value("d", B, None),
        None,
        topic.value("c", None, A),
        topic.value("d", None, None),
    )
    assert shown(found) == [
        ("+U", 0, SHOWN_A),
        ("+U", 1, SHOWN_B),
        ("+U", 2, SHOWN_B),
        ("-D", 3, KEY_ONLY),
        ("+U", 5, SHOWN_A),
        ("-D", 6, KEY_ONLY),
    ]
    assert not found.letters


@pytest.mark.parametrize("form", ["avro", "json"])
def test_an_exact_table_takes_both_rows_of_an_envelope(form: str, tmp_path: Path) -> None:
    """An exact table retracts `before`; an update without it becomes a dead letter."""
    topic = Debezium(tmp_path, form, exact=True)
    values = topic.value("c", None, A), topic.value("u", A, B), topic.value("u", None, A), topic.value("d", B, None)
    found = topic.read(*values, None)
    assert shown(found) == [("+I", 0, SHOWN_A), ("-U", 1, SHOWN_A), ("+U", 1, SHOWN_B), ("-D", 3, SHOWN_B)]
    (letter,) = found.letters
    assert (letter.stage, letter.offset) == ("changelog", 2)
    assert "REPLICA IDENTITY FULL" in letter.message


@pytest.mark.parametrize("form", ["avro", "json"])
def test_what_no_row_can_be_made_of_is_refused(form: str, tmp_path: Path) -> None:
    """TRUNCATE, an unknown operation and a missing row each become a dead letter with its reason."""
    topic = Debezium(tmp_path, form)
    values = [topic.value("t", None, None), topic.value("x", None, A), topic.value("u", A, None)]
    found = topic.read(*values, topic.value("c", None, A))
    assert [each for each, *_ in shown(found)] == ["+U"]
    assert [(letter.offset, letter.stage) for letter in found.letters] == [
        (0, "changelog"),
        (1, "changelog"),
        (2, "changelog"),
    ]
    for letter, text in zip(
        found.letters, ("truncated", "'x' is not an operation", "the envelope has no `after`"), strict=True
    ):
        assert text in letter.message


def test_a_row_that_is_no_envelope_is_told(tmp_path: Path) -> None:
    """A record that is not an envelope is a dead letter with stage `schema`."""
    topic = Debezium(tmp_path, "avro")
    number = topic.registry.register("orders-value", Record.parse({**ROW, "namespace": "shop"}))
    found = topic.read(struct.pack(">bI", 0, number) + avro(ROW, A))
    assert [letter.stage for letter in found.letters] == ["schema"]
    assert "is not a Debezium envelope" in found.letters[0].message


def test_avro_without_a_frame_is_read_under_the_columns_of_the_table(tmp_path: Path) -> None:
    """Avro values and the keys of deletes are read by the declared schema; values that do not fit are dead letters."""
    table = SourceTable(
        "orders",
        "orders",
        "upsert",
        RECORD,
        ("id",),
        format="plain_avro",
        written=Record.parse({**ROW, "namespace": "x"}),
    )
    value, key = avro(ROW, A), avro({"type": "record", "name": "K", "fields": [{"name": "id", "type": "long"}]}, A)
    found = read(table, FolderRegistry(tmp_path), (key, value), (key, None), (key, value[:3]))
    assert shown(found) == [("+U", 0, SHOWN_A), ("-D", 1, KEY_ONLY)]
    assert [(letter.offset, letter.stage) for letter in found.letters] == [(2, "value")]


def test_what_debezium_spells_out_is_read(tmp_path: Path) -> None:
    """Debezium's zoned times as text and its decimals with a scale of their own are read; misfits are dead letters."""
    scaled = {
        "type": "record",
        "name": "VariableScaleDecimal",
        "namespace": "io.debezium.data",
        "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    }
    schema = {
        "type": "record",
        "name": "Value",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "amount", "type": ["null", scaled]},
            {"name": "placed", "type": ["null", {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}]},
            {"name": "day", "type": ["null", "string"]},
        ],
    }
    table = SourceTable(
        "orders", "orders", "upsert", RECORD, ("id",), format="plain_avro", written=Record.parse(schema)
    )
    good = {"id": 1, "amount": {"scale": 3, "value": (1500).to_bytes(2, "big")}, "placed": "2026-01-05T12:00:00Z"}
    values = [good, {**good, "placed": "noon"}, {**good, "amount": {"scale": 3, "value": b"\x01"}}]
    found = read(
        table, FolderRegistry(tmp_path), *((None, avro(schema, each | {"day": "2026-01-05"})) for each in values)
    )
    assert [row for *_, row in shown(found)] == [SHOWN_A | {"name": None}]
    wrong, wide = (letter.message for letter in found.letters)
    assert wrong == (
        "field 'placed': the value does not fit the column's type: \"noon\": the writer's schema has STRING "
        "(io.debezium.time.ZonedTimestamp), but the column is declared TIMESTAMP: declare STRING to keep the text "
        "unchanged"
    )
    assert wide.startswith("field 'amount': the value does not fit the column's type: ")
    assert "io.debezium.data.VariableScaleDecimal" in wide
    assert "DECIMAL(10,2): declare a DECIMAL with more digits" in wide


def as_json() -> SourceTable:
    """Return a table of mode append over a JSON topic."""
    header = RowKindHeader(missing="insert")
    return SourceTable("orders", "orders", "append", RECORD, ("id",), row_kind=header, format="json")


def test_json_has_the_columns_of_the_table(tmp_path: Path) -> None:
    """A missing member is NULL, a member that is not a column is ignored, and numbers keep their digits."""
    values = [
        b'{"id": 1, "name": "a", "amount": 1.50, "placed": "2026-01-05T13:00:00+01:00", "day": "2026-01-05", "x": [1]}',
        b' {"amount": "1.5", "placed": 1767614400000,\n "id": 1, "name": "a", "day": "2026-01-05"} ',
        b'{"id": 1}',
    ]
    found = read(as_json(), FolderRegistry(tmp_path), *((None, value) for value in values))
    assert [row for *_, row in shown(found)] == [SHOWN_A, SHOWN_A, KEY_ONLY]
    assert not found.letters


BAD = [
    (b"{", "the text is not JSON, line 1, column 2"),
    (b"[]", "it is not a JSON object"),
    (b"null", "it is not a JSON object"),
    (b"\xff{}", "the text is not JSON"),
    (b"[" * 100_000, "the text is not JSON"),
    (b'{"id": 1' + b"0" * 5000 + b"}", "the text is not JSON"),
    (b'{"id": 1e99923372036854775807}', "the text is not JSON: 1e99923372036854775807 is out of range for a number"),
    (b"{}", "id: the column is NOT NULL, but the value is missing or null"),
    (b'{"id": "1"}', 'id: "1" is not BIGINT'),
    (b'{"id": 9223372036854775808}', "id: 9223372036854775808 is out of range for BIGINT"),
    (b'{"id": true}', "id: true is not BIGINT"),
    (b'{"id": 1, "name": "\\ud800"}', "name: "),
    (b'{"id": 1, "amount": 1.234}', "amount: "),
    (b'{"id": 1, "day": "tomorrow"}', "day: "),
]


@pytest.mark.parametrize(("value", "reason"), BAD)
def test_json_that_is_no_row_is_a_dead_letter(value: bytes, reason: str, tmp_path: Path) -> None:
    """An invalid record is a dead letter, and the records around it are read."""
    found = read(as_json(), FolderRegistry(tmp_path), (None, b'{"id": 1}'), (None, value), (None, b'{"id": 1}'))
    assert [offset for _, offset, _ in shown(found)] == [0, 2]
    (letter,) = found.letters
    assert (letter.stage, letter.offset, letter.value) == ("value", 1, value)
    assert letter.message.startswith(reason)


@pytest.mark.parametrize(
    ("type_", "key", "wanted"),
    [
        ("BIGINT NOT NULL", b"7", 7),
        ("BIGINT NOT NULL", b'{"id": 7}', 7),
        ("STRING NOT NULL", b'"nails"', "nails"),
        ("STRING NOT NULL", b"nails", "nails"),
        ("STRING NOT NULL", b"7", "7"),
        ("STRING NOT NULL", b'{"id": "nails"}', "nails"),
        ("BIGINT NOT NULL", b"nails", None),
        ("STRING NOT NULL", b"\xff", None),
        ("BIGINT NOT NULL", None, None),
    ],
)
def test_the_key_of_a_json_topic_says_what_is_deleted(
    type_: str, key: bytes | None, wanted: Any, tmp_path: Path
) -> None:
    """The key of a delete may be an object, a bare JSON value, or text without quotes."""
    record = Record.of({"id": type_, "pieces": "INT"})
    table = SourceTable("stock", "stock", "upsert", record, ("id",), format="json")
    found = read(table, FolderRegistry(tmp_path), (key, None))
    assert [row["id"] for row in decode(record, found.rows.payload)] == ([] if wanted is None else [wanted])
    assert [letter.stage for letter in found.letters] == ([] if wanted is not None else ["key"])
