"""`rowkind check`: its report on a job that can be planned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rowkind.service.cli.commands import main

VIEWS = {"called": "SELECT id, name AS title FROM t"}


def checked(tmp_path: Path, sql: str) -> str:
    """Return the output of the command for a job with this query."""
    columns = {"id": "BIGINT NOT NULL", "name": "STRING", "kind": "STRING"}
    file = tmp_path / "job.yaml"
    tables = {"t": {"mode": "append", "columns": columns}}
    sinks = {"s": {"mode": "append", "sql": sql}}
    views = VIEWS if "called" in sql else {}
    file.write_text(json.dumps({"job": "j", "tables": tables, "views": views, "sinks": sinks}))
    result = CliRunner().invoke(main, ["check", str(file)])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("SELECT id FROM t WHERE \"Name\" = 'bob'", '"Name"'),
        ("SELECT id FROM t WHERE id = 1 AND 'bob' IN (\"name\", kind)", '"name"'),
        ('SELECT "id" AS x FROM t', '"id"'),
        ("SELECT id FROM called WHERE \"title\" LIKE 'b%'", '"title"'),
        ("SELECT id FROM (SELECT id, kind AS k FROM t) WHERE \"k\" = 'b'", '"k"'),
    ],
)
def test_text_in_double_quotes_that_is_called_as_a_column_is_told(tmp_path: Path, sql: str, text: str) -> None:
    """Text in double quotes that equals a column name gives a warning with its position in the SQL."""
    told = checked(tmp_path, sql)
    assert f"sinks.s.sql: [cost: wrong rows] {text} is text" in told
    assert f"    {sql}\n    {' ' * sql.index(text)}{'^' * len(text)}\n" in told
    assert told.endswith("1 sink planned. 1 warning, see above.\n")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id FROM t WHERE name = 'name'",
        'SELECT id FROM t WHERE name = "bob"',
        "SELECT id FROM t WHERE `name` = 'bob'",
        'SELECT NAMED_STRUCT("name", name) AS s FROM t',
        'SELECT id AS x FROM t WHERE kind = "x"',
    ],
)
def test_other_text_is_not(tmp_path: Path, sql: str) -> None:
    """Text in single quotes, text that equals no column name, and names of struct fields give no warning."""
    assert checked(tmp_path, sql).endswith("1 sink planned. No problems found.\n")


JOB = """job: lint
tables:
  a:
    mode: append
    columns: {id: INT NOT NULL, k: STRING, at: TIMESTAMP}
    watermark: {column: at, delay: 5s}
  b: {mode: retract, primary_key: id, columns: {id: INT NOT NULL, name: STRING}}
  c: {mode: append, columns: {x: INT}}
views:
  used: SELECT id, k, at FROM a
  lost: SELECT x FROM c
sinks:
  out:
    mode: retract
    sql: |
      SELECT u.id, b.name
      FROM used u LEFT JOIN b ON u.id = b.id
      WHERE u.k IS NOT NULL
"""
WATERMARK = "6: tables.a.watermark: [cost: nothing] no query closes a window, joins by time or drops rows"
UNUSED = ["11: views.lost: [cost: nothing] no sink reads lost", "8: tables.c: [cost: nothing] no sink reads c"]


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("", "", [*UNUSED, WATERMARK]),
        (
            "u.k IS NOT NULL",
            "u.k = NULL",
            [
                *UNUSED,
                WATERMARK,
                "18: sinks.out.sql: [cost: rows] a comparison with NULL is never true: write u.k IS NULL",
            ],
        ),
        (
            "u.k IS NOT NULL",
            "u.id > 1 AND b.name LIKE 'x'",
            [*UNUSED, WATERMARK, "18: sinks.out.sql: [cost: rows] this condition is not true if b has no match"],
        ),
        ("u.k IS NOT NULL", "COALESCE(b.name, '') = '' OR b.name = 'x'", [*UNUSED, WATERMARK]),
        (
            "views:",
            "views:\n  more: SELECT 1 AS x FROM lost",
            ["10: views.more: ", "12: views.lost: ", UNUSED[1], WATERMARK],
        ),
        ("FROM used u LEFT", "FROM (SELECT x AS id, '' AS k FROM lost) u LEFT", ["10: views.used: ", "3: tables.a: "]),
        (
            "SELECT u.id, b.name\n      FROM used u LEFT JOIN b ON u.id = b.id\n      WHERE u.k IS NOT NULL",
            "SELECT k, id, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY id) AS n FROM a) WHERE n <= 5",
            [
                "11: views.lost: ",
                "10: views.used: ",
                "7: tables.b: ",
                "8: tables.c: ",
                WATERMARK,
                "15: sinks.out.sql: [cost: messages] the result has the rank number n: if a row enters or leaves, all",
            ],
        ),
        (
            "SELECT u.id, b.name\n      FROM used u LEFT JOIN b ON u.id = b.id\n      WHERE u.k IS NOT NULL",
            "SELECT window_end, COUNT(*) AS n FROM TUMBLE(TABLE used, DESCRIPTOR(at), '1 HOUR') GROUP BY window_end",
            [UNUSED[0], "7: tables.b: ", UNUSED[1]],
        ),
    ],
)
def test_what_a_job_does_not_need_or_probably_does_not_mean(
    tmp_path: Path, old: str, new: str, found: list[str]
) -> None:
    """Each warning has the line in the job file, its cost in a word, and what to write instead."""
    file = tmp_path / "job.yaml"
    file.write_text(JOB.replace(old, new) if old else JOB)
    result = CliRunner().invoke(main, ["check", str(file)])
    assert result.exit_code == 0, result.output
    told = [line.partition("job.yaml:")[2] for line in result.stderr.splitlines() if "job.yaml:" in line]
    assert len(told) == len(found), result.output
    assert all(any(each.startswith(line) for each in told) for line in found), result.output
