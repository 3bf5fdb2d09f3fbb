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
    file.write_text(json.dumps({"job": "j", "tables": tables, "views": VIEWS, "sinks": sinks}))
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
    assert f"sinks.s.sql: {text} is text" in told
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
