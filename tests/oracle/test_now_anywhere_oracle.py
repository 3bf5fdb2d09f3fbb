"""Conditions on NOW() anywhere in a query, against DuckDB over the folded inputs with the batch's time for NOW().

Results are compared after every batch, with and without rows, at random steps of the clock. The state is copied in
between.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.clocked import Clocked, Line, job_of
from tests.seeds import batches, drawn, seeds, some

START = datetime(2026, 2, 27, 23, 59, 30, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS = "id: BIGINT NOT NULL, k: BIGINT, v: BIGINT, ts: TIMESTAMP, d: DATE, l: TIMESTAMP_NTZ"
TABLES = f"""\
  a: {{topic: a, mode: MODE, columns: {{{COLUMNS}}}}}
  b: {{topic: b, mode: retract, primary_key: id, columns: {{{COLUMNS}}}}}
  u: {{topic: u, mode: upsert, primary_key: id, columns: {{{COLUMNS}}}}}
"""
"""`a` has no key, so that equal rows occur several times."""

RECENT = "ts > NOW() - INTERVAL '20' SECOND"
SCHEMA = pa.schema(
    [
        *((name, pa.int64()) for name in ("id", "k", "v")),
        ("ts", pa.timestamp("us", "UTC")),
        ("d", pa.date32()),
        ("l", pa.timestamp("us")),
    ]
)
WAYS = (
    "ts > NOW()",
    "ts >= NOW()",
    "ts < NOW()",
    "ts <= NOW()",
    "NOW() < ts",
    "NOW() - INTERVAL '20' SECOND <= ts",
    "CURRENT_TIMESTAMP >= ts + INTERVAL '5' SECOND",
    "ts > NOW() - INTERVAL '1' DAY",
    "ts - INTERVAL '7' SECOND > NOW() - INTERVAL '1' MINUTE + INTERVAL '10' SECOND",
    "ts BETWEEN NOW() - INTERVAL '20' SECOND AND NOW()",
    "NOW() BETWEEN ts AND ts + INTERVAL '15' SECOND",
    "ts <= NOW() AND ts > NOW() - INTERVAL '15' SECOND AND v > 2",
    "ts > NOW() AND l < NOW() + INTERVAL '30' SECOND",
    "l > NOW() - INTERVAL '20' SECOND",
    "l <= NOW()",
    "d > NOW() - INTERVAL '2' DAY",
    "d <= NOW()",
    "d = d AND d >= CURRENT_DATE",
    "d > CURRENT_DATE",
    "d < CURRENT_DATE",
    "d <= CURRENT_DATE - INTERVAL '1' DAY",
    "CURRENT_DATE <= d",
    "d BETWEEN CURRENT_DATE - INTERVAL '1' DAY AND CURRENT_DATE",
    "ts > CURRENT_DATE",
    "ts >= CURRENT_DATE",
    "ts < CURRENT_DATE",
    "ts <= CURRENT_DATE",
    "l >= CURRENT_DATE - INTERVAL '1' HOUR",
    "ts < CURRENT_DATE + INTERVAL '10' SECOND",
    "d > CURRENT_DATE - 1",
    "NOW() - ts < INTERVAL '20' SECOND",
    "COALESCE(ts, TIMESTAMPTZ '2026-02-28 00:00:00') <= NOW()",
    "CASE WHEN v > 4 THEN ts ELSE ts + INTERVAL '15' SECOND END > NOW()",
    "CASE WHEN v > 4 THEN ts END >= NOW() - INTERVAL '20' SECOND",
    "GREATEST(ts, CAST(l AS TIMESTAMPTZ)) >= NOW()",
    "CAST(ts AS DATE) <= CURRENT_DATE",
    "TIMESTAMPTZ '2026-02-28 00:00:00' <= NOW()",
    "ts + INTERVAL '1' MONTH > NOW() + INTERVAL '28' DAY",
    "ts > NOW() AND 10 / NULLIF(v, 0) > 2",
    "(NOT v > 3) AND (ts > NOW())",
    "k IN (1, 2) AND ts > NOW() - INTERVAL '0' SECOND",
)
ALONE = [f"SELECT id, v, ts FROM {{t}} WHERE {way}" for way in WAYS]

NESTED = (
    # Conditions above joins, below joins and in ON.
    "SELECT a.id, b.id AS o FROM a JOIN b ON a.k = b.k WHERE a.ts > NOW() - INTERVAL '20' SECOND",
    "SELECT a.id, b.id AS o FROM a JOIN b ON a.k = b.k AND a.ts > NOW() AND b.ts <= NOW()",
    "SELECT a.id, b.id AS o FROM a JOIN b ON a.k = b.k WHERE CASE WHEN a.v < b.v THEN a.ts ELSE b.ts END > NOW()",
    "SELECT a.id, b.id AS o FROM a JOIN b ON a.k = b.k AND GREATEST(a.ts, b.ts + INTERVAL '2' SECOND) > NOW()",
    "SELECT a.id, b.id AS o FROM a JOIN b ON a.k = b.k AND b.ts + INTERVAL '9' SECOND > NOW() AND a.v < b.v",
    "SELECT a.id, b.id AS o FROM a LEFT JOIN b ON a.k = b.k AND b.ts + INTERVAL '9' SECOND > NOW() AND a.v < b.v",
    "SELECT a.id, b.id AS o FROM a LEFT JOIN b ON a.k = b.k AND b.ts > NOW() - INTERVAL '20' SECOND",
    "SELECT a.id, b.id AS o FROM a LEFT JOIN b ON a.k = b.k WHERE b.ts > NOW() - INTERVAL '20' SECOND",
    "SELECT a.id, b.id AS o FROM a LEFT JOIN b ON a.k = b.k WHERE a.ts > NOW() - INTERVAL '20' SECOND",
    (
        "SELECT a.id, b.id AS o FROM a LEFT JOIN b ON a.k = b.k "
        "WHERE COALESCE(b.ts, a.ts) > NOW() - INTERVAL '20' SECOND"
    ),
    "SELECT a.id, b.id AS o FROM a RIGHT JOIN b ON a.k = b.k AND a.ts > NOW() WHERE b.ts > NOW()",
    (
        "SELECT x.id, y.id AS o FROM (SELECT * FROM a WHERE ts > NOW() - INTERVAL '20' SECOND) x "
        "FULL JOIN (SELECT * FROM u WHERE ts <= NOW()) y ON x.k = y.k"
    ),
    "SELECT a.id, b.id AS o FROM a FULL JOIN b ON a.k = b.k WHERE GREATEST(a.ts, b.ts) > NOW()",
    "SELECT x.id, y.id AS o FROM b x JOIN b y ON x.k = y.k AND x.ts > NOW() AND y.ts > NOW() - INTERVAL '9' SECOND",
    "SELECT a.id, b.id AS o FROM a, b WHERE a.ts > NOW() AND b.ts > NOW() AND a.v < b.v",
    # Conditions with aggregates, ranks and set operations.
    f"SELECT k, COUNT(*) AS n, SUM(v) AS s, MAX(v) AS m, MIN(ts) AS t FROM {{t}} WHERE {RECENT} GROUP BY k",
    f"SELECT COUNT(*) AS n, COUNT(DISTINCT v) AS c FROM {{t}} WHERE {RECENT}",
    "SELECT k, COUNT(*) AS n FROM {t} GROUP BY k HAVING MAX(ts) > NOW() - INTERVAL '20' SECOND",
    "SELECT k, COUNT(*) AS n FROM {t} GROUP BY k HAVING MIN(ts) <= NOW() AND COUNT(*) > 1 AND MAX(ts) > NOW()",
    "SELECT MAX(ts) AS m FROM {t} HAVING MAX(ts) > NOW()",
    "SELECT ts, COUNT(*) AS n FROM {t} GROUP BY ts HAVING ts > NOW()",
    f"SELECT DISTINCT k, d FROM {{t}} WHERE {RECENT}",
    (
        "SELECT id, k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC NULLS LAST, id, ts, l, d) "
        f"AS rn FROM {{t}} WHERE {RECENT}) WHERE rn <= 2"
    ),
    (
        "SELECT id, rn FROM (SELECT *, RANK() OVER (PARTITION BY k ORDER BY ts DESC NULLS LAST) AS rn FROM {t}) "
        f"WHERE rn <= 2 AND {RECENT}"
    ),
    f"SELECT id, v FROM {{t}} WHERE {RECENT} ORDER BY v NULLS FIRST, id LIMIT 3",
    f"SELECT id, SUM(v) OVER (PARTITION BY k) AS s FROM {{t}} WHERE {RECENT}",
    "SELECT id, s FROM (SELECT id, ts, SUM(v) OVER (PARTITION BY k) AS s FROM {t}) WHERE ts > NOW()",
    f"SELECT id FROM {{t}} WHERE {RECENT} UNION ALL SELECT id FROM b WHERE ts > NOW()",
    f"SELECT id FROM (SELECT id, ts FROM {{t}} UNION SELECT id, ts FROM b) WHERE {RECENT}",
    f"SELECT k FROM {{t}} WHERE {RECENT} INTERSECT SELECT k FROM b WHERE ts > NOW()",
    f"SELECT k FROM {{t}} EXCEPT SELECT k FROM b WHERE {RECENT}",
    f"SELECT k, COUNT(*) FILTER (WHERE v > 3) AS n FROM {{t}} WHERE {RECENT} GROUP BY k",
    # Conditions in WITH and in views.
    (
        f"WITH w AS (SELECT * FROM {{t}} WHERE {RECENT}) SELECT x.id, y.id AS o FROM w x JOIN w y ON x.k = y.k "
        "AND x.v < y.v"
    ),
    (
        f"WITH w AS (SELECT k, COUNT(*) AS n FROM {{t}} WHERE {RECENT} GROUP BY k) "
        "SELECT b.id, w.n, z.n AS m FROM b JOIN w ON b.k = w.k LEFT JOIN w z ON b.v = z.k WHERE b.ts <= NOW()"
    ),
    "SELECT id, o FROM fresh",
    "SELECT f.id, COUNT(*) AS n FROM fresh f JOIN fresh g ON f.id = g.o GROUP BY f.id",
    # Conditions in and around subqueries.
    "SELECT id FROM {t} WHERE EXISTS (SELECT 1 FROM b WHERE b.k = {t}.k AND b.ts > NOW() - INTERVAL '20' SECOND)",
    "SELECT id FROM {t} WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = {t}.k AND b.ts > NOW() - INTERVAL '20' SECOND)",
    f"SELECT id FROM {{t}} WHERE {RECENT} AND NOT EXISTS (SELECT 1 FROM b WHERE b.k = {{t}}.k)",
    "SELECT id FROM {t} WHERE EXISTS (SELECT 1 FROM b WHERE b.k = {t}.k AND {t}.ts > NOW())",
    f"SELECT id FROM {{t}} WHERE k IN (SELECT k FROM b WHERE {RECENT})",
    f"SELECT id FROM {{t}} WHERE k NOT IN (SELECT k FROM b WHERE {RECENT})",
    f"SELECT id FROM {{t}} WHERE v > 7 OR k IN (SELECT k FROM b WHERE {RECENT})",
    f"SELECT id, (SELECT MAX(v) FROM b WHERE b.k = {{t}}.k AND b.ts > NOW()) AS m FROM {{t}} WHERE {RECENT}",
    "SELECT id FROM {t} WHERE (SELECT MAX(ts) FROM b WHERE b.k = {t}.k) > NOW() - INTERVAL '20' SECOND",
)
VIEWS = """\
views:
  young: SELECT * FROM a WHERE ts > NOW() - INTERVAL '20' SECOND
  fresh: SELECT young.id, u.id AS o FROM young JOIN u ON young.k = u.k AND u.ts <= NOW()
