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


RANKED = "SELECT *, ROW_NUMBER() OVER (PARTITION BY kind ORDER BY id) AS n FROM t"
PLACES = f"(SELECT id, n AS place FROM ({RANKED}) WHERE n <= 5)"
OTHERS = "(SELECT id AS other FROM t)"
LINTED_VIEWS = {"ranked": f"SELECT * FROM {PLACES}", "starred": "SELECT *, UPPER(name) AS loud FROM t"}


def linted(tmp_path: Path, sql: str) -> list[str]:
    """Return the warnings of a job with this query, without the place."""
    columns = {"id": "BIGINT NOT NULL", "name": "STRING", "kind": "STRING"}
    file = tmp_path / "job.yaml"
    tables = {"t": {"mode": "retract", "primary_key": "id", "columns": columns}}
    views = {name: text for name, text in LINTED_VIEWS.items() if name in sql}
    sinks = {"s": {"mode": "retract", "sql": sql}}
    file.write_text(json.dumps({"job": "j", "tables": tables, "views": views, "sinks": sinks}))
    result = CliRunner().invoke(main, ["check", str(file)])
    assert result.exit_code == 0, result.output
    return [line.partition("[")[2] for line in result.stderr.splitlines() if "[cost: " in line]


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        (f"SELECT id, n AS place FROM ({RANKED}) WHERE n <= 5", "place"),
        (f"SELECT o.other, r.place FROM {OTHERS} o JOIN {PLACES} r ON r.id = o.other", "place"),
        (f"SELECT CAST(id AS INT) AS x FROM t UNION ALL SELECT n FROM ({RANKED}) WHERE n <= 5", "x"),
        (f"WITH r AS {PLACES} SELECT id, place AS n2 FROM r WHERE place > 1", "n2"),
        (f"SELECT id, n AS place FROM ({RANKED})", "place"),
    ],
)
def test_a_rank_number_is_followed_to_the_result(tmp_path: Path, sql: str, column: str) -> None:
    """A rank number gives a warning under the name that it has in the result."""
    (told,) = linted(tmp_path, sql)
    assert told.startswith(f"cost: messages] the result has the rank number {column}: if a row enters")


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        (f"SELECT id, n + 1 AS place FROM ({RANKED}) WHERE n <= 5", "place"),
        (f"SELECT id, m * 2 AS place FROM (SELECT id, n + 1 AS m FROM ({RANKED}) WHERE n <= 5)", "place"),
        (f"SELECT id, CONCAT('no. ', CAST(n AS STRING)) AS label FROM ({RANKED}) WHERE n <= 5", "label"),
        (f"SELECT id, CASE WHEN kind = 'a' THEN n END AS place FROM ({RANKED}) WHERE n <= 5", "place"),
        (f"SELECT o.other, r.place - o.other AS x FROM {OTHERS} o JOIN {PLACES} r ON r.id = o.other", "x"),
        ("SELECT id, place * 2 AS x FROM ranked", "x"),
    ],
)
def test_a_rank_number_is_followed_through_expressions(tmp_path: Path, sql: str, column: str) -> None:
    """A column that is computed from a rank number gives a warning, also through derived tables and views."""
    (told,) = linted(tmp_path, sql)
    assert told.startswith(f"cost: messages] the result's column {column} is computed from a rank number: if a row")


def test_each_column_that_follows_a_rank_number_is_named(tmp_path: Path) -> None:
    """A rank number that is in a result twice gives two warnings."""
    told = linted(tmp_path, f"SELECT id, n AS place, n AS again, n * 10 AS tens FROM ({RANKED}) WHERE n <= 5")
    assert len(told) == 3
    assert all(any(name in each for each in told) for name in ("place", "again", "tens"))


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT id, n = 1 AS best FROM ({RANKED}) WHERE n <= 5",
        f"SELECT id, CASE WHEN n = 1 THEN 'best' ELSE 'good' END AS grade FROM ({RANKED}) WHERE n <= 5",
        f"SELECT kind AS n, id FROM ({RANKED}) WHERE n <= 5",
        f"SELECT kind, MAX(n) AS n FROM ({RANKED}) WHERE n <= 5 GROUP BY kind",
        f"SELECT id, n FROM ({RANKED}) WHERE n = 1",
    ],
)
def test_another_column_of_the_name_is_no_rank_number(tmp_path: Path, sql: str) -> None:
    """A comparison, a column with the name of a rank number, an aggregate, and the number of one row give none."""
    assert linted(tmp_path, sql) == []


