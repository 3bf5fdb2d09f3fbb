"""Python functions of a job: their results, the checks on them, and their errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rowkind.service.execute.expressions import ExpressionError
from rowkind.service.job.errors import JobError
from rowkind.service.job.load import load
from rowkind.service.plan.errors import PlanError
from rowkind.service.plan.fingerprint import fingerprint
from rowkind.service.plan.pipeline import plan
from rowkind.service.python.errors import FunctionError
from tests.trying import folded

MODULE = """
import pyarrow as pa
import pyarrow.compute as pc

def times(a, b):
    return pc.multiply(a, b)

def inverse(x):
    return pa.array([1 / each for each in x.to_pylist()])

def named(x):
    return x.fill_null("nobody")

def lists(x):
    return [each.split(",") for each in x.to_pylist()]

def words(x):
    return [[{"word": each, "length": len(each)} for each in text.split()] or None for text in x.to_pylist()]

def picky(x):
    assert "big blue" not in x.to_pylist(), "not this one"
    return words(x)

def seen(x):
    assert not x.null_count, "it sees no NULL"
    return x

def zero(x):
    return pc.divide(x, 0)

def short(x):
    return x[:-1]

def texts(x):
    return x.cast(pa.string())

def wide(x):
    return pc.multiply(x.cast(pa.int64()), 3_000_000_000)

def one(x):
    return 1

