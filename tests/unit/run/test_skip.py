"""`rowkind skip`: the steps, partitions and offsets that it accepts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rowkind.service.checkpoint.skip import FallibleSteps, check
from rowkind.service.job.load import load
from rowkind.service.query.errors import SkipError
from rowkind.service.query.queries import planned

RANGES = {("orders-1", 0): (10, 30), ("orders-1", 1): (0, 0), ("paid-1", 0): (0, 5)}


def steps(folder: Path) -> list[FallibleSteps]:
    """Return the steps of a job that joins two tables."""
    table = {"mode": "append", "format": "json", "columns": {"id": "INT", "n": "INT"}}
    sql = "SELECT o.id, 1 / p.n AS part FROM orders o JOIN payments p ON o.id = p.id"
    job = {
        "job": "skipping",
        "tables": {"orders": {**table, "topic": "orders-1"}, "payments": {**table, "topic": "paid-1"}},
        "sinks": {"result": {"mode": "append", "sql": sql}},
    }
    (folder / "job.yaml").write_text(json.dumps(job))
    return [FallibleSteps.of(each) for each in planned(load(folder / "job.yaml")).values()]


@pytest.mark.parametrize(
    "row", ["orders:0:10", "scan_o:0:29", "payments:0:0", "result.join_1:0:4", "result.join_1:0:29"]
)
def test_rows_that_exist_are_taken(row: str, tmp_path: Path) -> None:
    """A step is a table, an operator or a scan, and an operator accepts rows of all its tables."""
    check([row], steps(tmp_path), RANGES)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("jh.yaml:0:30", "there is no step 'jh.yaml' in the job; available: orders, payments, result.join_1"),
        ("order:0:30", "there is no step 'order' in the job; did you mean orders?"),
        ("orders:7:12", "there is no partition 7: topic orders-1 has partitions 0 to 1"),
        ("payments:1:0", "there is no partition 1: topic paid-1 has only partition 0"),
        ("orders:0:30", "there is no record at offset 30: partition 0 of topic orders-1 has offsets 10 to 29"),
        ("orders:0:9", "there is no record at offset 9: partition 0 of topic orders-1 has offsets 10 to 29"),
        ("orders:1:0", "there is no record at offset 0: partition 1 of topic orders-1 is empty"),
        (
            "result.join_1:0:30",
            "there is no record at offset 30: partition 0 of topic orders-1 has offsets 10 to 29",
        ),
        ("orders:0", "'orders:0' does not identify a row: expected STEP:PARTITION:OFFSET, such as orders:3:120"),
    ],
)
def test_rows_that_do_not_exist_are_refused(row: str, text: str, tmp_path: Path) -> None:
    """The error lists the existing steps, partitions or offsets."""
    with pytest.raises(SkipError) as refused:
        check(["orders:0:10", row], steps(tmp_path), RANGES)
    assert text in str(refused.value)
