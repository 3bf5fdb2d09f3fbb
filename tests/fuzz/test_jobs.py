"""Random jobs give DuckDB's result over the folded inputs after every batch: a few of the seeds of `make fuzz`."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from rowkind.operators.columns.changes import Changes, Rows
from rowkind.service.query.memory import MemoryEngine
from tests.fuzz.case import Case, random_case
from tests.fuzz.changelogs import breaches
from tests.fuzz.expiring import random_expiring, random_lives
from tests.fuzz.oracle import translated
from tests.fuzz.running import run
from tests.fuzz.shrinking import shrink


@pytest.mark.parametrize("block", range(4))
def test_random_jobs_give_what_duckdb_gives(block: int) -> None:
    """Ten jobs of random tables, changes and queries; at least half agree, and none is wrong."""
    agreed = 0
    for seed in range(10 * block, 10 * block + 10):
        print(f"seed {seed}")
        outcome = run(random_case(seed))
        assert not outcome.is_finding, outcome
        agreed += outcome.verdict == "agreed"
    assert agreed >= 5


@pytest.mark.parametrize("seed", range(10))
def test_random_jobs_with_a_clock_give_what_the_model_gives(seed: int) -> None:
    """Joins and groups with a TTL give the model's result."""
    print(f"seed {seed}")
    case = Case("clock", sink={"mode": "retract"}, **random_expiring(random.Random(seed)))
    outcome = run(case)
    assert outcome.verdict == "agreed", outcome


@pytest.mark.parametrize("block", range(2))
def test_random_jobs_take_back_what_expires(block: int) -> None:
    """With `on_expire: retract` the result at any time is DuckDB's over the rows that have not expired."""
    agreed = 0
    for seed in range(10 * block, 10 * block + 10):
        print(f"seed {seed}")
        case = replace(random_case(seed), windows=())
        if case.clock or "w0" in case.sql:
            continue
        lives = random_lives(random.Random(seed), case.tables, len(case.parts))
        outcome = run(replace(case, sink={"mode": "retract"}, **lives))
        assert not outcome.is_finding, outcome
        agreed += outcome.verdict == "agreed"
    assert agreed >= 4


def test_a_row_that_comes_and_goes_within_a_batch_writes_no_group() -> None:
    """A row inserted and deleted within one batch does not refresh its group, in the operators and in the model."""
    outcome = run(random_case(701161))
    assert outcome.verdict == "agreed", outcome


@pytest.mark.parametrize("seed", range(20))
def test_random_changes_keep_the_promises_of_their_tables(seed: int) -> None:
    """Random changes break no promise of their table, except for unmatched retractions."""
    print(f"seed {seed}")
    case = random_case(seed)
    assert breaches(case.tables, case.changes) <= {"a stray"}


def test_a_finding_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that loses deletes is found, and its case shrinks to at most three changes and no longer query."""

    def forgetful(engine: MemoryEngine, rows: Mapping[str, Rows], now: int) -> dict[str, Changes]:
        found = batch(engine, rows, now)
        return {name: changes.filter(changes.weight > 0) for name, changes in found.items()}

    batch = MemoryEngine.batch
    monkeypatch.setattr(MemoryEngine, "batch", forgetful)
    for seed in range(50):
        case = random_case(seed)
        case = replace(case, clock=(), ttl=None) if not case.clock else case
        outcome = run(case)
        if outcome.verdict == "wrong" and case.sink["mode"] == "retract" and not case.clock:
            print(f"seed {seed}")
            small = shrink(case, outcome, run, seconds=30)
            assert run(small).like(outcome)
            assert len(small.changes) <= 3, small
            assert len(small.sql) <= len(case.sql)
            return
    pytest.fail("no seed finds it")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            "SELECT a FROM t AS x WHERE (x.a, x.b) IN (SELECT y.c, y.d FROM u AS y)",
            (
                "SELECT a FROM t AS x WHERE CASE "
                "WHEN EXISTS(SELECT y.c, y.d FROM u AS y WHERE y.c = x.a AND y.d = x.b) "
                "THEN TRUE WHEN EXISTS(SELECT y.c, y.d FROM u AS y WHERE (y.c = x.a AND y.d = x.b) IS NULL) THEN NULL "
                "ELSE FALSE END"
            ),
        ),
        ("SELECT COUNT_IF(a > 1) AS n FROM t", "SELECT COUNT(CASE WHEN a > 1 THEN 1 END) AS n FROM t"),
        (
            "SELECT ROW_NUMBER() OVER (ORDER BY PROCTIME()) AS n FROM t AS x",
            'SELECT ROW_NUMBER() OVER (ORDER BY x."arrival$" NULLS FIRST) AS n FROM t AS x',
        ),
    ],
)
def test_what_duckdb_means_otherwise_is_said_in_other_words(sql: str, expected: str) -> None:
    """The translation for DuckDB rewrites expressions whose semantics differ from Spark's."""
    assert translated(sql) == expected
