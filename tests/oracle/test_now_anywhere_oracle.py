"""Conditions on NOW() anywhere in a query, against DuckDB over the folded inputs with the batch's time in place of NOW().

After every batch, with and without rows, at random steps of the clock, with copies of the state in between.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from rowkind.operators.arrangement.store import MemoryStore
from tests.clocked import Clocked, Line, job_of
from tests.seeds import batches, seeds

START = datetime(2026, 2, 27, 23, 59, 30, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS = "id: BIGINT NOT NULL, k: BIGINT, v: BIGINT, ts: TIMESTAMP, d: DATE, l: TIMESTAMP_NTZ"
TABLES = f"""\
  a: {{topic: a, mode: MODE, columns: {{{COLUMNS}}}}}
  b: {{topic: b, mode: retract, primary_key: id, columns: {{{COLUMNS}}}}}
  u: {{topic: u, mode: upsert, primary_key: id, columns: {{{COLUMNS}}}}}
"""
"""`a` has no key, so that equal rows are there several times."""

RECENT = "ts > NOW() - INTERVAL '20' SECOND"
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
    "COALESCE(ts, l, TIMESTAMP '2026-02-28 00:00:00') <= NOW()",
    "ts + v * INTERVAL '3' SECOND > NOW()",
    "GREATEST(ts, l) >= NOW()",
    "CASE WHEN v > 4 THEN ts ELSE l END > NOW() - INTERVAL '20' SECOND",
    "TIMESTAMP '2026-02-28 00:00:00' <= NOW()",
    "(NOT v > 3) AND (ts > NOW())",
    "k IN (1, 2) AND ts > NOW() - INTERVAL '0' SECOND",
)
ALONE = [f"SELECT id, v, ts FROM {{t}} WHERE {way}" for way in WAYS]

NESTED = (
    # Joins: above, below, in ON.
    "SELECT a.id, b.id AS o FROM a JOIN b ON a.k = b.k WHERE a.ts > NOW() - INTERVAL '20' SECOND",
    "SELECT a.id, b.id AS o FROM a JOIN b ON a.k = b.k AND a.ts > NOW() AND b.ts <= NOW()",
    "SELECT a.id, b.id AS o FROM a JOIN b ON a.k = b.k WHERE a.ts + (b.v * INTERVAL '5' SECOND) > NOW()",
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
    # Aggregates, ranks, sets.
    f"SELECT k, COUNT(*) AS n, SUM(v) AS s, MAX(v) AS m, MIN(ts) AS t FROM {{t}} WHERE {RECENT} GROUP BY k",
    f"SELECT COUNT(*) AS n, COUNT(DISTINCT v) AS c FROM {{t}} WHERE {RECENT}",
    "SELECT k, COUNT(*) AS n FROM {t} GROUP BY k HAVING MAX(ts) > NOW() - INTERVAL '20' SECOND",
    "SELECT k, COUNT(*) AS n FROM {t} GROUP BY k HAVING MIN(ts) <= NOW() AND COUNT(*) > 1 AND MAX(ts) > NOW()",
    "SELECT MAX(ts) AS m FROM {t} HAVING MAX(ts) > NOW()",
    "SELECT ts, COUNT(*) AS n FROM {t} GROUP BY ts HAVING ts > NOW()",
    f"SELECT DISTINCT k, d FROM {{t}} WHERE {RECENT}",
    (
        "SELECT id, k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, id, ts, l, d) AS rn "
        f"FROM {{t}} WHERE {RECENT}) WHERE rn <= 2"
    ),
    (
        "SELECT id, rn FROM (SELECT *, RANK() OVER (PARTITION BY k ORDER BY ts DESC) AS rn FROM {t}) "
        f"WHERE rn <= 2 AND {RECENT}"
    ),
    f"SELECT id, v FROM {{t}} WHERE {RECENT} ORDER BY v, id LIMIT 3",
    f"SELECT id, SUM(v) OVER (PARTITION BY k) AS s FROM {{t}} WHERE {RECENT}",
    "SELECT id, s FROM (SELECT id, ts, SUM(v) OVER (PARTITION BY k) AS s FROM {t}) WHERE ts > NOW()",
    f"SELECT id FROM {{t}} WHERE {RECENT} UNION ALL SELECT id FROM b WHERE ts > NOW()",
    f"SELECT id FROM (SELECT id, ts FROM {{t}} UNION SELECT id, ts FROM b) WHERE {RECENT}",
    f"SELECT k FROM {{t}} WHERE {RECENT} INTERSECT SELECT k FROM b WHERE ts > NOW()",
    f"SELECT k FROM {{t}} EXCEPT SELECT k FROM b WHERE {RECENT}",
    f"SELECT k, COUNT(*) FILTER (WHERE v > 3) AS n FROM {{t}} WHERE {RECENT} GROUP BY k",
    # WITH and views.
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
    # Subqueries.
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
    """The tables and what happens to them: rows, by table, that are there now."""

    dice: random.Random
    mode: str
    now: datetime = START
    live: dict[str, list[Row]] = field(default_factory=lambda: {"a": [], "b": [], "u": []})
    made: int = 0

    def passes(self) -> int:
        """Some time passes; the time in ms."""
        self.now += timedelta(milliseconds=self.dice.choice((0, 1, 400, 3_000, 3_000, 9_999, 31_000)))
        return round((self.now - EPOCH).total_seconds() * 1000)

    def changes(self, count: int) -> Iterator[Line]:
        """Changes of all tables."""
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
        """Around now, often at once, or at a moment that matters."""
        dice = self.dice
        if dice.random() < 0.1:
            return datetime(2026, 2, 28, tzinfo=UTC)
        away = timedelta(seconds=dice.randint(-35, 25), microseconds=dice.choice((0, 0, 1, 999, 1000, 250_000)))
        return self.now + away + timedelta(days=dice.choice((0, 0, 0, 0, -1, 1)))

    def query(self, sql: str) -> Counter[Row]:
        """What DuckDB makes of the rows there are now."""
        sql = re.sub(r"NOW\(\)|CURRENT_TIMESTAMP", f"TIMESTAMPTZ '{self.now.isoformat()}'", sql)
        sql = sql.replace("CURRENT_DATE", f"DATE '{self.now.date()}'")
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            for name, rows in self.live.items():
                connection.execute(
                    f"CREATE TABLE {name} (id BIGINT, k BIGINT, v BIGINT, ts TIMESTAMPTZ, d DATE, l TIMESTAMP)"
                )
                if rows:
                    connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?, ?, ?)", rows)
            return Counter(connection.execute(sql).fetchall())


def _json(row: Row) -> dict[str, Any]:
    def value(each: Any) -> Any:
        return each.isoformat() if isinstance(each, date) else each

    return dict(zip(("id", "k", "v", "ts", "d", "l"), map(value, row), strict=True))


def running(folder: Path, sql: str, mode: str, settings: str = "") -> Clocked:
    """The query into a retract topic."""
    tables = TABLES.replace("MODE", mode)
    sinks = f"  result: {{topic: r, mode: retract, sql: {json.dumps(sql)}}}"
    return Clocked.of(job_of(folder, f"job: j\n{settings}tables:\n{tables}{VIEWS}sinks:\n{sinks}\n"))


def check(folder: Path, sql: str, mode: str, settings: str = "") -> None:
    """Run the query over random changes, and compare it with DuckDB after every batch."""
    expanded = sql
    views = re.findall(r"(\w+): (SELECT .*)", VIEWS)
    if "fresh" in sql:
        expanded = "WITH " + ", ".join(f"{name} AS ({text})" for name, text in views) + f" {sql}"
    for number in seeds():
        seed = f"{sql} {mode} {number}"
        print(f"seed '{seed}'")
        dice = random.Random(seed)
        world, query = World(dice, mode), running(folder, sql, mode, settings)
        for batch in range(batches(24)):
            now = world.passes()
            lines = list(world.changes(dice.choice((0, 0, 1, 3, 6)) if batch else 6))
            query.batch(now, *lines)
            restart(query)
            assert shown(query) == world.query(expanded), f"{seed}, batch {batch} at {world.now}: {lines}"


def restart(query: Clocked) -> None:
    """Go on with copies of all that is kept."""
    for kept in query.engine._stores:
        kept.update({name: store.copy() for name, store in kept.items() if isinstance(store, MemoryStore)})


def shown(query: Clocked) -> Counter[Row]:
    """The result as DuckDB gives it."""

    def value(name: str, each: Any) -> Any:
        if each is None or name not in ("ts", "d", "t", "m", "l") or not isinstance(each, str):
            return each
        return date.fromisoformat(each) if name == "d" else datetime.fromisoformat(each)

    return Counter({tuple(value(*each) for each in row): count for row, count in query.view.items()})


def over(queries: Sequence[str], tables: str) -> list[str]:
    """The queries over each of these tables."""
    return list(dict.fromkeys(sql.replace("{t}", table) for sql in queries for table in tables))


@pytest.mark.parametrize("sql", over(ALONE, "b"))
def test_a_condition_is_what_duckdb_says_at_every_moment(tmp_path: Path, sql: str) -> None:
    """Each way to write one, over times of all types, with and without NULL."""
    check(tmp_path, sql, "retract")


@pytest.mark.parametrize("mode", ["append", "retract"])
@pytest.mark.parametrize("sql", over(NESTED, "au"))
def test_conditions_anywhere_in_a_query(tmp_path: Path, sql: str, mode: str) -> None:
    """Below and above joins and aggregates, in ON, in views and subqueries; rows leave without input."""
    check(tmp_path, sql, mode)
