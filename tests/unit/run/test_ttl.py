"""Queries with a TTL in the in-memory engine: refreshes and late retractions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rowkind.operators.columns.batch import Batch
from rowkind.service.physical.graph import Exit
from rowkind.service.query.memory import MemoryEngine
from tests.clocked import Clocked, Line, job_of

JOB = """
job: written-again
ttl: 10s
tables:
  u: {{mode: upsert, primary_key: [k], columns: {{k: INT NOT NULL, a: INT, n: STRING}}}}
  v: {{mode: retract, columns: {{k: INT, a: INT, n: STRING}}}}
  r: {{mode: append, ttl: 1d, columns: {{b: INT}}}}
  s: {{mode: append, columns: {{c: INT}}}}
sinks:
  result: {{mode: retract, sql: "{sql}"}}
"""
U = {"k": 1, "a": 1, "n": "x"}
ONCE_IN_A_WHILE = (0, 3_000, 6_000, 9_000)


def clocked(folder: Path, sql: str) -> Clocked:
    """Return a query over the tables."""
    return Clocked.of(job_of(folder, JOB.format(sql=sql)))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT u.k, r.b FROM u JOIN r ON u.a = r.b",
        "SELECT u.k, r.b FROM u JOIN s ON u.k = s.c JOIN r ON u.a = r.b",
        "SELECT u.k, r.b FROM u LEFT JOIN s ON u.k = s.c + 1 JOIN r ON u.a = r.b",
        "SELECT u.k, r.b FROM (SELECT * FROM u WHERE EXISTS (SELECT 1 FROM s WHERE c = u.k)) u JOIN r ON u.a = r.b",
        "SELECT u.k, r.b FROM (SELECT * FROM u WHERE NOT EXISTS (SELECT 1 FROM s WHERE c > k)) u JOIN r ON u.a = r.b",
        "SELECT u.k, r.b FROM (SELECT a, MAX(k) AS k FROM u GROUP BY a) u JOIN r ON u.a = r.b",
        "SELECT u.k, r.b FROM (SELECT a, k FROM u UNION SELECT a, k FROM v) u JOIN r ON u.a = r.b",
        "SELECT u.k, r.b FROM (SELECT k, a FROM u ORDER BY n LIMIT 3) u JOIN r ON u.a = r.b",
        "SELECT u.k, r.b FROM (SELECT k, a FROM u QUALIFY RANK() OVER (ORDER BY n) < 3) u JOIN r ON u.a = r.b",
    ],
)
def test_a_row_that_is_written_again_and_again_does_not_expire_downstream(tmp_path: Path, sql: str) -> None:
    """Writing a row refreshes all its copies downstream, through any operator."""
    query = clocked(tmp_path, sql)
    query.batch(0, ("s", "+I", {"c": 1}), ("u", "+U", U))
    for now in ONCE_IN_A_WHILE:
        query.batch(now, ("u", "+U", U))
    query.batch(12_000, ("r", "+I", {"b": 1}))
    assert query.result == [{"k": 1, "b": 1}]


def test_a_row_that_nobody_writes_expires_downstream(tmp_path: Path) -> None:
    """A row that is not written expires downstream, even if another row of its key is refreshed."""
    query = clocked(tmp_path, "SELECT u.k, r.b FROM u JOIN r ON u.a = r.b")
    query.batch(0, ("u", "+U", U | {"k": 2}))
    for now in ONCE_IN_A_WHILE:
        query.batch(now, ("u", "+U", U))
    query.batch(12_000, ("r", "+I", {"b": 1}))
    assert query.result == [{"k": 1, "b": 1}]


def test_an_update_of_columns_that_nobody_reads_is_a_write(tmp_path: Path) -> None:
    """An update of unused columns emits nothing but refreshes the row."""
    query = clocked(tmp_path, "SELECT v.k, r.b FROM v JOIN r ON v.a = r.b")
    row: dict[str, Any] = {"k": 1, "a": 1, "n": "0"}
    query.batch(0, ("v", "+I", row))
    for now in ONCE_IN_A_WHILE:
        after = row | {"n": str(now + 1)}
        query.batch(now, ("v", "-U", row), ("v", "+U", after))
        row = after
    query.batch(12_000, ("r", "+I", {"b": 1}))
    assert query.result == [{"k": 1, "b": 1}]


def test_a_group_whose_rows_are_added_up_before_they_are_shuffled_is_refreshed(tmp_path: Path) -> None:
    """A task sends one refresh per group, and the group does not expire."""
    query = clocked(tmp_path, "SELECT a, COUNT(*) AS c FROM (SELECT u.a FROM u JOIN s ON u.k < s.c) GROUP BY a")
    rows: list[Line] = [("u", "+U", U | {"k": number}) for number in range(50)]
    query.batch(0, ("s", "+I", {"c": 100}), *rows)
    for now in ONCE_IN_A_WHILE:
        query.batch(now, ("s", "+I", {"c": 0}), *rows)
    query.batch(12_000, ("u", "+U", U | {"k": 99}), ("s", "+I", {"c": 1}))
    assert query.result == [{"a": 1, "c": 51}]


def test_without_a_ttl_nothing_is_refreshed(tmp_path: Path) -> None:
    """Without a TTL no refresh is sent, and with one, none is sent to the sink."""
    seen: list[str] = []

    def watch(way: Exit, batch: Batch) -> None:
        seen.extend([way.node] * len(batch.refreshes))

    text = JOB.format(sql="SELECT u.k, r.b FROM u JOIN r ON u.a = r.b")
    for ttl, expected in (("ttl: 10s\n", ["normalize_1"]), ("", [])):
        query = Clocked.of(job_of(tmp_path, text.replace("ttl: 10s\n", ttl)))
        query.engine = MemoryEngine(query.sink, watch=watch)
        seen.clear()
        query.batch(0, ("u", "+U", U), ("r", "+I", {"b": 1}))
        query.batch(1, ("u", "+U", U))
        assert seen == expected


@pytest.mark.parametrize(
    ("sql", "left"),
    [
        ("SELECT v.k, r.b FROM v JOIN r ON v.a = r.b", []),
        ("SELECT v.k, r.b FROM r LEFT JOIN v ON v.a = r.b", [{"k": None, "b": 1}]),
        ("SELECT v.k, s.c AS b FROM v LEFT JOIN s ON v.a = s.c", []),
        ("SELECT r.b FROM r WHERE EXISTS (SELECT 1 FROM v WHERE v.a = r.b)", []),
        ("SELECT r.b FROM r WHERE NOT EXISTS (SELECT 1 FROM v WHERE v.a = r.b)", [{"b": 1}]),
        ("SELECT v.k FROM v WHERE EXISTS (SELECT 1 FROM r WHERE v.a = r.b)", []),
        ("SELECT v.k FROM v WHERE NOT EXISTS (SELECT 1 FROM s WHERE v.a = s.c)", []),
    ],
)
def test_a_delete_of_a_row_that_has_expired_takes_back_its_results(
    tmp_path: Path, sql: str, left: Sequence[dict[str, Any]]
) -> None:
    """A delete of an expired row retracts its results, by a join with the live partner, and is not unmatched."""
    query = clocked(tmp_path, sql)
    lost: list[str] = []
    query.engine = MemoryEngine(query.sink, unmatched=lambda node, _: lost.append(node))
    query.batch(0, ("v", "+I", U), ("r", "+I", {"b": 1}))
    before = query.result
    query.batch(20_000, ("v", "-D", U))
    assert (query.result, lost) == (left, [])
    assert before != left


def test_without_a_ttl_a_delete_of_no_row_is_unmatched(tmp_path: Path) -> None:
    """Without a TTL, a delete of a missing row emits nothing and is unmatched."""
    lost: list[str] = []
    text = JOB.format(sql="SELECT v.k, r.b FROM v JOIN r ON v.a = r.b").replace("ttl: 10s\n", "")
    query = Clocked.of(job_of(tmp_path, text))
    query.engine = MemoryEngine(query.sink, unmatched=lambda node, _: lost.append(node))
    query.batch(0, ("r", "+I", {"b": 1}))
    query.batch(1, ("v", "-D", U))
    assert (query.result, lost) == ([], ["join_1"])
