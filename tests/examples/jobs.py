"""The example jobs, the changes that are stored with them, and the tables that result from these changes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot

from rowkind.avro import codec
from rowkind.avro.json_rows import decode
from rowkind.avro.schema import Record
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.changes import Changes, Rows
from rowkind.service.job.columns import declared
from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.query import trial

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("school", "shop", "nexmark", "tpch")
GENERATED = ("nexmark", "tpch")
"""The examples that are stored with changes, and those whose changes are generated."""

_CLOSES, _BEGINNING = "closes", datetime.min.replace(tzinfo=UTC)

Batch = Mapping[str, Rows]


@cache
def example(name: str) -> Job:
    """Return the job of an example, with an empty environment."""
    return load(EXAMPLES / name / "job.yaml", {})


def stored_lines(name: str) -> list[str]:
    """Return the changes that are stored with a job."""
    return (EXAMPLES / name / "changes.jsonl").read_text().splitlines()


def batches(job: Job, lines: Sequence[str], rows: int) -> list[trial.TrialBatch]:
    """Return lines of changes in batches of the given number of rows, as `rowkind try` reads them."""
    return trial.read(job, lines, "changes.jsonl", rows)


def every_query() -> list[tuple[str, str]]:
    """Return each example with each of its sinks."""
    return [(name, sink) for name in NAMES for sink in example(name).sinks]


class Inputs:
    """The rows in each table of a job after the changes so far: by primary key, or by arrival without one."""

    def __init__(self, job: Job) -> None:
        self._records = {name: declared(job, name) for name in job.tables}
        self._keys = {name: table.primary_key for name, table in job.tables.items()}
        self._rows: dict[str, dict[object, tuple[bytes, datetime]]] = {name: {} for name in job.tables}
        self._settings = job.tables
        self._found: dict[str, pa.Table] = {}

    def apply(self, batch: Batch, now: int = 0) -> None:
        """Apply a batch that is processed at the time `now`, in ms."""
        at = datetime.fromtimestamp(now / 1000, UTC)
        for table, rows in batch.items():
            live = self._rows[table]
            self._found.pop(table, None)
            keys = zip(rows.kind.tolist(), self._key(table, rows), rows.payload.to_pylist(), strict=True)
            for kind, key, payload in keys:
                if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
                    live[key] = payload, at
                else:
                    del live[key]

    @property
    def tables(self) -> dict[str, pa.Table]:
        """All current tables, and each again as `<name>_processed` with the processing time of each row."""
        for name in self._records.keys() - self._found.keys():
            payloads, times = zip(*self._rows[name].values(), strict=True) if self._rows[name] else ((), ())
            self._found[name] = _table(self._records[name], list(payloads))
            processed = pa.array(times, pa.timestamp("ms", "UTC"))
            self._found[f"{name}_processed"] = self._found[name].append_column("processed", processed)
        return dict(self._found)

    def watermark(self, tables: Iterable[str]) -> datetime:
        """Return the least watermark of the tables that have one."""
        marks, present = [datetime.max.replace(tzinfo=UTC)], self.tables
        for name in tables:
            if (of := self._settings[name].watermark) is not None and isinstance(of.delay, int):
                last = pc.max(present[name][of.column]).as_py()
                marks.append(_BEGINNING if last is None else last - timedelta(milliseconds=of.delay))
        return min(marks)

    def _key(self, table: str, rows: Rows) -> list[object]:
        if not self._keys[table]:
            # Only append tables of the examples have no primary key, and their rows are never looked up.
            return list(np.asarray(rows.seq).tolist())
        read = codec.read(self._records[table], rows.payload)
        return list(zip(*(read.column(column).to_pylist() for column in self._keys[table]), strict=True))


def _table(record: Record, payloads: list[bytes]) -> pa.Table:
    read = codec.read(record, pa.array(payloads, pa.binary()))
    return pa.table([read.column(name) for name in record.names], schema=record.arrow)


class InDuckDB:
    """Queries of a job over complete tables, in DuckDB.

    Queries that DuckDB does not support are rewritten for it in a file of this folder, `<example>/<sink>.sql`. If a
    query emits its rows once, after a watermark, its last column is `closes`: the time that the watermark has to pass.
    """

    def __init__(self, job: Job) -> None:
        self._connection = duckdb.connect(config={"threads": 1})
        self._connection.execute("SET TimeZone = 'UTC'")
        self._views = {name: _translated(sql) for name, sql in job.views.items()}
        self._job = job
        self._shown: dict[str, pa.Table] = {}

    def show(self, tables: Mapping[str, pa.Table]) -> None:
        """Let the queries read these tables from now on."""
        for name, table in tables.items():
            if self._shown.get(name) is not table:
                self._connection.register(name, table)
        if not self._shown:
            for name, sql in self._views.items():
                self._connection.execute(f"CREATE VIEW {name} AS {sql}")
        self._shown = dict(tables)

    def rows(self, sink: str, value: Record, until: datetime | None = None) -> Counter[str]:
        """Return the rows of a sink's query in the types of `value`; of final rows, those that close up to `until`."""
        found = self._result(sink, value, until)
        columns = dict(zip(found.column_names, (each.combine_chunks() for each in found.columns), strict=True))
        return bag(value, codec.encode(value, columns, found.num_rows))

    def values(self, sink: str, value: Record, until: datetime | None = None) -> Counter[tuple[Any, ...]]:
        """Return the same rows as tuples of plain values."""
        return Counter(tuple(row.values()) for row in self._result(sink, value, until).to_pylist())

    def _result(self, sink: str, value: Record, until: datetime | None) -> pa.Table:
        own = Path(__file__).parent / self._job.file.parent.name / f"{sink}.sql"
        query = self._connection.sql(own.read_text() if own.exists() else _translated(self._job.sinks[sink].sql))
        if _CLOSES in query.columns:
            if until is not None:
                query = query.filter(f"{_CLOSES} <= '{until.isoformat()}'")
            query = query.project(", ".join(f'"{name}"' for name in query.columns[:-1]))
        found = query.to_arrow_table()
        columns = [column.cast(field.type.arrow) for field, column in zip(value.fields, found.columns, strict=True)]
        return pa.table(columns, names=list(value.names))


@cache
def _translated(sql: str) -> str:
    return sqlglot.transpile(sql, read="spark", write="duckdb")[0]


def unmatched(node: str, changes: Changes) -> None:
    """Fail: the examples have no unmatched retractions."""
    raise AssertionError(f"{node}: {len(changes)} unmatched of kinds {changes.kind.tolist()}")


def bag(value: Record, payloads: pa.BinaryArray) -> Counter[str]:
    """Return rows as a multiset of their JSON."""
    return Counter(json.dumps(row) for row in decode(value, payloads))
