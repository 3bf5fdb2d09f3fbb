"""A sink's query as `rowkind verify` computes it in DuckDB, over a job's tables at the end of a trial."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import duckdb
import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.schema import Record
from rowkind.service.client.duckdb_columns import for_duckdb
from rowkind.service.execute.job_functions import make_known
from rowkind.service.execute.kernels import register
from rowkind.service.job.model import Job
from rowkind.service.plan.pipeline import logical
from rowkind.service.verify.errors import NotComparedError
from rowkind.service.verify.relations import statement

Bag = Counter[tuple[Any, ...]]


@lru_cache(maxsize=1)
def _connection() -> tuple[duckdb.DuckDBPyConnection, dict[str, str]]:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET disabled_optimizers = 'common_subexpressions'")
    register(connection)
    return connection, {}


def rows(record: Record, payload: pa.BinaryArray) -> Bag:
    """Return encoded rows as a multiset of plain values."""
    connection, _ = _connection()
    connection.register("found", _table(record, payload))
    return _bag(connection, "SELECT * FROM found")


def computed(job: Job, sink: str, tables: Mapping[str, tuple[Record, pa.BinaryArray]]) -> tuple[Bag, Bag]:
    """Return the rows that DuckDB computes, and those of them that depend on no tie.

    Raises NotComparedError or duckdb.Error.
    """
    connection, known = _connection()
    for name, (record, payload) in tables.items():
        connection.register("added", _table(record, payload))
        connection.execute(f'CREATE OR REPLACE TEMP TABLE "{name}" AS SELECT * FROM added')
    found = []
    for certain in (False, True):
        made = statement(logical(job, sink).root, {name: f'"{name}"' for name in tables}, certain=certain)
        for unknown in made.unknown.values():
            raise NotComparedError(unknown.reason, unknown.at)
        for function in made.functions:
            make_known(connection, known, function)
        found.append(_bag(connection, made.sql))
    return found[0], found[0] & found[1]


def _table(record: Record, payload: pa.BinaryArray) -> pa.Table:
    columns = codec.read(record, payload)
    return pa.table({field.name: for_duckdb(field.type, columns.column(field.name)) for field in record.fields})


def _bag(connection: duckdb.DuckDBPyConnection, sql: str) -> Bag:
    return Counter(tuple(map(_plain, row)) for row in connection.execute(sql).fetchall())


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if value != value else 0.0 if value == 0 else float(f"{value:.9g}")  # noqa: PLR0124 -- NaN differs
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return tuple((name, _plain(each)) for name, each in value.items()) if isinstance(value, dict) else value
