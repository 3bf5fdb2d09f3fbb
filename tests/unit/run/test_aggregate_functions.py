"""Aggregate functions in Python: after every batch, the result is that of the remaining rows."""

from __future__ import annotations

import json
import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rowkind.avro.json_rows import decode
from rowkind.service.execute.expressions import ExpressionError
from rowkind.service.job.errors import JobError
from rowkind.service.job.load import load
from rowkind.service.plan.errors import PlanError
from rowkind.service.plan.explain.render import explain
from rowkind.service.plan.pipeline import plan
from rowkind.service.python.errors import FunctionError
from rowkind.service.query.memory import Fold, MemoryEngine
from rowkind.service.query.trial import read
from tests.seeds import seeds
from tests.trying import folded

MODULE = """
import pyarrow.compute as pc

class Total:
    def create(self):
        return {"n": 0, "total": 0}

    def add(self, state, x):
        state["n"] += len(x)
        state["total"] += pc.sum(x).as_py() or 0

    def retract(self, state, x):
        return {"n": state["n"] - len(x), "total": state["total"] - (pc.sum(x).as_py() or 0)}

    def merge(self, state, other):
        return {name: state[name] + other[name] for name in state}

    def result(self, state):
        return state["total"] / state["n"] if state["n"] else None

class Median:
    def create(self):
        return {}

    def add(self, state, x):
        seen = state["seen"]
        seen.fetch(x.to_pylist())
        for value in x.to_pylist():
            seen[value] = seen.get(value, 0) + 1

    def retract(self, state, x):
        seen = state["seen"]
        for value in x.to_pylist():
            seen[value] -= 1
            if not seen[value]:
                del seen[value]

    def result(self, state):
        values = [value for value, count in state["seen"].items() for _ in range(count)]
        return values[(len(values) - 1) // 2] if values else None

class Words:
    def create(self):
        return {}

    def add(self, state, word, number):
        assert "bad" not in word.to_pylist(), "no such word"
        state["words"].extend(each or "-" for each in word.to_pylist())
        for each in number.to_pylist():
            if each is not None:
                state["numbers"].add(each)

    def retract(self, state, word, number):
        for each in word.to_pylist():
            state["words"].remove(each or "-")

    def result(self, state):
        return f"{','.join(sorted(state['words']))} {max(state['numbers'], default=None)}"

class Latest:
    def create(self):
        return {}

    def add(self, state, x):
        return {"value": x[-1].as_py()}

    def result(self, state):
        return state.get("value")

class Odd:
    def create(self):
        return {"n": 0}

    def add(self, state, x):
        return {"n": "many"}

    def result(self, state):
        return 1
"""
AGGREGATE: dict[str, Any] = {"kind": "aggregate", "deterministic": True}
FUNCTIONS: dict[str, Any] = {
    "mean_of": {
        "python": "own:Total",
        "arguments": ["INT"],
        "returns": "DOUBLE",
        "accumulator": {"n": "BIGINT NOT NULL", "total": "BIGINT NOT NULL"},
        **AGGREGATE,
    },
    "middle": {
        "python": "own:Median",
        "arguments": ["INT"],
        "returns": "INT",
        "views": {"seen": {"map": ["INT", "BIGINT"]}},
        **AGGREGATE,
    },
    "words": {
        "python": "own:Words",
        "arguments": ["STRING", "INT"],
        "returns": "STRING NOT NULL",
        "called_on_null": True,
        "views": {"words": {"list": "STRING"}, "numbers": {"set": "INT"}},
        **AGGREGATE,
    },
    "latest_of": {
        "python": "own:Latest",
        "arguments": ["INT"],
        "returns": "INT",
        "accumulator": {"value": "INT"},
        **AGGREGATE,
    },
    "odd": {
        "python": "own:Odd",
        "arguments": ["INT"],
        "returns": "BIGINT",
        "accumulator": {"n": "BIGINT NOT NULL"},
        **AGGREGATE,
    },
}
TABLES: dict[str, Any] = {
    "t": {
        "mode": "retract",
        "primary_key": ["id"],
        "columns": {"id": "INT NOT NULL", "g": "STRING", "x": "INT", "s": "STRING"},
    },
    "u": {"mode": "append", "columns": {"g": "STRING", "x": "INT", "s": "STRING"}},
}
GROUPED = (
    "SELECT g, COUNT(*) AS n, mean_of(x) AS a, middle(x) AS b, middle(x) FILTER (WHERE x > 2) AS c FROM t GROUP BY g"
)
OVER = "SELECT g, mean_of(x) OVER (PARTITION BY g) AS a, middle(x) FILTER (WHERE x > 2) OVER () AS b FROM t"
GLOBAL = "SELECT mean_of(x) AS a, middle(x + 1) AS b, COUNT(*) AS n FROM t"
SEEDS = seeds(3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "own.py").write_text(MODULE)
    return tmp_path


