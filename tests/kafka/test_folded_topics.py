"""Topics of a broker, folded to tables in DuckDB."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer as KafkaProducer

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


def test_what_exceeds_the_memory_limit_is_spilled_to_disk(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Changes of twice the limit are folded right, DuckDB writes temporary files, and memory stays bounded."""
    # Each fold has a process of its own, so its largest resident memory is that of this work alone. Three times the
    # changes must take less than half of their size in additional memory.
    some, more = (_topic_of_wide_rows(broker, new_topic(2), tmp_path / str(rows), rows) for rows in _WIDE_ROWS)
    few, many = _folded_alone(some), _folded_alone(more)
    for rows, found in zip(_WIDE_ROWS, (few, many), strict=True):
        assert found["rows"] == [rows // 2, rows - 1, rows // 2 * _WIDTH]
    assert _WIDE_ROWS[1] * _WIDTH / 1e6 > 2 * many["limit_mb"]
    assert many["spilled_bytes"] > 20e6, "the fold has written temporary files"
    assert many["peak_mb"] - few["peak_mb"] < (_WIDE_ROWS[1] - _WIDE_ROWS[0]) * _WIDTH / 1e6 / 2, (few, many)


_WIDE_ROWS, _WIDTH = (40_000, 120_000), 2_000


def _topic_of_wide_rows(broker: Broker, topic: str, folder: Path, rows: int) -> Path:
    """Write rows of `_WIDTH` random characters, and delete every second one. Return the job file."""
    folder.mkdir()
    columns = {"id": "BIGINT NOT NULL", "text": "STRING"}
    table = {"topic": topic, "mode": "upsert", "format": "json", "columns": columns, "primary_key": "id"}
    sink = {"topic": f"{topic}-out", "mode": "upsert", "key": "id", "sql": "SELECT * FROM t"}
    kafka: dict[str, str | int] = {"bootstrap.servers": broker.bootstrap_servers}
    (folder / "job.yaml").write_text(
        json.dumps({"job": "wide", "kafka": kafka, "tables": {"t": table}, "sinks": {"o": sink}})
    )
    producer, dice = KafkaProducer({**kafka, "linger.ms": 20, "queue.buffering.max.kbytes": 65_536}), random.Random(1)
    for number in range(rows):
        text = dice.randbytes(_WIDTH // 2).hex()
        key, row = b'{"id":%d}' % number, b'{"id":%d,"text":"%s"}' % (number, text.encode())
        while producer.poll(0) or len(producer) > 10_000:
            producer.poll(0.1)
        producer.produce(topic, row, key)
    producer.flush()
    for number in range(0, rows, 2):
        producer.produce(topic, None, b'{"id":%d}' % number)
    producer.flush()
    return folder / "job.yaml"


_FOLDING = """
import json, resource, sys
from pathlib import Path
from typing import Any
from threading import Event, Thread
from rowkind.service.client.external_table import readable_topic
from rowkind.service.client.folded_topics import FoldedTopics

with FoldedTopics(sys.argv[1], memory="100MB") as topics:
    spilled, over = [0], Event()
    ((folder,),) = topics.connection.sql("SELECT current_setting('temp_directory')").fetchall()

    def watch():
        while not over.wait(0.01):
            spilled.append(sum(each.stat().st_size for each in Path(folder).glob("*") if each.exists()))

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    topics.fold(readable_topic(topics.job, "t"), "t")
    run = topics.connection.execute
    (rows,) = run("SELECT count(*), max(id), sum(length(text)) FROM t").fetchall()
    over.set()
    watcher.join()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
found = {"rows": list(map(int, rows))}
print(json.dumps(found | {"spilled_bytes": max(spilled), "peak_mb": peak, "limit_mb": 100}))
"""


def _folded_alone(job: Path) -> Any:
    done = subprocess.run([sys.executable, "-c", _FOLDING, str(job)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
