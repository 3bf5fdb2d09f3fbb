"""Topics of a broker, folded to tables in DuckDB."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rowkind.client import Producer
from rowkind.service.client.external_table import readable_topic
from rowkind.service.client.folded_topics import FoldedTopics
from rowkind.service.dev.broker import Broker

pytestmark = pytest.mark.kafka

COLUMNS = {"id": "BIGINT", "name": "STRING", "amount": "DECIMAL(10,2)"}


@pytest.mark.parametrize("mode", ["upsert", "retract"])
@pytest.mark.parametrize("form", ["avro", "json"])
def test_a_topic_is_folded_up_to_given_offsets(
    mode: str, form: str, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """A table shows the rows up to the offsets, then later ones, then earlier ones. Bad records are counted."""
    topic = new_topic(2)
    job = {
        "job": "folded",
        "kafka": {"bootstrap.servers": broker.bootstrap_servers},
        "registry": {"folder": "schemas"},
        "tables": {"t": {"topic": topic, "format": form, "mode": mode, "columns": COLUMNS, "primary_key": "id"}},
        "sinks": {"all": {"topic": new_topic(), "mode": "upsert", "key": "id", "sql": "SELECT * FROM t"}},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    with FoldedTopics(tmp_path / "job.yaml") as topics, Producer(tmp_path / "job.yaml", "t") as rows:

        def shown() -> list[tuple[int, str | None]]:
            return topics.connection.sql("SELECT id, name FROM t ORDER BY id").fetchall()

        source = readable_topic(topics.job, "t")
        for number in range(50):
            rows.insert({"id": number, "name": "a"})
        rows.flush()
        first = dict(topics.fold(source, "t").at)
        assert shown() == [(number, "a") for number in range(50)]
        rows.update({"id": 3, "name": "a"}, {"id": 3, "name": "b"})
        rows.delete({"id": 4, "name": "a"})
        rows.flush()
        topics.fold(source, "t")
        assert shown() == [(number, "b" if number == 3 else "a") for number in range(50) if number != 4]
        with Producer(tmp_path / "job.yaml", "t") as more:
            more._producer.produce(topic, b"not a row", headers=[("op", b"+I")])  # type: ignore[attr-defined]
        folded = topics.fold(source, "t")
        assert folded.undecodable == 1
        assert folded.first_undecodable is not None
        topics.fold(source, "t", first)
        assert shown() == [(number, "a") for number in range(50)]
        ((least, most),) = topics.connection.sql("SELECT min(_offset), max(_partition) FROM t").fetchall()
        assert (least, most) == (0, 1)
