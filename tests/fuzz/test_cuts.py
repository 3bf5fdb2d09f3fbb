"""The split law for random jobs: a few of the seeds of `python -m tests.fuzz --of cuts`."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from rowkind.operators.columns.changes import Changes, Rows
from rowkind.service.query.memory import MemoryEngine
from tests.fuzz import cut_trial
from tests.fuzz.arrivals import random_arrival
from tests.fuzz.changelogs import random_changes
from tests.fuzz.cut_case import CutCase, with_unread
from tests.fuzz.cut_jobs import random_cut_case
from tests.fuzz.cuts import CUT, held, look
from tests.fuzz.schemas import Column, Table

_TABLE = Table(
    "t",
    "append",
    (Column("id", "INT", required=True), Column("k", "INT", required=True), Column("v", "INT"), Column("s", "STRING")),
)


@pytest.mark.parametrize("block", range(3))
def test_random_jobs_give_the_same_in_every_setting(block: int) -> None:
    """Eight cases of two jobs, over tables in all modes; at least half are compared, and none differs."""
    agreed = 0
    for seed in range(8 * block, 8 * block + 8):
        print(f"seed {seed}")
        case, outcome = look(random_cut_case(seed))
        assert not outcome.is_finding, f"{outcome}\n{case}"
        agreed += outcome.verdict == "agreed"
    assert agreed >= 4


@pytest.mark.parametrize("seed", range(10))
def test_queries_of_arrival_over_rows_that_only_come_are_what_the_model_says(seed: int) -> None:
    """FIRST, LAST, ROW_NUMBER, LAG, LIMIT and `on_conflict` give the model's result over an append table."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    arrival = random_arrival(rng, "t")
    changes = random_changes(rng, [_TABLE], 12)
    case = CutCase("arrival", arrival.sql, {"t": _TABLE.entry}, arrival.sink, 1, changes, arrival=arrival)
    _, outcome = look(case)
    assert outcome.verdict in ("agreed", "refused"), outcome


def test_an_engine_that_depends_on_the_cut_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that loses retractions is found by the split, and the finding is reduced to one of the two queries."""

    class Forgetful(MemoryEngine):
        def batch(self, rows: Mapping[str, Rows], now: int, **options: Any) -> dict[str, Changes]:
            found = super().batch(rows, now, **options)
            return {name: changes.filter(changes.weight > 0) for name, changes in found.items()}

    monkeypatch.setattr(cut_trial, "MemoryEngine", Forgetful)
    table = {"mode": "retract", "columns": {"v": "INT"}}
    changes = [{"table": "t", "op": op, "row": {"v": 1}} for op in ("+I", "-D")]
    sink = {"mode": "retract"}
    beside = "SELECT v + 1 AS v FROM t"
    case, outcome = look(CutCase("lossy", "SELECT v FROM t", {"t": table}, sink, 1, changes, beside=beside))
    assert (outcome.verdict, outcome.reason) == ("wrong", CUT)
    assert case.beside is None


@pytest.mark.parametrize("seed", range(20))
def test_unread_columns_leave_the_other_columns_as_they_are(seed: int) -> None:
    """The final rows of the tables are the same, apart from the additional columns."""
    print(f"seed {seed}")
    case = random_cut_case(seed)
    plain, wide = (held(each) for each in (case, with_unread(case)))
    for rows in wide.values():
        for _, row in rows.live:
            del row["unread0"], row["unread1"]
    assert {name: rows.live for name, rows in plain.items()} == {name: rows.live for name, rows in wide.items()}
