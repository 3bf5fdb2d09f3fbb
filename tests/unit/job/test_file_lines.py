"""The line of the job file in messages about SQL, in all styles of YAML."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowkind.service.job.load import loaded
from rowkind.service.plan.errors import PlanError
from rowkind.service.plan.pipeline import plan

HEAD = "job: j\ntables: {t: {mode: append, columns: {a: INT, b: INT}}}\nsinks:\n  first.s:\n    mode: append\n"


@pytest.mark.parametrize(
    ("sql", "line"),
    [
        ("    sql: SELECT nope FROM t\n", 6),
        ("    sql: SELECT a,\n      b,\n\n      nope\n      FROM t\n", 9),
        ("    sql: 'SELECT a,\n      nope FROM t'\n", 7),
        ('    sql: "SELECT a, \\\n      nope FROM t"\n', 7),
        ("    sql: |  # a comment\n      SELECT a,\n        nope\n      FROM t\n", 8),
        ("    sql: >-\n\n      SELECT a\n      FROM t\n      WHERE nope = 1\n", 10),
        ("    sql: |2-\n      SELECT a -- the first\n      FROM nope\n", 8),
        ("    sql: |\n      SELECT a\n      FROM t\n      WHERE WHERE\n", 9),
    ],
)
def test_an_error_in_sql_names_its_line_in_the_file(sql: str, line: int) -> None:
    """The line is that of the word, not that of the setting."""
    with pytest.raises(PlanError) as refused:
        plan(loaded(HEAD + sql, Path("job.yaml"), {}), "first.s")
    assert str(refused.value).startswith(f"job.yaml:{line}: sinks.first.s.sql: ")


def test_an_error_in_a_view_names_the_line_in_the_view() -> None:
    """The line is in the view, even if a name in the file contains the view's name."""
    text = HEAD.replace("sinks:", "views:\n  v: |\n    SELECT a\n    FROM t\n    WHERE nope\nsinks:")
    with pytest.raises(PlanError, match=r"^job\.yaml:7: views\.v: "):
        plan(loaded(f"{text}    sql: SELECT * FROM v\n", Path("job.yaml"), {}), "first.s")
