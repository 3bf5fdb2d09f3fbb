"""FILTER, CASE, AND, OR, WHERE and joins as guards: an expression is evaluated only for the rows that reach it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from rowkind.service.execute.expressions import ExpressionError
from tests.trying import Change, folded

TABLES: dict[str, Any] = {
    "a": {"mode": "retract", "columns": {"id": "INT", "x": "INT"}},
    "b": {"mode": "retract", "columns": {"id": "INT", "k": "INT", "s": "STRING"}},
}
KEYED = {"mode": "upsert", "primary_key": ["k"], "columns": {"k": "INT NOT NULL", "v": "INT"}}

FORMS = {
    "10 DIV {k}": "10 DIV NULLIF({k}, 0)",
    "10 % {k}": "TRY_MOD(10, {k})",
    "CAST(CASE WHEN {k} = 0 THEN 'no' ELSE '7' END AS INT)": "CASE WHEN {k} = 0 THEN NULL ELSE 7 END",
}
"""Expressions that fail if k is 0, each with an expression that is NULL then and equal otherwise."""

GUARDED = [
    "SELECT SUM({q}) FILTER (WHERE k <> 0) AS z, COUNT(DISTINCT {q}, id) FILTER (WHERE k <> 0) AS c FROM b",
    "SELECT id, MIN({q}) FILTER (WHERE k <> 0 AND {q} > 2) AS z FROM b GROUP BY id",
    "SELECT COUNT_IF({q} > 2) FILTER (WHERE k <> 0) AS z FROM b",
    "SELECT id FROM b WHERE k <> 0 AND {q} > 2",
    "SELECT id, {q} AS q FROM b WHERE k <> 0",
    "SELECT id FROM b WHERE k = 0 OR {q} > 2",
    "SELECT id FROM b WHERE NOT (k = 0 OR {q} > 2)",
    "SELECT id, k <> 0 AND {q} > 2 AS y, k = 0 OR {q} > 2 AS n FROM b",
    "SELECT id, CASE WHEN k = 0 THEN 0 ELSE {q} END AS c, CASE k WHEN 0 THEN 0 ELSE {q} END AS d FROM b",
    "SELECT id, IF(k = 0, 0, {q}) AS i, NVL2(NULLIF(k, 0), {q}, 0) AS n, DECODE(k, 0, 0, {q}) AS d FROM b",
    "SELECT COALESCE(NULLIF(k, 1), {q}) AS c, NVL(NULLIF(k, 1), {q}) + 1 AS n, NVL(NULLIF(k, 2), {q}) AS m FROM b",
    "SELECT q FROM (SELECT k, {q} AS q FROM b) t WHERE k <> 0",
    "SELECT id FROM (SELECT * FROM b WHERE k <> 0) b WHERE {q} > 2",
    "SELECT a.id FROM a JOIN b ON a.id = b.id AND b.k <> 0 AND {q} > a.x",
    "SELECT a.id FROM a JOIN b ON a.id = b.id WHERE a.x > 1 AND b.k <> 0 AND {q} > 2",
    "SELECT a.id FROM a JOIN b ON a.id = b.id AND b.k = a.x WHERE a.x > 0 AND {q} > 2",
    "SELECT a.id FROM a, b WHERE a.id = b.id AND a.x = b.k AND a.x > 0 AND {q} = a.x",
    "SELECT a.id, b.k FROM a LEFT JOIN b ON a.id = b.id AND b.k <> 0 AND {q} > 2",
    "SELECT a.x, b.id FROM b LEFT JOIN a ON b.k <> 0 AND {q} = a.x",
    "SELECT a.x, b.id FROM b LEFT JOIN a ON b.k > a.x AND a.x >= 0 AND {q} = a.x",
    "SELECT a.x, b.id FROM b FULL JOIN a ON b.id = a.id AND b.k <> 0 AND {q} = a.x",
    "SELECT a.id, {q} AS q FROM a LEFT JOIN b ON a.id = b.id WHERE b.k > 0 AND {q} > 2",
    "SELECT b.id FROM b WHERE k IN (SELECT x FROM a WHERE x > 0) AND {q} > 2",
    "SELECT b.id FROM b WHERE EXISTS (SELECT 1 FROM a WHERE a.id = b.id AND b.k <> 0 AND {q} > a.x)",
    "SELECT a.id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.id = a.id AND a.x = b.k AND a.x > 0 AND {q} > 2)",
    "SELECT a.id, (SELECT SUM({q}) FROM b WHERE b.id = a.id AND b.k <> 0 AND {q} > 2) AS s FROM a",
    "SELECT b.id FROM b WHERE k > (SELECT COUNT(*) - COUNT(*) FROM a) AND {q} > 2",
    "SELECT k, COUNT(*) AS n FROM b GROUP BY k HAVING MAX(ABS(k)) > 0 AND {q} > 2",
    "SELECT k, n FROM (SELECT k, COUNT(*) AS n, SUM(k) AS s FROM b GROUP BY k) b WHERE s <> 0 AND {q} > 2",
    "SELECT k FROM (SELECT k, RANK() OVER (PARTITION BY k ORDER BY id) n FROM b) b WHERE n = 1 AND k > 0 AND {q} > 2",
    "SELECT id FROM b WHERE k <> 0 AND {q} > 2 UNION ALL SELECT id FROM a",
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("number", range(len(GUARDED)))
def test_a_guarded_expression_gives_what_one_that_cannot_fail_gives(number: int, tmp_path: Path) -> None:
    """Over random rows, a guarded expression gives the result of its form that cannot fail, for all batch sizes."""
    changes = random_changes(random.Random(number), 30)
    sql, form = GUARDED[number], list(FORMS)[number % len(FORMS)]
    guarded, plain = (sql.format(q=f"({each.format(k='b.k')})") for each in (form, FORMS[form]))

    expected = folded(tmp_path, plain, TABLES, changes, batch_rows=30)

    for batch_rows in (3, 30):
        assert folded(tmp_path, guarded, TABLES, changes, batch_rows=batch_rows) == expected, sql


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 10 DIV k AS q FROM b",
        "SELECT id FROM b WHERE 10 DIV k > 1 AND k <> 0",
        "SELECT a.id FROM a JOIN b ON a.id = b.id WHERE 10 DIV b.k > 1",
        "SELECT SUM(10 DIV k) FILTER (WHERE id > 0) AS s FROM b",
    ],
)
def test_what_is_reached_and_fails_stops_the_query(sql: str, tmp_path: Path) -> None:
    """An expression that fails on a row that reaches it stops the query."""
    changes = [
        {"table": "a", "op": "+I", "row": {"id": 1, "x": 1}},
        {"table": "b", "op": "+I", "row": {"id": 1, "k": 0, "s": "x"}},
    ]

    with pytest.raises(ExpressionError, match="division by zero"):
        folded(tmp_path, sql, TABLES, changes)


def test_a_delete_by_a_key_that_no_predicate_let_through_is_nothing(tmp_path: Path) -> None:
    """Expressions over the key are not evaluated for deletes of keys that were always filtered out."""
    changes = [
        {"table": "b", "op": op, "row": {"k": k, "v": 1}}
        for op, k in (("+I", 0), ("+I", 2), ("+U", 0), ("-D", 0), ("+I", 5), ("-D", 2), ("-D", 5), ("+I", 1), ("-D", 0))
    ]

    for batch_rows in (1, 4, 9):
        sql = "SELECT 10 DIV k AS q, v FROM b WHERE k <> 0 AND v > 0"
        assert folded(tmp_path, sql, {"b": KEYED}, changes, batch_rows=batch_rows) == [{"q": 10, "v": 1}]


@pytest.mark.parametrize(
    ("expression", "advice"),
    [
        ("10 / k", "TRY_DIVIDE returns NULL instead"),
        ("10.5 / CAST(k AS DECIMAL(10,2))", "TRY_DIVIDE returns NULL instead"),
        ("10.5 / CAST(k AS DECIMAL(38,20))", "TRY_DIVIDE returns NULL instead"),
        ("10 % k", "TRY_MOD returns NULL instead"),
        ("MOD(10, k)", "TRY_MOD returns NULL instead"),
        ("10.5 % CAST(k AS DECIMAL(10,2))", "TRY_MOD returns NULL instead"),
        ("MOD(CAST(1 AS DECIMAL(38,1)), CAST(k AS DECIMAL(38,20)))", "TRY_MOD returns NULL instead"),
        ("10 DIV k", r"a DIV NULLIF\(b, 0\) returns NULL instead"),
        ("10.5 DIV CAST(k AS DECIMAL(10,2))", r"a DIV NULLIF\(b, 0\) returns NULL instead"),
    ],
)
def test_a_division_by_zero_says_what_to_write(expression: str, advice: str, tmp_path: Path) -> None:
    """The error has the expression, the reason and the alternative, without messages of the engine."""
    changes = [{"table": "b", "op": "+I", "row": {"id": 1, "k": 0, "s": "x"}}]

    with pytest.raises(ExpressionError, match=f": division by zero: {advice}, on the row from change "):
        folded(tmp_path, f"SELECT {expression} AS q FROM b", TABLES, changes)


def random_changes(rng: random.Random, count: int) -> list[Change]:
    """Return random inserts into both tables, and retractions of inserted rows."""
    live: list[Change] = []
    changes = []
    for _ in range(count):
        if live and rng.random() < 0.3:
            changes.append(live.pop(rng.randrange(len(live))) | {"op": "-D"})
            continue
        number, value = rng.randint(1, 3), rng.choice([None, 0, 0, 1, 2, 3])
        row = {"id": number, "x": value} if rng.random() < 0.4 else {"id": number, "k": value, "s": rng.choice("xy")}
        change = {"table": "a" if "x" in row else "b", "op": "+I", "row": row}
        changes.append(change)
        live.append(change)
    return changes
