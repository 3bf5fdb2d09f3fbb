"""The advice of MATCH_RECOGNIZE refusals: the advised query is accepted and returns the intended rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rowkind.service.plan.errors import PlanError
from tests.trying import folded, inserts

TABLE = {
    "mode": "append",
    "columns": {"id": "INT NOT NULL", "v": "INT", "ts": "TIMESTAMP NOT NULL", "seen": "TIMESTAMP"},
    "watermark": {"column": "ts", "delay": "2s"},
}
TABLES = {
    "t": TABLE,
    "unmarked": {name: value for name, value in TABLE.items() if name != "watermark"},
    "seen": TABLE | {"watermark": {"column": "seen", "delay": "2s"}},
}
VALUES = (90, 80, 70, 75, 99, 60)
BEFORE = "(SELECT *, LAG(v) OVER (ORDER BY ts) AS before FROM t)"
HOURS = (
    "(SELECT window_time AS ts, COUNT(*) AS v FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND)) "
    "GROUP BY window_start, window_end, window_time)"
)
COUNTED = "(SELECT v AS id, COUNT(*) AS v, MAX(ts) AS ts FROM t GROUP BY v)"


@dataclass(frozen=True)
class Advice:
    """A refused query, a part of the message, the query that follows its advice, and the intended rows."""

    refused: str
    message: str
    followed: str
    meant: list[tuple[Any, ...]]


def match(clauses: str, rows: str = "t", order: str = "ts") -> str:
    """Return a query over the matches in rows."""
    return f"SELECT * FROM {rows} MATCH_RECOGNIZE (ORDER BY {order} {clauses}) AS m"


FALLS = "MEASURES A.id AS a, LAST(B.id) AS b PATTERN (A B+) DEFINE B AS B.v < {}"
RUNS = "MEASURES FIRST(B.id) AS a, LAST(B.id) AS b PATTERN (B+) DEFINE B AS B.v < {}"
RISE = "MEASURES {} AS p PATTERN (A B) DEFINE B AS B.v > A.v"
FURTHER = "MEASURES A.id AS a, B.id AS b PATTERN (A C B) DEFINE B AS B.v < {}"
OTHER = "MEASURES A.id AS a, B.id AS b PATTERN (A B) DEFINE B AS B.v > {}"
AGAIN = "MEASURES A.id AS a, B.id AS b AFTER MATCH SKIP TO {} PATTERN (A B) DEFINE B AS B.v < A.v"
PAIRS = "MEASURES A.id AS a, B.id AS b PATTERN (A B) DEFINE B AS B.v < A.v"
MANY = "MEASURES COUNT(A.id) AS n PATTERN ({}) DEFINE A AS {}"
SUMS = "MEASURES {} AS s PATTERN (A B) DEFINE B AS B.v < A.v"
FIRST_FALL = [(1, 2), (5, 6)]

ADVICE = {
    "PREV": Advice(match(FALLS.format("PREV(B.v)")), "LAST(v, 1)", match(FALLS.format("LAST(v, 1)")), [(1, 3), (5, 6)]),
    "PREV of more": Advice(
        match(FURTHER.format("PREV(B.v, 2)")), "LAST(v, 2)", match(FURTHER.format("LAST(v, 2)")), [(1, 3), (4, 6)]
    ),
    "PREV of an expression": Advice(
        match(FALLS.format("PREV(B.v + 0)")), "LAST(v + 0, 1)", match(FALLS.format("LAST(v + 0, 1)")), [(1, 3), (5, 6)]
    ),
    "PREV before the match": Advice(
        match(RUNS.format("PREV(B.v)")), "LAG(v) OVER", match(RUNS.format("B.before"), BEFORE), [(2, 3), (6, 6)]
    ),
    "PREV of another variable": Advice(
        match(OTHER.format("PREV(A.v)")), "compute LAG(v) OVER", match(OTHER.format("A.before"), BEFORE), [(4, 5)]
    ),
    "PREV in a measure": Advice(
        match(RISE.format("PREV(B.v)")), "compute LAG(v) OVER", match(RISE.format("B.before"), BEFORE), [(70,)]
    ),
    "NEXT": Advice(
        match("MEASURES A.id AS a PATTERN (A) DEFINE A AS NEXT(A.v) > A.v"),
        "PATTERN (A B) DEFINE B AS B.x > A.x, and write AFTER MATCH SKIP TO B",
        match("MEASURES A.id AS a AFTER MATCH SKIP TO B PATTERN (A B) DEFINE B AS B.v > A.v"),
        [(3,), (4,)],
    ),
    "unmatched rows": Advice(
        match("ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A B+) DEFINE B AS B.v < LAST(v, 1)"),
        "(A B+ | OTHER)",
        "SELECT id, c FROM ("
        + match(
            "MEASURES CLASSIFIER() AS c ALL ROWS PER MATCH PATTERN (A B+ | OTHER) DEFINE B AS B.v < LAST(v, 1)",
        )
        + ")",
        [(1, "A"), (2, "B"), (3, "B"), (4, "OTHER"), (5, "A"), (6, "B")],
    ),
    "again and again": Advice(
        match(AGAIN.format("A")), "write TO NEXT ROW", match(AGAIN.format("NEXT ROW")), [(1, 2), (2, 3), (5, 6)]
    ),
    "no row": Advice(
        match("MEASURES COUNT(A.id) AS n PATTERN (A*) DEFINE A AS A.v < 80"),
        "with + instead of *",
        match("MEASURES COUNT(A.id) AS n PATTERN (A+) DEFINE A AS A.v < 80"),
        [(2,), (1,)],
    ),
    "an anchor": Advice(
        match("MEASURES A.id AS a PATTERN (^ A)"),
        "use a condition in DEFINE",
        match("MEASURES A.id AS a PATTERN (A) DEFINE A AS A.before IS NULL", BEFORE),
        [(1,)],
    ),
    "an exclusion": Advice(
        match("ALL ROWS PER MATCH PATTERN (A {- B+ -}) DEFINE B AS B.v < LAST(v, 1)"),
        "filter rows by CLASSIFIER() in WHERE",
        "SELECT id FROM ("
        + match("MEASURES CLASSIFIER() AS c ALL ROWS PER MATCH PATTERN (A B+) DEFINE B AS B.v < LAST(v, 1)")
        + ") WHERE c <> 'B'",
        [(1,), (5,)],
    ),
    "too large": Advice(
        match(MANY.format("A{1,100000}", "A.v < 80")),
        "COUNT(A.x) <= 1000",
        match(MANY.format("A+", "A.v < 80 AND COUNT(A.id) <= 100000")),
        [(2,), (1,)],
    ),
    "rows of two variables": Advice(
        match(SUMS.format("SUM(A.v + B.v)")),
        "write a separate call for each",
        match(SUMS.format("SUM(A.v) + SUM(B.v)")),
        [(170,), (159,)],
    ),
    "a call without a row": Advice(
        match(SUMS.format("LAST(1)")), "as in LAST(A.x)", match(SUMS.format("LAST(A.v)")), [(90,), (99,)]
    ),
    "a measure without a name": Advice(
        match("MEASURES A.id PATTERN (A B) DEFINE B AS B.v < A.v"),
        "write … AS name",
        match("MEASURES A.id AS a PATTERN (A B) DEFINE B AS B.v < A.v"),
        [(1,), (5,)],
    ),
    "a time that may be NULL": Advice(
        match(PAIRS, "seen", "seen"),
        "WHERE seen IS NOT NULL in a derived table",
        match(PAIRS, "(SELECT * FROM seen WHERE seen IS NOT NULL)", "seen"),
        FIRST_FALL,
    ),
    "no watermark": Advice(match(PAIRS, "unmarked"), "`watermark: {column: …, delay: …}`", match(PAIRS), FIRST_FALL),
    "backwards": Advice(match(PAIRS, order="ts DESC"), "remove DESC", match(PAIRS, order="ts"), FIRST_FALL),
    "a partition that is computed": Advice(
        "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY v % 2 ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A A)) AS m",
        "compute the expression in a derived table",
        "SELECT * FROM (SELECT v % 2 AS p, ts FROM t) "
        "MATCH_RECOGNIZE (PARTITION BY p ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A A)) AS m",
        [(0, 2), (0, 2), (1, 2)],
    ),
    "groups": Advice(
        match("MEASURES A.v AS a PATTERN (A) DEFINE A AS A.v > 1", COUNTED),
        "order by the end of a window",
        match("MEASURES A.v AS a PATTERN (A) DEFINE A AS A.v > 1", HOURS),
        [(2,), (2,)],
    ),
    "LEAD": Advice(
        match(RISE.format("A.id"), "(SELECT *, LEAD(v) OVER (ORDER BY ts) AS after FROM t)"),
        "use only frames that look back, or ahead by RANGE and an INTERVAL",
        match(RISE.format("A.id"), BEFORE),
        [(3,)],
    ),
    "a row around": Advice(
        "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM (SELECT * FROM t AS u WHERE u.v = t.v) "
        "MATCH_RECOGNIZE (ORDER BY ts MEASURES A.id AS a PATTERN (A)) AS m)",
        "write PARTITION BY, and compare its column in the WHERE clause",
        "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM (SELECT * FROM t AS u) "
        "MATCH_RECOGNIZE (PARTITION BY v ORDER BY ts MEASURES A.id AS a PATTERN (A)) AS m WHERE m.v = t.v)",
        [(each,) for each in range(1, 7)],
    ),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", ADVICE)
def test_advice_that_is_followed_gives_the_rows_that_were_meant(name: str, tmp_path: Path) -> None:
    """The query is refused with the advice, and the advised query has the intended rows for every batch size."""
    advice = ADVICE[name]
    with pytest.raises(PlanError) as refusal:
        result(tmp_path, advice.refused, 1)
    assert advice.message in str(refusal.value)
    for size in (1, 2, len(VALUES)):
        assert Counter(result(tmp_path, advice.followed, size)) == Counter(advice.meant), f"batches of {size}"


def result(folder: Path, sql: str, batch_rows: int) -> list[tuple[Any, ...]]:
    """Return the result of a query over six rows per table, one second apart."""
    rows = [{"id": n, "v": v, "ts": n * 1000, "seen": n * 1000} for n, v in enumerate(VALUES, 1)]
    changes = [change for row in rows for table in TABLES for change in inserts(table, [row])]
    mode = "retract" if "EXISTS" in sql else "append"
    found = folded(folder, sql, TABLES, changes, sink={"mode": mode}, batch_rows=batch_rows * len(TABLES))
    return [tuple(row.values()) for row in found]
