"""Topics folded to tables in DuckDB: random changes against a fold in Python, and every type of column."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from rowkind.avro import codec
from rowkind.avro.schema import Record
from rowkind.avro.type import Type
from rowkind.operators.changelog import ChangelogMode
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import Rows
from rowkind.service.client import folded_topics
from rowkind.service.client.consume import Chunk, TopicFold
from rowkind.service.client.duckdb_columns import for_duckdb
from rowkind.service.client.folded_topics import FoldedTable, database
from rowkind.service.physical.source_table import SourceTable
from tests.seeds import drawn, seeds
from tests.unit.avro.samples import Samples, comparable_value, packed, plain, unpacked

_COLUMNS = {
    "id": "BIGINT NOT NULL",
    "Id": "DOUBLE NOT NULL",
    "x": "DOUBLE",
    "tags": "ARRAY<DOUBLE>",
    "m": "MAP<STRING, DOUBLE>",
    "s": "STRUCT<v: FLOAT, V: STRING>",
}
_NUMBERS = [None, 0.0, -0.0, math.nan, 1.5]


@contextmanager
def _opened(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(database(folder, "200MB")) as connection:
        yield connection


def _source(mode: ChangelogMode, columns: dict[str, str] | None = None) -> SourceTable:
    return SourceTable("t", "t", mode, Record.of(columns or _COLUMNS), ("id", "Id") if mode == "upsert" else ())


def _row(dice: random.Random) -> dict[str, Any]:
    number = dice.choice(_NUMBERS)
    entries = [("a", number), ("b", None)]
    return {
        "id": dice.randrange(3),
        "Id": dice.choice([0.0, -0.0, 1.0]),
        "x": number,
        "tags": dice.choice([None, [], [number, None]]),
        "m": dice.choice([None, entries, entries[::-1]]),
        "s": dice.choice([None, {"v": number, "V": "x"}]),
    }


def _chunk(record: Record, rows: list[dict[str, Any]], kinds: list[int], first: int, dice: random.Random) -> Chunk:
    columns = {field.name: pa.array([row[field.name] for row in rows], field.type.arrow) for field in record.fields}
    seq = ArrivalNumber.pack(np.arange(first, first + len(rows)), np.array([dice.randrange(3) for _ in rows]))
    payload = codec.encode(record, columns, len(rows))
    return Chunk(Rows(np.array(kinds, np.int8), seq, payload), (), np.arange(first, first + len(rows)))


def _all(connection: duckdb.DuckDBPyConnection, query: str) -> Counter[str]:
    return Counter(map(repr, connection.sql(query).fetchall()))


@pytest.mark.parametrize("mode", ["upsert", "retract", "append"])
def test_random_changes_result_in_the_rows_of_a_fold_in_python(
    mode: ChangelogMode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows with NULL, NaN, -0.0 and nested values are folded alike, at once and in any number of steps."""
    monkeypatch.setattr(folded_topics, "_FOLD_ROWS", 40)
    source = _source(mode)
    with _opened(tmp_path) as connection:
        for dice in drawn(f"fold {mode}", seeds(10)):
            table, oracle, first = FoldedTable(connection, source, "t"), TopicFold(source), 0
            sent = []
            for _ in range(dice.randrange(1, 12)):
                rows = [_row(dice) for _ in range(dice.randrange(1, 25))]
                kinds = [0 if mode == "append" else dice.choice([0, 1, 2, 3]) for _ in rows]
                if mode == "upsert":
                    kinds = [3 if kind % 2 else 2 for kind in kinds]
                chunk = _chunk(source.declared, rows, kinds, first, dice)
                table.add(chunk)
                oracle.add(chunk.rows)
                sent.append(chunk.rows.payload)
                first += len(rows)
                if dice.random() < 0.3:
                    table.fold()
            table.fold()
            rows_of = codec.read(source.declared, pa.concat_arrays(sent) if mode == "append" else oracle.payload)
            fields = source.declared.fields
            wanted = pa.table(
                {
                    name: for_duckdb(field.type, rows_of.column(field.name))
                    for name, field in zip(table.columns, fields, strict=True)
                }
            )
            connection.register("wanted", wanted)
            assert _all(connection, "SELECT * EXCLUDE (_partition, _offset, _timestamp) FROM t") == _all(
                connection, "FROM wanted"
            )
            connection.unregister("wanted")


def test_a_row_has_the_place_of_the_record_that_inserted_it_last(tmp_path: Path) -> None:
    """A retraction of one of two equal rows leaves the place of the later one, and a weight below zero shows no row."""
    columns = {"id": "BIGINT NOT NULL", "n": "INT"}
    one, two = {"id": 1, "n": None}, {"id": 2, "n": 2}
    dice = random.Random(0)
    with _opened(tmp_path) as connection:
        source = _source("retract", columns)
        table = FoldedTable(connection, source, "t")
        table.add(_chunk(source.declared, [one, two, one, one, two, two], [0, 3, 0, 3, 0, 0], 10, dice))
        table.fold()
        found = connection.sql("SELECT id, n, _offset, epoch_ms(_timestamp) FROM t ORDER BY id").fetchall()
        assert found == [(1, None, 12, 12), (2, 2, 15, 15)]
        table.add(_chunk(source.declared, [one, two, two], [3, 0, 0], 20, dice))
        table.fold()
        assert connection.sql("SELECT id, _offset FROM t ORDER BY ALL").fetchall() == [(2, 22)] * 3


