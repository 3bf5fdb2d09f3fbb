"""`on_expire: retract` against DuckDB: after every batch the result equals the SQL over the rows that have not expired.

The model keeps the rows of each table with the time at which each was written. With a primary key there is one row per
key. Otherwise the rows are a multiset, and a retraction removes the oldest equal row. The clock is driven by the test;
there are batches without rows and long pauses.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.answers import answer
from tests.clocked import Clocked, Line, job_of
from tests.seeds import drawn, seeds

Row = tuple[int, int | None, int | None]
Mode = Literal["append", "retract", "upsert"]

COLUMNS = "{id: BIGINT NOT NULL, k: BIGINT, v: BIGINT}"
TTLS = {"a": 5, "b": 9}


@dataclass
class Alive:
    """The rows of a table, each with the time of its last write; with a primary key, rows replace each other."""

    name: str
    mode: Mode
    keyed: bool
    exact: bool
    dice: random.Random
    rows: list[tuple[int, Row]] = field(default_factory=list)

    @property
    def declared(self) -> str:
        """Return the table as a job file declares it."""
        key = ", primary_key: [id]" if self.keyed else ""
        exact = ", exact: true" if self.exact else ""
        return f"{{mode: {self.mode}{key}{exact}, ttl: {TTLS[self.name]}ms, columns: {COLUMNS}}}"

    def expire(self, now: int) -> None:
        """Drop the rows whose TTL has expired."""
        self.rows = [(at, row) for at, row in self.rows if at + TTLS[self.name] > now]

    def changes(self, now: int, count: int) -> list[Line]:
        """Return so many random changes at this time, and apply them to the model."""
        return [line for _ in range(count) for line in self._change(now)]

    def _change(self, now: int) -> list[Line]:
        dice, old = self.dice, self.dice.choice(self.rows) if self.rows else None
        number = dice.random()
        if self.mode != "append" and old is not None and number < 0.3:
            return [self._take(old[1], "-D")]
        row: Row = (dice.randint(0, 6), dice.choice([None, 1, 1, 2, 3]), dice.choice([None, 1, 2, 2, 3]))
        if old is not None and number < 0.5:
            # Written again unchanged, or with another value.
            row = old[1] if dice.random() < 0.6 else (old[1][0], old[1][1], row[2])
        lines = []
        if self.mode == "append":
            return [self._put(now, row)] if not self.keyed or self._same(row) is None else []
        replaced = self._same(row) if self.keyed else old[1] if old is not None and number < 0.5 else None
        if replaced is not None and self.mode == "retract" and (self.exact or dice.random() < 0.6):
            lines.append(self._take(replaced, "-U"))
        if replaced is not None and self.keyed:
            self.rows = [(at, other) for at, other in self.rows if other[0] != row[0]]
        return [*lines, self._put(now, row, "+U" if replaced is not None and self.keyed else "+I")]

    def _same(self, row: Row) -> Row | None:
        return next((other for _, other in self.rows if other[0] == row[0]), None)

    def _put(self, now: int, row: Row, op: str = "+I") -> Line:
        self.rows.append((now, row))
        return self.name, op, as_json(row)

    def _take(self, row: Row, op: str) -> Line:
        self.rows.remove(min(each for each in self.rows if each[1] == row))
        return self.name, op, as_json(row)


def as_json(row: Row) -> dict[str, Any]:
    """Return a row in the form of a line of a JSON file."""
    return dict(zip(("id", "k", "v"), row, strict=True))


def over(sql: str, tables: Sequence[Alive]) -> Counter[tuple[Any, ...]]:
    """Return DuckDB's result over the rows that have not expired."""
    there = {table.name: ("id BIGINT, k BIGINT, v BIGINT", [row for _, row in table.rows]) for table in tables}
    return Counter(answer(sql, there))