@pytest.mark.parametrize(
    ("from_", "condition", "became"),
    [
        ("t a LEFT JOIN t b ON a.id = b.id", "b.name = 'x'", "an inner join: write JOIN,"),
        ("t a RIGHT JOIN t b ON a.id = b.id", "a.name = 'x'", "an inner join: write JOIN,"),
        ("t a JOIN t c ON a.id = c.id RIGHT JOIN t b ON a.id = b.id", "c.name = 'x'", "an inner join: write JOIN,"),
        ("t a FULL JOIN t b ON a.id = b.id", "a.name = 'x'", "a left join: write LEFT JOIN,"),
        ("t a FULL JOIN t b ON a.id = b.id", "b.name = 'x'", "a right join: write RIGHT JOIN,"),
        ("t a LEFT JOIN (SELECT id, name AS k FROM t) b ON a.id = b.id", "b.k > 'x'", "an inner join: write JOIN,"),
        ("(SELECT id, name FROM t) a RIGHT JOIN t b ON a.id = b.id", "a.name IN ('x')", "an inner join: write JOIN,"),
    ],
)
def test_a_condition_that_drops_null_padded_rows(tmp_path: Path, from_: str, condition: str, became: str) -> None:
    """The warning names the join that the outer join becomes."""
    (told,) = linted(tmp_path, f"SELECT a.id, b.id AS other FROM {from_} WHERE {condition}")
    assert became in told


@pytest.mark.parametrize(
    ("from_", "condition", "side"),
    [
        (f"t a LEFT JOIN {OTHERS} b ON a.id = b.other", "other > 3", "b"),
        (f"{OTHERS} b RIGHT JOIN t a ON a.id = b.other", "other > 3", "b"),
        (f"t a LEFT JOIN (SELECT * FROM {OTHERS}) b ON a.id = b.other", "OTHER > 3", "b"),
        (f"{OTHERS} o LEFT JOIN starred a ON a.id = o.other", "loud = 'X'", "a"),
        (f"{OTHERS} o LEFT JOIN starred a ON a.id = o.other", "a.name = 'x'", "a"),
        (f"t a LEFT JOIN (SELECT x.* FROM {OTHERS} x) b ON a.id = b.other", "b.other > 3", "b"),
    ],
)
def test_a_condition_on_an_unqualified_column(tmp_path: Path, from_: str, condition: str, side: str) -> None:
    """A column without the name of its relation, or one that a relation has through `*`, is found."""
    (told,) = linted(tmp_path, f"SELECT a.id FROM {from_} WHERE {condition}")
    assert f"this condition is not true if {side} has no match" in told


def test_a_column_of_both_sides_gives_no_warning(tmp_path: Path) -> None:
    """A column that USING merges has a value even if one side has no match."""
    assert (
        linted(tmp_path, "SELECT id FROM t a FULL JOIN (SELECT id, kind AS k FROM t) b USING (id) WHERE id > 3") == []
    )


def test_views_that_read_each_other_in_any_order_are_resolved(tmp_path: Path) -> None:
    """The columns of a view are known even if the view is declared before the view that it reads."""
    file = tmp_path / "job.yaml"
    text = JOB.replace("  used: SELECT id, k, at FROM a", "  used: SELECT * FROM first\n  first: SELECT * FROM a")
    file.write_text(
        text.replace("used u LEFT JOIN b ON", "b RIGHT JOIN used u ON").replace("u.k IS NOT NULL", "name > 'a'")
    )
    result = CliRunner().invoke(main, ["check", str(file)])
    assert result.exit_code == 0, result.output
    assert "this condition is not true if b has no match, so the outer join is an inner join" in result.stderr


def test_a_condition_on_a_common_table_expression_drops_null_padded_rows(tmp_path: Path) -> None:
    """The columns of a WITH query are known."""
    sql = "WITH w AS (SELECT id, name FROM t) SELECT a.id FROM t a LEFT JOIN w ON a.id = w.id WHERE w.name = 'x'"
    (told,) = linted(tmp_path, sql)
    assert "is not true if w has no match" in told


@pytest.mark.parametrize(
    ("from_", "condition"),
    [
        ("t a LEFT JOIN t b ON a.id = b.id", "a.name = 'x'"),
        ("t a RIGHT JOIN t b ON a.id = b.id", "b.name = 'x'"),
        ("t a RIGHT JOIN t b ON a.id = b.id JOIN t c ON c.id = b.id", "c.name = 'x'"),
        ("t a RIGHT JOIN (SELECT id, name FROM t) b ON a.id = b.id", "a.name IS NULL"),
    ],
)
def test_a_condition_that_keeps_null_padded_rows(tmp_path: Path, from_: str, condition: str) -> None:
    """Conditions on the side whose rows are never null-padded give no warning."""
    assert linted(tmp_path, f"SELECT a.id, b.name FROM {from_} WHERE {condition}") == []
