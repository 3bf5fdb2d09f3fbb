"""A batch may be processed in pieces of any size: the result equals that of the whole batch.

Random jobs run with every size threshold of the code set to 1, 2 and 3 rows or bytes. They run in one process, and
stage by stage as on Spark, where tasks read a few changes each and blocks reach a shard in any order. The oracle is
DuckDB over the folded input.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rowkind.operators.columns.changes import Changes
from rowkind.service.execute.promises import Broken
from rowkind.service.job.model import Job
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.query.memory import MemoryEngine
from rowkind.service.query.trial import Engine as TrialEngine
from rowkind.service.query.trial import TrialBatch
from tests.fuzz.case import Case, random_case
from tests.fuzz.changelogs import breaches
from tests.fuzz.running import Engine, run
from tests.fuzz.unnested import random_unnested
from tests.seeds import seeds
from tests.sizes import sized
from tests.staged import Staged
from tests.trying import inserts, job, outcome

SIZES = (1, 2, 3)


@pytest.mark.parametrize("seed", seeds(6))
def test_rows_that_are_taken_apart_are_those_of_the_whole_batch(seed: int) -> None:
    """Queries over HOP windows and array elements, mostly of exact tables, give the whole batch's result."""
    _look(random_unnested(seed), seed)


@pytest.mark.parametrize("seed", seeds(6))
def test_random_jobs_give_the_same_in_pieces(seed: int) -> None:
    """Random queries of the fuzzer give the same result in pieces, also with rows that expire."""
    _look(random_case(seed), seed)


ROWS = {"id": "BIGINT NOT NULL", "k": "BIGINT", "at": "TIMESTAMP NOT NULL", "xs": "ARRAY<BIGINT>"}
EXACT = {"mode": "retract", "primary_key": "id", "exact": True, "columns": ROWS}
ELEMENTS = "SELECT id, k, x FROM t LATERAL VIEW EXPLODE(xs) e AS x"
POSITIONS = "SELECT id, p, x FROM t LATERAL VIEW POSEXPLODE(xs) e AS p, x"
WINDOWS = "SELECT * FROM TABLE(HOP(TABLE t, DESCRIPTOR(at), INTERVAL '1' MINUTE, INTERVAL '3' MINUTE))"
EMPTIED = {
    "a join": (f"SELECT COUNT(*) AS n FROM ({ELEMENTS}) e JOIN f ON e.k = f.k", None, [{"n": 0}]),
    "a left join": (f"SELECT f.k, e.x FROM f LEFT JOIN ({ELEMENTS}) e ON e.k = f.k", None, [{"k": 1, "x": None}]),
    "a semi join": (f"SELECT COUNT(*) AS n FROM ({WINDOWS}) w WHERE k IN (SELECT k FROM f)", None, [{"n": 0}]),
    "an anti join": (f"SELECT k FROM f WHERE k NOT IN (SELECT w.k FROM ({WINDOWS}) w)", None, [{"k": 1}]),
    "an upsert topic": (POSITIONS, {"mode": "upsert", "key": ["id", "p"]}, []),
    "a retract topic": (POSITIONS, {"mode": "retract"}, []),
}  # fmt: skip


@pytest.mark.parametrize("name", EMPTIED)
@pytest.mark.parametrize("size", [*SIZES, None])
def test_rows_of_an_exact_table_that_come_and_go_in_a_batch_leave_nothing(
    tmp_path: Path, name: str, size: int | None
) -> None:
    """Rows inserted, updated and deleted within one batch leave nothing, and no promise is reported as broken."""
    sql, sink, expected = EMPTIED[name]
    before = _row(0, [1, 2])
    changes = [{"table": "t", "op": "+I", "row": before}, *inserts("f", [{"k": 1}])]
    for old, new in ((before, _row(0, [3, 2, 1])), (_row(1, [5]), _row(1, [6, 5])), (_row(2, []), _row(2, [7]))):
        changes += [{"table": "t", "op": "+I", "row": old}] if old != before else []
        changes += [{"table": "t", "op": op, "row": row} for op, row in (("-U", old), ("+U", new), ("-D", new))]
    tables = {"t": EXACT, "f": {"mode": "append", "columns": {"k": "BIGINT"}}}
    for engine in (_in_memory_trial, _staged_trial(size or len(changes))):
        for batch_rows in (2, len(changes)):
            with sized(size):
                tried = job(tmp_path, sql, tables, sink=sink, promises="fail")
                found = outcome(tried, changes, batch_rows, engine)
            assert found == expected, f"batches of {batch_rows}"


