"""Time on Spark, with two tasks and several levels: every batch gives the same output as the memory engine.

The memory engine has one shard, so no row can be early or late relative to another shard. On Spark, each shard of each
level tracks the watermark itself. No level may pass a watermark before it has received everything that earlier levels
derive from the batch.
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
    mode: retract
    columns: {id: BIGINT NOT NULL, k: BIGINT NOT NULL, v: BIGINT NOT NULL, ts: TIMESTAMP NOT NULL}
    watermark: {column: ts, delay: 4s}
  b: *table
  c:
    mode: append
    columns: {id: BIGINT NOT NULL, k: BIGINT NOT NULL}
views:
  sums: >-
    SELECT k, window_start, SUM(v) AS s FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '10' SECOND))
    GROUP BY k, window_start, window_end
  counts: >-
    SELECT v, window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE b, DESCRIPTOR(ts), INTERVAL '10' SECOND))
    GROUP BY v, window_start, window_end
  both: >-
    SELECT sums.k, sums.window_start, sums.s, counts.n FROM sums LEFT JOIN counts
    ON sums.s = counts.v AND sums.window_start = counts.window_start
sinks:
  final: {mode: append, emit: final, sql: SELECT * FROM both}
  changes: {mode: retract, sql: SELECT * FROM both}
  best:
    mode: retract
    emit: final
    sql: >-
      SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start ORDER BY n DESC, k) AS place FROM both)
      WHERE place <= 2
  sessions:
    mode: append
    emit: final
    sql: >-
      SELECT k, window_start, window_end, COUNT(*) AS n FROM
      TABLE(SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '3' SECOND)) GROUP BY k, window_start, window_end
  recent:
    mode: retract
    sql: >-
      SELECT a.id, b.id AS other FROM a LEFT JOIN b ON a.k = b.k AND b.ts > NOW() - INTERVAL '20' SECOND
      WHERE a.ts > NOW() - INTERVAL '15' SECOND
  processed:
    mode: append
    sql: >-
      SELECT k, window_end, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE c, DESCRIPTOR(PROCTIME()), INTERVAL '20' SECOND))
      GROUP BY k, window_start, window_end
"""


def lines(count: int) -> list[str]:
    """Return changes of the tables: two tables out of order by some seconds, while the clock advances continuously."""
    dice, now, found = random.Random("time on Spark"), START, []
    live: dict[str, list[dict[str, object]]] = {"a": [], "b": []}
    for id_ in range(count):
        now += timedelta(seconds=dice.choice((0, 1, 1, 2, 9)))
        if not id_ % 4:
            found.append(json.dumps({"clock": now.isoformat()}))
        found.append(json.dumps({"table": "c", "op": "+I", "row": {"id": id_, "k": id_ % 3}}))
        table = dice.choice("ab")
        if live[table] and dice.random() < 0.2:
            row = live[table].pop(dice.randrange(len(live[table])))
            found.append(json.dumps({"table": table, "op": "-D", "row": row}))
            continue
        ts = now - timedelta(seconds=dice.choice((0, 0, 0, 1, 3, 15)))
        row = {"id": id_, "k": dice.randint(1, 4), "v": dice.randint(0, 3), "ts": ts.isoformat()}
        live[table].append(row)
        found.append(json.dumps({"table": table, "op": "+I", "row": row}))
    return found


def test_every_batch_is_what_one_shard_gives(spark: SparkSession, tmp_path: Path) -> None:
    """Windowed groups, their join and rank, final results, sessions, NOW() filters and PROCTIME() windows agree."""
    job = job_of(tmp_path, JOB)
    sinks = plan_query(job, list(job.sinks)).sinks
    whole = graph(sinks)
    assert whole.levels > 2
    batches = read(job, lines(44), "changes", 100)
    end(sinks[0], batches)
    engine, at = MemoryEngine(*sinks), [whole.place(sink.name) for sink in sinks]
    outputs = run_query(spark, job, sinks, batches, tmp_path / "spark")
    seen: Counter[str] = Counter()
    for number, (batch, blocks) in enumerate(zip(batches, outputs, strict=True)):
        expected = engine.batch(batch, batch.clock or 0, ended=batch.ended)
        for sink, place in zip(sinks, at, strict=True):
            found = changes_of(sink, blocks, place)
            told, wanted = (
                Counter(zip(each.kind.tolist(), each.payload.to_pylist(), strict=True))
                for each in (found, expected[sink.name])
            )
            assert told == wanted, f"batch {number}, sink {sink.name}"
            seen[sink.name] += len(found)
    assert all(seen[sink.name] > 5 for sink in sinks), seen
