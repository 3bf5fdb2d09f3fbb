"""DuckDB's answer to a query over complete tables.

All tests of a process share one connection: opening a connection or inserting rows one by one takes ten times as long
as a query over a few Arrow tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

Values = tuple[Any, ...]


def answer(sql: str, tables: Mapping[str, tuple[str, Sequence[Values]]], *parameters: Any) -> list[Values]:
    """Return the rows of a query, with times in UTC; a table is its columns in SQL and its rows."""
    connection = _connection()
    for name, (columns, rows) in tables.items():
        schema = _schema(columns)
        found = zip(*rows, strict=True) if rows else [()] * len(schema)
        arrays = [pa.array(column, field.type) for column, field in zip(found, schema, strict=True)]
        connection.register(name, pa.Table.from_arrays(arrays, schema=schema))
    try:
        return connection.execute(sql, parameters).fetchall()
    finally:
        for name in tables:
            connection.unregister(name)


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


@cache
def _schema(columns: str) -> pa.Schema:
    connection = _connection()
    connection.execute(f"CREATE TEMP TABLE declared ({columns})")
    try:
        return connection.sql("SELECT * FROM declared").to_arrow_table().schema
    finally:
        connection.execute("DROP TABLE declared")
