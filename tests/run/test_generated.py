"""Tables whose rows the job generates: on Spark, over restarts, and without any Kafka of one's own."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rowkind.operators.changelog import RowKind
from rowkind.service.dev.broker import Broker
from rowkind.service.job.load import load
from rowkind.service.kafka.generated_topic import GeneratedTopic
from rowkind.service.plan.pipeline import source_table
from tests.run.process import Rowkind, until
from tests.run.topic_job import TopicJob

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

ROWS = 30_000
SINKS: dict[str, dict[str, Any]] = {
    "groups": {"mode": "retract", "partitions": 1, "sql": "SELECT g, COUNT(*) AS n, SUM(v) AS total FROM t GROUP BY g"},
    "latest": {"mode": "upsert", "partitions": 1, "key": "id", "sql": "SELECT id, g, v FROM t WHERE v < 100"},
    "joined": {
        "mode": "retract",
        "partitions": 1,
        "sql": "SELECT t.id, v, w FROM t JOIN names ON t.g = names.id",
    },
}


@pytest.fixture(params=["retract", "upsert"])
def job(
    request: pytest.FixtureRequest, spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> TopicJob:
    """A job over two generated tables."""
    monkeypatch.setenv("ROWKIND_PYTHON", sys.executable)
    monkeypatch.setenv("ROWKIND_STAND_IN", "no process answers")
    made = TopicJob(spark, broker.bootstrap_servers, tmp_path, f"made-{os.getpid()}-{tmp_path.name}", **SINKS)
    t = {
        "mode": request.param,
        "primary_key": "id",
        "columns": {"id": "BIGINT", "g": "BIGINT", "v": "INT"},
        "generate": {"rows_per_second": 2_000, "number_of_rows": ROWS, "keys": 500, "columns": {"g": {"max": 20}}},
    }
    names = {
        "mode": "append",
        "columns": {"id": "BIGINT", "w": "STRING"},
        "generate": {"number_of_rows": 15, "columns": {"id": {"start": 0}}},
    }
    made.write(tables={"t": t, "names": names}, batch={"max_rows": 4_000})
    return made


def generated(file: Path, table: str) -> list[dict[str, Any]]:
    """Return the rows of a generated table, without its time columns, after all its changes."""
    source = source_table(load(file), table)
    topic, schedule = GeneratedTopic(source, 0), source.schedule(0)
    assert schedule is not None
    changes = topic.changes(0, schedule.end(sys.maxsize))
    rows: dict[Any, dict[str, Any]] = {}
    for kind, row in zip(changes.kind.tolist(), topic.columns(changes).to_pylist(), strict=True):
        if kind in (RowKind.DELETE, RowKind.UPDATE_BEFORE):
            rows.pop(row["id"])
        else:
            rows[row["id"]] = row
    return list(rows.values())


def test_every_change_counts_once_over_restarts(job: TopicJob) -> None:
    """The results equal those of all generated changes; a second run continues with the change after the last one."""
    file = job.folder / f"{job.name}.yaml"
    stride = 2 if load(file).tables["t"].mode == "retract" else 1
    job.runs(5_000)
    job.runs(ROWS * stride)
    rows, names = generated(file, "t"), generated(file, "names")
    groups = {g: [row["v"] for row in rows if row["g"] == g] for g in {row["g"] for row in rows}}
    expected = Counter(text({"g": g, "n": len(own), "total": sum(own)}) for g, own in groups.items())
    assert job.rows("groups") == expected
    assert job.rows("latest") == Counter(text(row) for row in rows if row["v"] < 100)
    word = {row["id"]: row["w"] for row in names}
    joined = [{"id": row["id"], "v": row["v"], "w": word[row["g"]]} for row in rows if row["g"] in word]
    assert job.rows("joined") == Counter(map(text, joined))


def text(row: dict[str, Any]) -> str:
    """Return a row as it is written."""
    return json.dumps(row, separators=(",", ":"))


def test_the_first_script_of_a_tutorial_runs_without_kafka(tmp_path: Path) -> None:
    """Flink's datagen is imported, and `run --dev` brings its own broker and registry."""
    script = tmp_path / "first.sql"
    script.write_text("""
        CREATE TABLE orders (n BIGINT, price DECIMAL(10, 2), at TIMESTAMP(3), WATERMARK FOR at AS at)
        WITH ('connector' = 'datagen', 'rows-per-second' = '500', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1',
              'fields.n.end' = '1000', 'fields.price.min' = '1', 'fields.price.max' = '9');
        CREATE TABLE sums (c BIGINT, total DECIMAL(38, 2)) WITH ('connector' = 'print');
        INSERT INTO sums SELECT COUNT(*), SUM(price) FROM orders;
    """)
    output = tmp_path / "output"
    with Rowkind(output, "import", str(script), "-o", str(tmp_path / "job.yaml")) as imported:
        assert imported.ended().code == 0, imported.error
    with Rowkind(output, "run", str(tmp_path / "job.yaml"), "--dev", "--port", "0", cwd=tmp_path) as run:
        until(lambda: "rows_in=" in run.error and read(run.error) == 1_000, "all rows", lambda: run.error, 240)
        run.signal(signal.SIGINT)
        ended = run.ended()
    assert ended.code == 0, ended.error
    assert (tmp_path / ".rowkind" / "kafka").is_dir()


def read(log: str) -> int:
    """Return how many rows the batches in a log have read."""
    words = [word for line in log.splitlines() for word in line.split() if word.startswith("rows_in=")]
    return sum(int(word.partition("=")[2]) for word in words)
