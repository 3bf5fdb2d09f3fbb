"""The settings of a query's reader that depend on its graph and on the stages in the checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowkind.avro.registry import FolderRegistry
from rowkind.service.job.load import load
from rowkind.service.physical.graph import graph
from rowkind.service.plan.pipeline import plan
from rowkind.service.query.streaming import Deployment, source
from rowkind.service.query.topics import Connection

JOB = """
job: shop
tables:
  ratings: {mode: append, columns: {id: BIGINT NOT NULL, stars: INT}}
  people: {mode: retract, primary_key: id, columns: {id: BIGINT NOT NULL, name: STRING}}
  stock: {mode: upsert, primary_key: item, columns: {item: STRING NOT NULL, pieces: INT}}
sinks:
  liked: {mode: append, sql: SELECT id FROM ratings}
  shelves: {mode: upsert, key: item, sql: "SELECT item, pieces FROM stock"}
  named: {mode: upsert, key: id, sql: "SELECT id, name FROM people"}
  counted: {mode: retract, sql: "SELECT stars, COUNT(*) AS n FROM ratings GROUP BY stars"}
"""


@pytest.mark.parametrize(
    ("sinks", "levels", "exchange", "whole"),
    [
        (["liked"], 0, False, True),
        (["liked"], 1, False, False),
        (["liked"], 0, True, False),
        (["shelves"], 0, False, True),
        (["liked", "shelves"], 0, False, True),
        (["named"], 0, False, False),
        (["liked", "named"], 0, False, False),
        (["liked", "counted"], 0, False, False),
    ],
    ids=[
        "as read",
        "a stage is left",
        "a shuffle is left",
        "by the topic's key",
        "both",
        "by another key",
        "with one by another key",
        "with a stage",
    ],
)
def test_partitions_stay_whole_where_nothing_is_shuffled(
    tmp_path: Path, sinks: list[str], levels: int, exchange: bool, whole: bool
) -> None:
    """If nothing is shuffled, a partition is read by one task, because the reading tasks also write."""
    (tmp_path / "job.yaml").write_text(JOB)
    job = load(tmp_path / "job.yaml", {})
    connection = Connection({}, FolderRegistry(tmp_path))
    at = Deployment(job, "main", connection, {}, tmp_path, tmp_path / "drain", shards=4, tasks=2)
    whole_graph = graph([plan(job, name) for name in sinks], levels, exchange=exchange)
    assert source(whole_graph, at).whole_partitions == whole