"""

Row = tuple[Any, ...]


@dataclass
class World:
    """The tables and their random changes; `live` has the current rows of each table."""

    dice: random.Random
    mode: str
    now: datetime = START
    live: dict[str, list[Row]] = field(default_factory=lambda: {"a": [], "b": [], "u": []})
    made: int = 0

    def passes(self) -> int:
        """Advance the clock by a random time and return the time in ms."""
        self.now += timedelta(milliseconds=self.dice.choice((0, 1, 400, 3_000, 3_000, 9_999, 31_000)))
        return round((self.now - EPOCH).total_seconds() * 1000)

    def changes(self, count: int) -> Iterator[Line]:
        """Yield random changes of all tables."""
        for _ in range(count):
            table = self.dice.choice("aabbuu")
            rows = self.live[table]
            if rows and self.dice.random() < 0.4 and not (table == "a" and self.mode == "append"):
                yield from self._changed(table, rows, self.dice.randrange(len(rows)))
                continue
            rows.append(self._row())
            yield table, "+I", _json(rows[-1])
            if table == "a" and self.dice.random() < 0.2:
                rows.append(rows[-1])
                yield table, "+I", _json(rows[-1])

    def _changed(self, table: str, rows: list[Row], at: int) -> Iterator[Line]:
        old = rows.pop(at)
        if self.dice.random() < 0.5:
            yield table, "-D", _json(old)
            return
        rows.append((old[0], *self._row()[1:]))
        if table != "u":
            yield table, "-U", _json(old)
        yield table, "+U", _json(rows[-1])

    def _row(self) -> Row:
        dice = self.dice
        self.made += 1
        times = [self._time() for _ in range(3)]
        found = (dice.choice((1, 2, 3)), dice.randint(0, 9), times[0], times[1].date(), times[2].replace(tzinfo=None))
        return (self.made, *(None if dice.random() < 0.1 else each for each in found))

    def _time(self) -> datetime:
        """Return a time around now, often exactly now, or midnight."""
        dice = self.dice
        if dice.random() < 0.1:
            return datetime(2026, 2, 28, tzinfo=UTC)
        away = timedelta(seconds=dice.randint(-35, 25), microseconds=dice.choice((0, 0, 1, 999, 1000, 250_000)))
        return self.now + away + timedelta(days=dice.choice((0, 0, 0, 0, -1, 1)))

    def query(self, sql: str) -> Counter[Row]:
        """Return DuckDB's result over the current rows."""
        sql = re.sub(r"NOW\(\)|CURRENT_TIMESTAMP", f"TIMESTAMPTZ '{self.now.isoformat()}'", sql)
        sql = sql.replace("CURRENT_DATE", f"DATE '{self.now.date()}'")
        connection = _connection()
        for name, rows in self.live.items():
            columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
            arrays = [pa.array(each, type_) for each, type_ in zip(columns, SCHEMA.types, strict=True)]
            connection.register(name, pa.table(arrays, schema=SCHEMA))
        return Counter(connection.execute(sql).fetchall())


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    """Connect once: connecting takes longer than everything else in a batch of a test."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _json(row: Row) -> dict[str, Any]:
    def value(each: Any) -> Any:
        return each.isoformat() if isinstance(each, date) else each

    return dict(zip(("id", "k", "v", "ts", "d", "l"), map(value, row), strict=True))


def running(folder: Path, sql: str, mode: str, settings: str = "") -> Clocked:
    """Return the query with a retract sink."""
    tables = TABLES.replace("MODE", mode)
    sinks = f"  result: {{topic: r, mode: retract, sql: {json.dumps(sql)}}}"
    return Clocked.of(job_of(folder, f"job: j\n{settings}tables:\n{tables}{VIEWS}sinks:\n{sinks}\n"))


def check(folder: Path, sql: str, mode: str, settings: str = "") -> None:
    """Run the query over random changes and compare it with DuckDB after every batch."""
    expanded = sql
    views = re.findall(r"(\w+): (SELECT .*)", VIEWS)
    if "fresh" in sql:
        expanded = "WITH " + ", ".join(f"{name} AS ({text})" for name, text in views) + f" {sql}"
    for dice in drawn(f"{sql} {mode}", seeds()):
        world, query = World(dice, mode), running(folder, sql, mode, settings)
        for batch in range(batches(16)):
            now = world.passes()
            lines = list(world.changes(dice.choice((0, 0, 1, 3, 6)) if batch else 6))
            query.batch(now, *lines)
            query.restart()
            assert shown(query) == world.query(expanded), f"batch {batch} at {world.now}: {lines}"


def shown(query: Clocked) -> Counter[Row]:
    """Return the result in DuckDB's Python types."""

    def value(name: str, each: Any) -> Any:
        if each is None or name not in ("ts", "d", "t", "m", "l") or not isinstance(each, str):
            return each
        return date.fromisoformat(each) if name == "d" else datetime.fromisoformat(each)

    return Counter({tuple(value(*each) for each in row): count for row, count in query.view.items()})


