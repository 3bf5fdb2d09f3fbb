"""Queries whose result depends on the order of arrival, which no other engine can be compared with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rowkind.service.job.load import load
from rowkind.service.plan.errors import PlanError
from rowkind.service.plan.pipeline import plan
from rowkind.service.query import trial

JOB = """
job: arrival
tables:
  prices:
    mode: retract
    primary_key: [id]
    columns: {{id: INT NOT NULL, item: STRING NOT NULL, price: INT, at: TIMESTAMP}}
  clicks:
    mode: append
    columns: {{who: STRING NOT NULL, page: STRING, at: TIMESTAMP}}
sinks:
  result: {{mode: upsert, key: [{key}], {conflict} sql: "{sql}"}}
"""

Change = tuple[str, str, dict[str, Any]]

TWO_PRICES_AND_ONE_GOES: list[Change] = [
    ("prices", "+I", {"id": 1, "item": "tea", "price": 3}),
    ("prices", "+I", {"id": 2, "item": "tea", "price": 4}),
    ("prices", "+U", {"id": 1, "item": "tea", "price": 5}),
    ("prices", "-D", {"id": 1, "item": "tea", "price": 5}),
]
CLICKS: list[Change] = [
    ("clicks", "+I", {"who": "ann", "page": "a", "at": "2026-01-01T00:00:02Z"}),
    ("clicks", "+I", {"who": "ann", "page": "b", "at": "2026-01-01T00:00:02Z"}),
    ("clicks", "+I", {"who": "ann", "page": "c", "at": "2026-01-01T00:00:01Z"}),
]


def _steps(folder: Path, job: str, changes: list[Change], column: str) -> list[Any]:
    """Return a column of the only result row after each change, or None if there is no row."""
    file = folder / "job.yaml"
    file.write_text(job)
    loaded = load(file)
    lines = [json.dumps({"table": table, "op": op, "row": row}) for table, op, row in changes]
    batches = trial.read(loaded, lines, "changes.jsonl", 1)
    found = []
    for number in range(1, len(batches) + 1):
        rows = list(trial.results(loaded, plan(loaded, "result"), batches[:number], trial.in_memory(print), fold=True))
        assert len(rows) < 2
        found.append(rows[0]["row"][column] if rows else None)
    return found


def test_a_limit_without_an_order_keeps_what_came_first(tmp_path: Path) -> None:
    """A row that is written again becomes the last one, and if a row is deleted, the next one takes its place."""
    job = JOB.format(key="id", conflict="", sql="SELECT id, item FROM prices LIMIT 1")
    assert _steps(tmp_path, job, TWO_PRICES_AND_ONE_GOES[:2], "id") == [1, 1]
    gone = [*TWO_PRICES_AND_ONE_GOES[:2], ("prices", "-D", {"id": 1, "item": "tea", "price": 3})]
    assert _steps(tmp_path, job, gone, "id") == [1, 1, 2]
    second = JOB.format(key="id", conflict="", sql="SELECT id, price FROM prices LIMIT 1 OFFSET 1")
    assert _steps(tmp_path, second, TWO_PRICES_AND_ONE_GOES, "id") == [None, 2, 1, None]


@pytest.mark.parametrize(("conflict", "expected"), [("last", [3, 4, 5, 4]), ("first", [3, 3, 4, 4])])
def test_of_rows_that_share_a_sinks_key_one_stands(conflict: str, expected: list[int], tmp_path: Path) -> None:
    """The first or the last arrival is kept, an update counts as a new arrival, and a deleted row is replaced."""
    job = JOB.format(key="item", conflict=f"on_conflict: {conflict},", sql="SELECT item, price FROM prices")
    assert _steps(tmp_path, job, TWO_PRICES_AND_ONE_GOES, "price") == expected


def test_rows_that_share_a_sinks_key_are_refused_where_nothing_is_said(tmp_path: Path) -> None:
    """The error names both keys and the setting `on_conflict`."""
    (tmp_path / "job.yaml").write_text(JOB.format(key="item", conflict="", sql="SELECT item, id, price FROM prices"))
    with pytest.raises(
        PlanError, match=r"the sink's key \(item\) does not identify .* is \(id\).*`on_conflict` to `last`"
    ):
        plan(load(tmp_path / "job.yaml"), "result")


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("PROCTIME()", ["a", "a", "a"]),
        ("PROCTIME() DESC", ["a", "b", "c"]),
        ("at", ["a", "a", "c"]),
        ("at DESC", ["a", "b", "b"]),
        ("at DESC, page", ["a", "a", "a"]),
    ],
)
def test_which_row_deduplication_keeps(order: str, expected: list[str], tmp_path: Path) -> None:
    """The first or last row by arrival or time is kept; of ties, the first to arrive and the last, respectively."""
    ranked = f"SELECT who, page, ROW_NUMBER() OVER (PARTITION BY who ORDER BY {order}) AS n FROM clicks"
    job = JOB.format(key="who", conflict="", sql=f"SELECT who, page FROM ({ranked}) WHERE n = 1")
    assert _steps(tmp_path, job, CLICKS, "page") == expected


def test_numbers_by_arrival_go_to_a_topic_that_only_grows(tmp_path: Path) -> None:
    """With the hint UNBOUNDED_RANK all row numbers can be emitted, and a later row never changes an earlier number."""
    sql = "SELECT /*+ UNBOUNDED_RANK */ page, ROW_NUMBER() OVER (PARTITION BY who ORDER BY PROCTIME()) AS n FROM clicks"
    job = JOB.format(key="page", conflict="", sql=sql).replace("mode: upsert, key: [page], ", "mode: append,")
    (tmp_path / "job.yaml").write_text(job)
    loaded = load(tmp_path / "job.yaml")
    lines = [json.dumps({"table": table, "op": op, "row": row}) for table, op, row in CLICKS]
    batches = trial.read(loaded, lines, "changes.jsonl", 1)
    found = trial.results(loaded, plan(loaded, "result"), batches, trial.in_memory(print), fold=True)
    assert [each["row"] for each in found] == [{"page": page, "n": at + 1} for at, page in enumerate("abc")]
