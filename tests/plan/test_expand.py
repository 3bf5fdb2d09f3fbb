"""UNNEST, explode and grouping sets where no other engine has the same SQL: syntax, maps, kinds of changes."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rowkind.operators.changelog import RowKind
from rowkind.service.execute import expand
from rowkind.service.job.load import load
from rowkind.service.plan.errors import PlanError
from rowkind.service.plan.pipeline import plan
from rowkind.service.query import trial
from rowkind.service.query.memory import MemoryEngine

JOB = """
job: expand
tables:
  t:
    mode: retract
    primary_key: [id]
    columns:
      id: INT NOT NULL
      tags: ARRAY<STRING>
      counts: MAP<STRING, INT>
      items: "ARRAY<STRUCT<sku: STRING, n: INT>>"
      at: ARRAY<TIMESTAMP>
  k:
    mode: append
    columns: {{a: STRING, b: STRING, n: INT}}
sinks:
  result: {{mode: retract, sql: "{sql}"}}
"""

Change = tuple[str, dict[str, Any]]
TIME = "2026-01-01T00:00:00.500Z"
ROW = {
    "id": 1,
    "tags": ["x", None, "x"],
    "counts": {"a": 1, "b": None},
    "items": [{"sku": "p", "n": 2}, None],
    "at": [TIME],
}
EMPTY = {"id": 2, "tags": [], "counts": None, "items": None, "at": []}


def _run(folder: Path, sql: str, changes: Sequence[tuple[str, Change]], *, fold: bool, rows: int = 1) -> Any:
    file = folder / "job.yaml"
    file.write_text(JOB.format(sql=sql))
    job = load(file)
    lines = [json.dumps({"table": table, "op": op, "row": row}) for table, (op, row) in changes]
    batches = trial.read(job, lines, "changes.jsonl", rows)
    told: list[str] = []
    return list(trial.results(job, plan(job, "result"), batches, trial.in_memory(told.append), fold=fold))


def _rows(folder: Path, sql: str, *rows: dict[str, Any], table: str = "t") -> list[list[Any]]:
    changes = [(table, ("+I", row)) for row in rows]
    return sorted((list(each["row"].values()) for each in _run(folder, sql, changes, fold=True)), key=json.dumps)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT id, explode(tags) FROM t", [[1, "x"], [1, "x"], [1, None]]),
        ("SELECT posexplode(tags) FROM t", [[0, "x"], [1, None], [2, "x"]]),
        ("SELECT posexplode_outer(tags) AS (p, x) FROM t", [[0, "x"], [1, None], [2, "x"], [None, None]]),
        ("SELECT id, explode(counts) AS (k, v) FROM t", [[1, "a", 1], [1, "b", None]]),
        ("SELECT id, explode_outer(counts) FROM t", [[1, "a", 1], [1, "b", None], [2, None, None]]),
        ("SELECT posexplode(counts) FROM t", [[0, "a", 1], [1, "b", None]]),
        ("SELECT inline(items) FROM t", [["p", 2], [None, None]]),
        ("SELECT id, inline_outer(items) AS (s, m) FROM t", [[1, "p", 2], [1, None, None], [2, None, None]]),
        ("SELECT id, x.sku FROM t LATERAL VIEW explode(items) z AS x", [[1, "p"], [1, None]]),
        ("SELECT id, z.col FROM t LATERAL VIEW OUTER explode(tags) z", [[1, "x"], [1, "x"], [1, None], [2, None]]),
        ("SELECT id, n, k, v FROM t LATERAL VIEW posexplode(counts) z AS n, k, v", [[1, 0, "a", 1], [1, 1, "b", None]]),
        ("SELECT id, y FROM t, LATERAL explode(tags) AS z(y) WHERE y = 'x'", [[1, "x"], [1, "x"]]),
        ("SELECT id, y FROM t, explode(tags) AS z(y) WHERE y = 'x'", [[1, "x"], [1, "x"]]),
        ("SELECT y FROM t LEFT JOIN LATERAL explode(tags) AS z(y) ON TRUE", [["x"], ["x"], [None], [None]]),
        ("SELECT id, u.* FROM t CROSS JOIN UNNEST(items) WITH ORDINALITY AS u", [[1, "p", 2, 1], [1, None, None, 2]]),
        ("SELECT id, x FROM t CROSS JOIN UNNEST(tags) AS x", [[1, "x"], [1, "x"], [1, None]]),
        ("SELECT id, k, n FROM t CROSS JOIN UNNEST(counts) WITH ORDINALITY AS u(k, v, n)", [[1, "a", 1], [1, "b", 2]]),
        ("SELECT id, x FROM t JOIN UNNEST(tags) AS u(x) ON x > 'a'", [[1, "x"], [1, "x"]]),
        ("SELECT explode(tags) AS x, upper(x) AS y FROM t", [["x", "X"], ["x", "X"], [None, None]]),
        ("SELECT id, explode(tags) AS x, explode(items) AS i FROM t WHERE id = 1 AND size(tags) > 3", []),
        ("SELECT DISTINCT explode(tags) AS x FROM t", [["x"], [None]]),
        ("SELECT id, explode(tags) AS x FROM t ORDER BY x DESC LIMIT 1", [[1, "x"]]),
        ("SELECT *, explode(at) AS one FROM (SELECT id, at FROM t) d", [[1, [TIME], TIME]]),
        (
            "SELECT tag, COUNT(*) AS n FROM (SELECT explode(tags) AS tag FROM t) d GROUP BY tag WITH ROLLUP",
            [["x", 2], [None, 1], [None, 3]],
        ),
    ],
)  # fmt: skip
def test_each_spelling_gives_what_spark_gives(tmp_path: Path, sql: str, expected: list[list[Any]]) -> None:
    """The explode functions have Spark's rows, columns and NULLs, and UNNEST those of the SQL standard."""
    assert _rows(tmp_path, sql, ROW, EMPTY) == sorted(expected, key=json.dumps)


