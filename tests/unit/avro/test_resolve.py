"""Schema resolution against fastavro's reader schemas, and the cases in which Rowkind accepts more or refuses."""

from __future__ import annotations

import copy
import decimal
import random
from typing import Any

import pyarrow as pa
import pytest

from rowkind.avro import codec
from rowkind.avro.errors import ResolutionError
from rowkind.avro.resolve import resolve
from rowkind.avro.schema import Record
from tests.unit.avro.samples import Samples, packed, resolved, unpacked

PROMOTIONS = {
    "int": ["long", "float", "double"],
    "long": ["float", "double"],
    "float": ["double"],
    "string": ["bytes"],
}
ADDED = [
    ("int", 7),
    ("string", "x"),
    (["null", "long"], None),
    ("double", 1.5),
    ({"type": "array", "items": "int"}, [1, 2]),
]


def evolve(schema: Any, picks: random.Random) -> Any:
    """Return a reader's schema with which fastavro can read values of `schema`."""
    if isinstance(schema, list):
        return [evolve(branch, picks) if isinstance(branch, dict) else branch for branch in schema]
    if isinstance(schema, str):
        new = picks.choice([schema, *PROMOTIONS.get(schema, [])])
        return new if picks.random() < 0.5 or new == "null" else ["null", new]
    schema = copy.deepcopy(schema)
    match schema["type"]:
        case "array":
            schema["items"] = evolve(schema["items"], picks)
        case "map":
            schema["values"] = evolve(schema["values"], picks)
        case "record":
            fields = [{**field, "type": evolve(field["type"], picks)} for field in schema["fields"]]
            fields = picks.sample(fields, picks.randint(1, len(fields)))
            if picks.random() < 0.5:
                type_, default = picks.choice(ADDED)
                fields.insert(picks.randint(0, len(fields)), {"name": "added", "type": type_, "default": default})
            if picks.random() < 0.3:
                fields[0] = {**fields[0], "name": "renamed", "aliases": [fields[0]["name"]]}
            schema["fields"] = fields
    return schema


def without_unions(samples: Samples) -> dict[str, Any]:
    """Return a random record without general unions, whose evolution fastavro resolves by names."""
    while True:
        schema = samples.record(samples.random.randint(1, 6))
        record = Record.parse(schema)
        if not any(inner.kind == "union" for field in record.fields for inner in field.type.walk()):
            return schema


@pytest.mark.parametrize("seed", range(80))
def test_rows_are_read_as_fastavro_reads_them_with_a_reader_schema(seed: int) -> None:
    """Dropped, added, reordered, renamed, promoted and newly nullable fields are read alike, nested ones too."""
    samples = Samples(seed)
    schema = without_unions(samples)
    reader = evolve(schema, samples.random)
    values = [samples.value(schema) for _ in range(20)]
    payloads = packed(schema, values, before=1)
    rows, decoded = resolve(Record.parse(schema), Record.parse(reader), payloads)
    assert not decoded.bad.any()
    assert unpacked(reader, rows) == resolved(schema, payloads, reader)


@pytest.mark.parametrize("seed", range(20))
def test_unions_are_read_by_fastavro_itself(seed: int) -> None:
    """A general union that gained a branch, or was narrowed to one type, is read row by row."""
    picks = random.Random(seed)
    values = [{"u": picks.choice([1, "x", None, 1 << 20])} for _ in range(20)]
    writer = {"type": "record", "name": "R", "fields": [{"name": "u", "type": ["int", "string", "null"]}]}
    for wanted in (["null", "string", "long", "double"], ["null", "int", "string"]):
        reader = {"type": "record", "name": "R", "fields": [{"name": "u", "type": wanted}]}
        rows, decoded = resolve(Record.parse(writer), Record.parse(reader), packed(writer, values))
        assert not decoded.bad.any()
        assert unpacked(reader, rows) == values
    rows, decoded = resolve(Record.parse(writer), Record.of({"u": "BIGINT"}), packed(writer, values))
    assert decoded.bad.tolist() == [isinstance(value["u"], str) for value in values]


def test_equal_schemas_pass_the_very_same_array_through() -> None:
    """If only names and documentation differ, the payload array is returned unchanged."""
    writer = {"type": "record", "name": "a.b.Order", "doc": "…", "fields": [{"name": "id", "type": "long", "doc": "…"}]}
    payloads = packed(writer, [{"id": 1}])
    rows, _ = resolve(Record.parse(writer), Record.of({"id": "BIGINT NOT NULL"}), payloads)
    assert rows is payloads


