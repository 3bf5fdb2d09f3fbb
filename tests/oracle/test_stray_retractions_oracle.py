"""Unmatched retractions, over tables without a key and with columns pruned, against DuckDB.

By definition, a retraction removes an earlier row that is equal in all columns of its table. A retraction that finds
none changes nothing. DuckDB evaluates the query over the rows that are left. In these changelogs half of the
retractions are unmatched, and most of those differ from an existing row in only one column.

In an exact table, every -U has its row, but may arrive after the +U that replaced that row.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from rowkind.avro.json_rows import decode, encode
from rowkind.avro.schema import Record
from rowkind.operators.changelog import SYMBOLS
from rowkind.operators.columns.changes import Changes, Rows
from rowkind.service.job.columns import declared
from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.plan.pipeline import plan
from rowkind.service.query.memory import Fold, MemoryEngine
from tests.seeds import drawn

SEEDS = 4
CONNECTION = duckdb.connect(config={"threads": 1})
JOB = """
job: strays
tables:
  a: {{topic: a, mode: retract, columns: {{id: BIGINT, k: BIGINT, v: BIGINT}}}}
  b: {{topic: b, mode: retract, columns: {{k: BIGINT, w: BIGINT}}}}
  e: {{topic: e, mode: retract, primary_key: id, exact: true, columns: {{id: BIGINT NOT NULL, k: BIGINT}}}}
sinks:
  result: {{topic: result, mode: retract, sql: "{sql}"}}
"""

EVERY_STRAY_ARRIVES = (
    "SELECT k, COUNT(*) AS n FROM a GROUP BY k",
    "SELECT COUNT(*) AS n, SUM(v) AS s FROM a",
    "SELECT DISTINCT k FROM a",
    "SELECT k FROM a",
    "SELECT id, k, v FROM a",
    "SELECT k FROM a UNION ALL SELECT k FROM b",
    "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b)",
    "SELECT a.id FROM a LEFT JOIN b ON a.k = b.k",
    "SELECT a.id, b.w FROM a FULL JOIN b ON a.k = b.k",
    "SELECT x.n FROM (SELECT id + 1 AS n, k FROM a) x FULL JOIN b ON x.k = b.k",
    "SELECT k FROM (SELECT k, RANK() OVER (PARTITION BY id ORDER BY v) AS r FROM a) WHERE r <= 1",
    "SELECT id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k)",
    "SELECT id FROM a WHERE k NOT IN (SELECT k FROM b)",
)
"""Queries in which no filter and no NULL drops an unmatched retraction before the operator that detects it."""

SOME_ARE_DROPPED = (
    "SELECT id FROM a WHERE v >= 1",
    "SELECT a.id, b.w FROM a JOIN b ON a.k = b.k",
    "SELECT a.v FROM a JOIN b ON a.k = b.k AND a.id < b.w",
)

OF_EXACT = (
    "SELECT e.id, e.k, f.k AS fk FROM e JOIN e f ON e.id = f.id",
    "SELECT e.id, e.k, b.w FROM e LEFT JOIN b ON e.id = b.w",
    "SELECT e.id, f.id AS other FROM e JOIN e f ON e.k = f.k",
    "SELECT k, COUNT(*) AS n FROM e GROUP BY k",
    "SELECT id, k FROM e",
)

Row = tuple[int | None, ...]
Change = tuple[str, str, Row]
"""The table, the change symbol and the row."""


class Engine:
    """A query in memory that takes changes of any tables in batches and counts unmatched retractions."""

    def __init__(self, sql: str, folder: Path) -> None:
        (folder / "job.yaml").write_text(JOB.format(sql=sql))
        self.job: Job = load(folder / "job.yaml")
        self.sink = plan(self.job, "result")
        self.unmatched = 0
        self._engine = MemoryEngine(self.sink, unmatched=self._count)
        self.tables = self._engine.tables
        self._fold = Fold(keyed=False)
        self._seq = 0

    def _count(self, _node: str, changes: Changes) -> None:
        self.unmatched += len(changes)

    def batch(self, changes: Sequence[Change], now: int) -> Counter[Row]:
        """Return the rows of the result after one more batch."""
        batch: dict[str, Rows] = {}
        for table in {table for table, *_ in changes}:
            record: Record = declared(self.job, table)
            own = [(number, symbol, row) for number, (of, symbol, row) in enumerate(changes) if of == table]
            batch[table] = Rows(
                np.array([SYMBOLS.index(symbol) for _, symbol, _ in own], np.int8),
                np.array([(self._seq + number) << 16 for number, *_ in own]),
                encode(record, [dict(zip(record.names, row, strict=True)) for *_, row in own]),
            )
        self._seq += len(changes)
        self._fold.apply(self._engine.batch(batch, now)[self.sink.name])
        return Counter(
            tuple(row.values()) for row in decode(self.sink.value, pa.array(self._fold.payloads, pa.binary()))
        )


def expected(sql: str, job: Job, rows: Mapping[str, Counter[Row]]) -> Counter[Row]:
    """Return DuckDB's result for these rows."""
    for table, live in rows.items():
        schema = declared(job, table).arrow
        lists = [list(column) for column in zip(*live.elements(), strict=True)] or [[] for _ in schema]
        CONNECTION.register(table, pa.table(lists, schema=schema))
    return Counter(CONNECTION.sql(sql).fetchall())


