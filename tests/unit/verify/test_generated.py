"""A generated table is folded up to an offset, so that `rowkind verify` can compare the results of its rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rowkind.operators.changelog import RowKind
from rowkind.service.client.folded_topics import FoldedTopics
from rowkind.service.kafka.generated_topic import GeneratedTopic
from rowkind.service.plan.pipeline import source_table

END = 60_000


@pytest.mark.parametrize("mode", ["append", "upsert", "retract"])
def test_a_generated_table_is_folded(mode: str, tmp_path: Path) -> None:
    """The rows are those of all changes before the offset, even if the table is read in two steps."""
    key = {} if mode == "append" else {"primary_key": "id"}
    table = {
        "mode": mode,
        **key,
        "columns": {"id": "BIGINT", "v": "INT"},
        "generate": {"rows_per_second": 1_000, "keys": 500},
    }
    job = {
        "job": "made",
        "kafka": {"bootstrap.servers": "127.0.0.1:1"},
        "registry": {"folder": "schemas"},
        "tables": {"t": table},
        "sinks": {"s": {"topic": "s", "mode": "retract", "sql": "SELECT id, v FROM t"}},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    with FoldedTopics(tmp_path / "job.yaml") as topics:
        source = source_table(topics.job, "t")
        for end in (20_000, END):
            folded = topics.fold(source, "t", {(source.topic, 0): end})
        found = topics.connection.execute("SELECT id, v FROM t ORDER BY ALL").fetchall()
        assert folded.overdrawn == folded.undecodable == 0
    topic = GeneratedTopic(source, 0)
    changes = topic.changes(0, END)
    rows: list[tuple[int, int]] = []
    by_key: dict[int, tuple[int, int]] = {}
    for kind, row in zip(changes.kind.tolist(), topic.columns(changes).to_pylist(), strict=True):
        if mode == "append":
            rows.append((row["id"], row["v"]))
        elif kind in (RowKind.DELETE, RowKind.UPDATE_BEFORE):
            del by_key[row["id"]]
        else:
            by_key[row["id"]] = row["id"], row["v"]
    assert found == sorted([*rows, *by_key.values()])