JOINED = "SELECT a.id, a.v, b.id AS other, b.v AS w FROM a {0} JOIN b ON a.k = b.k"
BY_V = "PARTITION BY k ORDER BY v DESC NULLS LAST, id"
SUMS = "SELECT k, SUM(v) AS s FROM {0} GROUP BY k"
QUERIES = [
    "SELECT id, v + 1 AS w FROM a WHERE k > 1",
    *(JOINED.format(kind) for kind in ("INNER", "LEFT", "RIGHT", "FULL")),
    JOINED.format("FULL") + " AND a.v < b.v",
    JOINED.format("LEFT") + " AND a.v < b.v",
    "SELECT id, k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.v > a.v)",
    "SELECT id, k FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k)",
    "SELECT id, v FROM a WHERE v NOT IN (SELECT v FROM b WHERE k = 1)",
    "SELECT id, v IN (SELECT v FROM b) AS x FROM a",
    "SELECT k, COUNT(*) AS n, SUM(v) AS s, MIN(v) AS lo, MAX(v) AS hi, COUNT(DISTINCT id) AS d FROM a GROUP BY k",
    "SELECT COUNT(*) AS n, MAX(v) AS hi FROM a",
    "SELECT DISTINCT k FROM a",
    f"SELECT id, k, v, rn FROM (SELECT *, ROW_NUMBER() OVER ({BY_V}) AS rn FROM a) WHERE rn <= 2",
    "SELECT id, k, v FROM (SELECT *, RANK() OVER (PARTITION BY k ORDER BY v NULLS FIRST) AS rn FROM a) WHERE rn <= 2",
    "SELECT a.k, COUNT(*) AS n, SUM(b.v) AS s FROM a LEFT JOIN b ON a.k = b.k GROUP BY a.k",
    f"SELECT x.k, x.s, y.s AS t FROM ({SUMS.format('a')}) x FULL JOIN ({SUMS.format('b')}) y ON x.k = y.k",
    "SELECT id, v FROM a UNION ALL SELECT id, v FROM b",
    "SELECT a.id, c.id AS other FROM a JOIN a AS c ON a.v = c.k",
    "SELECT n, COUNT(*) AS times FROM (SELECT k, COUNT(*) AS n FROM a GROUP BY k) GROUP BY n",
]
TABLES: list[tuple[Mode, bool, bool]] = [
    ("append", False, False),
    ("append", True, False),
    ("retract", False, False),
    ("retract", True, False),
    ("retract", True, True),
    ("upsert", True, False),
]


@pytest.mark.parametrize(("mode", "keyed", "exact"), TABLES)
@pytest.mark.parametrize("sql", QUERIES)
def test_the_result_is_sql_over_the_rows_alive(tmp_path: Path, sql: str, mode: Mode, keyed: bool, exact: bool) -> None:
    """After every batch, with restarts, the result equals SQL over the unexpired rows; at the end no state is left."""
    for dice in drawn(f"{sql} {mode} {keyed} {exact}", seeds()):
        other = dice.choice(TABLES)
        tables = [Alive("a", mode, keyed, exact, dice), Alive("b", *other, dice)]
        job = job_of(
            tmp_path,
            "job: j\non_expire: retract\ntables:\n"
            + "".join(f"  {each.name}: {each.declared}\n" for each in tables)
            + f"sinks:\n  result: {{mode: retract, sql: {json.dumps(sql)}}}\n",
        )
        query, now = Clocked.of(job), 1_000
        for _ in range(20):
            now += dice.choice([0, 1, 1, 1, 2, 3, 7, 20])
            for table in tables:
                table.expire(now)
            lines = [line for table in tables for line in table.changes(now, dice.choice([0, 0, 1, 2, 5]))]
            query.batch(now, *lines)
            query.restart()
            assert Counter(tuple(row.values()) for row in query.result) == over(sql, tables), f"at {now}"
        for _ in range(2):
            now += 20
            query.batch(now)
        for table in tables:
            table.expire(now)
        assert Counter(tuple(row.values()) for row in query.result) == over(sql, tables), "in the end"
        # An aggregate over all rows keeps its one row, and so do the counts that decide IN.
        if "GROUP BY" in sql or not any(word in sql for word in ("COUNT", "IN (")):
            assert not any(size.rows for size in query.engine.state.values())