def batches(generator: random.Random, changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    """Yield the changes in batches of random sizes."""
    cuts = sorted({0, len(changes), *(generator.randrange(len(changes) + 1) for _ in range(generator.randrange(8)))})
    for first, last in itertools.pairwise(cuts):
        yield changes[first:last]


def with_strays(generator: random.Random, *, nulls: bool) -> tuple[list[Change], list[bool]]:
    """Return random changes of the tables without a key, and which of them are unmatched retractions."""
    live: dict[str, Counter[Row]] = {"a": Counter(), "b": Counter()}
    changes: list[Change] = [("a", "+I", (0, 0, 0))]
    live["a"][0, 0, 0] += 1
    unsent = [False]
    for _ in range(generator.randrange(4, 40)):
        table, width = generator.choice([("a", 3), ("b", 2)])
        row: Row = tuple(None if nulls and generator.random() < 0.1 else generator.randrange(3) for _ in range(width))
        there = [*live[table].elements()]
        if there and generator.random() < 0.7:
            row = generator.choice(there)
            if generator.random() < 0.5:
                at = generator.randrange(width)
                row = (*row[:at], generator.randrange(3), *row[at + 1 :])
        comes = generator.random() < 0.4
        stray = not comes and not live[table][row]
        if not stray:
            live[table][row] += 1 if comes else -1
        changes.append((table, generator.choice(["+I"] if comes else ["-D", "-U"]), row))
        unsent.append(stray)
    return changes, unsent


@pytest.mark.parametrize("sql", [*EVERY_STRAY_ARRIVES, *SOME_ARE_DROPPED])
def test_a_stray_takes_nothing_back(sql: str, tmp_path: Path) -> None:
    """After every batch the result is that of the existing rows, and each unmatched retraction is counted once."""
    for generator in drawn(f"{sql}", range(SEEDS)):
        counts = sql in EVERY_STRAY_ARRIVES
        changes, unsent = with_strays(generator, nulls=not counts)
        engine = Engine(sql, tmp_path)
        live: dict[str, Counter[Row]] = {"a": Counter(), "b": Counter()}
        done = found = 0
        for now, batch in enumerate(batches(generator, changes)):
            for (table, symbol, row), stray in zip(batch, unsent[done:], strict=False):
                if not stray:
                    live[table][row] += 1 if symbol == "+I" else -1
                elif table in engine.tables:
                    found += 1
            done += len(batch)
            rows = engine.batch([change for change in batch if change[0] in engine.tables], now)
            assert rows == expected(sql, engine.job, live), f"after {changes[:done]}"
            assert engine.unmatched == found if counts else engine.unmatched <= found, f"after {changes[:done]}"


def overtaking(generator: random.Random) -> tuple[list[Change], Counter[Row]]:
    """Return random changes of the exact table, in which a +U may precede its -U, and the rows that are left."""
    live: dict[int, Row] = {}
    changes: list[Change] = []
    for _ in range(generator.randrange(2, 25)):
        number = generator.randrange(4)
        old = live.get(number)
        if old is None:
            live[number] = (number, generator.randrange(4))
            changes.append(("e", "+I", live[number]))
        elif generator.random() < 0.3:
            changes.append(("e", "-D", live.pop(number)))
        else:
            live[number] = (number, generator.choice([k for k in range(4) if k != old[1]]))
            pair: list[Change] = [("e", "-U", old), ("e", "+U", live[number])]
            changes += reversed(pair) if generator.random() < 0.5 else pair
    return changes, Counter(live.values())


@pytest.mark.parametrize("sql", OF_EXACT)
def test_an_overtaken_old_row_of_an_exact_table_takes_nothing_back(sql: str, tmp_path: Path) -> None:
    """Once both halves of every update have arrived, in any order, the result is that of the rows that are left."""
    for generator in drawn(f"{sql}", range(SEEDS)):
        changes, live = overtaking(generator)
        engine = Engine(sql, tmp_path)
        rows: Counter[Row] = Counter()
        for now, batch in enumerate(batches(generator, changes)):
            rows = engine.batch(batch, now)
        assert rows == expected(sql, engine.job, {"e": live, "b": Counter()}), f"after {changes}"