def one(writer: Any, reader: str, values: list[Any]) -> tuple[list[Any], list[bool]]:
    """Read values of a type as a column of an SQL type; return the values and which rows are bad."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "f", "type": writer}]}
    wanted = Record.of({"f": reader})
    rows, decoded = resolve(Record.parse(schema), wanted, packed(schema, [{"f": value} for value in values]))
    return codec.read(wanted, rows).column("f").to_pylist(), decoded.bad.tolist()


def test_units_digits_and_spellings_are_converted() -> None:
    """Milliseconds become microseconds, decimals gain digits, and enums and fixed types become STRING and BINARY."""
    milliseconds = {"type": "long", "logicalType": "timestamp-millis"}
    moments, _ = one(milliseconds, "TIMESTAMP NOT NULL", [1_700_000_000_123])
    assert moments[0].timestamp() == 1_700_000_000.123
    narrow = {"type": "fixed", "name": "D", "size": 3, "logicalType": "decimal", "precision": 5, "scale": 1}
    assert one(narrow, "DECIMAL(10,3)", [decimal.Decimal("-12.3")])[0] == [decimal.Decimal("-12.300")]
    assert one({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "STRING", ["B"])[0] == ["B"]
    assert one({"type": "fixed", "name": "F", "size": 2}, "BINARY", [b"ab"])[0] == [b"ab"]
    assert one({"type": "long", "logicalType": "timestamp-micros"}, "TIMESTAMP_NTZ", [0])[0][0].year == 1970


def test_values_that_do_not_fit_make_their_row_bad() -> None:
    """NULL in a NOT NULL column and bytes that are not UTF-8 make only their own row bad."""
    assert one(["null", "int"], "INT NOT NULL", [1, None])[1] == [False, True]
    assert one(["null", "int"], "BIGINT NOT NULL", [1, None])[1] == [False, True]
    assert one("bytes", "STRING", [b"ok", b"\xff"])[1] == [False, True]
    assert one({"type": "array", "items": ["null", "int"]}, "ARRAY<INT NOT NULL>", [[1], [1, None]])[1] == [False, True]


def test_text_that_is_carried_only_is_checked_at_the_border() -> None:
    """Invalid UTF-8 makes a row bad even if its payload would pass through unchanged."""
    record = Record.of({"id": "INT NOT NULL", "name": "STRING"})
    payloads = pa.array([b"\x02\x02\x02a", b"\x02\x02\x02\xff", b"\x02"], pa.binary())
    rows, decoded = resolve(record, record, payloads)
    assert decoded.bad.tolist() == [False, True, True]
    assert rows.to_pylist() == [b"\x02\x02\x02a", b"", b""]
    assert decoded.reason(1) == "field 'name': the text is not valid UTF-8"


def test_equal_values_come_out_as_equal_bytes() -> None:
    """Decimals with superfluous bytes and arrays in several blocks are packed again in canonical form."""
    record = Record.of({"d": "DECIMAL(5,0) NOT NULL", "a": "ARRAY<INT NOT NULL> NOT NULL"})
    payloads = pa.array([b"\x02\x80\x04\x02\x04\x00", b"\x04\xff\x80\x02\x02\x01\x02\x04\x00"], pa.binary())
    rows, decoded = resolve(record, record, payloads)
    assert not decoded.bad.any()
    assert rows[0].as_py() == rows[1].as_py() == payloads[0].as_py()


def test_a_plain_key_is_the_one_column_wanted() -> None:
    """A writer's schema that is not a record fills the only column; with more columns it is refused."""
    rows, _ = resolve(Record.parse('"int"'), Record.of({"order_id": "BIGINT NOT NULL"}), pa.array([b"\x54"]))
    assert rows.to_pylist() == [b"\x54"]
    with pytest.raises(ResolutionError, match="plain INT, not a record"):
        resolve(Record.parse('"int"'), Record.of({"a": "INT", "b": "INT"}), pa.array([b"\x54"]))


@pytest.mark.parametrize(
    ("writer", "reader", "field", "text"),
    [
        ({"a": "INT"}, {"b": "INT NOT NULL"}, "b", "has no field 'b'"),
        ({"a": "STRING"}, {"a": "INT"}, "a", "declared INT, but the writer's schema has STRING"),
        ({"a": "BIGINT"}, {"a": "INT"}, "a", "declared INT, but the writer's schema has BIGINT"),
        ({"a": "DECIMAL(10,2)"}, {"a": "DECIMAL(10,3)"}, "a", r"declared DECIMAL\(10,3\)"),
        ({"a": "TIMESTAMP(6)"}, {"a": "TIMESTAMP(3)"}, "a", "timestamp-micros"),
        ({"at": "BIGINT"}, {"at": "TIMESTAMP"}, "at", r"TIMESTAMP_MILLIS\(at\)"),
        ({"a": "INT", "b": "BIGINT"}, {"a": "DATE", "b": "TIME"}, "a", "(?s)units: {a: days}.*'b' is declared TIME"),
        ({"a": "STRUCT<x: INT>"}, {"a": "STRUCT<x: INT, y: INT NOT NULL>"}, "a.y", "has no field 'a.y'"),
        ({"a": "STRUCT<x: STRING>"}, {"a": "STRUCT<x: INT>"}, "a.x", "column 'a.x' is declared INT"),
    ],
)
def test_schemas_that_do_not_go_together_are_refused_by_field(
    writer: dict[str, str], reader: dict[str, str], field: str, text: str
) -> None:
    """The error names the column and the writer's type."""
    with pytest.raises(ResolutionError, match=text) as caught:
        resolve(Record.of(writer), Record.of(reader), pa.array([], pa.binary()))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("branches", "wanted"),
    [(["null", "string", "long"], "TIMESTAMP"), (["int", "string"], "DATE"), (["null", "boolean", "bytes"], "BIGINT")],
)
def test_a_union_is_refused_where_a_number_would_be_taken_for_a_time(branches: list[str], wanted: str) -> None:
    """A union is refused if a number in it would be read as a time, or if no branch of it can be read."""
    writer = {"type": "record", "name": "R", "fields": [{"name": "u", "type": branches}]}
    with pytest.raises(ResolutionError, match=f"'u' is declared {wanted}"):
        resolve(Record.parse(writer), Record.of({"u": wanted}), pa.array([], pa.binary()))