def over(queries: Sequence[str], tables: str) -> list[str]:
    """Return the queries over each of these tables."""
    return list(dict.fromkeys(sql.replace("{t}", table) for sql in queries for table in tables))


@pytest.mark.parametrize("sql", some(over(ALONE, "b")))
def test_a_condition_is_what_duckdb_says_at_every_moment(tmp_path: Path, sql: str) -> None:
    """Every spelling of a condition gives DuckDB's result at any time, for times of all types, with NULLs."""
    check(tmp_path, sql, "retract")


@pytest.mark.parametrize(
    ("sql", "mode"),
    some(
        (sql, mode) for sql in over(NESTED, "au") for mode in ("append", "retract") if " a" in sql or mode == "retract"
    ),
)
def test_conditions_anywhere_in_a_query(tmp_path: Path, sql: str, mode: str) -> None:
    """Conditions work below and above joins and aggregates, in ON, views and subqueries, even without new input."""
    check(tmp_path, sql, mode)


@pytest.mark.parametrize("sql", some(over(NESTED[::3], "u")))
def test_conditions_beside_a_ttl_that_nothing_reaches(tmp_path: Path, sql: str) -> None:
    """With a TTL that never expires, refreshes pass the condition and change no result."""
    check(tmp_path, sql, "retract", "ttl: 1h\n")


