"""SUM and AVG that overflow their type, against integers of any size: such rows fail, and return once they fit again.

The model adds up the rows that are left at the end. With `on_error: dead_letter` the result has all rows whose sums
fit. With `null` and in TRY_SUM, the other rows have NULL. This holds whatever happened before, and for any split into
batches.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rowkind.service.execute.expressions import ExpressionError
from tests.seeds import drawn, seeds
from tests.trying import Change, folded

COLUMNS = {"id": "BIGINT NOT NULL", "k": "INT NOT NULL", "v": "BIGINT", "d": "DECIMAL(38,0)", "at": "BIGINT NOT NULL"}
TABLE = {"mode": "retract", "primary_key": ["id"], "columns": COLUMNS}
MODES = ("dead_letter", "null")

Row = dict[str, Any]


def fits(value: int | None) -> bool:
    """Return whether the value is a BIGINT."""
    return value is None or -(2**63) <= value < 2**63


def total(values: Sequence[int | None]) -> int | None:
    """Return SUM of the values."""
    there = [value for value in values if value is not None]
    return sum(there) if there else None


def groups(rows: Sequence[Row], of: Callable[[Sequence[int | None]], int | None]) -> dict[Any, int | None]:
    """Return the result of `of` over the values of each group."""
    found: dict[int, list[int | None]] = {}
    for row in rows:
        found.setdefault(row["k"], []).append(row["v"])
    return {k: of(values) for k, values in found.items()}


def by_group(rows: Sequence[Row]) -> dict[Any, int | None]:
    """Return SUM(v) by k."""
    return groups(rows, total)


def distinct(rows: Sequence[Row]) -> dict[Any, int | None]:
    """Return SUM(DISTINCT v) by k."""
    return groups(rows, lambda values: total(list(set(values))))


def over(rows: Sequence[Row], before: int | None) -> dict[Any, int | None]:
    """Return SUM(v) over the row and so many rows before it (None: all), in the order of `at`."""
    found: dict[Any, int | None] = {}
    for row in rows:
        frame = sorted((each for each in rows if each["k"] == row["k"]), key=lambda each: int(each["at"]))
        at = frame.index(row)
        first = 0 if before is None else max(0, at - before)
        found[row["id"]] = total([each["v"] for each in frame[first : at + 1]])
    return found


CASES: dict[str, tuple[str, Callable[[Sequence[Row]], dict[Any, int | None]]]] = {
    "groups": ("SELECT k AS name, SUM(v) AS s FROM t GROUP BY k", by_group),
    "groups and a mean": ("SELECT name, s FROM (SELECT k AS name, AVG(v), SUM(v) AS s FROM t GROUP BY k)", by_group),
    "all rows": ("SELECT 1 AS name, SUM(v) AS s FROM t", lambda rows: {1: total([row["v"] for row in rows])}),
    "distinct": ("SELECT k AS name, SUM(DISTINCT v) AS s FROM t GROUP BY k", distinct),
    "two steps": (
        "SELECT /*+ SPLIT_DISTINCT */ k AS name, COUNT(DISTINCT at) AS n, SUM(v) AS s FROM t GROUP BY k",
        by_group,
    ),
    "running": (
        "SELECT id AS name, SUM(v) OVER (PARTITION BY k ORDER BY at) AS s FROM t",
        lambda rows: over(rows, None),
    ),
    "frames": (
        "SELECT id AS name, SUM(v) OVER (PARTITION BY k ORDER BY at ROWS 1 PRECEDING) AS s FROM t",
        lambda rows: over(rows, 1),
    ),
}


def changes(dice: random.Random, count: int) -> tuple[list[Change], list[Row]]:
    """Return inserts and deletes, and the rows that are left; many values are near the ends of BIGINT."""
    there: dict[int, Row] = {}
    found: list[Change] = []
    for number in range(count):
        if there and dice.random() < 0.4:
            row = there.pop(dice.choice(list(there)))
            found.append({"table": "t", "op": "-D", "row": row})
            continue
        value = dice.choice((None, 1, -1, 2**62, -(2**62), 2**63 - 1, -(2**63)))
        there[number] = {"id": number, "k": dice.randrange(2), "v": value, "at": number}
        found.append({"table": "t", "op": "+I", "row": there[number]})
    return found, list(there.values())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_rows_whose_sums_do_not_fit_fail_and_come_back(tmp_path: Path, name: str, mode: str) -> None:
    """The folded result is that of the rows that are left; rows whose sum does not fit are missing or NULL."""
    sql, model = CASES[name]
    for dice in drawn(f"{name} {mode}", seeds(4)):
        given, left = changes(dice, 14)
        expected = {
            (each, value if fits(value) else None)
            for each, value in model(left).items()
            if fits(value) or mode == "null"
        }
        for size in (1, 3, len(given)):
            rows = folded(tmp_path, sql, {"t": TABLE}, given, batch_rows=size, on_error=mode, **LETTERS)
            assert Counter((row["name"], row["s"]) for row in rows) == Counter(expected), f"batches of {size}"


LETTERS = {"dead_letters": {"topic": "letters"}}
ROWS = [{"id": number, "k": 1, "v": 2**62, "d": "9" * 38, "at": number} for number in (1, 2)]
BOTH = [{"table": "t", "op": "+I", "row": row} for row in ROWS]
FAILING = {
    "SELECT SUM(v) AS s FROM t": "SUM(t.v) does not fit BIGINT",
    "SELECT SUM(d) AS s FROM t": "SUM(t.d) does not fit DECIMAL(38,0)",
    "SELECT SUM(v) AS s, SUM(d) AS t FROM t": "one of SUM(t.v), SUM(t.d) does not fit its type",
    "SELECT SUM(v) OVER (ORDER BY at) AS s FROM t": "SUM(t.v) OVER (ORDER BY t.at) does not fit BIGINT",
}


@pytest.mark.parametrize("sql", FAILING)
def test_the_job_stops_at_the_row_after_which_a_sum_does_not_fit(tmp_path: Path, sql: str) -> None:
    """Without `on_error` the job stops, and the message names the operator, the call, its type and the row."""
    with pytest.raises(ExpressionError) as error:
        folded(tmp_path, sql, {"t": TABLE}, BOTH)
    assert FAILING[sql] in str(error.value)
    assert "on the row from change 2 of t" in str(error.value)


@pytest.mark.parametrize("sql", ["SELECT TRY_SUM(v) AS s FROM t", "SELECT TRY_SUM(d) AS s FROM t"])
def test_try_sum_is_null(tmp_path: Path, sql: str) -> None:
    """TRY_SUM returns NULL instead of failing."""
    assert folded(tmp_path, sql, {"t": TABLE}, BOTH) == [{"s": None}]


@pytest.mark.parametrize("mode", MODES)
def test_a_match_whose_measure_does_not_fit(tmp_path: Path, mode: str) -> None:
    """The match's row is dropped or its measure is NULL, and the search continues after the match."""
    columns = {"id": "BIGINT NOT NULL", "v": "BIGINT", "at": "TIMESTAMP NOT NULL"}
    table = {"mode": "append", "columns": columns, "watermark": {"column": "at", "delay": "0s"}}
    values = (2**62, 2**62, 3, 4)
    given = [
        {"table": "t", "op": "+I", "row": {"id": at, "v": v, "at": f"2026-01-01T00:00:0{at}Z"}}
        for at, v in enumerate(values)
    ]
    sql = (
        "SELECT s FROM t MATCH_RECOGNIZE (ORDER BY at MEASURES SUM(A.v) AS s ONE ROW PER MATCH "
        "PATTERN (A{2}) DEFINE A AS v > 0) AS m"
    )
    rows = folded(tmp_path, sql, {"t": table}, given, on_error=mode, **LETTERS)
    assert rows == [*([{"s": None}] if mode == "null" else []), {"s": 7}]
    with pytest.raises(ExpressionError, match=r"match_1: SUM\(A.v\) does not fit BIGINT"):
        folded(tmp_path, sql, {"t": table}, given)
