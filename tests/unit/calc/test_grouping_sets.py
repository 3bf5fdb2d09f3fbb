"""Rows of few groups are pre-aggregated before they are expanded into one row per grouping set."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from rowkind.avro import codec
from rowkind.avro.schema import Record
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.changes import Rows
from rowkind.service.execute import calc
from rowkind.service.execute.grouping_sets import in_sets
from rowkind.service.job.load import load
from rowkind.service.physical.node import PhysicalScan, PhysicalSink
from rowkind.service.physical.tree import walk
from rowkind.service.plan.pipeline import plan
from rowkind.service.query.memory import Fold, MemoryEngine

COLUMNS = {"id": "BIGINT NOT NULL", "a": "INT", "b": "STRING", "v": "BIGINT", "w": "DOUBLE"}
CALLS = "COUNT(*) AS n, SUM(v) AS s, AVG(w) AS m, MIN(v) AS low, MAX(w) AS high"
MORE = f"{CALLS}, COUNT(DISTINCT v) AS d, COUNT(w) FILTER (WHERE v > 3) AS f"
SETS = (
    "ROLLUP(a, b)",
    "CUBE(a, b)",
    "GROUPING SETS ((a), (a, b), (b), ())",
    "GROUPING SETS ((a, b), (a, b), (a))",
    "a, ROLLUP(b)",
)
ROWS = 300
MANY = 5_000

Row = tuple[int, int | None, str | None, int | None, float | None]


def planned(folder: Path, sql: str, ttl: str = "") -> PhysicalSink:
    """Return the plan of a query over an exact retract table."""
    table = {"mode": "retract", "exact": True, "primary_key": ["id"], "columns": COLUMNS}
    job = {"job": "sets", "tables": {"t": table}, "sinks": {"r": {"mode": "retract", "sql": sql}}}
    file = folder / "job.yaml"
    file.write_text(json.dumps(job | ({"ttl": ttl} if ttl else {})))
    return plan(load(file), "r")


def random_row(rng: random.Random, number: int) -> Row:
    """Return a row of one of at most a dozen groups."""
    value = lambda *of: rng.choice(of)  # noqa: E731 -- used for this row only
    return number, value(None, 1, 2), value(None, "x", "y"), value(None, 1, 4, 9), value(None, 0.5, -1.0, 2.5)


def changes(kinds: list[RowKind], rows: list[Row], seq: int, names: Sequence[str] = tuple(COLUMNS)) -> Rows:
    """Return changes with these kinds and rows, restricted to the named columns."""
    record = Record.of(COLUMNS).select(names)
    of = {name: [row[at] for row in rows] for at, name in enumerate(COLUMNS)}
    columns = {field.name: pa.array(of[field.name], field.type.arrow) for field in record.fields}
    return Rows(np.array(kinds, np.int8), (np.arange(len(rows)) + seq) << 16, codec.encode(record, columns))


def results(sink: PhysicalSink, fold: Fold) -> Counter[str]:
    """Return the rows of a result with their counts."""
    rows = codec.read(sink.value, pa.array(fold.payloads, pa.binary()))
    return Counter(map(repr, zip(*(rows.column(name).to_pylist() for name in sink.value.names), strict=True)))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("sets", SETS)
@pytest.mark.parametrize("ttl", ["", "1d"])
def test_sets_are_what_duckdb_says(sets: str, ttl: str, tmp_path: Path) -> None:
    """After inserts, updates and deletes, every aggregate over grouping sets has DuckDB's value."""
    sql = f"SELECT a, b, {MORE}, GROUPING_ID(a, b) AS g FROM t GROUP BY {sets}"
    sink = planned(tmp_path, sql, ttl)
    engine, fold, rng = MemoryEngine(sink), Fold(keyed=False), random.Random(3)
    there = {number: random_row(rng, number) for number in range(ROWS)}
    batch = changes([RowKind.INSERT] * ROWS, [*there.values()], 0)
    for number in range(3):
        fold.apply(engine.batch({"t": batch}, now=number)["r"])
        rows = pa.table({name: [row[at] for row in there.values()] for at, name in enumerate(COLUMNS)})
        expected = duckdb.connect().from_arrow(rows).query("t", sql.replace("GROUPING_ID", "GROUPING")).fetchall()
        assert results(sink, fold) == Counter(map(repr, expected)), f"batch {number}"
        kinds, moved = list[RowKind](), list[Row]()
        for key in rng.sample(sorted(there), len(there) // 2):
            before = there.pop(key)
            if rng.random() < 0.7:
                there[key] = random_row(rng, key)
                kinds += [RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER]
                moved += [before, there[key]]
            else:
                kinds.append(RowKind.DELETE)
                moved.append(before)
        batch = changes(kinds, moved, ROWS * (number + 1))


@pytest.mark.parametrize(
    ("sets", "names", "is_added_up"),
    [("CUBE(a, b)", 3, True), ("GROUPING SETS ((a), (b, a))", 3, True), ("GROUPING SETS ((a), (b))", 3, False),
     ("CUBE(a, b)", MANY, False)],
)  # fmt: skip
def test_rows_are_added_up_first_where_finest_groups_are_few(
    sets: str, names: int, is_added_up: bool, tmp_path: Path
) -> None:
    """Rows are pre-aggregated only if one set has all grouping columns and there are far fewer groups than rows."""
    sink = planned(tmp_path, f"SELECT a, b, {CALLS} FROM t GROUP BY {sets}")
    (scan,) = (node for node in walk(sink) if isinstance(node, PhysicalScan))
    rows: list[Row] = [(number, number % 2, f"{number % names}", 1, 1.0) for number in range(MANY)]
    inserted = changes([RowKind.INSERT] * MANY, rows, 0, scan.calc.input.names)
    found = in_sets(scan.calc, inserted, lambda of, some: calc.run(replace(of, partial=None), some))
    assert (found is not None) == is_added_up
    assert found is None or len(found) < MANY // 100
