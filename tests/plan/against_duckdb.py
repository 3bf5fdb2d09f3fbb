"""Comparison of a plan's results on random changes with DuckDB's results for the same SQL."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache

import duckdb
import pyarrow as pa
import sqlglot

from rowkind.avro import codec
from rowkind.avro.json_rows import decode
from rowkind.avro.schema import Record
from rowkind.operators.columns.changes import Changes
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.query.memory import Fold, MemoryEngine
from tests.fuzz.oracle import with_empty_lists
from tests.plan.cases import Case, planned
from tests.plan.changelogs import World, bare_updates
from tests.plan.traits import SinkOrder, Traits


def is_what_duckdb_says(case: Case, seed: int, count: int) -> None:
    """Check after each of `count` random batches that the folded result equals DuckDB's, and that the traits hold."""
    job, sink = planned(case)
    traits, order = Traits(), SinkOrder(sink)
    engine = MemoryEngine(sink, unmatched=unmatched, watch=traits.watch)
    assert not engine.graph.timed_tables, "DuckDB knows no watermark"
    fold = Fold(keyed=sink.mode == "upsert")
    world = World.of(job, bare_updates(sink), seed)
    oracle = Oracle(case, job.views)
    for number, (batch, tables) in enumerate(world.batches(count)):
        changes = engine.batch(batch, now=number)[sink.name]
        _check_form(sink, changes)
        traits.check()
        order.check(changes)
        fold.apply(changes)
        found = bag(sink.value, pa.array(fold.payloads, pa.binary()))
        _check_unique(sink, found)
        assert found == oracle.rows(sink.value, tables), f"batch {number}"


def unmatched(node: str, changes: Changes) -> None:
    """Fail: a well-formed changelog has no unmatched retractions."""
    raise AssertionError(f"{node}: {len(changes)} unmatched of kinds {changes.kind.tolist()}")


def _check_form(sink: PhysicalSink, changes: Changes) -> None:
    """Check that all changes have a kind of the sink's mode, and that an upsert sink has at most one change per key."""
    kinds = set(changes.kind.tolist())
    assert kinds <= {"append": {0}, "retract": {0, 1, 2, 3}, "upsert": {0, 2, 3}}[sink.mode]
    if sink.mode == "upsert":
        assert len(set(changes.key.to_pylist())) == len(changes)


def _check_unique(sink: PhysicalSink, found: Counter[str]) -> None:
    """Check that no two rows have equal values in a unique key of the plan."""
    rows = [json.loads(row) for row in found.elements()]
    for key in sink.input.traits.unique_keys:
        values = [json.dumps([row[column] for column in key]) for row in rows]
        assert len(set(values)) == len(values), f"{key} is not unique"


class Oracle:
    """The same SQL in DuckDB over complete tables."""

    def __init__(self, case: Case, views: Mapping[str, str]) -> None:
        self._connection = _database().cursor()
        self._connection.execute("SET TimeZone = 'UTC'")
        self._views = {name: _in_duckdb(sql) for name, sql in views.items()}
        self._sql = _in_duckdb(case.sql)

    def rows(self, value: Record, tables: Mapping[str, pa.Table]) -> Counter[str]:
        """Return the rows of the result in the types of the record `value`."""
        for name, table in tables.items():
            self._connection.register(name, table)
        for name, sql in self._views.items():
            self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {sql}")
        found = self._connection.sql(self._sql).to_arrow_table()
        columns = [found.column(number).combine_chunks() for number in range(found.num_columns)]
        typed = {field.name: column.cast(field.type.arrow) for field, column in zip(value.fields, columns, strict=True)}
        return bag(value, codec.encode(value, typed, found.num_rows))


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """Return one database for all cases; each case has its own connection with its own tables and views."""
    return duckdb.connect(config={"threads": 1})


def _in_duckdb(sql: str) -> str:
    # SUM and AVG equal TRY_SUM and TRY_AVG unless there is an overflow.
    plain = re.sub(r"\bTRY_(SUM|AVG)\b", r"\1", sql)
    return with_empty_lists(sqlglot.parse_one(plain, read="spark")).sql("duckdb")


def bag(value: Record, payloads: pa.BinaryArray) -> Counter[str]:
    """Return the rows of the payloads, each as text."""
    # -0.0 and 0.0 are equal in SQL, so either may be in the result.
    return Counter(json.dumps(row).replace("-0.0", "0.0") for row in decode(value, payloads))
