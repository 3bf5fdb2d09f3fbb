"""Dead letters of late rows: the time at which their results were final, and the watermark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rowkind.operators.columns.changes import Changes
from rowkind.service.kafka.dead_letter import DeadLetter
from rowkind.service.physical.node import PhysicalOperator
from rowkind.service.physical.tree import walk
from rowkind.service.query.memory import MemoryEngine
from rowkind.service.query.operator_letters import LateLetters, tells_late
from tests.clocked import Clocked, job_of

JOB = """
job: j
dead_letters: {{topic: dead}}
tables:
  sales:
    mode: append
    columns: {{shop: STRING NOT NULL, at: TIMESTAMP NOT NULL}}
    watermark: {{column: at, delay: 5s, late: {late}{more}}}
sinks:
  result: {{topic: r, mode: retract, sql: "{sql}"}}
"""
COUNTED = "SELECT shop, window.end AS e, COUNT(*) AS n FROM sales GROUP BY shop, window(at, '1 minute')"
RANKED = (
    "SELECT shop, at FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_end ORDER BY shop) AS rn FROM "
    "TABLE(TUMBLE(TABLE sales, DESCRIPTOR(at), INTERVAL '1' MINUTE))) WHERE rn = 1"
)


def late(folder: Path, sql: str, more: str = "") -> list[DeadLetter]:
    """Return the dead letters of three rows, of which one is late."""
    query = Clocked.of(job_of(folder, JOB.format(late="dead_letter", more=more, sql=sql)))
    found: list[DeadLetter] = []

    def tell(node: str, changes: Changes) -> None:
        of = next(each for each in walk(query.sink) if isinstance(each, PhysicalOperator) and each.node == node)
        letters = LateLetters(of)(changes, query.engine._watermarks.reached["sales"])
        found.extend(map(DeadLetter.from_bytes, letters.to_pylist()))

    query.engine = MemoryEngine(query.sink, late=tell)
    for at in ("12:01:09", "12:01:10", "12:00:59"):
        query.batch(0, ("sales", "+I", {"shop": "a", "at": f"2026-01-01T{at}Z"}))
    return found


@pytest.mark.parametrize(
    ("sql", "more", "over"),
    [(COUNTED, "", "12:01:00"), (RANKED, "", "12:01:00"), (COUNTED, ", allowed_lateness: 3s", "12:01:03")],
)
def test_a_letter_says_what_was_missed(tmp_path: Path, sql: str, more: str, over: str) -> None:
    """The dead letter has the row, the time at which all its results were final, and the watermark."""
    (letter,) = late(tmp_path, sql, more)
    assert letter.error == "LateRow"
    assert letter.message == (
        f"+I of a late row: all results that it could change were final at 2026-01-01T{over}Z, and the "
        "watermark of sales was at 2026-01-01T12:01:05Z"
    )
    assert json.loads(letter.value or b"")["shop"] == "a"


def test_nobody_is_told_of_what_is_dropped(tmp_path: Path) -> None:
    """With `late: drop` there are no dead letters, and a row within the allowed lateness is not late."""
    dropped = Clocked.of(job_of(tmp_path, JOB.format(late="drop", more="", sql=COUNTED)))
    assert not any(tells_late(each) for each in walk(dropped.sink) if isinstance(each, PhysicalOperator))
    assert late(tmp_path, COUNTED, ", allowed_lateness: 10s") == []
