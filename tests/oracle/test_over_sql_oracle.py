"""Window functions in SQL against the same SQL in DuckDB over the folded input, after every batch.

Rows are inserted, deleted and updated in a few partitions, with NULLs in arguments and in sort columns.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.clocked import Clocked, Line, job_of
from tests.seeds import drawn, seeds

CASES_EACH = seeds(3)
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

BY_TIME = "PARTITION BY k ORDER BY ts, id"
QUERIES: Mapping[str, str] = {
    "running": f"SELECT id, v, SUM(v) OVER ({BY_TIME}) AS s, COUNT(*) OVER ({BY_TIME}) AS n, AVG(v) OVER ({BY_TIME}) "
    f"AS a, MIN(d) OVER ({BY_TIME}) AS least, MAX(name) OVER ({BY_TIME}) AS most FROM t",
    "neighbours": f"SELECT id, LAG(v) OVER w AS before, LEAD(name, 2, 'none') OVER w AS behind, LAG(d, 1, v) OVER w AS "
    f"x, v - LAG(v) OVER w AS step FROM t WINDOW w AS ({BY_TIME})",
    "values": f"SELECT id, FIRST_VALUE(name) OVER w AS f, LAST_VALUE(v) OVER w AS l, NTH_VALUE(v, 2) OVER w AS second "
    f"FROM t WINDOW w AS ({BY_TIME} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
    "without nulls": f"SELECT id, FIRST_VALUE(v) IGNORE NULLS OVER w AS f, LAST_VALUE(v) IGNORE NULLS OVER w AS l, "
    f"LAG(v) IGNORE NULLS OVER w AS g FROM t WINDOW w AS ({BY_TIME})",
    "neighbours without nulls": f"SELECT id, LAG(v, 2, id) IGNORE NULLS OVER w AS a, LAG(v, 1, -1) IGNORE NULLS OVER w "
    f"AS b, LEAD(v, 2) IGNORE NULLS OVER w AS c, LEAD(v, 1, 7) IGNORE NULLS OVER w AS d FROM t WINDOW w AS ({BY_TIME})",
    "without nulls in frames": f"SELECT id, FIRST_VALUE(v) IGNORE NULLS OVER ({BY_TIME} ROWS BETWEEN 2 PRECEDING AND 1 "
    f"FOLLOWING) AS f, LAST_VALUE(v) IGNORE NULLS OVER ({BY_TIME} ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING) AS l, "
    f"NTH_VALUE(v, 2) IGNORE NULLS OVER ({BY_TIME}) AS s FROM t",
    "rows": "SELECT id, SUM(d) OVER (PARTITION BY k ORDER BY v NULLS FIRST, id ROWS 2 PRECEDING) AS s, COUNT(d) "
    "OVER (PARTITION BY k ORDER BY v NULLS FIRST, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS n FROM t",
    "range of time": "SELECT id, SUM(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '3' SECOND PRECEDING "
    "AND CURRENT ROW) AS s, COUNT(*) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL '2' "
    "SECOND FOLLOWING) AS n FROM t",
    "range of numbers": "SELECT id, SUM(d) OVER (PARTITION BY k ORDER BY v DESC NULLS LAST RANGE BETWEEN 1 PRECEDING "
    "AND 2 FOLLOWING) AS s FROM t",
    "peers": "SELECT id, SUM(v) OVER (PARTITION BY k ORDER BY v NULLS FIRST) AS s FROM t",
    "ranks": "SELECT id, RANK() OVER (ORDER BY v NULLS FIRST) AS r, DENSE_RANK() OVER (ORDER BY v NULLS FIRST) AS d, "
    "NTILE(3) OVER (ORDER BY id) AS q, NTILE(2) OVER (PARTITION BY k ORDER BY v NULLS FIRST, id) AS h, PERCENT_RANK() "
    "OVER (ORDER BY v NULLS FIRST) AS p, CUME_DIST() OVER (PARTITION BY k ORDER BY v NULLS FIRST) AS c FROM t",
    "even numbers": "SELECT id, n FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY k ORDER BY id) AS n FROM t) WHERE "
    "n % 2 = 0",
    "a bound beside": f"SELECT id, n, s FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY k ORDER BY id DESC) AS n, "
    f"SUM(v) OVER ({BY_TIME}) AS s FROM t) WHERE n <= 2",
    "of the whole partition too": f"SELECT id, v, SUM(v) OVER ({BY_TIME}) AS s, SUM(v) OVER (PARTITION BY k) AS w, "
    f"LAST_VALUE(id) OVER ({BY_TIME} ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS l FROM t",
    "filtered": f"SELECT id, COUNT(*) FILTER (WHERE v > 1) OVER ({BY_TIME}) AS n, SUM(CASE WHEN v > 1 THEN v END) OVER "
    f"({BY_TIME} ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS s FROM t",
    "of groups": "SELECT k, day, s, SUM(s) OVER (PARTITION BY k ORDER BY day) AS total FROM (SELECT k, "
    "CAST(ts AS DATE) AS day, SUM(v) AS s FROM t GROUP BY k, CAST(ts AS DATE))",
    "sessions by hand": "SELECT k, session, COUNT(*) AS n FROM (SELECT k, SUM(CASE WHEN gap THEN 1 ELSE 0 END) OVER "
    "(PARTITION BY k ORDER BY ts, id) AS session FROM (SELECT id, k, ts, ts > LAG(ts) OVER (PARTITION BY k ORDER BY "
    "ts, id) + INTERVAL '2' SECOND AS gap FROM t)) GROUP BY k, session",
}
COLUMNS = {"id": "BIGINT", "k": "BIGINT", "v": "INTEGER", "d": "DOUBLE", "c": "DECIMAL(6,2)", "name": "VARCHAR"}


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("name", QUERIES)
def test_the_result_is_that_of_duckdb_after_every_batch(name: str, keyed: bool, tmp_path: Path) -> None:
    """The folded output equals the query over the current rows."""
    clocked = Clocked.of(_job(tmp_path, QUERIES[name], keyed=keyed))
    for generator in drawn(f"over in SQL, {name}, {keyed}", CASES_EACH):
        query = Clocked.of(clocked.job)
        there: list[dict[str, Any]] = []
        for batch in range(6):
            lines = list(_changes(generator, there, generator.choice([1, 4, 20])))
            query.batch(batch, *lines)
            assert _shown(query.result) == _expected(QUERIES[name], there), f"batch {batch}, {lines}"


def _job(folder: Path, sql: str, *, keyed: bool) -> Any:
    columns = {**COLUMNS, "name": "STRING", "v": "INT", "id": "BIGINT NOT NULL"}
    return job_of(
        folder,
        f"""