def _job(folder: Path, sql: str, **more: Any) -> Any:
    sinks = {"o": {"topic": "o", "mode": "retract", "sql": sql}}
    tables = {name: {"topic": name, **table} for name, table in TABLES.items()}
    document = {"job": "own", "code": "code", "functions": FUNCTIONS, "tables": tables, "sinks": sinks, **more}
    (folder / "job.yaml").write_text(json.dumps(document))
    return load(folder / "job.yaml")


def _changes(rng: random.Random, count: int) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Yield changes of a table one by one, each with the rows that remain after it."""
    rows: dict[int, dict[str, Any]] = {}
    for _ in range(count):
        key = rng.randint(1, 12)
        op = "+I"
        if key in rows:
            op = rng.choice(["+U", "-D"])
        row = {
            "id": key,
            "g": rng.choice(["a", "b", None]),
            "x": rng.choice([None, *range(6)]),
            "s": rng.choice(["p", "q", None]),
        }
        if op == "-D":
            row = rows.pop(key)
        else:
            rows[key] = row
        yield {"table": "t", "op": op, "row": row}, list(rows.values())


def _mean(values: list[int]) -> float | None:
    return sum(values) / len(values) if values else None


def _middle(values: list[int]) -> int | None:
    return sorted(values)[(len(values) - 1) // 2] if values else None


def _expected(sql: str, rows: list[dict[str, Any]]) -> Counter[str]:
    groups: dict[Any, list[Any]] = defaultdict(list)
    for row in rows:
        groups[row["g"]].append(row["x"])
    if sql == GLOBAL:
        values = [row["x"] for row in rows if row["x"] is not None]
        return Counter([json.dumps([_mean(values), _middle([value + 1 for value in values]), len(rows)])])
    if sql == OVER:
        large = [row["x"] for row in rows if (row["x"] or 0) > 2]
        means = {name: _mean([value for value in members if value is not None]) for name, members in groups.items()}
        return Counter(json.dumps([row["g"], means[row["g"]], _middle(large)]) for row in rows)
    found = []
    for name, members in groups.items():
        values = [value for value in members if value is not None]
        found.append(
            [name, len(members), _mean(values), _middle(values), _middle([value for value in values if value > 2])]
        )
    return Counter(map(json.dumps, found))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("sql", [GROUPED, GLOBAL, OVER])
@pytest.mark.parametrize("size", [1, 4])
def test_after_every_batch_it_is_what_the_rows_that_are_left_give(folder: Path, sql: str, seed: int, size: int) -> None:
    """After every batch the results equal those of the remaining rows, and empty groups have no state."""
    job = _job(folder, sql)
    sink = plan(job, "o")
    changes = list(_changes(random.Random(seed), 60))
    engine, fold = MemoryEngine(sink), Fold(keyed=False)
    batches = read(job, [json.dumps(change) for change, _ in changes], "changes.jsonl", size)
    for number, batch in enumerate(batches):
        fold.apply(engine.batch(batch, number)["o"])
        found = Counter(
            json.dumps(list(row.values())) for row in decode(sink.value, pa.array(fold.payloads, pa.binary()))
        )
        assert found == _expected(sql, changes[min((number + 1) * size, len(changes)) - 1][1]), number

    left = changes[-1][1]
    (gone,) = read(job, [json.dumps({"table": "t", "op": "-D", "row": row}) for row in left], "changes.jsonl", 99)
    fold.apply(engine.batch(gone, len(batches))["o"])
    if sql == GROUPED:
        assert not fold.payloads
        assert all(size.rows == 0 for size in engine.state.values())


def test_views_live_as_long_as_their_group(folder: Path) -> None:
    """With a TTL, a group that is written often enough keeps its whole view, and another one starts again empty."""
    job = _job(folder, "SELECT g, middle(x) AS m FROM u GROUP BY g", ttl="10 s")
    sink = plan(job, "o")
    engine = MemoryEngine(sink)
    seen = []
    for now, value in [(0, 1), (6_000, 5), (12_000, 6), (18_000, 7), (24_000, 8), (60_000, 9)]:
        line = json.dumps({"table": "u", "op": "+I", "row": {"g": "a", "x": value}})
        (batch,) = read(job, [line], "changes.jsonl", 1)
        changes = engine.batch(batch, now)["o"]
        seen.append([row["m"] for row in decode(sink.value, changes.payload.filter(pa.array(changes.weight > 0)))])

    assert seen == [[1], [], [5], [], [6], [9]]


def test_rows_that_only_come_are_added_up_before_they_are_shuffled(folder: Path) -> None:
    """States of tasks are merged before the shuffle if the class has `merge` and no views, with the same result."""
    rows = [{"table": "u", "op": "+I", "row": {"g": "a", "x": number % 7}} for number in range(300)]
    sql = "SELECT g, mean_of(x) AS m, latest_of(x) AS l FROM u GROUP BY g"
    merged = "SELECT g, mean_of(x) AS m FROM u GROUP BY g"

    assert folded(folder, sql, TABLES, rows, batch_rows=100, code="code", functions=FUNCTIONS) == [
        {"g": "a", "m": pytest.approx(sum(number % 7 for number in range(300)) / 300), "l": 299 % 7}
    ]
    (found,) = folded(folder, merged, TABLES, rows, batch_rows=100, code="code", functions=FUNCTIONS)
    assert math.isclose(found["m"], sum(number % 7 for number in range(300)) / 300)
    for count in (100, 200):
        (found,) = folded(folder, merged, TABLES, rows[:count], batch_rows=100, code="code", functions=FUNCTIONS)
        assert math.isclose(found["m"], sum(number % 7 for number in range(count)) / count)
    assert "added up in each task first" in explain([plan(_job(folder, merged), "o")])
    assert "added up in each task first" not in explain([plan(_job(folder, sql), "o")])


def test_lists_and_sets_keep_what_was_put_in(folder: Path) -> None:
    """A list view keeps equal elements, a set view keeps one of them, and NULLs are passed with `called_on_null`."""
    rows = [
        {"id": 1, "g": "a", "x": 3, "s": "p"},
        {"id": 2, "g": "a", "x": None, "s": None},
        {"id": 3, "g": "a", "x": 3, "s": "p"},
    ]
    changes = [{"table": "t", "op": "+I", "row": row} for row in rows] + [{"table": "t", "op": "-D", "row": rows[0]}]

    found = folded(
        folder, "SELECT g, words(s, x) AS w FROM t GROUP BY g", TABLES, changes, code="code", functions=FUNCTIONS
    )

    assert found == [{"g": "a", "w": "-,p 3"}]


def test_an_error_in_a_task_names_the_row_too(folder: Path) -> None:
    """An error in a pre-aggregation is reported with the row on which it occurred."""
    code = (folder / "code" / "own.py").read_text()
    (folder / "code" / "own.py").write_text(
        code.replace('state["n"] += len(x)', 'state["n"] += 1 // min(x.to_pylist())')
    )
    rows = [{"table": "u", "op": "+I", "row": {"g": "a", "x": int(number != 77)}} for number in range(1, 101)]
    sql = "SELECT g, mean_of(x) AS m FROM u GROUP BY g"

    with pytest.raises(ExpressionError, match=r"mean_of.add: ZeroDivisionError: .* from change 77 of u"):
        folded(folder, sql, TABLES, rows, batch_rows=100, code="code", functions=FUNCTIONS)


def test_an_error_names_the_row_and_the_line(folder: Path) -> None:
    """The error has the method, the exception, the line of code, and the first row on which the method fails."""
    rows = [{"id": number, "g": "a", "x": 1, "s": "bad" if number == 3 else "p"} for number in range(1, 6)]
    changes = [{"table": "t", "op": "+I", "row": row} for row in rows]

    with pytest.raises(ExpressionError) as wrong:
        folded(
            folder, "SELECT words(s, x) AS w FROM t", TABLES, changes, batch_rows=9, code="code", functions=FUNCTIONS
        )

    assert "words.add: AssertionError: no such word, at own.py:47" in str(wrong.value)
    assert "on the row from change 3 of t" in str(wrong.value)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT latest_of(x) AS m FROM t", "latest_of has no method `retract`, but these rows may be retracted"),
        ("SELECT mean_of(x, x) AS m FROM t", "mean_of takes (INT), but the number of arguments is 2"),
        ("SELECT mean_of(s) AS m FROM t", "mean_of takes INT here, not STRING: write a CAST"),
        (
            "SELECT mean_of(DISTINCT x) AS m FROM t",
            "DISTINCT is not supported in mean_of, which reads every row",
        ),
        (
            "SELECT middle(x) OVER (PARTITION BY g ORDER BY id) AS m FROM t",
            "MIDDLE(…) OVER is supported only over the whole partition: remove ORDER BY",
        ),
        ("SELECT id FROM t WHERE mean_of(x) > 1", "aggregate functions are not allowed in WHERE"),
    ],
)
def test_a_call_that_cannot_be_right_is_refused(folder: Path, sql: str, reason: str) -> None:
    """An invalid call is refused when the query is planned, with its place in the SQL."""
    with pytest.raises(PlanError) as refused:
        plan(_job(folder, sql), "o")

    assert reason in str(refused.value)
    assert "^" in str(refused.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"python": "own:MODULE"}, "own has no MODULE"),
        ({"python": "own:pc"}, "own:pc is not a function"),
        ({"views": {"seen": {"map": ["ARRAY<INT>", "INT"]}}}, "ARRAY<INT> cannot be a key"),
        ({"views": {"seen": {"map": ["INT", "INT"], "set": "INT"}}}, "expected one of map: [key, value], set: type"),
        (
            {"views": {"n": {"set": "INT"}}, "accumulator": {"n": "INT"}},
            "'n' is both a field of the accumulator and a view",
        ),
        ({"kind": "scalar", "returns": "INT"}, "are only for a function with `kind: aggregate`"),
    ],
)
def test_a_class_that_is_not_as_it_should_be_is_told(folder: Path, change: dict[str, Any], reason: str) -> None:
    """An invalid entry of `functions` is refused with its place in the job file."""
    functions = {"f": {**FUNCTIONS["middle"], **change}}

    with pytest.raises(JobError) as wrong:
        plan(_job(folder, "SELECT id FROM t", functions=functions), "o")

    assert reason in str(wrong.value)


def test_a_state_that_is_not_what_the_job_says_stops_it(folder: Path) -> None:
    """A state field with a value of another type than its `accumulator` type raises FunctionError."""
    changes = [{"table": "u", "op": "+I", "row": {"g": "a", "x": 1}}]

    with pytest.raises(FunctionError, match="odd: field n of the state is not BIGINT"):
        folded(folder, "SELECT odd(x) AS m FROM u", TABLES, changes, code="code", functions=FUNCTIONS)
