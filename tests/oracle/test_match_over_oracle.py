"""MATCH_RECOGNIZE over results of OVER and over first rows of a rank, against the same rows read from a table.

Plain Python computes the results of OVER, in order of time and arrival. A table with these columns gives the expected
matches. Rows arrive out of order, but none is late.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.seeds import drawn, seeds
from tests.trying import folded, inserts

Row = Mapping[str, Any]

COLUMNS = {"id": "INT NOT NULL", "k": "INT", "v": "INT NOT NULL", "ts": "TIMESTAMP NOT NULL"}
WATERMARK = {"column": "ts", "delay": "3s"}
PATTERNS = (
    "MEASURES FIRST(B.id) AS a, LAST(B.id) AS b PATTERN (B+) DEFINE B AS B.v <= B.x",
    "MEASURES A.id AS a, LAST(B.id) AS b AFTER MATCH SKIP TO NEXT ROW PATTERN (A B+) DEFINE B AS B.v > B.x",
    "MEASURES A.id AS a, SUM(B.x) AS b PATTERN (A B C) WITHIN INTERVAL '4' SECOND DEFINE C AS C.x >= A.x",
)


def _lag(rows: Sequence[Row]) -> list[Row]:
    return [{**row, "x": rows[number - 1]["v"] if number else None} for number, row in enumerate(rows)]


def _sum(rows: Sequence[Row]) -> list[Row]:
    return [{**row, "x": sum(each["v"] for each in rows[max(0, n - 2) : n + 1])} for n, row in enumerate(rows)]


def _ahead(rows: Sequence[Row]) -> list[Row]:
    return [
        {**row, "x": sum(each["v"] for each in rows if row["ts"] <= each["ts"] <= row["ts"] + 2000)} for row in rows
    ]


def _first(rows: Sequence[Row]) -> list[Row]:
    firsts: dict[int, Row] = {}
    for row in rows:
        firsts.setdefault(row["v"], row)
    return [{**row, "x": row["v"]} for row in firsts.values()]


AHEAD = "PARTITION BY k ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL '2' SECOND FOLLOWING"
DERIVED: Mapping[str, tuple[str, Callable[[Sequence[Row]], list[Row]]]] = {
    "lag": ("SELECT *, LAG(v) OVER (PARTITION BY k ORDER BY ts) AS x FROM t", _lag),
    "sum": ("SELECT *, CAST(SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS 2 PRECEDING) AS INT) AS x FROM t", _sum),
    "ahead": (f"SELECT *, CAST(SUM(v) OVER ({AHEAD}) AS INT) AS x FROM t", _ahead),
    "first": (
        "SELECT id, k, v, ts, v AS x FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY k, v ORDER BY ts) = 1",
        _first,
    ),
}


@pytest.mark.parametrize("sink", ["append", "retract"])
@pytest.mark.parametrize("name", DERIVED)
def test_results_of_over_are_matched_once_they_are_final(tmp_path: Path, name: str, sink: str) -> None:
    """The matches are the same in batches of every size, partitioned as OVER is or not partitioned."""
    derived, computed = DERIVED[name]
    for dice in drawn(f"match over {name} {sink}", seeds(4)):
        rows = random_rows(dice)
        by = dice.choice(["PARTITION BY k ", ""])
        pattern = f"MATCH_RECOGNIZE ({by}ORDER BY ts, id {dice.choice(PATTERNS)}) AS m"
        parts = [[row for row in rows if row["k"] == k] for k in {row["k"] for row in rows}]
        given = [row for part in parts for row in computed(sorted(part, key=lambda each: each["ts"]))]
        whole = {"r": {"mode": "append", "columns": {**COLUMNS, "x": "INT"}, "watermark": WATERMARK}}
        table = {"t": {"mode": "append", "columns": COLUMNS, "watermark": WATERMARK}}
        in_time = inserts("r", sorted(given, key=lambda each: each["ts"]))
        sql = f"SELECT * FROM ({derived}) {pattern}"
        expected = _bag(
            folded(tmp_path, f"SELECT * FROM r {pattern}", whole, in_time, sink={"mode": sink}, batch_rows=len(rows))
        )
        for size in (1, 4, len(rows)):
            found = folded(tmp_path, sql, table, inserts("t", rows), sink={"mode": sink}, batch_rows=size)
            assert _bag(found) == expected, f"batches of {size}: {sql}"


def random_rows(dice: random.Random) -> list[Row]:
    """Return rows that arrive up to two seconds late, with different times within a partition."""
    rows = []
    for number in range(dice.choice([8, 16, 24])):
        ts = 1000 * number - dice.randrange(2000)
        rows.append({"id": number, "k": dice.choice([1, 1, 2]), "v": dice.randrange(5), "ts": ts})
    return rows


def _bag(rows: Sequence[Row]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows)
