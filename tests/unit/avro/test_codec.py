"""The columnar codec compared with fastavro, on random schemas and values and on broken rows."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import random
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from rowkind.avro import codec
from rowkind.avro.errors import EncodeError, SchemaError
from rowkind.avro.schema import Record
from tests.unit.avro.samples import Samples, packed, rows_of, unpacked, without_logical

SEEDS = range(60)
NULLS = {"type": "array", "items": "null"}
TWO_DIGITS = {"type": "bytes", "logicalType": "decimal", "precision": 2}


def sample(seed: int, rows: int = 40) -> tuple[dict[str, Any], Record, pa.BinaryArray]:
    """Return a random schema, and packed rows of it as a slice of a larger array."""
    samples = Samples(seed)
    schema = samples.record(samples.random.randint(1, 7))
    values = [samples.value(schema) for _ in range(rows)]
    return schema, Record.parse(schema), packed(schema, values, before=3, after=2)


def single(type_: Any) -> Record:
    """Return a record with one column `f`."""
    return Record.parse({"type": "record", "name": "R", "fields": [{"name": "f", "type": type_}]})


def columns_of(decoded: codec.Decoded) -> dict[str, pa.Array]:
    return {name: decoded.column(name) for name in decoded.record.names}


@pytest.mark.parametrize("seed", SEEDS)
def test_decoding_gives_what_fastavro_reads(seed: int) -> None:
    """Every column of every row has the value that fastavro reads and the Arrow type that the schema defines."""
    schema, record, payloads = sample(seed)
    decoded = codec.read(record, payloads)
    columns = columns_of(decoded)
    assert not decoded.bad.any()
    assert rows_of(record, columns, len(payloads)) == unpacked(schema, payloads)
    for field in record.fields:
        columns[field.name].validate(full=True)
        assert columns[field.name].type == field.type.arrow


@pytest.mark.parametrize("seed", SEEDS)
def test_fastavro_reads_what_was_encoded(seed: int) -> None:
    """Encoding the decoded columns, or a slice of them, gives rows that fastavro reads as the original ones."""
    schema, record, payloads = sample(seed)
    columns = columns_of(codec.read(record, payloads))
    assert unpacked(record.avro, codec.encode(record, columns)) == unpacked(schema, payloads)
    part = {name: column.slice(5, 20) for name, column in columns.items()}
    assert unpacked(record.avro, codec.encode(record, part)) == unpacked(schema, payloads.slice(5, 20))


@pytest.mark.parametrize("seed", SEEDS)
def test_assembling_takes_fields_in_any_order_and_makes_them_nullable(seed: int) -> None:
    """Payloads read by fastavro have the right values in reordered, nullable and replaced fields."""
    schema, record, payloads = sample(seed)
    picks = random.Random(seed)
    names = picks.sample(record.names, picks.randint(1, len(record.names)))
    target = record.select(names)
    if picks.random() < 0.5:
        target = target.nullable()
    decoded = codec.read(record, payloads)
    sources = [name if picks.random() < 0.7 else decoded.column(name) for name in names]
    expected = [{name: row[name] for name in names} for row in unpacked(schema, payloads)]
    assert unpacked(target.avro, decoded.assemble(target, sources)) == expected


@pytest.mark.parametrize("seed", SEEDS[:20])
def test_two_rows_in_one_are_rows_of_the_records_in_one(seed: int) -> None:
    """Concatenated payloads, or a payload followed by a row of NULLs, are rows of the concatenated record."""
    schema, record, payloads = sample(seed)
    other = record.rename({name: f"right_{name}" for name in record.names}).nullable()
    right = codec.read(record, payloads).assemble(other, record.names)
    both = record.concat(other)
    rows = unpacked(schema, payloads)
    expected = [{**row, **{f"right_{name}": value for name, value in row.items()}} for row in rows]
    assert unpacked(both.avro, codec.concat_rows(payloads, right)) == expected
    padded = codec.concat_rows(payloads, pa.array([codec.null_row(other)] * len(payloads), pa.binary()))
    assert unpacked(both.avro, padded) == [{**row, **dict.fromkeys(other.names)} for row in rows]


@pytest.mark.parametrize("seed", SEEDS[:30])
def test_broken_rows_are_marked_and_never_raise(seed: int) -> None:
    """A truncated or damaged row is bad, or fastavro reads the same values from it; intact rows stay good."""
    schema, record, payloads = sample(seed)
    picks = random.Random(seed)
    rows = []
    broken = np.zeros(len(payloads), np.bool_)
    for i, payload in enumerate(payloads.to_pylist()):
        broken[i] = picks.random() < 0.7 and len(payload) > 0
        row = bytearray(payload)
        if broken[i] and picks.random() < 0.3:
            row = row[: picks.randrange(len(row))]
        elif broken[i]:
            for _ in range(picks.randint(1, 3)):
                row[picks.randrange(len(row))] ^= 1 << picks.randrange(8)
        rows.append(bytes(row))
    damaged = pa.array(rows, pa.binary())
    decoded = codec.read(record, damaged)
    for column in columns_of(decoded).values():
        column.validate(full=True)
    assert not decoded.bad[~broken].any()
    assert all(decoded.reason(row) for row in np.flatnonzero(decoded.bad).tolist())
    assert len(decoded.assemble(record, record.names)) == len(rows)

    bare = without_logical(schema)
    plain = codec.read(Record.parse(bare), damaged)
    columns = columns_of(plain)
    good = np.flatnonzero(~plain.bad)
    kept = {name: column.take(pa.array(good)) for name, column in columns.items()}
    found = damaged.take(pa.array(good))
    if not any("union" in str(inner.kind) for field in record.fields for inner in field.type.walk()):
        assert rows_of(plain.record, kept, len(good)) == unpacked(bare, found)


def test_truncating_a_row_anywhere_makes_it_bad() -> None:
    """Each proper prefix of a row is bad, and so is a row with an extra byte."""
    record = Record.of({"id": "BIGINT NOT NULL", "name": "STRING", "tags": "ARRAY<STRING>", "price": "DECIMAL(10,2)"})
    row = codec.encode(
        record,
        {
            "id": pa.array([1 << 40]),
            "name": pa.array(["somebody"]),
            "tags": pa.array([["a", None]]),
            "price": pa.array([decimal.Decimal("12.34")]),
        },
    )[0].as_py()
    decoded = codec.read(record, pa.array([row[:length] for length in range(len(row))] + [row, row + b"\x00"]))
    assert decoded.bad.tolist() == [True] * len(row) + [False, True]
    assert decoded.reason(0) == "field 'id': the row ends before the value is complete"
    assert decoded.reason(len(row) + 1) == "bytes are left over after the last field"


@pytest.mark.parametrize(
    ("type_", "payload", "reason"),
    [
        ("boolean", b"\x02", "the boolean is neither 0 nor 1"),
        ("int", b"\xff\xff\xff\xff\x1f", "the number has more than 32 bits"),
        ("long", b"\xff" * 9 + b"\x02", "the number has more than 64 bits"),
        ("long", b"\xff" * 11, "the number has more than 64 bits"),
        (["null", "int"], b"\x04\x02", "the union has no branch with this number"),
        (["int", "string", "null"], b"\x06", "the union has no branch with this number"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "the enum has no symbol with this number"),
        ("string", b"\x01", "the length is negative"),
        ("string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "the row ends before the value is complete"),
        ("string", b"\x04\xff\xfe", "the text is not valid UTF-8"),
        ({"type": "array", "items": "string"}, b"\x02\x02\xff\x00", "the text is not valid UTF-8"),
        ({"type": "map", "values": "int"}, b"\x02\x02\xff\x02\x00", "the text is not valid UTF-8"),
        (NULLS, b"\xfe\xff\xff\xff\x7f\x00", "the number of items is larger than the row can contain"),
        (
            {"type": "array", "items": "int"},
            b"\x80\x80\x80\x80\x02",
            "the number of items is larger than the row can contain",
        ),
        (TWO_DIGITS, b"\x02\x64", "the decimal has more digits"),
        (TWO_DIGITS, b"\x22" + b"\x01" * 17, "the decimal has more digits"),
        ({"type": "int", "logicalType": "time-millis"}, b"\x01", "the time is out of range"),
    ],
)  # fmt: skip
def test_every_fault_has_its_reason(type_: Any, payload: bytes, reason: str) -> None:
    """A row that violates the schema is bad and gives the reason."""
    record = single(type_)
    decoded = codec.read(record, pa.array([payload, b"\xff" * 12], pa.binary()))
    column = decoded.column("f")
    assert decoded.bad.tolist() == [True, True]
    assert decoded.reason(0).startswith(f"field 'f': {reason}")
    assert column.to_pylist() == [None, None]
    assert decoded.assemble(record, ["f"]).to_pylist() == [b"", b""]


def test_a_null_payload_is_bad() -> None:
    """A null payload is reported as a row without a value."""
    record = Record.of({"a": "INT NOT NULL"})
    decoded = codec.read(record, pa.array([b"\x02", None, b"\x04"], pa.binary()))
    assert decoded.bad.tolist() == [False, True, False]
    assert decoded.reason(1) == "there is no value"
    assert decoded.column("a").to_pylist() == [1, None, 2]


def test_no_rows_and_no_columns() -> None:
    """Zero rows with some columns, and some rows with zero columns, are supported everywhere."""
    record = Record.of({"a": "INT NOT NULL", "b": "ARRAY<STRING>", "c": "DECIMAL(10,2)", "d": "STRUCT<x: INT>"})
    empty = codec.read(record, pa.array([], pa.binary()))
    columns = columns_of(empty)
    assert [len(column) for column in columns.values()] == [0, 0, 0, 0]
    assert len(codec.encode(record, columns)) == len(empty.assemble(record, ["a", "b", "c", "d"])) == 0
    nothing = Record("Nothing", ())
    assert codec.encode(nothing, {}, rows=3).to_pylist() == [b"", b"", b""]
    assert codec.read(nothing, pa.array([b"", b""])).assemble(nothing, []).to_pylist() == [b"", b""]
    assert codec.read(record, pa.array([b"\x02\x00\x00\x00"])).assemble(nothing, []).to_pylist() == [b""]
    assert codec.null_row(nothing) == b""


def test_blocks_with_sizes_and_several_blocks_are_read() -> None:
    """An array in several blocks, with or without a byte size before each, is read as one array."""
    record = Record.parse(
        {"type": "record", "name": "R", "fields": [{"name": "f", "type": {"type": "array", "items": "int"}}]}
    )
    rows = [b"\x03\x04\x02\x04\x02\x06\x00", b"\x02\x02\x02\x04\x00", b"\x00", b"\x01\x02\x0a\x00"]
    assert codec.read(record, pa.array(rows)).column("f").to_pylist() == [[1, 2, 3], [1, 2], [], [5]]


@pytest.mark.parametrize("seed", range(12))
def test_long_arrays_of_a_few_rows_are_walked_as_others_are(seed: int) -> None:
    """A row with many items of any type is read as fastavro reads it; every truncation of it is bad."""
    samples = Samples(seed)
    record_schema = samples.record(2, 1)
    items = samples.random.choice([samples.type(1), record_schema, ["null", record_schema]])
    kind = samples.random.choice([{"type": "array", "items": items}, {"type": "map", "values": items}])
    schema = {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}, {"name": "g", "type": "int"}]}
    many = [samples.value(items) for _ in range(200)]
    values = [many[:count] for count in (200, 0, 17, 150)]
    if kind["type"] == "map":
        values = [{f"k{i}": value for i, value in enumerate(value_list)} for value_list in values]
    record = Record.parse(schema)
    payloads = packed(schema, [{"f": value, "g": i} for i, value in enumerate(values)])
    decoded = codec.read(record, payloads)
    assert not decoded.bad.any()
    assert rows_of(record, columns_of(decoded), len(payloads)) == unpacked(schema, payloads)
    whole = payloads[0].as_py()
    cut = codec.read(record, pa.array([whole[:length] for length in range(0, len(whole), 97)], pa.binary()))
    columns_of(cut)
    assert cut.bad.all()


def test_a_record_inside_itself_is_handed_on_and_bounded_in_depth() -> None:
    """A recursive record is carried packed; a row that is nested too deeply is bad and does not overflow the stack."""
    node = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
    }
    record = Record.parse(node)
    chain: Any = None
    for i in range(5):
        chain = {"v": i, "next": chain}
    payloads = packed(node, [chain, {"v": 9, "next": None}])
    deep = pa.array([payloads[0].as_py(), payloads[1].as_py(), b"\x02\x02" * 5000 + b"\x02\x00"])
    decoded = codec.read(record, deep)
    assert decoded.bad.tolist() == [False, False, True]
    assert "nested in itself" in decoded.reason(2)
    columns = columns_of(decoded)
    kept = {name: column.slice(0, 2) for name, column in columns.items()}
    assert codec.encode(record, kept).to_pylist() == payloads.to_pylist()


def test_a_null_where_none_may_be_is_refused_by_name() -> None:
    """Encoding NULL into a NOT NULL column raises with the column's name; from a packed field it makes the row bad."""
    record = Record.of({"a": "INT NOT NULL"})
    with pytest.raises(EncodeError, match="column 'a' is NOT NULL, but its value is NULL in 1 of 2 rows"):
        codec.encode(record, {"a": pa.array([1, None], pa.int32())})
    with pytest.raises(EncodeError, match="'a' is NOT NULL"):
        codec.null_row(record)
    decoded = codec.read(record.nullable(), pa.array([b"\x00", b"\x02\x02"]))
    assert decoded.assemble(record, ["a"]).to_pylist() == [b"", b"\x02"]
    assert decoded.bad.tolist() == [True, False]
    assert decoded.reason(0) == "field 'a': the value is NULL, but the column is NOT NULL"