NUMBER = 1
"""
DOUBLES = {"arguments": ["DOUBLE", "DOUBLE"], "returns": "DOUBLE", "deterministic": True}
NUMBER = {"arguments": ["INT"], "returns": "INT", "deterministic": True}
TEXT = {"arguments": ["STRING"], "returns": "STRING", "deterministic": True}
FUNCTIONS: dict[str, Any] = {
    "times": {"python": "own:times", **DOUBLES},
    "luck": {"python": "own:times", **DOUBLES, "deterministic": False},
    "inverse": {"python": "own:inverse", **NUMBER, "returns": "DOUBLE"},
    "named": {"python": "own:named", **TEXT, "returns": "STRING NOT NULL", "called_on_null": True},
    "bare": {"python": "own:named", **TEXT},
    "lists": {"python": "own:lists", **TEXT, "returns": "ARRAY<STRING>"},
    "words": {"python": "own:words", **TEXT, "kind": "table", "returns": {"word": "STRING", "length": "INT"}},
    "picky": {"python": "own:picky", **TEXT, "kind": "table", "returns": {"word": "STRING", "length": "INT"}},
    "seen": {"python": "own:seen", **NUMBER},
    "strict": {"python": "own:seen", **NUMBER, "called_on_null": True, "returns": "INT NOT NULL"},
    "short": {"python": "own:short", **NUMBER},
    "texts": {"python": "own:texts", **NUMBER},
    "wide": {"python": "own:wide", **NUMBER},
    "one": {"python": "own:one", **NUMBER},
}
TABLES = {
    "t": {
        "mode": "retract",
        "primary_key": ["id"],
        "columns": {"id": "INT NOT NULL", "a": "INT", "d": "DECIMAL(10,2)", "s": "STRING"},
    },
    "u": {"mode": "append", "columns": {"a": "INT", "s": "STRING"}},
}
ROWS = [
    {"id": 1, "a": 2, "d": "1.50", "s": "big, red"},
    {"id": 2, "a": None, "d": "0.25", "s": None},
    {"id": 3, "a": 4, "d": None, "s": "big blue"},
]
CHANGES = [{"table": "t", "op": "+I", "row": row} for row in ROWS]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "own.py").write_text(MODULE)
    return tmp_path


def _rows(folder: Path, sql: str, **settings: Any) -> list[list[Any]]:
    more = {"code": "code", "functions": FUNCTIONS, **settings}
    found = folded(folder, sql, TABLES, CHANGES, **more)
    return sorted((list(row.values()) for row in found), key=json.dumps)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT id, times(a, d) AS x FROM t", [[1, 3.0], [2, None], [3, None]]),
        ("SELECT id FROM t WHERE times(a, 2) > 4", [[3]]),
        (
            "SELECT named(s) AS s, COUNT(*) AS n FROM t GROUP BY named(s)",
            [["big blue", 1], ["big, red", 1], ["nobody", 1]],
        ),
        ("SELECT SUM(times(a, 1)) AS x, MAX(named(s)) AS y FROM t", [[6.0, "nobody"]]),
        ("SELECT x.id, y.id AS other FROM t x JOIN t y ON times(x.a, 2) = times(y.a, 1)", [[1, 3]]),
        ("SELECT x.id, y.id AS o FROM t x JOIN t y ON x.id = y.id AND named(x.s) < 'c'", [[1, 1], [3, 3]]),
        ("SELECT id, upper(bare(s)) AS s FROM t", [[1, "BIG, RED"], [2, None], [3, "BIG BLUE"]]),
        ("SELECT id, times(times(a, a), 1) AS x FROM t", [[1, 4.0], [2, None], [3, 16.0]]),
        ("SELECT id, lists(s)[0] AS x FROM t", [[1, "big"], [2, None], [3, "big blue"]]),
        ("SELECT id, explode(lists(s)) AS x FROM t", [[1, " red"], [1, "big"], [3, "big blue"]]),
        ("SELECT id, seen(a) AS x FROM t", [[1, 2], [2, None], [3, 4]]),
        (
            "SELECT id, w.word, w.length FROM t, LATERAL words(s) AS w",
            [[1, "big,", 4], [1, "red", 3], [3, "big", 3], [3, "blue", 4]],
        ),
        (
            "SELECT id, x FROM t LATERAL VIEW OUTER words(s) w AS x, n",
            [[1, "big,"], [1, "red"], [2, None], [3, "big"], [3, "blue"]],
        ),
        ("SELECT words(s) FROM t WHERE id = 1", [["big,", 4], ["red", 3]]),
        (
            "SELECT w, COUNT(*) AS n FROM t, LATERAL TABLE(words(s)) AS x(w, l) GROUP BY w",
            [["big", 1], ["big,", 1], ["blue", 1], ["red", 1]],
        ),
        (
            "SELECT id, (SELECT SUM(w.length) FROM LATERAL words(t.s) AS w) AS x FROM t",
            [[1, 7], [2, None], [3, 7]],
        ),
        (
            "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM words(t.s) AS w WHERE w.word = 'red')",
            [[2], [3]],
        ),
        ("SELECT id, CASE WHEN a = 0 THEN 0 ELSE inverse(a) END AS x FROM t WHERE id < 3", [[1, 0.5], [2, None]]),
        ("SELECT times(2, 3) AS x, id FROM t WHERE id = 1", [[6.0, 1]]),
        ("SELECT x.id FROM t x JOIN t y ON x.id = y.id WHERE x.a + y.a > 4 AND inverse(x.a - 2) > 0", [[3]]),
    ],
)
def test_a_function_stands_wherever_a_value_may(folder: Path, sql: str, expected: list[list[Any]]) -> None:
    """A function can be used in columns, conditions, keys, groups, arguments and LATERAL, with its NULL rule."""
    assert _rows(folder, sql) == expected


def test_what_a_function_made_is_taken_back_with_its_row(folder: Path) -> None:
    """A deletion passes through the functions as its row did."""
    gone = [{"table": "t", "op": "-D", "row": row} for row in ROWS]
    sql = "SELECT w, SUM(times(l, a)) AS n FROM t, LATERAL words(s) AS x(w, l) GROUP BY w"

    found = folded(folder, sql, TABLES, [*CHANGES, *gone[:1]], code="code", functions=FUNCTIONS)
    nothing = folded(folder, sql, TABLES, [*CHANGES, *gone], code="code", functions=FUNCTIONS)

    assert sorted(found, key=json.dumps) == [{"w": "big", "n": 12.0}, {"w": "blue", "n": 16.0}]
    assert nothing == []


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("short(a)", "function short (own:short) returned an array of length 1 instead of 2"),
        (
            "texts(a)",
            (
                "function texts (own:texts) returned a value of type StringArray, which is not an array of INT: "
                "it is string"
            ),
        ),
        (
            "wide(a)",
            (
                "function wide (own:wide) returned a value of type Int64Array, which is not an array of INT: "
                "Integer value 6000000000"
            ),
        ),
        ("one(a)", "function one (own:one) returned a value of type int, which is not an array of INT"),
    ],
)
def test_a_function_that_is_not_as_the_job_says_stops_it(folder: Path, call: str, reason: str) -> None:
    """A result of the wrong length or type stops the job, regardless of `on_error`."""
    more = {"on_error": "null", "dead_letters": {"topic": "dead"}}

    with pytest.raises(FunctionError) as wrong:
        folded(
            folder,
            f"SELECT id, {call} AS x FROM t",
            TABLES,
            CHANGES,
            batch_rows=3,
            code="code",
            functions=FUNCTIONS,
            **more,
        )

    assert str(wrong.value).startswith(reason)


@pytest.mark.parametrize(
    ("call", "row", "reason"),
    [
        ("inverse(a - 4)", 3, "inverse: ZeroDivisionError: division by zero, at own.py:9: return pa.array([1 / each"),
        ("strict(a)", 2, "strict: AssertionError: it sees no NULL, at own.py:25: assert not x.null_count"),
    ],
)
def test_an_error_names_the_row_and_the_line_of_python(folder: Path, call: str, row: int, reason: str) -> None:
    """If a function fails on a batch, the error has the row and the line of code."""
    with pytest.raises(ExpressionError) as wrong:
        folded(
            folder, f"SELECT id, {call} AS x FROM t", TABLES, CHANGES, batch_rows=3, code="code", functions=FUNCTIONS
        )

    assert reason in str(wrong.value)
    assert f"on the row from change {row} of t" in str(wrong.value)


def test_a_row_on_which_a_function_fails_can_be_left_out_or_null(folder: Path) -> None:
    """`on_error` applies to functions: the value is NULL, or the row is dropped as a dead letter."""
    dead = {"dead_letters": {"topic": "dead"}}

    assert _rows(folder, "SELECT id, inverse(a - 4) AS x FROM t", on_error="null", **dead) == [
        [1, -0.5],
        [2, None],
        [3, None],
    ]
    assert _rows(folder, "SELECT id, inverse(a - 4) AS x FROM t", on_error="dead_letter", **dead) == [
        [1, -0.5],
        [2, None],
    ]


@pytest.mark.parametrize(
    ("on_error", "view", "expected"),
    [
        ("dead_letter", "LATERAL VIEW", [[1, "big,"], [1, "red"]]),
        ("null", "LATERAL VIEW", [[1, "big,"], [1, "red"]]),
        ("dead_letter", "LATERAL VIEW OUTER", [[1, "big,"], [1, "red"], [2, None]]),
        ("null", "LATERAL VIEW OUTER", [[1, "big,"], [1, "red"], [2, None], [3, None]]),
    ],
)
def test_a_row_on_which_a_table_function_fails_has_no_rows(
    folder: Path, on_error: str, view: str, expected: list[list[Any]]
) -> None:
    """If a table function fails on a row, it returns no rows for it, or the row is dropped as a dead letter."""
    sql = f"SELECT id, w FROM t {view} picky(s) x AS w, l"
    assert _rows(folder, sql, on_error=on_error, dead_letters={"topic": "dead"}) == expected


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        (
            "SELECT luck(a, 1) AS x FROM t",
            "luck is not deterministic, and could return another value when a row is retracted",
        ),
        ("SELECT x.a FROM u x JOIN u y ON x.a = y.a AND luck(x.a, y.a) > 1", "a join computes it again"),
        ("SELECT x.a FROM u x JOIN u y ON x.a = y.a WHERE luck(x.a, 1) > 1", "a join computes it again"),
        ("SELECT times(a) AS x FROM t", "times takes (DOUBLE, DOUBLE), but the number of arguments is 1"),
        ("SELECT times(s, 1) AS x FROM t", "times takes DOUBLE here, not STRING: write a CAST"),
        ("SELECT upper(words(s)) AS x FROM t", "words is a table function, which returns rows"),
        ("SELECT t.id FROM t, LATERAL times(a, d) AS x", "the table function TIMES is unknown"),
    ],
)
def test_a_call_that_cannot_be_right_is_refused(folder: Path, sql: str, reason: str) -> None:
    """An invalid call is refused when the query is planned, with its place in the SQL."""
    with pytest.raises(PlanError) as refused:
        _rows(folder, sql)

    assert reason in str(refused.value)
    assert "^" in str(refused.value)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ({"python": "own:nothing", **NUMBER}, "functions.f: function f: own has no nothing"),
        ({"python": "own:NUMBER", **NUMBER}, "functions.f: function f: own:NUMBER is not a function"),
        ({"python": "gone:f", **NUMBER}, "cannot be imported: ModuleNotFoundError: No module named 'gone'"),
        ({"python": "json:loads", **NUMBER}, "json is a module of Python or of a library"),
        (
            {"python": "broken:f", **NUMBER},
            "broken cannot be imported: ZeroDivisionError: division by zero, at broken.py:2",
        ),
        ({"python": "own", **NUMBER}, "functions.f.python: 'own': expected module:name"),
        ({"python": "own:one", **NUMBER, "arguments": ["NUMBER"]}, "functions.f.arguments: "),
        ({"python": "own:one", **NUMBER, "arguments": []}, "functions.f.arguments: "),
        ({"python": "own:one", **NUMBER, "kind": "table"}, "a table function must have its columns in `returns`"),
        ({"python": "own:one", **NUMBER, "returns": {"x": "INT"}}, "needs `kind: table`"),
        (
            {"python": "own:one", "arguments": ["INT"], "returns": "INT"},
            "deterministic is missing: whether equal arguments",
        ),
        ({"python": "own:one", **NUMBER, "determined": True}, "unknown setting; did you mean deterministic?"),
    ],
)
def test_a_function_that_is_not_there_is_told_with_its_line(folder: Path, function: Any, reason: str) -> None:
    """An invalid entry of `functions` is refused with its place in the job file."""
    (folder / "code" / "broken.py").write_text("\n1 / 0\n")

    with pytest.raises(JobError) as wrong:
        _rows(folder, "SELECT id FROM t", functions={"f": function})

    assert reason in str(wrong.value)
    assert "job.yaml:1: functions.f" in str(wrong.value)


def test_a_function_cannot_be_called_like_one_of_sql(folder: Path) -> None:
    """A function cannot have the name of an SQL function."""
    with pytest.raises(JobError, match="UPPER is the name of an SQL function: give your function another name"):
        _rows(folder, "SELECT id FROM t", functions={"upper": {"python": "own:one", **NUMBER}})


def test_changed_code_is_seen_and_tells_in_the_fingerprint(folder: Path) -> None:
    """Changed code is used by the next plan and changes the fingerprint, unless the `version` is the same."""
    sql = "SELECT id, one(id) AS x FROM t"
    plans = {}
    for version in (None, "1"):
        for factor in (10, 20):
            (folder / "code" / "own.py").write_text(
                f"def one(x):\n    return [{factor} * each for each in x.to_pylist()]\n"
            )
            of = {"one": {"python": "own:one", **NUMBER} | ({"version": version} if version else {})}
            assert _rows(folder, sql, functions=of) == [[1, factor], [2, 2 * factor], [3, 3 * factor]]
            plans[version, factor] = fingerprint(plan(load(folder / "job.yaml"), "o"))

    assert plans[None, 10] != plans[None, 20]
    assert plans["1", 10] == plans["1", 20]