def test_a_row_leaves_that_the_join_above_has_forgotten(tmp_path: Path) -> None:
    """The condition retracts a row even if the input row has expired in the state of the join above it."""
    sql = "SELECT /*+ STATE_TTL('a' = '10s') */ a.id, b.id AS o FROM a JOIN b ON a.k = b.k AND a.ts > NOW()"
    query, ts = running(tmp_path, sql, "retract"), EPOCH + timedelta(minutes=1)
    row = {"k": 1, "v": 0, "ts": ts.isoformat(), "d": None, "l": None}
    query.batch(0, ("a", "+I", {"id": 1, **row}), ("b", "+I", {"id": 2, **row}))
    query.batch(59_999)
    assert query.result == [{"id": 1, "o": 2}]
    query.batch(60_000)
    assert query.result == []


def test_what_has_left_leaves_nothing_behind(tmp_path: Path) -> None:
    """Neither rows whose time has passed nor rows retracted before it leave entries in the timer queue."""
    sql = "SELECT id FROM b WHERE ts BETWEEN NOW() - INTERVAL '1' MINUTE AND NOW()"
    query = running(tmp_path, sql, "retract")
    rows = [
        {"id": each, "k": 1, "v": 0, "ts": (EPOCH + timedelta(seconds=each)).isoformat(), "d": None, "l": None}
        for each in range(120)
    ]
    query.batch(60_000, *(("b", "+I", row) for row in rows))
    query.batch(60_000, *(("b", "-D", row) for row in rows[::2]))
    assert sorted(row["id"] for row in query.result) == list(range(1, 61, 2))
    query.batch(240_000)
    assert query.result == []
    assert [list(store) for name, store in query.engine._state.items() if name.endswith(".agenda")] == [[]]
