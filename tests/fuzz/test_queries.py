"""Hand-written queries over a few random changelogs each: after every batch the result equals DuckDB's."""

from __future__ import annotations

import random

import pytest

from tests.fuzz.case import Case
from tests.fuzz.changelogs import random_changes
from tests.fuzz.running import run
from tests.fuzz.schemas import Column, Table
from tests.fuzz.shrinking import shrink
from tests.seeds import seeds

TABLES = (
    Table("t", "retract", (Column("id", "BIGINT", required=True), Column("k", "BIGINT"), Column("v", "INT")), ("id",)),
    Table("u", "retract", (Column("k", "BIGINT"), Column("v", "INT"), Column("s", "STRING"))),
    Table("w", "upsert", (Column("k", "BIGINT", required=True), Column("v", "INT")), ("k",)),
)
EXISTS = "EXISTS (SELECT 1 FROM u WHERE u.k = t.k)"
QUERIES = (
    # EXISTS and IN in every place of a condition.
    f"SELECT id FROM t WHERE v > 1 OR {EXISTS}",
    f"SELECT id FROM t WHERE NOT (v > 1 AND {EXISTS})",
    "SELECT id FROM t WHERE v > 1 OR k IN (SELECT k FROM u)",
    "SELECT id FROM t WHERE v > 1 OR k NOT IN (SELECT k FROM u)",
    "SELECT id FROM t WHERE NOT (v > 1 AND k IN (SELECT k FROM u))",
    "SELECT id FROM t WHERE NOT (v > 1 OR k IN (SELECT k FROM u WHERE u.v < t.v))",
    "SELECT id FROM t WHERE v > 1 OR k IN (SELECT k FROM w)",
    f"SELECT id, CASE WHEN {EXISTS} THEN 'there' ELSE 'not' END AS c FROM t",
    "SELECT id, CASE WHEN k NOT IN (SELECT k FROM u) THEN 'not' ELSE 'there' END AS c FROM t",
    f"SELECT id, {EXISTS} AS c FROM t",
    "SELECT id, k IN (SELECT k FROM u) AS c FROM t",
    "SELECT id, k NOT IN (SELECT k FROM u) AS c FROM t",
    "SELECT id, k IN (SELECT k FROM u WHERE u.v = t.v) AS c FROM t",
    "SELECT id, k IN (SELECT k FROM u WHERE u.v < t.v) IS NULL AS c FROM t",
    "SELECT id, 1 IN (SELECT k FROM u) AS c FROM t",
    "SELECT id, (t.k, t.v) IN (SELECT u.k, u.v FROM u) AS c FROM t",
    "SELECT id FROM t WHERE (t.k, t.v) NOT IN (SELECT u.k, u.v FROM u)",
    "SELECT id FROM t WHERE (t.k, t.v) NOT IN (SELECT u.k, u.v FROM u WHERE u.s = 'a')",
    f"SELECT v, COUNT(*) AS n FROM t WHERE k > 0 OR {EXISTS} GROUP BY v",
    "SELECT k, COUNT(*) AS n FROM t GROUP BY k HAVING k IN (SELECT k FROM u)",
    "SELECT k, SUM(v) AS n FROM t GROUP BY k HAVING SUM(v) IN (SELECT v FROM u) OR COUNT(*) > 2",
    "SELECT k, SUM(v) AS n FROM t GROUP BY k HAVING EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.v < 3)",
    "SELECT k, SUM(CASE WHEN v IN (SELECT v FROM u) THEN 1 ELSE 0 END) AS n FROM t GROUP BY k",
    f"SELECT k, COUNT(*) FILTER (WHERE {EXISTS}) AS n FROM t GROUP BY k",
    f"SELECT {EXISTS} AS c, COUNT(*) AS n FROM t GROUP BY 1",
    f"SELECT {EXISTS} AS c, COUNT(*) AS n FROM t GROUP BY {EXISTS}",
    "SELECT id FROM t WHERE (SELECT MAX(v) FROM u) IN (SELECT v FROM w) OR v = 1",
    (
        "SELECT t.id, r.rn FROM (SELECT id, v, ROW_NUMBER() OVER (PARTITION BY v ORDER BY id) AS rn FROM t) AS r "
        "JOIN t ON t.id = r.id WHERE r.rn <= 2 AND (r.rn = 1 OR t.k IN (SELECT k FROM w))"
    ),
    "SELECT id FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY v ORDER BY id) <= 2",
    f"SELECT t.id, w.v FROM t JOIN w ON t.k = w.k AND {EXISTS}",
    "SELECT t.id, w.v FROM t JOIN w ON t.k = w.k AND (w.v > 1 OR w.v NOT IN (SELECT v FROM u WHERE u.k = t.k))",
    # Clauses without effect: an order inside a query, a constant partition key.
    "SELECT k, SUM(v) AS n FROM (SELECT * FROM t ORDER BY v) AS r GROUP BY k",
    "WITH r AS (SELECT k, v FROM u ORDER BY k DESC) SELECT k, v FROM r UNION ALL (SELECT k, v FROM w ORDER BY v)",
    "SELECT id, SUM(v) OVER (PARTITION BY NULL) AS n FROM t",
    "SELECT id FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY 1, NULL ORDER BY v, id) <= 3",
    # Values kept for a group, with a clock that goes back.
    "SELECT k, LISTAGG(DISTINCT s, ',') WITHIN GROUP (ORDER BY s) AS c, COUNT(*) AS n FROM u GROUP BY k",
    "SELECT k, MODE(v) AS a, MAX(v) AS b, MIN(s) AS c, COUNT(DISTINCT v) AS n FROM u GROUP BY k",
    # The nearest number.
    "SELECT t.id, r.n FROM t ASOF JOIN (SELECT v, COUNT(*) AS n FROM u GROUP BY v) AS r ON t.v >= r.v",
    (
        "SELECT t.id, r.n FROM t ASOF LEFT JOIN (SELECT k, v, COUNT(*) AS n FROM u GROUP BY k, v) AS r "
        "ON t.k = r.k AND t.v < r.v"
    ),
    # Alternatives with a common condition.
    "SELECT t.id, u.s FROM t, u WHERE (t.k = u.k AND t.v > 2) OR (t.k = u.k AND u.v < 3 AND u.s IS NULL)",
    "SELECT t.id, u.s FROM t LEFT JOIN u ON (t.k = u.k AND t.v = 1) OR (u.v > 1 AND t.k = u.k) OR (t.k = u.k)",
    "SELECT id FROM t WHERE NOT ((v > 1 AND k = 2) OR (v > 1 AND k IS NULL))",
    "SELECT id FROM t WHERE (v <> 0 AND 6 / v > 2) OR (6 / v > 2 AND v <> 0 AND k > 1)",
    # Scalar subqueries.
    "SELECT id, (SELECT MAX(u.v) FROM u WHERE u.k = t.k) AS m FROM t",
    "SELECT id, (SELECT MAX(u.v) FROM u WHERE u.k < t.k) AS m FROM t",
    "SELECT id, (SELECT COUNT(*) FROM u WHERE u.k <= t.k AND u.v = t.v) AS n FROM t",
    "SELECT id, (SELECT SUM(u.v + t.v) FROM u WHERE u.k = t.k) AS n FROM t",
    "SELECT id, (SELECT u.s FROM u WHERE u.k = t.k ORDER BY u.v DESC, u.s LIMIT 1) AS s FROM t",
    "SELECT id, (SELECT u.s FROM u WHERE u.k <> t.k ORDER BY u.v DESC, u.s LIMIT 1) AS s FROM t",
    "SELECT id FROM t WHERE v > (SELECT AVG(u.v) FROM u WHERE u.k = t.k OR u.k IS NULL)",
    "SELECT id FROM t WHERE (k, v) = (SELECT MAX(k), MAX(v) FROM u)",
    "SELECT id FROM t WHERE (k, v) > (SELECT MAX(k), MAX(v) FROM u WHERE u.k = t.k)",
    "SELECT id FROM t WHERE (k, v) <= (1, 2) OR (k, v) IN ((2, 3), (3, 1))",
    "SELECT id FROM t WHERE k IN (SELECT u.k FROM u WHERE EXISTS (SELECT 1 FROM w WHERE w.k = u.k AND w.v = t.v))",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k IN (SELECT w.k FROM w WHERE w.v > t.v))",
    "SELECT id, (SELECT MAX(u.v) FROM u WHERE u.k = (SELECT MIN(w.k) FROM w WHERE w.v = t.v)) AS m FROM t",
    "SELECT id FROM t WHERE EXISTS (SELECT u.k FROM u WHERE u.v < t.v GROUP BY u.k HAVING COUNT(*) > t.k)",
    "SELECT id FROM t WHERE v IN (SELECT COUNT(*) FROM u WHERE u.k < t.k GROUP BY u.s)",
    "SELECT id FROM t WHERE v IN (SELECT DISTINCT u.v FROM u WHERE u.k < t.k)",
    "SELECT id FROM t WHERE v IN (SELECT u.v FROM u WHERE u.k = t.k UNION ALL SELECT w.v FROM w WHERE w.k = t.k)",
    "SELECT id FROM t WHERE v IN (SELECT u.v FROM u WHERE u.k < t.k EXCEPT SELECT w.v FROM w WHERE w.k = t.k)",
    "SELECT k, (SELECT COUNT(*) FROM u WHERE u.k = t.k) AS n, SUM(v) AS s FROM t GROUP BY k",
    "SELECT k, SUM(v) AS s FROM t GROUP BY k HAVING SUM(v) > (SELECT AVG(u.v) FROM u WHERE u.k < t.k)",
    # Correlated derived tables.
    "SELECT id, (SELECT COUNT(*) FROM (SELECT DISTINCT v FROM u WHERE u.k = t.k) AS x) AS n FROM t",
    "SELECT id, (SELECT SUM(n) FROM (SELECT s, COUNT(*) AS n FROM u WHERE u.k < t.k GROUP BY s) AS x) AS n FROM t",
    (
        "SELECT id, (SELECT COUNT(*) FROM (SELECT v FROM u WHERE u.k = t.k UNION SELECT v FROM w WHERE w.k = t.k) "
        "AS x WHERE x.v > 1) AS n FROM t"
    ),
    (
        "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM (SELECT v FROM u WHERE u.k = t.k EXCEPT ALL SELECT v FROM w "
        "WHERE w.v >= t.v) AS x)"
    ),
    (
        "SELECT id, (SELECT SUM(x.v) FROM (SELECT v, ROW_NUMBER() OVER (ORDER BY v, s) AS rn FROM u WHERE u.k = t.k) "
        "AS x WHERE rn <= 2) AS n FROM t"
    ),
    "SELECT id, (SELECT MAX(x.v) FROM (SELECT v FROM u WHERE u.k <> t.k ORDER BY v, s LIMIT 2) AS x) AS n FROM t",
    "SELECT id, (SELECT x.n + 1 FROM (SELECT COUNT(*) AS n FROM u WHERE u.k = t.k) AS x) AS n FROM t",
    "SELECT id, (SELECT x.n + 1 FROM (SELECT COUNT(*) AS n FROM u WHERE u.v < t.v) AS x WHERE x.n < t.k) AS n FROM t",
    "SELECT id, (SELECT COUNT(*) FROM u WHERE u.k = t.k HAVING COUNT(*) < 2) AS n FROM t",
    "SELECT id, (SELECT COUNT(*) FROM u WHERE u.k = t.k ORDER BY 1 LIMIT 1) AS n FROM t",
    "SELECT id FROM t WHERE v IN (SELECT COUNT(*) FROM u WHERE u.k = t.k UNION ALL SELECT 2)",
    "SELECT id FROM t WHERE v NOT IN (SELECT x.v FROM (SELECT DISTINCT v FROM u WHERE u.k = t.k) AS x)",
    (
        "SELECT id, (SELECT COUNT(*) FROM w LEFT JOIN (SELECT v FROM u WHERE u.k = t.k) AS x ON x.v = w.v "
        "WHERE x.v IS NULL OR w.k = t.k) AS n FROM t"
    ),
    (
        "SELECT id FROM t WHERE EXISTS (WITH x AS (SELECT v, s FROM u WHERE u.k = t.k) SELECT 1 FROM w "
        "WHERE NOT EXISTS (SELECT 1 FROM x WHERE x.v = w.v) AND w.k <> t.id)"
    ),
    (
        "SELECT t.id, x.n FROM t, LATERAL (SELECT COUNT(*) AS n FROM (SELECT s FROM u WHERE u.k = t.k GROUP BY s) "
        "AS y) AS x"
    ),
    "SELECT id, (SELECT MAX(x.v) FROM (VALUES (t.v), (t.k + 1)) AS x(v)) AS n FROM t",
    "SELECT id, (SELECT SUM(x.v) FROM (SELECT u.v + t.v AS v FROM u WHERE u.k = t.k) AS x) AS n FROM t",
    (
        "SELECT k, COUNT(*) AS n, (SELECT COUNT(*) FROM (SELECT DISTINCT v FROM w WHERE w.k > t.k) AS x) AS m FROM t "
        "GROUP BY k"
    ),
    "SELECT id, (SELECT SORT_ARRAY(COLLECT_LIST(u.v)) FROM u WHERE u.k = t.k) AS l FROM t",
    "SELECT id, (SELECT SIZE(ARRAY_AGG(u.s)) FROM u WHERE u.k < t.k) AS n FROM t",
    # Aggregates of the outer query.
    "SELECT t.k FROM t GROUP BY t.k HAVING EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.v < SUM(t.v))",
    "SELECT t.k FROM t GROUP BY t.k HAVING NOT EXISTS (SELECT 1 FROM u WHERE u.v > MAX(t.v)) OR COUNT(*) > 2",
    "SELECT t.k, (SELECT COUNT(*) FROM w JOIN u ON u.v < COUNT(t.v) WHERE w.k = t.k) AS n FROM t GROUP BY t.k",
    # ANY and ALL.
    "SELECT id FROM t WHERE v > ALL (SELECT u.v FROM u WHERE u.k = t.k)",
    "SELECT id FROM t WHERE NOT v <= ANY (SELECT u.v FROM u WHERE u.k < t.k) OR k = 1",
    "SELECT id, v < ANY (SELECT u.v FROM u WHERE u.k = t.k) AS a, v >= ALL (SELECT w.v FROM w) AS b FROM t",
    (
        "SELECT id, v <> ANY (SELECT u.v FROM u WHERE u.k = t.k) AS a, "
        "v = ALL (SELECT w.v FROM w WHERE w.k = t.k) AS b FROM t"
    ),
    "SELECT id, v = ANY (SELECT u.v FROM u WHERE u.k = t.k) AS a, v <> ALL (SELECT w.v FROM w) AS b FROM t",
    "SELECT k, COUNT(*) AS n FROM t GROUP BY k HAVING COUNT(*) >= ALL (SELECT COUNT(*) FROM u GROUP BY u.k)",
    "SELECT k, SUM(CASE WHEN v > ANY (SELECT u.v FROM u WHERE u.k = t.k) THEN 1 ELSE 0 END) AS n FROM t GROUP BY k",
    "SELECT id FROM t WHERE v NOT IN (SELECT COUNT(*) FROM u WHERE u.k = t.k)",
    # Literal rows.
    "SELECT t.id, x.name FROM t JOIN (VALUES (1, 'one'), (2, 'two')) AS x(k, name) ON t.k = x.k",
    "SELECT id FROM t WHERE k IN (SELECT * FROM VALUES (1), (2), (7))",
    "SELECT x.k, COUNT(u.v) AS n FROM (VALUES (1), (2), (7)) AS x(k) LEFT JOIN u ON u.k = x.k GROUP BY x.k",
    "SELECT k, COUNT(*) AS n FROM (SELECT k FROM t UNION ALL SELECT 1 UNION ALL SELECT NULL) AS x GROUP BY k",
    "SELECT id, (SELECT t.v + 1) AS n FROM t",
    "SELECT t.id, x.n FROM t, LATERAL (SELECT t.v * 2 AS n) AS x",
    "SELECT t.id, x.n FROM t, LATERAL (SELECT t.k AS n UNION ALL SELECT t.v) AS x",
    # Set operations with duplicates.
    "SELECT k, v FROM t INTERSECT ALL SELECT k, v FROM u",
    "SELECT k, v FROM u EXCEPT ALL SELECT k, v FROM t",
    "SELECT v FROM u EXCEPT ALL SELECT v FROM w UNION ALL SELECT v FROM t",
    "SELECT id FROM t WHERE v IN (SELECT v FROM u WHERE u.k = t.k EXCEPT ALL SELECT v FROM w WHERE w.k = t.k)",
    # LATERAL subqueries.
    "SELECT t.id, x.v FROM t, LATERAL (SELECT u.v FROM u WHERE u.k = t.k) AS x",
    "SELECT t.id, x.v, x.s FROM t, LATERAL (SELECT v, s FROM u WHERE u.k = t.k ORDER BY v DESC, s LIMIT 2) AS x",
    "SELECT t.id, x.v FROM t LEFT JOIN LATERAL (SELECT v FROM u WHERE u.k < t.k ORDER BY v, s LIMIT 1) AS x ON TRUE",
    "SELECT t.id, x.n, x.m FROM t, LATERAL (SELECT COUNT(*) AS n, MAX(v) AS m FROM u WHERE u.k < t.k) AS x",
    "SELECT t.id, x.n FROM t CROSS JOIN LATERAL (SELECT COUNT(*) AS n FROM u WHERE u.k = t.k) AS x WHERE x.n < 2",
    "SELECT t.id, x.s, x.n FROM t, LATERAL (SELECT s, COUNT(*) AS n FROM u WHERE u.v >= t.v GROUP BY s) AS x",
    (
        "SELECT t.id, x.d, y.n FROM t, LATERAL (SELECT t.v + 1 AS d FROM w WHERE w.k = t.k) AS x, "
        "LATERAL (SELECT COUNT(*) AS n FROM u WHERE u.v < x.d) AS y"
    ),
    (
        "SELECT t.id, x.v FROM t, LATERAL (SELECT v, ROW_NUMBER() OVER (ORDER BY v, s) AS rn FROM u WHERE u.k = t.k "
        "QUALIFY rn = 1) AS x"
    ),
    # Forms of FROM.
    (
        "SELECT t.id, x.n FROM t LEFT JOIN (u JOIN (SELECT k, COUNT(*) AS n FROM w GROUP BY k) AS x ON u.k = x.k) "
        "ON t.k = u.k"
    ),
    "SELECT t.id, u.s, w.v FROM (t JOIN u ON t.k = u.k) LEFT JOIN w ON w.k = t.k",
    "SELECT * FROM t NATURAL JOIN u",
    "SELECT id FROM (SELECT id, v + 1, COUNT(*) FROM t GROUP BY id, v + 1) AS x",
    "SELECT `sum(v)` + 1 AS s FROM (SELECT k, SUM(v) FROM t GROUP BY k) AS x",
    "SELECT k, v, s FROM w NATURAL LEFT JOIN u",
    "SELECT k, v FROM w NATURAL FULL JOIN u",
)


@pytest.mark.parametrize("sql", QUERIES)
def test_a_query_gives_what_duckdb_gives_after_every_batch(sql: str) -> None:
    """Over random changes of three tables, the query's result equals DuckDB's after every batch."""
    for number in seeds(2):
        seed = f"{sql} {number}"
        print(f"seed '{seed}'")
        rng = random.Random(seed)
        changes = random_changes(rng, TABLES, rng.choice((12, 24, 40)))
        tables = {each.name: each.entry for each in TABLES}
        case = Case(seed, sql, tables, {"mode": "retract"}, rng.choice((1, 4, 9)), changes)
        outcome = run(case)
        if outcome.is_finding:
            small = shrink(case, outcome, run, seconds=20)
            pytest.fail(f"{run(small)}\n{small}")
        assert outcome.verdict == "agreed", outcome
