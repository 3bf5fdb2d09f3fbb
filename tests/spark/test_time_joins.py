"""Operators that relate rows by time, in whole plans on Spark: patterns, versions, outer joins, OVER.

Every batch must give the same output as the memory engine, which the oracles compare with the SQL definition.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rowkind.service.physical.graph import graph
from rowkind.service.plan.pipeline import plan_query
from rowkind.service.query.memory import MemoryEngine
from rowkind.service.query.trial import end, read
from rowkind.service.query.trial_on_spark import changes_of, run_query
from tests.clocked import job_of

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)
JOB = """
job: time
tables:
  a: &table
    mode: append
    columns: {id: BIGINT NOT NULL, k: BIGINT NOT NULL, v: BIGINT NOT NULL, ts: TIMESTAMP NOT NULL}
    watermark: {column: ts, delay: 4s}
  b: *table
  rates:
    mode: upsert
    primary_key: [k]
    columns: {k: BIGINT NOT NULL, v: BIGINT NOT NULL, ts: TIMESTAMP NOT NULL}
    watermark: {column: ts, delay: 4s}
sinks:
  matched:
    mode: append
    sql: >-
      SELECT * FROM a MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts
      MEASURES FIRST(up.id) AS first, LAST(up.id) AS last, COUNT(*) AS n
      AFTER MATCH SKIP PAST LAST ROW PATTERN (low up+) DEFINE up AS up.v > low.v)
  nearest: {mode: append, sql: "SELECT a.id, b.id AS other FROM a ASOF LEFT JOIN b ON a.k = b.k AND a.ts >= b.ts"}
  corrected: {mode: retract, sql: "SELECT a.id, b.id AS other FROM a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts"}
  version:
    mode: retract
    sql: SELECT a.id, r.v FROM a LEFT JOIN rates FOR SYSTEM_TIME AS OF a.ts r ON a.k = r.k
  final_version:
    mode: append
    sql: SELECT a.id, r.v FROM a LEFT JOIN rates FOR SYSTEM_TIME AS OF a.ts r ON a.k = r.k
  left_within:
    mode: append
    sql: >-
      SELECT a.id, b.id AS other FROM a LEFT JOIN b
      ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '5' SECOND
  full_within:
    mode: retract
    sql: >-
      SELECT a.id, b.id AS other FROM a FULL JOIN b
      ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '5' SECOND
  around:
    mode: append
    sql: >-
      SELECT id, SUM(v) OVER (PARTITION BY k ORDER BY ts, id) AS s, LAG(v) OVER (PARTITION BY k ORDER BY ts, id) AS l
      FROM a
"""


def lines(count: int) -> list[str]:
    """Return rows of the tables, out of order by some seconds, and rates that are updated and deleted."""
    dice, now, found = random.Random("time joins on Spark"), START, []
    for id_ in range(count):
        now += timedelta(seconds=dice.choice((0, 1, 1, 2, 3)))
        ts = now - timedelta(seconds=dice.choice((0, 0, 0, 1, 3, 12)))
        table, row = dice.choice(("a", "a", "b", "rates")), {"k": dice.randint(1, 3), "v": dice.randint(0, 9)}
        if table != "rates":
            row["id"] = id_
        op = "-D" if table == "rates" and dice.random() < 0.2 else "+U" if table == "rates" else "+I"
        found.append(json.dumps({"table": table, "op": op, "row": {**row, "ts": ts.isoformat()}}))
    return found


def test_every_batch_is_what_one_shard_gives(spark: SparkSession, tmp_path: Path) -> None:
    """MATCH_RECOGNIZE, ASOF, FOR SYSTEM_TIME AS OF, interval outer joins and final OVER agree in one query."""
    job = job_of(tmp_path, JOB)
    sinks = plan_query(job, list(job.sinks)).sinks
    whole = graph(sinks)
    batches = read(job, lines(60), "changes", 10)
    end(sinks[0], batches)
    engine, at = MemoryEngine(*sinks), [whole.place(sink.name) for sink in sinks]
    outputs = run_query(spark, job, sinks, batches, tmp_path / "spark")
    assert len(outputs) == len(batches) > 3
    seen: Counter[str] = Counter()
    for number, (batch, blocks) in enumerate(zip(batches, outputs, strict=True)):
        expected = engine.batch(batch, batch.clock or 0, ended=batch.ended)
        for sink, place in zip(sinks, at, strict=True):
            told, wanted = (
                Counter(zip(each.kind.tolist(), each.payload.to_pylist(), strict=True))
                for each in (changes_of(sink, blocks, place), expected[sink.name])
            )
            assert told == wanted, f"batch {number}, sink {sink.name}"
            seen[sink.name] += sum(told.values())
    assert all(seen[sink.name] > 3 for sink in sinks), seen