def test_a_truncation_removes_the_rows_before_it(tmp_path: Path) -> None:
    """Rows before a truncation are gone, whether they were folded or not; rows after it stay."""
    columns = {"id": "BIGINT NOT NULL", "Id": "INT NOT NULL"}
    dice = random.Random(0)
    with _opened(tmp_path) as connection:
        source = _source("upsert", columns)
        table = FoldedTable(connection, source, "t")
        table.add(_chunk(source.declared, [{"id": 1, "Id": 1}], [2], 0, dice))
        table.fold()
        chunk = _chunk(source.declared, [{"id": number, "Id": 1} for number in (2, 3, 4)], [2, 2, 2], 1, dice)
        table.add(Chunk(chunk.rows, (), chunk.timestamp, int(chunk.rows.seq[1])))
        table.fold()
        assert connection.sql("SELECT id, Id_ FROM t").fetchall() == [(4, 1)]


def test_every_avro_type_has_a_type_in_duckdb(tmp_path: Path) -> None:
    """Values of random schemas come back from DuckDB as they went in; decimals of more than 38 digits become text."""
    with _opened(tmp_path) as connection:
        for dice in drawn("types", seeds(60)):
            samples = Samples(dice.randrange(1 << 30))
            schema = samples.record(4)
            record = Record.parse(schema)
            payload = packed(schema, [samples.value(schema) for _ in range(20)])
            table = FoldedTable(connection, SourceTable("t", "t", "append", record, ()), "t")
            rows = Rows(np.zeros(20, np.int8), ArrivalNumber.pack(np.arange(20)), payload)
            table.add(Chunk(rows, (), np.full(20, -1)))
            found = connection.sql("FROM t ORDER BY _offset").to_arrow_table().combine_chunks()
            assert found["_timestamp"].null_count == 20
            values = [found[name].to_pylist() for name in record.names]
            read = [dict(zip(record.names, row, strict=True)) for row in zip(*values, strict=True)]
            whole = Type("record", fields=record.fields)
            assert [comparable_value(plain(whole, _numbers(whole, row))) for row in read] == unpacked(schema, payload)


def _numbers(type_: Type, value: Any) -> Any:
    """Return a value in which decimals that DuckDB stores as text are numbers."""
    if value is None or (type_.kind == "record" and value == "{}"):
        return None if value is None else {}
    if type_.logical == "decimal":
        return Decimal(value)
    match type_.kind:
        case "record":
            return {field.name: _numbers(field.type, value[field.name]) for field in type_.fields}
        case "array":
            return [_numbers(type_.element, each) for each in value]
        case "map":
            return [(key, _numbers(type_.element, each)) for key, each in value]
    return value


def test_times_beyond_those_of_duckdb_keep_their_order(tmp_path: Path) -> None:
    """The ends of each type of time are infinity or the time itself, also inside arrays and structs."""
    types = {"d": "DATE", "t": "TIMESTAMP", "n": "TIMESTAMP_NTZ"}
    record = Record.of({name: f"ARRAY<STRUCT<v: {sql}>>" for name, sql in types.items()})
    ends = {"d": 2**31 - 1, "t": 2**63 - 1, "n": 2**63 - 1}
    columns = {}
    for name, end in ends.items():
        number, own = (pa.int32() if name == "d" else pa.int64()), record.type(name).element.fields[0].type.arrow
        column = pa.array([-end - 1, -end + 1, 0, end - 1, end], number).cast(own)
        struct = pa.StructArray.from_arrays([column], ["v"])
        columns[name] = pa.ListArray.from_arrays([0, 5], struct).cast(record.type(name).arrow)
    with _opened(tmp_path) as connection:
        table = FoldedTable(connection, SourceTable("t", "t", "append", record, ()), "t")
        payload = codec.encode(record, columns, 1)
        table.add(Chunk(Rows(np.zeros(1, np.int8), np.zeros(1, np.int64), payload), (), np.zeros(1, np.int64)))
        for name in ends:
            query = f"SELECT s.v::VARCHAR FROM (SELECT unnest({name}) AS s FROM t) ORDER BY s.v"
            found = [text for (text,) in connection.sql(query).fetchall()]
            assert (found[0], found[4], found[2][:10]) == ("-infinity", "infinity", "1970-01-01")
            assert not {found[1], found[3]} & {"-infinity", "infinity"} or name != "d"


def test_a_map_with_a_key_twice_has_its_last_entry(tmp_path: Path) -> None:
    """DuckDB refuses maps with duplicate keys, so the earlier entry is left out."""
    record = Record.of({"m": "MAP<STRING, INT>"})
    maps = pa.array([[("a", 1), ("b", 2), ("a", 3)], None, [], [("a", 4)]], record.type("m").arrow)
    with _opened(tmp_path) as connection:
        table = FoldedTable(connection, SourceTable("t", "t", "append", record, ()), "t")
        rows = Rows(np.zeros(4, np.int8), np.arange(4) << 16, codec.encode(record, {"m": maps}, 4))
        table.add(Chunk(rows, (), np.zeros(4, np.int64)))
        found = connection.sql("SELECT m FROM t ORDER BY _offset").fetchall()
        assert found == [({"b": 2, "a": 3},), (None,), ({},), ({"a": 4},)]
