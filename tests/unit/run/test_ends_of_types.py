"""Values at the limits of their types in complete queries: all batch sizes give the same result or the same error."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rowkind.errors import RowkindError
from rowkind.service.execute.expressions import ExpressionError
from tests.seeds import some
from tests.trying import Change, folded

SEED = 11
_FIRST, _LAST = "-290308-12-21T19:59:05.224192Z", "+294247-01-10T04:00:54.775807Z"
# PostgreSQL's infinity and -infinity in Debezium's form.
_INFINITE, _LEAST = "+294247-01-10T04:00:25.200Z", "-290308-12-21T19:59:27.600Z"
_NEAR = ("+294247-01-09T00:00:00Z", "-290308-12-24T00:00:00Z", "+10000-01-01T00:00:00Z", "0000-12-31T23:59:59.999Z")
_FAR = (_FIRST, _LEAST, _INFINITE, _LAST)
_COLUMNS = {"id": "INT", "ts": "TIMESTAMP(6) NOT NULL"}
_TABLE = {"mode": "append", "columns": _COLUMNS}
_WITH_WATERMARK = {**_TABLE, "watermark": {"column": "ts", "delay": "5s"}}
_ROWS = "TABLE t, DESCRIPTOR(ts)"
_WINDOWS = {
    "tumble": "SELECT COUNT(*) AS c FROM t GROUP BY window(ts, '1 hour')",
    "tumble's end": "SELECT window.end AS e, COUNT(*) AS c FROM t GROUP BY window(ts, '1 hour')",
    "hop": f"SELECT COUNT(*) AS c FROM TABLE(HOP({_ROWS}, INTERVAL 1 HOUR, INTERVAL 5 HOURS)) "
    "GROUP BY window_start, window_end",
    "cumulate": f"SELECT COUNT(*) AS c FROM TABLE(CUMULATE({_ROWS}, INTERVAL 1 HOUR, INTERVAL 5 HOURS)) "
    "GROUP BY window_start, window_end",
    "session": f"SELECT COUNT(*) AS c FROM TABLE(SESSION({_ROWS}, INTERVAL 5 HOURS)) GROUP BY window_start, window_end",
    "session's end": f"SELECT window_end, id FROM TABLE(SESSION({_ROWS}, INTERVAL 5 HOURS))",
}
_OTHERS = {
    "kept": ("SELECT id, ts FROM t", 2),
    "cast": ("SELECT CASE WHEN id > 0 THEN ts END AS x, COALESCE(ts, ts) AS y FROM t", 2),
    "range": (
        "SELECT id, SUM(id) OVER (ORDER BY ts RANGE BETWEEN INTERVAL 1 DAY PRECEDING AND CURRENT ROW) AS s FROM t",
        2,
    ),
    "rank": ("SELECT id FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY ts DESC) AS n FROM t) WHERE n <= 2", 2),
    "extremes": ("SELECT MIN(ts) AS a, MAX(ts) AS b, COUNT(DISTINCT ts) AS c FROM t", 1),
    "asof": ("SELECT a.id, b.id AS j FROM t a ASOF JOIN t b MATCH_CONDITION (a.ts >= b.ts) ON a.id = b.id", 2),
    "equal": ("SELECT a.id, b.id AS j FROM t a JOIN t b ON a.ts = b.ts", 2),
    "before": ("SELECT a.id, b.id AS j FROM t a JOIN t b ON a.id = b.id AND a.ts <= b.ts", 2),
}


def _outcomes(folder: Path, sql: str, table: Mapping[str, Any], changes: Sequence[Change], **settings: Any) -> set[str]:
    """Return the outcome for each batch size: the remaining rows, or the class and exit code of the error."""
    found = set()
    for rows in {1, len(changes)}:
        try:
            found.add(str(sorted(map(str, folded(folder, sql, {"t": table}, changes, batch_rows=rows, **settings)))))
        except RowkindError as error:
            found.add(f"{type(error).__name__} {error.exit_code}")
    return found


def _inserts(*times: str) -> list[Change]:
    return [{"table": "t", "op": "+I", "row": {"id": at, "ts": each}} for at, each in enumerate(times, 1)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("window", _WINDOWS)
def test_a_row_whose_window_leaves_the_times_is_an_error_of_it(tmp_path: Path, window: str) -> None:
    """A row whose window is out of range is an error, even if the window is unused; `on_error` keeps the others."""
    letters = {"on_error": "dead_letter", "dead_letters": {"topic": "letters"}}
    alone = _outcomes(tmp_path, _WINDOWS[window], _TABLE, _inserts("2026-01-01T00:00:00Z"))
    for far in some([_INFINITE, _FIRST, _LEAST, _LAST]):
        changes = _inserts("2026-01-01T00:00:00Z", far)
        table = _WITH_WATERMARK if far in (_INFINITE, _LAST) else _TABLE

        assert _outcomes(tmp_path, _WINDOWS[window], table, changes) == {"ExpressionError 1"}, far
        assert _outcomes(tmp_path, _WINDOWS[window], table, changes, **letters) == alone, far


@pytest.mark.parametrize("window", _WINDOWS)
def test_a_row_that_a_filter_takes_out_is_in_no_window(tmp_path: Path, window: str) -> None:
    """A row that WHERE removes is in no window, even if its window would be out of range."""
    sql = _WINDOWS[window].replace("FROM t ", "FROM f ").replace("TABLE t", "TABLE f")
    sql = f"WITH f AS (SELECT * FROM t WHERE ts BETWEEN TIMESTAMP '1000-01-01' AND TIMESTAMP '9000-01-01') {sql}"
    changes = _inserts("2026-01-01T00:00:00Z", *_FAR)

    assert len(alone := _outcomes(tmp_path, sql, _TABLE, changes[:1])) == 1
    assert _outcomes(tmp_path, sql, _TABLE, changes) == alone


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", _OTHERS)
def test_far_times_go_through_queries_unharmed(tmp_path: Path, kind: str) -> None:
    """Times up to the limits of the type are compared, ordered and emitted unchanged."""
    sql, count = _OTHERS[kind]
    for far in (*some(_FAR), *some(_NEAR)):
        changes = _inserts("2026-01-01T00:00:00Z", far)

        (found,) = _outcomes(tmp_path, sql, _TABLE, changes)

        assert found.count("{") == count, (far, found)
        assert kind not in ("kept", "cast", "extremes") or far in found, found


@pytest.mark.parametrize(
    ("condition", "early", "late"),
    [
        ("ts > NOW() - INTERVAL 1 DAY", False, True),
        ("ts >= NOW() + INTERVAL 400 DAYS", False, True),
        ("ts < NOW() - INTERVAL 1 DAY", True, False),
        ("ts BETWEEN NOW() - INTERVAL 1 HOUR AND NOW() + INTERVAL 300000 DAYS", False, False),
        ("ts >= CURRENT_DATE - INTERVAL 7 DAYS", False, True),
        ("ts > NOW() - INTERVAL 1 DAY AND ts > NOW() - INTERVAL 2 DAYS", False, True),
        ("ts > NOW() - INTERVAL 1 DAY AND CAST(ts AS TIMESTAMP_NTZ) > NOW() - INTERVAL 2 DAYS", False, True),
    ],
)
def test_now_is_compared_with_every_time(tmp_path: Path, condition: str, early: bool, late: bool) -> None:
    """A condition on NOW() does not fail for times near the limits of the type."""
    for far, holds in ((_LEAST, early), (_INFINITE, late)):
        if far == _LEAST and ("CURRENT_DATE" in condition or "DAY AND" in condition):
            continue  # No date can be computed from it.
        (found,) = _outcomes(tmp_path, f"SELECT id FROM t WHERE {condition}", _TABLE, _inserts(far))
        assert found == ("[\"{'id': 1}\"]" if holds else "[]"), far


def test_a_very_early_time_moves_no_watermark(tmp_path: Path) -> None:
    """A time near the lower limit, less the delay, does not overflow, so that the watermark does not move."""
    sql = "SELECT COUNT(*) AS c FROM (SELECT * FROM t WHERE ts > TIMESTAMP '2000-01-01') GROUP BY window(ts, '1 hour')"
    changes = _inserts(_FIRST, _LEAST, "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z")

    assert _outcomes(tmp_path, sql, _WITH_WATERMARK, changes) == {"[\"{'c': 2}\"]"}


_VARIED = {
    "x": ("DOUBLE", (0.0, -0.0)),
    "f": ("FLOAT", (0.0, -0.0)),
    "a": ("ARRAY<DOUBLE>", ([1.0, 0.0, None], [1.0, -0.0, None])),
    "s": ("STRUCT<v: DOUBLE, n: STRUCT<w: FLOAT>>", ({"v": 0.0, "n": {"w": -0.0}}, {"v": -0.0, "n": {"w": 0.0}})),
    "m": ("MAP<STRING, DOUBLE>", ({"p": 0.0, "q": 1.0}, {"q": 1.0, "p": -0.0})),
    "n": ("DOUBLE", ("NaN", "NaN")),
}
_FOUND_BY_CONTENT = {
    "aggregate": "SELECT SUM(k) AS s, COUNT(*) AS c FROM t",
    "group": "SELECT k, COUNT(*) AS c FROM t GROUP BY k",
    "sink": "SELECT k, x, a, s, m FROM t",
    "pruned": "SELECT k FROM t",
    "join": "SELECT t.k, t.x, u.k AS j FROM t JOIN t u ON t.k = u.k",
    "semi join": "SELECT k, x FROM t WHERE k IN (SELECT k FROM t WHERE k > 0)",
    "rank": "SELECT k, x FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) AS n FROM t) WHERE n <= 3",
    "over": "SELECT k, SUM(x) OVER (PARTITION BY k ORDER BY x, f) AS s FROM t",
    "distinct": "SELECT DISTINCT k, x FROM t",
    "union": "SELECT k, x FROM t UNION ALL SELECT k, f FROM t",
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", _FOUND_BY_CONTENT)
def test_a_retraction_finds_a_row_that_sql_calls_equal(tmp_path: Path, kind: str) -> None:
    """A retraction removes an equal row in another representation, and the remaining rows are as they were sent."""
    print(f"seed {SEED}")
    dice = random.Random(SEED)

    def row(key: int) -> dict[str, Any]:
        return {"k": key} | {name: dice.choice(forms) for name, (_, forms) in _VARIED.items()}

    table = {"mode": "retract", "columns": {"k": "INT"} | {name: type_ for name, (type_, _) in _VARIED.items()}}
    keys = [1, 1, 2, 3]
    come = [{"table": "t", "op": "+I", "row": row(key)} for key in keys]
    go = [{"table": "t", "op": "-D", "row": row(key)} for key in keys]
    sql = _FOUND_BY_CONTENT[kind]

    assert _outcomes(tmp_path, sql, table, [*come, *go]) == _outcomes(tmp_path, sql, table, go)
    left = _outcomes(tmp_path, sql, table, [*come, *go[1:]])
    assert left in (_outcomes(tmp_path, sql, table, come[:1]), _outcomes(tmp_path, sql, table, come[1:2]))


def test_null_rows_stay_null_beside_a_far_time(tmp_path: Path) -> None:
    """A time that is out of range for an expression does not change the other rows of its batch."""
    table = {"mode": "append", "columns": {"id": "INT", "ts": "TIMESTAMP"}}
    changes = _inserts(_FIRST, "2026-01-01T00:00:00Z")
    changes.append({"table": "t", "op": "+I", "row": {"id": 3, "ts": None}})

    for sql in (
        "SELECT id FROM t WHERE ts IS NULL",
        "SELECT id FROM t WHERE COALESCE(ts, TIMESTAMP '1999-01-01') < TIMESTAMP '2000-01-01' AND id > 1",
    ):
        assert _outcomes(tmp_path, sql, table, changes) == {"[\"{'id': 3}\"]"}


def test_a_computed_value_that_may_not_be_null_is_a_dead_letter(tmp_path: Path) -> None:
    """With `on_error: null`, a row whose window is out of range is still a dead letter, as a window cannot be NULL."""
    table = {"mode": "append", "columns": {"id": "INT", "ts": "TIMESTAMP"}}
    letters = {"on_error": "null", "dead_letters": {"topic": "letters"}}

    for window in ("tumble", "hop", "cumulate"):
        alone = _outcomes(tmp_path, _WINDOWS[window], table, _inserts("2026-01-01T00:00:00Z"))
        changes = _inserts("2026-01-01T00:00:00Z", _LAST)
        assert _outcomes(tmp_path, _WINDOWS[window], table, changes, **letters) == alone, window


_CONDITIONS = {
    "join_1": "SELECT a.id FROM t a JOIN t b ON a.k = b.k AND a.v + b.v > 5",
    "semi_join_1": "SELECT id FROM t a WHERE EXISTS (SELECT 1 FROM t b WHERE a.k = b.k AND a.v + b.v > 5)",
    "rank_1": "SELECT id FROM (SELECT id, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY id) AS n FROM t) "
    "WHERE v + n > 5 AND n < 100",
    "match_1": "SELECT s FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES FIRST(A.id) AS s "
    "PATTERN (A) DEFINE A AS A.v + A.id > 5) AS m",
}


@pytest.mark.parametrize("operator", _CONDITIONS)
def test_a_condition_inside_an_operator_names_the_row_on_which_it_fails(tmp_path: Path, operator: str) -> None:
    """The error names the operator, the expression, the change and the setting; with `on_error` the query goes on."""
    columns = {"id": "INT NOT NULL", "k": "INT NOT NULL", "v": "BIGINT NOT NULL", "ts": "TIMESTAMP NOT NULL"}
    table = {"mode": "append", "columns": columns, "watermark": {"column": "ts", "delay": "0s"}}
    values = (7, 8, 2**63 - 1, 9)
    changes: list[Change] = [
        {"table": "t", "op": "+I", "row": {"id": at, "k": at, "v": v, "ts": f"2026-01-01T00:00:0{at}Z"}}
        for at, v in enumerate(values, 1)
    ]

    for rows in (1, len(changes)):
        with pytest.raises(ExpressionError, match=rf"^{operator}: .*v \+ .*change 3 of t\. .*`on_error: dead_letter`"):
            folded(tmp_path, _CONDITIONS[operator], {"t": table}, changes, batch_rows=rows)
    letters = {"on_error": "null", "dead_letters": {"topic": "letters"}}
    (left,) = _outcomes(tmp_path, _CONDITIONS[operator], table, changes, **letters)
    assert left.count("{") == 3
