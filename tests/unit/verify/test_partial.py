"""What is certain is reported, even if the result is known in part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.unit.verify.judged import (
    KEYED,
    SUMS,
    WATERMARK,
    Opened,
    item,
    outcome,
    total,
)


def test_an_extra_row_that_no_source_explains_is_reported_beside_doubts(opened: Opened) -> None:
    """Among rows in doubt, a row with a key that no source has is reported; one that a row in doubt may give is not."""
    case = opened(SUMS, ttl="10s")
    case.batches = [(2, 0), (1, 20_000)]
    items = [item("a", 1), item("a", 2), item("c", 3)]
    right = [total("a", 2), total("c", 3)]
    assert outcome(case.audit(items, right)) == ("ok", 1, 0, 1, 0)
    found = case.audit(items, [*right, total("z", 9)])
    assert outcome(found) == ("differs", 1, 1, 1, 0)
    assert [(each.expected, (each.found or {})["k"]) for each in found.compared.first] == [(None, "z")]


def test_a_row_that_a_rank_leaves_out_may_be_right(opened: Opened) -> None:
    """With tied rows, a row of the source that is not expected is not reported; a row of no source is."""
    sql = "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY at) AS n FROM items) WHERE n = 1"
    case = opened(sql, {"mode": "retract"})
    items = [item("a", 1), item("a", 2), item("b", 3)]
    for v in (1, 2):
        assert case.audit(items, [{"k": "a", "v": v}, {"k": "b", "v": 3}]).verdict == "ok"
    for wrong in ({"k": "a", "v": 3}, {"k": "b", "v": 3}):
        assert case.audit(items, [{"k": "a", "v": 1}, {"k": "b", "v": 3}, wrong]).compared.different == 1


@pytest.mark.parametrize(
    ("sql", "sink", "of"),
    [
        ("SELECT k, v, PROCTIME() AS seen FROM items", {"mode": "append"}, "seen"),
        ("SELECT k, COUNT(*) AS v, MODE(v) AS seen FROM items GROUP BY k", KEYED, "seen"),
    ],
    ids=["PROCTIME", "MODE"],
)
def test_the_other_columns_are_compared(sql: str, sink: Mapping[str, Any], of: str, opened: Opened) -> None:
    """A column with a value that is unknown in batch is left out; a fault in another column is reported."""
    case = opened(sql, sink)
    items = [item("a", 1), item("b", 1)]
    rows = [{"k": k, "v": 1, "seen": 5} for k in "ab"]
    right = case.audit(items, rows)
    assert outcome(right) == ("ok", 2, 0, 0, 0)
    assert right.notes[0].startswith(f"column {of} not compared: ")
    assert case.audit(items, rows[:1]).compared.different == 1
    assert case.audit(items, [rows[0], rows[1] | {"v": 2}]).verdict == "differs"


def test_a_row_pattern_is_limited_to_its_partitions(opened: Opened) -> None:
    """MATCH_RECOGNIZE is not computed, but a match in a partition that no source has is reported."""
    sql = """
        SELECT k, up FROM (SELECT * FROM items WHERE at IS NOT NULL) MATCH_RECOGNIZE (
            PARTITION BY k ORDER BY at MEASURES LAST(b.v) AS up AFTER MATCH SKIP PAST LAST ROW
            PATTERN (a b) DEFINE b AS b.v > a.v)
    """
    case = opened(sql, {"mode": "append"}, **WATERMARK)
    items = [item("a", 1, 1), item("a", 2, 2), item("b", 3, 3)]
    found = case.audit(items, [{"k": "a", "up": 2}], limited=True)
    assert (found.verdict, found.compared.unsure) == ("not compared", 1)
    assert found.reason.startswith("MATCH_RECOGNIZE")
    wrong = case.audit(items, [{"k": "a", "up": 2}, {"k": "z", "up": 2}], limited=True)
    assert wrong.compared.different == 1
    assert (wrong.compared.first[0].found or {})["k"] == "z"
