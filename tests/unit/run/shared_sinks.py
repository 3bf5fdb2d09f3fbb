"""Sinks over the same three tables whose plans share operators."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rowkind.service.job.load import load
from rowkind.service.physical.graph import Exit
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.plan.pipeline import plan

TABLES = """
job: shared
tables:
  u: {mode: upsert, primary_key: [k], columns: {k: INT NOT NULL, a: INT, n: STRING}}
  v: {mode: upsert, primary_key: [k], columns: {k: INT NOT NULL, a: INT, n: STRING}}
  r: {mode: append, columns: {b: INT, c: INT, d: STRING}}
sinks:
"""


JOIN = "SELECT u.k, u.n, r.b FROM u JOIN r ON u.a = r.b"


SAME_JOIN = "SELECT x.n AS name, x.k + y.b AS more FROM u AS x JOIN r AS y ON x.a = y.b"


COUNT = "SELECT c, COUNT(*) AS n FROM r GROUP BY c"


def plans(folder: Path, *queries: str) -> list[PhysicalSink]:
    """Return the plans of these queries as sinks `s0`, `s1`, … of one job."""
    text = TABLES + "".join(
        f"  s{number}: {{topic: s{number}, mode: retract, sql: {json.dumps(sql)}}}\n"
        for number, sql in enumerate(queries)
    )
    (folder / "job.yaml").write_text(text)
    job = load(folder / "job.yaml", {})
    return [plan(job, f"s{number}") for number in range(len(queries))]


def ways(exits: Sequence[Exit]) -> list[tuple[int, int, bool]]:
    """Return the target, level and `stays` flag of each exit."""
    return [(way.to, way.level, way.stays) for way in exits]