FINAL = {
    "windows": "SELECT k, window_start, COUNT(*) AS n FROM TABLE(HOP(TABLE t, DESCRIPTOR(at), INTERVAL '1' MINUTE, "
    "INTERVAL '3' MINUTE)) GROUP BY k, window_start, window_end",
    "sessions": "SELECT k, window_end, COUNT(*) AS n FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(at), "
    "INTERVAL '1' MINUTE)) GROUP BY k, window_start, window_end",
    "a function of rows around a row": "SELECT id, SUM(k) OVER (ORDER BY at, id ROWS 2 PRECEDING) AS n FROM t",
    "a pattern": "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY at MEASURES A.id AS a, B.id AS b "
    "AFTER MATCH SKIP PAST LAST ROW PATTERN (A B) DEFINE B AS B.id > A.id)",
}


@pytest.mark.parametrize("name", FINAL)
def test_rows_that_are_released_a_few_at_a_time_are_those_of_one_release(tmp_path: Path, name: str) -> None:
    """When the input has ended, final rows are the same, however few of them a batch releases or evicts."""
    rows = [{**_row(at, []), "id": at, "k": at % 3} for at in range(14)]
    rows = [*rows[:4], *rows[8:11], *rows[4:8], *rows[11:]]
    tables = {"t": {"mode": "append", "columns": ROWS, "watermark": {"column": "at", "delay": "9m"}}}

    def final(batch_rows: int) -> list[dict[str, Any]]:
        changes = [{"table": "t", "op": "+I", "row": row} for row in rows]
        tried = job(tmp_path, FINAL[name], tables, sink={"mode": "append"})
        return outcome(tried, changes, batch_rows, _ended)

    expected = final(len(rows))
    assert expected
    for size in SIZES:
        for batch_rows in (3, len(rows)):
            with sized(size):
                assert final(batch_rows) == expected, f"size {size}, batches of {batch_rows}"


def _look(case: Case, seed: int) -> None:
    """Run a case whole, and in pieces of every size."""
    print(f"seed {seed}")
    exact = not breaches(case.tables, case.changes)
    outcome = run(case, _in_memory(exact=exact))
    assert not outcome.is_finding, outcome
    if outcome.verdict != "agreed":
        pytest.skip(outcome.reason)
    for size in SIZES:
        for engine in (_in_memory(exact=exact), _staged(seed, size, exact=exact)):
            # The oracle retracts all rows that expire at the same time in one batch.
            with sized(size, releases=case.on_expire is None):
                again = run(case, engine)
            assert again.verdict == "agreed", f"size {size}: {again}"


def _in_memory(*, exact: bool) -> Engine:
    """Return an engine of one process; with `exact`, a report of a broken promise is a failure."""

    def engine(_: Job, sink: PhysicalSink, batches: Sequence[TrialBatch], case: Case) -> Iterator[Changes]:
        running = MemoryEngine(sink, broken=_fail if exact else None)
        for number, batch in enumerate(batches):
            yield running.batch(batch, case.now(number))[sink.name]

    return engine


def _staged(seed: int, rows: int, *, exact: bool) -> Engine:
    """Return an engine that runs stage by stage."""

    def engine(job: Job, sink: PhysicalSink, batches: Sequence[TrialBatch], case: Case) -> Iterator[Changes]:
        running = Staged(job, sink, random.Random(seed), rows=rows)
        for number, batch in enumerate(batches):
            yield running.batch(batch, case.now(number))
        assert not exact or not running.broken, running.broken

    return engine


def _in_memory_trial(_: Job, sink: PhysicalSink, batches: Sequence[TrialBatch]) -> Iterator[Changes]:
    running = MemoryEngine(sink, broken=_fail)
    yield from (running.batch(batch, 0)[sink.name] for batch in batches)


def _staged_trial(rows: int) -> TrialEngine:
    def engine(job: Job, sink: PhysicalSink, batches: Sequence[TrialBatch]) -> Iterator[Changes]:
        running = Staged(job, sink, random.Random(rows), rows=rows)
        yield from (running.batch(batch, 0) for batch in batches)

    return engine


def _ended(_: Job, sink: PhysicalSink, batches: Sequence[TrialBatch]) -> Iterator[Changes]:
    """Run in one process, then some batches without rows, then the end of the input."""
    running = MemoryEngine(sink)
    yield from (running.batch(batch, 0)[sink.name] for batch in [*batches, {}, {}])
    yield running.batch({}, 0, ended=True)[sink.name]


def _fail(broken: Broken) -> None:
    raise broken.error


def _row(number: int, elements: list[int]) -> dict[str, Any]:
    return {"id": number, "k": 1, "at": f"2026-01-01T00:{number:02}:00Z", "xs": elements}
