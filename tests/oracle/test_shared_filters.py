"""A temporal filter that several sinks share: rows that one sink needs at once must not be late for that sink.

One sink wants final rows as they are, some at a time. Another sink groups, ranks or matches them by the same time, and
needs all due rows in one batch.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rowkind.operators.columns.changes import Changes
from rowkind.service.plan.passes import delay_until_final
from rowkind.service.plan.pipeline import plan_query
from rowkind.service.query.memory import Fold, MemoryEngine
from rowkind.service.query.trial import read
from tests.clocked import job_of

START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = 200
AT_ONCE = 7

VIEWS = {
    "windows": "SELECT k, COUNT(*) AS n, window.end AS at FROM t GROUP BY k, window(at, '1 minute')",
    "running sums": "SELECT k, at, SUM(k) OVER (PARTITION BY k % 3 ORDER BY at) AS n FROM t",
    "numbers": "SELECT k, at, ROW_NUMBER() OVER (PARTITION BY k % 3 ORDER BY at) AS n FROM t",
}
ABOVE = {
    "windows": "SELECT k % 2 AS g, SUM(n) AS n FROM f GROUP BY k % 2, window(at, '1 minute')",
    "ranks": "SELECT at, k FROM (SELECT at, k, ROW_NUMBER() OVER (PARTITION BY at ORDER BY k) AS r FROM f) AS x "
    "WHERE r = 1",
    "sums": "SELECT k, at, SUM(n) OVER (PARTITION BY k ORDER BY at) AS s FROM f",
    "join": "SELECT f.k, f.n FROM f JOIN t ON f.k = t.k AND f.at BETWEEN t.at AND t.at + INTERVAL 2 MINUTES",
}


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("above", ABOVE)
@pytest.mark.parametrize("view", VIEWS)
def test_nothing_is_late_that_two_sinks_wait_for(
    tmp_path: Path, view: str, above: str, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if far more rows are due than one batch releases, each sink has the same rows as when it runs alone."""
    monkeypatch.setattr(delay_until_final, "AT_ONCE", AT_ONCE)
    queries = {"plain": "SELECT k, n, at FROM f", "above": ABOVE[above]}
    sinks = {name: {"mode": "append", "sql": queries[name]} for name in sorted(queries, reverse=first)}
    found = {sink: results(tmp_path, VIEWS[view], {sink: sinks[sink]}) for sink in sinks}
    assert results(tmp_path, VIEWS[view], sinks) == {
        sink: rows for each in found.values() for sink, rows in each.items()
    }
    assert sum(found["plain"]["plain"].values()) == ROWS


def results(folder: Path, view: str, sinks: dict[str, dict[str, str]]) -> dict[str, Counter[bytes]]:
    """Return the rows of each sink when all run in one query; no batch has late rows."""
    tables = {
        "t": {
            "mode": "append",
            "columns": {"k": "INT", "at": "TIMESTAMP NOT NULL"},
            "watermark": {"column": "at", "delay": "1h"},
        }
    }
    job = job_of(folder, json.dumps({"job": "j", "tables": tables, "views": {"f": view}, "sinks": sinks}))
    planned = plan_query(job, list(sinks)).sinks
    late: list[str] = []
    engine = MemoryEngine(*planned, late=lambda node, changes: late.append(f"{node}: {len(changes)}"))
    folds = {sink.name: Fold(keyed=False) for sink in planned}
    rows = [(number, START + timedelta(seconds=number)) for number in range(ROWS)]
    # This row makes all others due.
    rows.append((0, START + timedelta(hours=3)))
    lines = [json.dumps({"table": "t", "op": "+I", "row": {"k": k, "at": at.isoformat()}}) for k, at in rows]

    def take(given: dict[str, Changes]) -> None:
        for sink, changes in given.items():
            folds[sink].apply(changes)

    for now, batch in enumerate(read(job, lines, "changes", ROWS)):
        take(engine.batch(batch, now=now))
    for now in range(2, 2 * ROWS // AT_ONCE):
        take(engine.batch({}, now=now))
    assert not late
    return {sink: Counter(fold.payloads) for sink, fold in folds.items()}
