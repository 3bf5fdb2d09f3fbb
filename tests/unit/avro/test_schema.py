"""Types and records: SQL names, Avro JSON, and the operations that planning applies to them."""

from __future__ import annotations

import json
import pickle
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from rowkind.avro.errors import SchemaError
from rowkind.avro.schema import Record, Type
from tests.unit.avro.samples import Samples

NAMES = {
    "BOOLEAN": ("BOOLEAN", pa.bool_()),
    "tinyint": ("INT", pa.int32()),
    "SMALLINT": ("INT", pa.int32()),
    "INT": ("INT", pa.int32()),
    "INTEGER": ("INT", pa.int32()),
    "BIGINT": ("BIGINT", pa.int64()),
    "FLOAT": ("FLOAT", pa.float32()),
    "DOUBLE PRECISION": ("DOUBLE", pa.float64()),
    "DECIMAL": ("DECIMAL(10,0)", pa.decimal128(10, 0)),
    "NUMERIC(10, 2)": ("DECIMAL(10,2)", pa.decimal128(10, 2)),
    "DECIMAL(50,3)": ("DECIMAL(50,3)", pa.decimal256(50, 3)),
    "STRING": ("STRING", pa.string()),
    "VARCHAR(20)": ("STRING", pa.string()),
    "CHAR(2)": ("STRING", pa.string()),
    "BINARY": ("BINARY", pa.binary()),
    "BYTES": ("BINARY", pa.binary()),
    "DATE": ("DATE", pa.date32()),
    "TIME": ("TIME(6)", pa.time64("us")),
    "TIME(3)": ("TIME(3)", pa.time32("ms")),
    "TIMESTAMP": ("TIMESTAMP", pa.timestamp("us", "UTC")),
    "TIMESTAMP(3)": ("TIMESTAMP", pa.timestamp("ms", "UTC")),
    "TIMESTAMP_LTZ(9)": ("TIMESTAMP", pa.timestamp("ns", "UTC")),
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": ("TIMESTAMP", pa.timestamp("ms", "UTC")),
    "TIMESTAMP_NTZ": ("TIMESTAMP_NTZ", pa.timestamp("us")),
    "TIMESTAMP(6) WITHOUT TIME ZONE": ("TIMESTAMP_NTZ", pa.timestamp("us")),
    "UUID": ("STRING", pa.string()),
    "ARRAY<INT>": ("ARRAY<INT>", pa.list_(pa.int32())),
    "MAP<STRING, DATE>": ("MAP<STRING, DATE>", pa.map_(pa.string(), pa.date32())),
    "STRUCT<a: INT, `b c` STRING>": (
        "STRUCT<a: INT, b c: STRING>",
        pa.struct([("a", pa.int32()), ("b c", pa.string())]),
    ),
    "ROW<a INT>": ("STRUCT<a: INT>", pa.struct([("a", pa.int32())])),
}


@pytest.mark.parametrize("text", NAMES)
def test_sql_names_of_spark_and_flink_are_understood(text: str) -> None:
    """Each name has its canonical spelling and Arrow type, nullable unless it says NOT NULL."""
    sql, arrow = NAMES[text]
    type_ = Type.of(text)
    assert (type_.sql, type_.arrow, type_.nullable) == (sql, arrow, True)
    assert Type.of(f"{text} not null") == type_.required
    assert Type.of(sql).sql == sql if "b c" not in sql else True
    assert Type.parse(type_.avro) == type_


@pytest.mark.parametrize(
    "text",
    ["", "INTT", "DECIMAL(77,0)", "DECIMAL(4,5)", "DECIMAL(a)", "ARRAY<", "ARRAY<INT", "MAP<INT, INT>", "INT INT",
     "TIMESTAMP(12)", "VARCHAR(1,2)", "INT;", "STRUCT<a: INT b: INT>"],
)  # fmt: skip
def test_wrong_sql_names_are_refused_with_what_is_accepted(text: str) -> None:
    """The error repeats the text and lists the accepted names."""
    with pytest.raises(SchemaError, match=r"(?s)SQL type .*Accepted types: BOOLEAN"):
        Type.of(text)


def parsed(type_: Any) -> Type:
    return Record.parse({"type": "record", "name": "n.s.R", "fields": [{"name": "f", "type": type_}]}).type("f")


@pytest.mark.parametrize(
    ("schema", "sql"),
    [
        ("null", "VOID"),
        ({"type": "int", "logicalType": "date"}, "DATE"),
        ({"type": "int", "logicalType": "unheard-of"}, "INT"),
        ({"type": "string", "logicalType": "date"}, "STRING"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 4}, "BINARY"),
        ({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}, "TIMESTAMP_NTZ"),
        ({"type": "string", "connect.version": 1, "connect.name": "io.debezium.data.Json"}, "STRING"),
        ({"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"}, "DURATION"),
        ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, "BINARY"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "STRING"),
        ({"type": "long", "logicalType": "local-timestamp-nanos"}, "TIMESTAMP_NTZ"),
        (["null", "int", "string"], "UNION"),
        (["int"], "UNION"),
        ({"type": {"type": "array", "items": "int"}}, "ARRAY<INT>"),
    ],
)
def test_every_avro_type_has_an_sql_type(schema: Any, sql: str) -> None:
    """Unknown attributes are ignored, and a logical type that does not fit leaves the base type."""
    assert parsed(schema).sql == sql


