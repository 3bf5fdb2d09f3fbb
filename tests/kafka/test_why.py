"""`rowkind why` over topics of a broker: a row is explained as of the last batch that the job has recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from rowkind.avro.json_rows import decode
from rowkind.client import Producer
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.service.cli import main
from rowkind.service.client.external_table import opened, readable_topic
from rowkind.service.dev.broker import Broker
from rowkind.service.job.load import load
from rowkind.service.kafka.offsets import Offset
from rowkind.service.kafka.progress import Progress
from rowkind.service.why.topics import TablesInKafka

pytestmark = pytest.mark.kafka

COLUMNS = {"id": "BIGINT NOT NULL", "amount": "BIGINT"}
NOON = 1_767_268_800_000


@pytest.fixture
def job(broker: Broker, new_topic: Callable[..., str], tmp_path: Path) -> Path:
    """Return the file of a job over three orders, of which the topic of the sink `large` has two."""
    places = {"kafka": {"bootstrap.servers": broker.bootstrap_servers}, "registry": {"folder": "schemas"}}
    orders = {"topic": new_topic(2), "mode": "upsert", "columns": COLUMNS, "primary_key": "id"}
    sink = {"topic": new_topic(), "mode": "upsert", "key": "id", "sql": "SELECT * FROM orders WHERE amount > 5"}
    name = new_topic().replace("-", "_")
    document = {"job": name, **places, "tables": {"orders": orders}, "sinks": {"large": sink}}
    (tmp_path / "job.yaml").write_text(json.dumps(document))
    written = {"topic": sink["topic"], "mode": "upsert", "columns": COLUMNS, "primary_key": "id"}
    unused = {"x": {"topic": "x", "mode": "upsert", "key": "id", "sql": "SELECT * FROM large"}}
    writer = {"job": "writer", **places, "tables": {"large": written}, "sinks": unused}
    (tmp_path / "writer.yaml").write_text(json.dumps(writer))
    with Producer(tmp_path / "job.yaml", "orders") as rows:
        for number in (1, 2, 3):
            rows.insert({"id": number, "amount": number * 10})
    with Producer(tmp_path / "writer.yaml", "large") as rows:
        for number in (1, 2):
            rows.insert({"id": number, "amount": number * 10})
    return tmp_path / "job.yaml"


def asked(job: Path, key: int, *, form: str = "json") -> Any:
    """Return the answer for a row."""
    done = CliRunner().invoke(main, ["why", str(job), "large", str(key), "-o", form])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout) if form == "json" else done.stdout


def record_batch(job: Path, broker: Broker, admin: AdminClient, ends: Mapping[int, int]) -> None:
    """Write the progress of a job that has read the table's partitions up to these offsets."""
    document = json.loads(job.read_text())
    name, topic = document["job"], document["tables"]["orders"]["topic"]
    admin.create_topics([NewTopic(f"{name}.main.progress", 1, 1)])[f"{name}.main.progress"].result()
    end = Offset({(topic, at): end for at, end in ends.items()}, {topic: "id"}, number=7, now=NOON)
    batch = Progress(name, "main", 0, "c", 7, "00000001-a", NOON, json.dumps(end.to_json()), 1, ["large"])
    producer = KafkaProducer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(f"{name}.main.progress", batch.to_bytes(), batch.key, 0)
    producer.flush()


def test_a_job_without_progress_is_explained_up_to_the_ends(job: Path) -> None:
    """The topic lacks the third row, and the answer says that the job has not written a batch."""
    found = asked(job, 3)
    assert (found["batch"], found["present"], found["topic"]["differs"]) == (None, True, True)
    assert "- the job has not written a batch of large yet, so the topics were read" in asked(job, 1, form="text")


def test_a_row_is_explained_as_of_the_last_batch(job: Path, broker: Broker, admin: AdminClient) -> None:
    """A record that the job has not read yet does not count. The answer says up to where it looked."""
    place = asked(job, 3)["steps"][-1]["sources"][0]
    whole = {int(at): end for at, end in asked(job, 3)["reads"][0]["ends"].items()}
    record_batch(job, broker, admin, whole | {place["partition"]: place["offset"]})
    found = asked(job, 3)
    (read,) = found["reads"]
    assert found["batch"] == {"number": 7, "time": "2026-01-01T12:00:00.000Z"}
    assert (found["present"], found["topic"]["differs"]) == (False, False)
    assert (read["ends"][str(place["partition"])], read["later"]) == (place["offset"], 1)
    (cause,) = found["causes"]
    assert cause["kind"] == "no row"
    shown = asked(job, 3, form="text")
    assert "- as of batch 7 of the job, which began at 2026-01-01T12:00:00.000Z" in shown
    assert "the job has not read up to 1 later record of orders yet" in shown


def test_a_difference_is_looked_at_again_at_a_batch_that_is_complete(
    job: Path, broker: Broker, admin: AdminClient
) -> None:
    """A row that the topic lacks is still reported when the job is idle."""
    whole = {int(at): end for at, end in asked(job, 3)["reads"][0]["ends"].items()}
    record_batch(job, broker, admin, whole)
    found = asked(job, 3)
    assert (found["present"], found["topic"]["rows"], found["topic"]["differs"]) == (True, [], True)
    assert "\n- topic " in (shown := asked(job, 3, form="text"))
    assert "compare the whole topic with `rowkind verify`" in shown


def test_a_key_that_has_moved_to_a_new_partition_has_its_last_row(job: Path, admin: AdminClient) -> None:
    """After a table's topic has gained a partition, a later row with a lower offset replaces the row of its key."""
    of = opened(load(job))
    source, numbers = readable_topic(of, "orders"), range(1, 60)
    with Producer(of, "orders") as rows:
        for number in numbers:
            rows.insert({"id": number, "amount": 7})
    admin.create_partitions([NewPartitions(source.topic, 3)])[source.topic].result()
    with Producer(of, "orders") as rows:
        for number in numbers:
            rows.insert({"id": number, "amount": number + 100})
    found = TablesInKafka(of).read(source, ()).live().rows
    read = [(row["id"], row["amount"]) for row in decode(source.declared, found.payload)]
    assert sorted(read) == [(number, number + 100) for number in numbers]
    moved = [at for at, seq in enumerate(found.seq.tolist()) if ArrivalNumber.of(seq).partition == 2]
    number, _ = read[moved[0]]
    answer = asked(job, number)
    assert answer["rows"] == [{"id": number, "amount": number + 100}]
    assert answer["steps"][-1]["sources"][0]["partition"] == 2