job: over
kafka: {{bootstrap.servers: "localhost:1"}}
tables:
  t:
    mode: retract
    {"primary_key: [id]" if keyed else "topic: t"}
    columns: {json.dumps({**columns, "ts": "TIMESTAMP NOT NULL"})}
sinks:
  result:
    mode: retract
    sql: {json.dumps(sql)}
""",
    )


def _changes(generator: random.Random, there: list[dict[str, Any]], count: int) -> Iterable[Line]:
    for _ in range(count):
        if there and generator.random() < 0.4:
            old = there.pop(generator.randrange(len(there)))
            yield "t", "-D", old
            if generator.random() < 0.5:
                continue
            new = {**_row(generator, old["id"]), "k": old["k"]}
        else:
            new = _row(generator, generator.randrange(1000))
            if any(row["id"] == new["id"] for row in there):
                continue
        there.append(new)
        yield "t", "+I", new


def _row(generator: random.Random, id_: int) -> dict[str, Any]:
    def maybe(value: Any) -> Any:
        return None if generator.random() < 0.15 else value

    return {
        "id": id_,
        "k": generator.randrange(2),
        "v": maybe(generator.randrange(5)),
        "d": maybe(generator.randrange(-8, 8) * 0.25),
        "c": maybe(f"{generator.randrange(300) / 100:.2f}"),
        "name": maybe(generator.choice("abcde")),
        "ts": (START + dt.timedelta(seconds=generator.randrange(12))).isoformat(),
    }


def _expected(sql: str, rows: Sequence[Mapping[str, Any]]) -> Counter[Any]:
    with duckdb.connect() as connection:
        declared = ", ".join(f"{name} {type_}" for name, type_ in {**COLUMNS, "ts": "TIMESTAMP"}.items())
        connection.execute(f"CREATE TABLE t ({declared})")
        for row in rows:
            values = [row[name] for name in COLUMNS] + [dt.datetime.fromisoformat(row["ts"]).replace(tzinfo=None)]
            connection.execute(f"INSERT INTO t VALUES ({', '.join('?' * len(values))})", values)
        found = connection.sql(_in_duckdb(sql))
        names = found.columns
        return _shown(dict(zip(names, row, strict=True)) for row in found.fetchall())


def _in_duckdb(sql: str) -> str:
    return sql.replace(") IGNORE NULLS OVER", " IGNORE NULLS) OVER")


def _shown(rows: Iterable[Mapping[str, Any]]) -> Counter[Any]:
    return Counter(tuple((name, _value(value)) for name, value in row.items()) for row in rows)


def _value(value: Any) -> Any:
    if isinstance(value, dt.date):
        return value.isoformat()
    return round(float(value), 9) if isinstance(value, float | int) and not isinstance(value, bool) else value