def test_the_order_of_null_is_kept() -> None:
    """Null first and null last are different types with the same SQL; a union gets null after its branches."""
    first, last = parsed(["null", "int"]), parsed(["int", "null"])
    assert first != last
    assert first.sql == last.sql == "INT"
    assert last.avro == ["int", "null"]
    assert last.as_nullable() is last
    assert last.required.as_nullable() == first
    assert parsed(["int", "string"]).as_nullable().avro == ["int", "string", "null"]


def test_what_may_be_a_key() -> None:
    """Scalars can be keys, nested values and unions cannot; a union is opaque, an array is not."""
    assert all(parsed(type_).orderable for type_ in ("int", "string", {"type": "enum", "name": "E", "symbols": ["A"]}))
    for type_ in (["int", "string"], {"type": "array", "items": "int"}, {"type": "map", "values": "int"}, "null"):
        assert not parsed(type_).orderable
    assert parsed(["int", "string"]).opaque
    assert not parsed({"type": "array", "items": "int"}).opaque


@pytest.mark.parametrize("seed", range(40))
def test_records_survive_json_and_pickle(seed: int) -> None:
    """A random record, and two concatenated ones, survive a round trip through JSON, which fastavro accepts."""
    samples = Samples(seed)
    record = Record.parse(samples.record(5))
    assert Record.parse(record.to_json()) == record
    assert pickle.loads(pickle.dumps(record)) == record
    hash(record)
    both = record.concat(record.rename({name: f"{name}_2" for name in record.names}).nullable())
    fastavro.parse_schema(json.loads(both.to_json()))
    assert Record.parse(both.to_json()).same_rows(both)
    fastavro.parse_schema(both.nullable().avro)


def test_one_name_for_two_types_is_told_apart() -> None:
    """Two enums with one name but different symbols keep their symbols when their records are concatenated."""
    enum = {"type": "enum", "name": "x.Status", "symbols": ["A"]}
    left = Record.parse({"type": "record", "name": "L", "fields": [{"name": "a", "type": enum}]})
    other = {**enum, "symbols": ["B"]}
    right = Record.parse({"type": "record", "name": "R", "fields": [{"name": "b", "type": other}]})
    both = Record.parse(left.concat(right).to_json())
    assert (both.type("a").symbols, both.type("b").symbols) == (("A",), ("B",))


def test_a_record_inside_itself_is_written_and_read() -> None:
    """A recursive column is self-contained, however the schema is written."""
    link = {"name": "next", "type": ["null", "Node"], "default": None}
    record = Record.parse({"type": "record", "name": "Node", "fields": [{"name": "v", "type": "int"}, link]})
    again = Record.parse(record.to_json())
    assert again.same_rows(record)
    assert again.to_json() == record.to_json()
    assert Record.parse(record.select(["next"]).to_json()).same_rows(record.select(["next"]))
    fastavro.parse_schema(record.avro)


def of_one(*fields: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": fields})


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("{", "not JSON"),
        ('{"type": "record", "name": "R"}', "'fields' is missing"),
        (of_one({"name": "a", "type": "Unknown"}), "field 'a': the type 'Unknown'"),
        (of_one({"name": "a", "type": ["null", ["int"]]}), "must not directly contain another union"),
        (of_one({"name": "a", "type": 7}), "7 is not an Avro schema"),
        (of_one({"name": "a", "type": "int"}, {"name": "a", "type": "int"}), "two columns"),
    ],
)
def test_wrong_schemas_are_refused_where_they_are_wrong(schema: str, text: str) -> None:
    """The error names the field and what is missing or unknown."""
    with pytest.raises(SchemaError, match=text):
        Record.parse(schema)


def test_columns_are_picked_renamed_and_made_nullable() -> None:
    """Record operations give the expected columns, and an unknown name is refused with the known ones."""
    record = Record.of({"a": "INT NOT NULL", "b": "STRING"})
    assert record.select(["b", "a"]).names == ("b", "a")
    assert record.rename({"a": "x"}).names == ("x", "b")
    assert record.nullable().type("a").nullable
    assert record.nullable().fields[0].default == "null"
    assert record.concat(Record.of({"c": "DATE"})).names == ("a", "b", "c")
    with pytest.raises(SchemaError, match="no column 'z'; it has a, b"):
        record.select(["z"])
    with pytest.raises(SchemaError, match="two columns named 'a'"):
        record.concat(record)
    with pytest.raises(SchemaError, match="letters, digits"):
        Record.of({"a b": "INT"})
