"""Violations of declared constraints: they are reported, or fatal with `promises: fail`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from rowkind.avro.json_rows import encode
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.changes import Rows
from rowkind.service.execute.promises import Broken, BrokenPromiseError, told
from rowkind.service.job.columns import declared
from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.plan.pipeline import plan
from rowkind.service.query.memory import MemoryEngine
from rowkind.service.query.trial import TrialBatch, in_memory, results

JOB = """
job: promises
promises: {policy}
ttl: {ttl}
tables:
  orders: {{mode: retract, exact: {exact}, primary_key: [id], columns: {{id: BIGINT, k: BIGINT}}}}
  seen: {{mode: append, primary_key: [id], columns: {{id: BIGINT, k: BIGINT}}}}
  others: {{mode: append, columns: {{k: BIGINT, w: BIGINT}}}}
sinks:
  result: {{mode: retract, sql: "{sql}"}}
"""
INSERT, BEFORE, AFTER, DELETE = RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE
JOINED = "SELECT t.id, w FROM {table} t LEFT JOIN others o ON t.k = o.k"
EXISTS = "SELECT t.id FROM {table} t WHERE EXISTS (SELECT 1 FROM others o WHERE t.k = o.k)"
SPREAD = "SELECT /*+ SKEW('t') */ t.id, w FROM {table} t LEFT JOIN others o ON t.k = o.k"
COPIED = "SELECT /*+ SKEW('o') */ t.id, w FROM {table} t JOIN others o ON t.k = o.k"
ROW = {"id": 1, "k": 5}
Change = tuple[RowKind, Mapping[str, int]]


def planned(
    folder: Path, sql: str, *, policy: str = "warn", exact: str = "true", ttl: str = "null"
) -> tuple[Job, PhysicalSink]:
    """Return the job and its plan."""
    (folder / "job.yaml").write_text(JOB.format(policy=policy, exact=exact, ttl=ttl, sql=sql))
    job = load(folder / "job.yaml")
    return job, plan(job, "result")


def broken(job: Job, sink: PhysicalSink, table: str, *batches: list[Change]) -> list[Broken]:
    """Return the violations in these batches, whose changes are in partition 3 with consecutive offsets."""
    found: list[Broken] = []
    engine, offset = MemoryEngine(sink, broken=found.append), 0
    for number, batch in enumerate(batches):
        kinds = np.array([kind for kind, _ in batch], np.int8)
        seqs = (np.arange(offset, offset + len(batch)) << 16) + 3
        rows = Rows(kinds, seqs, encode(declared(job, table), [row for _, row in batch]))
        engine.batch({table: rows}, now=number)
        offset += len(batch)
    return found


@pytest.mark.parametrize("sql", [JOINED, EXISTS, SPREAD, COPIED])
@pytest.mark.parametrize("table", ["orders", "seen"])
def test_a_row_that_comes_again_breaks_the_primary_key(table: str, sql: str, tmp_path: Path) -> None:
    """A second insertion of a key violates the primary key, and the first such record is named."""
    job, sink = planned(tmp_path, sql.format(table=table))
    found = broken(job, sink, table, [(INSERT, ROW)], [(INSERT, {"id": 2, "k": 5}), (INSERT, ROW | {"k": 5})])
    assert found == [Broken(table, "primary_key", 1, 3, 2)]
    found = broken(job, sink, table, [(INSERT, ROW), (INSERT, ROW), (INSERT, ROW)])
    assert found == [Broken(table, "primary_key", 2, 3, 1)]


@pytest.mark.parametrize("sql", [JOINED, EXISTS, "SELECT k, COUNT(*) AS n FROM {table} t GROUP BY k"])
def test_a_retraction_without_its_row_breaks_exact(sql: str, tmp_path: Path) -> None:
    """In an exact table, a retraction without an equal row is a violation, whether another row is stored or none."""
    job, sink = planned(tmp_path, sql.format(table="orders"))
    assert broken(job, sink, "orders", [(INSERT, ROW)], [(DELETE, {"id": 2, "k": 6})]) == [
        Broken("orders", "exact", 1, 3, 1)
    ]


def test_an_update_without_its_half_breaks_exact(tmp_path: Path) -> None:
    """In an exact table, +U over a row that was not retracted is a violation; a complete update never is."""
    job, sink = planned(tmp_path, JOINED.format(table="orders"))
    new = ROW | {"k": 6}
    assert broken(job, sink, "orders", [(INSERT, ROW)], [(AFTER, ROW)]) == [Broken("orders", "exact", 1, 3, 1)]
    assert not broken(job, sink, "orders", [(INSERT, ROW)], [(BEFORE, ROW), (AFTER, new)], [(DELETE, new)])
    assert not broken(job, sink, "orders", [(INSERT, ROW)], [(BEFORE, ROW)], [(AFTER, new)], [(DELETE, new)])


def test_a_table_that_promises_nothing_breaks_nothing(tmp_path: Path) -> None:
    """In a retract table that is not exact, replacing rows and retracting missing rows are not violations."""
    job, sink = planned(tmp_path, JOINED.format(table="orders"), exact="false")
    assert not broken(
        job, sink, "orders", [(INSERT, ROW), (INSERT, ROW)], [(AFTER, ROW)], [(DELETE, {"id": 2, "k": 6})]
    )


def test_a_row_that_has_expired_may_come_again_and_be_taken_back(tmp_path: Path) -> None:
    """With a TTL, repeated rows and late retractions are not reported, because they may be of expired rows."""
    job, sink = planned(tmp_path, JOINED.format(table="orders"), ttl="1ms")
    assert not broken(job, sink, "orders", [(INSERT, ROW)], [], [(INSERT, ROW)], [], [(DELETE, ROW)])


def test_what_is_told_comes_out_of_the_counters(tmp_path: Path) -> None:
    """A violation can be read back from the counters that carry it from the tasks to the log."""
    job, sink = planned(tmp_path, JOINED.format(table="orders"))
    (one,) = broken(job, sink, "orders", [(INSERT, ROW), (INSERT, ROW)])
    assert list(told({**one.counters, "rowkind_rows_in_total{}": 1.0})) == [one]
    assert "offset 1 of partition 3" in str(one)


def test_a_broken_promise_is_fatal_where_the_job_says_so(tmp_path: Path) -> None:
    """With `promises: fail` a violation stops the run, and with `warn` it is logged."""
    warnings: list[str] = []
    for policy in ("warn", "fail"):
        job, sink = planned(tmp_path, JOINED.format(table="seen"), policy=policy)
        twice = encode(declared(job, "seen"), [ROW, ROW])
        batches = [TrialBatch({"seen": Rows(np.zeros(2, np.int8), np.arange(2) << 16, twice)})]
        found = results(job, sink, batches, in_memory(warnings.append), fold=False)
        if policy == "warn":
            assert len(list(found)) == 1
            (warning,) = warnings
            assert "table seen: the constraint primary_key is violated" in warning
        else:
            with pytest.raises(BrokenPromiseError, match="`promises: warn` it continues"):
                list(found)