def test_many_rows_become_more_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Expanding rows in small portions gives the same output, and the halves of an update stay adjacent."""
    changes = []
    for id_ in range(8):
        row = {**EMPTY, "id": id_, "tags": ["x", "y"]}
        changes.append(("t", ("+I", row)))
        if id_ % 3:
            changes += [("t", ("-U", row)), ("t", ("+U", {**row, "tags": ["y", "z"][: id_ % 2 + 1]}))]
    for sql in (
        "SELECT id, explode(tags) FROM t",
        "SELECT tag, COUNT(*) AS n FROM t LATERAL VIEW explode(tags) AS tag GROUP BY 1",
    ):
        whole = _run(tmp_path, sql, changes, fold=False, rows=99)
        monkeypatch.setattr(expand, "_AT_ONCE", 1)
        assert _run(tmp_path, sql, changes, fold=False, rows=99) == whole
        monkeypatch.undo()


def test_an_update_of_an_array_is_one_of_those_elements_that_differ(tmp_path: Path) -> None:
    """Elements that are equal in both rows cancel, and the others are updated, inserted or deleted."""
    changes = [
        ("t", ("+I", {**ROW, "tags": ["a", "b", "c"]})),
        ("t", ("+U", {**ROW, "tags": ["a", "z"]})),
        ("t", ("-D", {**ROW, "tags": ["a", "z"]})),
    ]

    printed = _run(tmp_path, "SELECT id, p, x FROM t, LATERAL posexplode(tags) AS u(p, x)", changes, fold=False)

    told = [(each["batch"], each["op"], each["row"]["p"], each["row"]["x"]) for each in printed]
    assert sorted(told[:3]) == [(0, "+I", 0, "a"), (0, "+I", 1, "b"), (0, "+I", 2, "c")]
    assert {each[1:] for each in told[3:-2]} in (
        {("-U", 1, "b"), ("+U", 1, "z"), ("-D", 2, "c")},
        {("-D", 1, "b"), ("+I", 1, "z"), ("-D", 2, "c")},
    )
    assert sorted(told[-2:]) == [(2, "-D", 0, "a"), (2, "-D", 1, "z")]


KEYS = ({"a": "x", "b": "p", "n": 1}, {"a": "x", "b": "q", "n": 2}, {"a": None, "b": "p", "n": 4})


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            "SELECT a, b, SUM(n) AS s, GROUPING_ID() AS g, GROUPING(b) AS h FROM k GROUP BY a, b WITH ROLLUP",
            [
                ["x", "p", 1, 0, 0],
                ["x", "q", 2, 0, 0],
                [None, "p", 4, 0, 0],
                ["x", None, 3, 1, 1],
                [None, None, 4, 1, 1],
                [None, None, 7, 3, 1],
            ],
        ),
        (
            "SELECT b, SUM(n) AS s, GROUPING_ID() AS g FROM k GROUP BY a, b GROUPING SETS ((b), (a))",
            [["p", 5, 2], ["q", 2, 2], [None, 3, 1], [None, 4, 1]],
        ),
        (
            "SELECT b, SUM(n) AS s, GROUPING_ID() AS g FROM k GROUP BY ROLLUP (b), a",
            [["p", 1, 0], ["q", 2, 0], ["p", 4, 0], [None, 3, 2], [None, 4, 2]],
        ),
        (
            "SELECT SUM(n) AS s, GROUPING_ID() AS g FROM k GROUP BY CUBE (a), ROLLUP (a)",
            [[3, 0], [3, 0], [3, 0], [4, 0], [4, 0], [4, 0], [7, 1]],
        ),
        ("SELECT a AS who, MAX(a) AS m FROM k GROUP BY ROLLUP (1)", [["x", "x"], [None, None], [None, "x"]]),
        ("SELECT COUNT(*) AS n FROM k GROUP BY ()", [[3]]),
        ("SELECT n > 1 AS x, COUNT(*) AS n FROM k GROUP BY ROLLUP (n > 1)", [[False, 1], [True, 2], [None, 3]]),
    ],
)
def test_grouping_sets_are_numbered_as_in_spark(tmp_path: Path, sql: str, expected: list[list[Any]]) -> None:
    """GROUPING_ID without arguments is over the columns of GROUP BY in order, and equal sets repeat their rows."""
    assert _rows(tmp_path, sql, *KEYS, table="k") == sorted(expected, key=json.dumps)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT COUNT(*) AS n FROM k GROUP BY GROUPING SETS (())", [[0]]),
        ("SELECT COUNT(*) AS n FROM k GROUP BY ROLLUP (a)", []),
    ],
)
def test_the_set_of_no_columns_has_a_row_for_no_rows_only_alone(
    tmp_path: Path, sql: str, expected: list[list[Any]]
) -> None:
    """As in Spark, without input rows GROUPING SETS (()) has a row and the total of a ROLLUP does not."""
    changes = [("t", ("+I", ROW))]
    sql = sql.replace("FROM k", "FROM (SELECT id AS a FROM t WHERE id > 1) k")
    found = _run(tmp_path, sql, changes, fold=True)
    assert [list(each["row"].values()) for each in found] == expected


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT explode(tags) + 1 AS x FROM t", "the function EXPLODE is not supported"),
        ("SELECT explode(id) AS x FROM t", "EXPLODE takes an array or a map, not INT"),
        ("SELECT inline(tags) AS x FROM t", "INLINE takes an array of structs"),
        ("SELECT id, explode(tags), COUNT(*) AS n FROM t GROUP BY id", "before they are grouped"),
        ("SELECT id FROM t LEFT JOIN UNNEST(tags) AS u(x) ON MAX(x) = 'a'", "not allowed in the ON clause"),
        ("SELECT id FROM t LEFT JOIN LATERAL explode(tags) AS u(x)", "needs an ON clause: write ON TRUE"),
        ("SELECT id FROM t RIGHT JOIN UNNEST(tags) AS u(x) ON TRUE", "not RIGHT JOIN"),
        ("SELECT id FROM t, UNNEST(tags, at) AS u(x, y)", "UNNEST takes one array or map here"),
        ("SELECT x FROM UNNEST(tags) AS u(x)", "the query has no column tags"),
        ("SELECT x FROM t, LATERAL nothing(tags) AS u(x)", "the table function NOTHING is unknown"),
        (
            "SELECT x FROM t, UNNEST(tags) AS u(x, y)",
            "the number of columns that UNNEST returns is 1 (col), but the number of column names after the alias is 2",
        ),
        ("SELECT x FROM t, UNNEST(tags) AS t(x)", "two tables in FROM have the alias t"),
        ("SELECT a, GROUPING(a) AS g FROM k GROUP BY a", "GROUPING is allowed only with GROUPING SETS"),
        ("SELECT a, GROUPING(n) AS g FROM k GROUP BY ROLLUP (a)", "GROUPING takes columns of GROUP BY"),
        ("SELECT a, GROUPING(a, b) AS g FROM k GROUP BY ROLLUP (a, b)", "for several columns, write GROUPING_ID"),
        ("SELECT a, COUNT(*) AS n FROM k GROUP BY CUBE (a,b,n,1,2,3,4,5,6,7,8,9,10)", "grouping sets"),
    ],
)
def test_what_cannot_be_taken_apart_is_refused_with_its_reason(tmp_path: Path, sql: str, reason: str) -> None:
    """An argument that is not an array, or a function in the wrong place, is refused with its reason and position."""
    with pytest.raises(PlanError) as refused:
        _rows(tmp_path, sql, table="k")
    assert reason in str(refused.value)
    assert "^" in str(refused.value)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("partition", "last"), [("tag", 1), ("id", 2)])
def test_ranks_by_arrival_do_not_depend_on_batches(tmp_path: Path, partition: str, last: int) -> None:
    """The elements of a row arrive at the same time, and the rank by arrival is the same for any batch size."""
    number = f"ROW_NUMBER() OVER (PARTITION BY {partition} ORDER BY PROCTIME()) AS rn"
    inner = f"SELECT id, tag, {number} FROM t CROSS JOIN UNNEST(tags) AS u(tag)"
    sql = f"SELECT id, tag FROM ({inner}) r WHERE rn <= {last}"
    rng = random.Random(5)
    live: dict[int, dict[str, Any]] = {}
    changes: list[tuple[str, Change]] = []
    for _ in range(60):
        row = {**EMPTY, "id": rng.randint(1, 6), "tags": rng.choices("abc", k=rng.randint(0, 4))}
        if row["id"] in live and rng.random() < 0.4:
            changes.append(("t", ("-D", live.pop(row["id"]))))
        else:
            changes.append(("t", ("+U" if row["id"] in live else "+I", row)))
            live[row["id"]] = row

    found = [sorted(map(json.dumps, _run(tmp_path, sql, changes, fold=True, rows=rows))) for rows in (1, 7, 60)]

    assert found[0] == found[1] == found[2] != []


def test_a_row_that_is_written_again_keeps_what_was_made_of_it(tmp_path: Path) -> None:
    """With a TTL, writing an equal row refreshes the groups of its elements, so that they can be retracted later."""
    file = tmp_path / "job.yaml"
    sql = "SELECT tag, COUNT(*) AS n FROM t CROSS JOIN UNNEST(tags) AS u(tag) GROUP BY tag"
    text = JOB.format(sql=sql)
    file.write_text(f"{text}\nttl: 10 s\n")
    job = load(file)
    sink = plan(job, "result")
    engine = MemoryEngine(sink)
    row = {**EMPTY, "tags": ["a"]}
    told = []
    for now, op in ((0, "+I"), (6_000, "+U"), (12_000, "-D")):
        (batch,) = trial.read(job, [json.dumps({"table": "t", "op": op, "row": row})], "changes.jsonl", 1)
        told.append(engine.batch(batch, now)["result"].kind.tolist())

    assert told == [[RowKind.INSERT], [], [RowKind.DELETE]]
