"""Debezium's placeholder for a large value that an update left unchanged is never read as a value."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from rowkind.avro.json_rows import check_row, encode
from rowkind.avro.schema import Record
from rowkind.service.kafka.unavailable_values import unavailable
from tests.envelopes import DebeziumJob, envelope

PLACEHOLDER = "__debezium_unavailable_value"
DATA = base64.b64encode(PLACEHOLDER.encode()).decode()
FORMS: list[tuple[str, Any]] = [
    ("STRING", PLACEHOLDER),
    ("BINARY", DATA),
    ("ARRAY<STRING>", [PLACEHOLDER]),
    ("ARRAY<STRING NOT NULL>", [PLACEHOLDER]),
    ("ARRAY<BINARY>", [DATA]),
    ("ARRAY<INT NOT NULL>", list(PLACEHOLDER.encode())),
    ("ARRAY<BIGINT NOT NULL>", list(PLACEHOLDER.encode())),
    ("MAP<STRING, STRING>", {PLACEHOLDER: PLACEHOLDER}),
    ("STRING", json.dumps({PLACEHOLDER: PLACEHOLDER}, separators=(",", ":"))),
]
VALUES: list[tuple[str, Any]] = [
    ("STRING", f"a {PLACEHOLDER}"),
    ("ARRAY<STRING>", [PLACEHOLDER, "b"]),
    ("ARRAY<INT NOT NULL>", [1, *PLACEHOLDER.encode()]),
    ("MAP<STRING, STRING>", {"a": PLACEHOLDER}),
    ("STRING", None),
]


@pytest.mark.parametrize(("type_", "value"), FORMS)
def test_the_placeholder_is_found_in_every_type(type_: str, value: Any) -> None:
    """Rows with the placeholder are found with its columns, in every type."""
    record = Record.of({"id": "INT", "note": type_, "other": type_})
    rows = [{"id": 1}, {"id": 2, "note": value}, {"id": 3, "note": value, "other": value}]
    payloads = encode(record, [check_row(record, row) for row in rows])
    assert unavailable(record, payloads, PLACEHOLDER) == {1: ["note"], 2: ["note", "other"]}


@pytest.mark.parametrize(("type_", "value"), VALUES)
def test_a_value_that_contains_the_placeholder_is_a_value(type_: str, value: Any) -> None:
    """A value that contains the placeholder but is not equal to it is an ordinary value."""
    record = Record.of({"note": type_})
    assert not unavailable(record, encode(record, [check_row(record, {"note": value})]), PLACEHOLDER)


@pytest.mark.parametrize("mode", ["debezium", "exact", "upsert"])
def test_a_row_with_the_placeholder_is_a_dead_letter(mode: str, tmp_path: Path) -> None:
    """The dead letter names the columns and the PostgreSQL setting, and the stored row is unchanged."""
    settings: dict[str, Any] = {"columns": {"id": "INT NOT NULL", "note": "STRING"}, "primary_key": "id"}
    settings |= {"exact": True} if mode == "exact" else {}
    settings |= {"mode": "upsert"} if mode == "upsert" else {}
    job = DebeziumJob(tmp_path, "SELECT id, note FROM t", settings)
    old, new = {"id": 1, "note": "long"}, {"id": 1, "note": PLACEHOLDER}

    def value(op: str, before: Any, after: Any) -> bytes:
        return json.dumps(after).encode() if mode == "upsert" else envelope(op, before, after)

    key = b'{"id": 1}'
    job.batch((key, value("c", None, old)), (key, value("u", old, new)))
    assert job.rows == [old]
    (letter,) = job.letters
    assert (letter.stage, letter.offset) == ("value", 1)
    assert letter.message == (
        "column note: Debezium does not know the unchanged value of an updated row, and sent "
        f"'{PLACEHOLDER}': set REPLICA IDENTITY FULL for the table in PostgreSQL, and send the row again"
    )


def test_the_placeholder_is_that_of_the_connector(tmp_path: Path) -> None:
    """With another placeholder configured, the default one is an ordinary value."""
    settings = {"columns": {"id": "INT", "note": "STRING"}, "primary_key": "id", "unavailable_value": "?"}
    job = DebeziumJob(tmp_path, "SELECT note FROM t", settings)
    job.batch(*((None, envelope("c", None, {"id": n, "note": note})) for n, note in enumerate(["?", PLACEHOLDER])))
    assert job.rows == [{"note": PLACEHOLDER}]
    assert [letter.offset for letter in job.letters] == [0]
