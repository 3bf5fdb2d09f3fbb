"""Numbers without a unit, for which the table declares one."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

from rowkind.avro.registry import FolderRegistry
from rowkind.avro.schema import Record
from rowkind.avro.ticks import UNITS
from tests.matrix.cells import FORMS, Form, read

ROW = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}, {"name": "x", "type": "long"}]}
CONNECT = {"type": "struct", "fields": [{"field": "id", "type": "int64"}, {"field": "x", "type": "int64"}]}
AT, DAY = 1_767_614_400, 20_458
TIMESTAMPS = ("TIMESTAMP(3)", "TIMESTAMP", "TIMESTAMP_NTZ(3)", "TIMESTAMP_NTZ", "TIMESTAMP_NTZ(9)")


def message(form: Form, value: int, folder: Path) -> tuple[bytes, FolderRegistry]:
    """Return a record whose `x` is a bare number."""
    registry = FolderRegistry(folder)
    payload = {"id": 1, "x": value}
    if form != "Avro":
        wrapped = {"schema": CONNECT, "payload": payload} if form == "JSON with schema" else payload
        return json.dumps(wrapped).encode(), registry
    output = io.BytesIO()
    fastavro.schemaless_writer(output, fastavro.parse_schema(ROW), payload)
    return struct.pack(">bI", 0, registry.register("x-value", Record.parse(ROW))) + output.getvalue(), registry


def said() -> Iterator[tuple[str, str, int, Any]]:
    """Yield unit, declared type, number and the resulting value."""
    yield "days", "DATE", DAY, "2026-01-05"
    yield "days", "DATE", 6_585_322, "+20000-01-01"
    for unit, per_second in UNITS.items():
        if not per_second:
            continue
        for declared in TIMESTAMPS:
            if per_second <= 1000 or not declared.endswith("(3)"):
                zone = "" if "NTZ" in declared else "Z"
                yield unit, declared, AT * per_second, f"2026-01-05T12:00:00{zone}"
        yield unit, "TIME", 45_296 * per_second, "12:34:56"
    yield "millis", "TIMESTAMP", 9_223_372_036_825_200, "+294247-01-10T04:00:25.200Z"
    yield "seconds", "TIMESTAMP", 7, "1970-01-01T00:00:07Z"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("unit", "declared", "value", "right"), said())
def test_a_number_is_in_the_unit_that_the_table_says(
    form: Form, unit: Any, declared: str, value: int, *, right: str, tmp_path: Path
) -> None:
    """A number is the same date or time in Avro, in JSON, and in JSON with Connect's schema."""
    found, reason = read(*message(form, value, tmp_path), declared, form, units=(("x", unit),))
    assert (found, reason) == (right, "")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("unit", "declared", "value"),
    [
        ("days", "DATE", 1 << 31),
        ("millis", "TIME", 86_400_000),
        ("millis", "TIME", -1),
        ("seconds", "TIMESTAMP", 1 << 62),
        ("micros", "TIMESTAMP(9)", 1 << 60),
    ],
)
def test_a_number_beyond_the_type_is_a_dead_letter(
    form: Form, unit: Any, declared: str, value: int, tmp_path: Path
) -> None:
    """The dead letter names the column and both types, and the number does not wrap around."""
    found, reason = read(*message(form, value, tmp_path), declared, form, units=(("x", unit),))
    assert found is None
    assert "x" in reason
    assert declared in reason
    assert "declare" in reason