def test_columns_of_a_near_type_are_cast_and_others_refused() -> None:
    """Columns that Arrow can cast without loss are accepted; an overflow and an unknown enum symbol are refused."""
    record = Record.of({"a": "INT NOT NULL", "b": "DECIMAL(5,2)", "c": "TIMESTAMP"})
    columns = {
        "a": pa.array([7], pa.int64()),
        "b": pa.array([decimal.Decimal("1.5")]),
        "c": pa.array([dt.datetime(2024, 1, 1, tzinfo=dt.UTC)], pa.timestamp("ms", "Europe/Berlin")),
    }
    moment = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    row = fastavro.schemaless_reader(io.BytesIO(codec.encode(record, columns)[0].as_py()), record.avro)
    assert row == {"a": 7, "b": decimal.Decimal("1.50"), "c": moment}
    with pytest.raises(EncodeError, match="column 'a'"):
        codec.encode(record, {**columns, "a": pa.array([1 << 40])})
    enum = single({"type": "enum", "name": "E", "symbols": ["A", "B"]})
    with pytest.raises(EncodeError, match="'C' is not one of the enum's symbols A, B"):
        codec.encode(enum, {"f": pa.array(["A", "C"])})


def test_nanoseconds_keep_their_digits() -> None:
    """Timestamps in nanoseconds are decoded and encoded without loss."""
    record = Record.of({"t": "TIMESTAMP(9) NOT NULL", "l": "TIMESTAMP_NTZ(9)"})
    columns = {"t": pa.array([1, -1], pa.timestamp("ns", "UTC")), "l": pa.array([None, 123456789], pa.timestamp("ns"))}
    decoded = codec.read(record, codec.encode(record, columns))
    assert all(decoded.column(name).equals(column) for name, column in columns.items())


def test_an_unknown_column_is_refused_with_the_known_ones() -> None:
    """The error for an unknown column lists the known ones."""
    with pytest.raises(SchemaError, match=r"no column 'x'; it has a, b"):
        codec.read(Record.of({"a": "INT", "b": "INT"}), pa.array([], pa.binary())).column("x")
