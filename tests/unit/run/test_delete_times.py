"""The times of deletes by key: they do not depend on how a table is divided into pieces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rowkind.avro import codec
from rowkind.operators.columns.changes import Rows
from rowkind.service.execute.column_times import in_us
from rowkind.service.execute.delete_times import with_delete_times
from rowkind.service.execute.watermarks import marks_of
from rowkind.service.physical.graph import GraphScan, graph
from rowkind.service.plan.pipeline import plan
from rowkind.service.query.memory import pruned
from rowkind.service.query.trial import read
from tests.clocked import job_of

TIMES = ("2026-01-03", None, "2026-01-02", None, "2026-01-07", None, "1969-12-30", None)
"""The times of rows; None stands for a delete."""


def scan_and_rows(folder: Path, type_: str, *, left: str = "") -> tuple[GraphScan, Rows]:
    """Return the scan of a versioned table and its rows."""
    job = job_of(
        folder,
        "job: j\ntables:\n"
        f"  a: {{mode: append, {left} columns: {{k: INT, ts: TIMESTAMP NOT NULL}}}}\n"
        "  b: {mode: upsert, primary_key: [k], watermark: {column: ts, delay: 1h}, "
        f"columns: {{k: INT NOT NULL, v: INT, ts: {type_}}}}}\n"
        "sinks:\n  o: {mode: retract, sql: "
        '"SELECT a.k, b.v FROM a LEFT JOIN b FOR SYSTEM_TIME AS OF a.ts AS b ON a.k = b.k"}\n',
    )
    zone = "" if type_ == "TIMESTAMP_NTZ" else "Z"
    lines = [
        {"table": "b", "op": "+U" if time else "-D", "row": {"k": 1, "v": 1, "ts": time and f"{time}T00:00:00{zone}"}}
        for time in TIMES
    ]
    (batch,) = read(job, lines, "changes", len(lines))
    scan = next(each for each in graph([plan(job, "o")]).scans if each.scan.source.table == "b")
    return scan, pruned(scan.scan, batch)


WATERMARK = "watermark: {column: ts, delay: 0s},"


@pytest.mark.parametrize("type_", ["TIMESTAMP NOT NULL", "TIMESTAMP", "TIMESTAMP_NTZ"])
def test_a_delete_has_the_watermark_where_it_stands(tmp_path: Path, type_: str) -> None:
    """A delete gets the watermark of the rows before it, including those of earlier pieces."""
    scan, rows = scan_and_rows(tmp_path, type_, left=WATERMARK)
    watermark, record = scan.scan.source.watermark, scan.scan.calc.input
    assert watermark is not None
    whole = with_delete_times(scan, rows, {})
    for cut in range(len(rows) + 1):
        first, second = (rows.take(np.arange(begin, end)) for begin, end in ((0, cut), (cut, len(rows))))
        known = marks_of(watermark, record, first) if len(first) else {}
        parts = with_delete_times(scan, first, {}), with_delete_times(scan, second, known)
        assert Rows.concat(parts).payload.equals(whole.payload), f"cut at {cut}"
    days = in_us(codec.read(record, whole.payload).column("ts"))[1::2] / 86_400_000_000
    assert np.allclose(days, np.array([20456, 20456, 20460, 20460]) - 1 / 24)


def test_nothing_is_timed_where_no_watermark_passes(tmp_path: Path) -> None:
    """Without a watermark on the left side, deletes by key get no time."""
    scan, rows = scan_and_rows(tmp_path, "TIMESTAMP NOT NULL")
    assert scan.delete_time is None
    assert with_delete_times(scan, rows, {}).payload.equals(rows.payload)
