"""A partition that has lost records that were read: the loss is noticed, even after new records were written."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from rowkind.avro.registry import FolderRegistry
from rowkind.service.dev.broker import Broker
from rowkind.service.kafka.cluster import Cluster
from rowkind.service.kafka.errors import RestartedTopicError, TruncatedTopicError
from rowkind.service.kafka.offsets import Offset
from rowkind.service.kafka.topic_record import topic_records
from rowkind.service.physical.source_table import Start
from tests.kafka.tables import Topic, order, planner, read, scan

pytestmark = pytest.mark.kafka


class Restored:
    """A topic of orders on a broker whose disk was restored from a copy: 100 records were read, and 50 are left."""

    def __init__(self, folder: Path) -> None:
        data, copy = folder / "data", folder / "copy"
        self.broker = Broker(data)
        self.broker.start()
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result()
        self.topic = Topic("orders", self.broker, FolderRegistry(folder / "schemas"))
        self.send(50)
        self.broker.stop()
        shutil.copytree(data / "log" / "orders-0", copy)
        self.broker.start()
        self.send(50)
        plan = planner(self.topic.spec())
        self.read = Offset.from_json(plan.end(plan.initial(), None).to_json())
        self.written = topic_records(Cluster(self.topic.spec().kafka), ["orders"])["orders"]
        self.broker.stop()
        shutil.rmtree(data / "log" / "orders-0")
        shutil.copytree(copy, data / "log" / "orders-0")
        (data / "log" / "recovery-point-offset-checkpoint").unlink()
        self.broker.start()

    def send(self, count: int) -> None:
        """Send this number of records."""
        self.topic.send(*((b"+I", order(i)) for i in range(count)))


@pytest.fixture
def restored(tmp_path: Path) -> Iterator[Restored]:
    """The restored topic, without any later records."""
    found = Restored(tmp_path)
    yield found
    found.broker.stop()


def test_records_that_were_read_and_are_gone(restored: Restored) -> None:
    """Planning detects the loss; once new records have taken the offsets, the broker detects it by leader epoch."""
    spec = restored.topic.spec()
    restarts = restored.topic.spec(scan("orders", start=Start(on_recreated="restart")))
    assert restored.read.at["orders", 0] == 100
    assert restored.read.epochs["orders", 0] > 0
    with pytest.raises(TruncatedTopicError, match=r"partition 0 was read up to offset 100.* offset 50") as lost:
        planner(spec).end(restored.read, None)
    assert "--reset-state" in str(lost.value)
    with pytest.raises(RestartedTopicError, match="up to offset 100"):
        planner(restarts).end(restored.read, None)
    now = topic_records(Cluster(spec.kafka), ["orders"])["orders"]
    assert "partition 0 ends at offset 50, not 100" in restored.written.harm(now, keeps_all=False)
    restored.send(60)
    plan = planner(spec)
    end = plan.end(restored.read, None)
    assert end.at["orders", 0] == 110
    with pytest.raises(TruncatedTopicError, match=r"partition 0 was read up to offset 100.* offset 50"):
        read(spec, plan.tasks(restored.read, end))
    with pytest.raises(RestartedTopicError, match="up to offset 100"):
        read(restarts, planner(restarts).tasks(restored.read, end))
    # Offsets logged by an earlier release have no leader epochs.
    assert len(read(spec, plan.tasks(replace(restored.read, epochs={}), end)).ids()) == 10


def test_a_start_behind_the_end_is_waited_for(restored: Restored) -> None:
    """A configured start offset has not been read yet, so an end before it does not count as a loss."""
    spec = restored.topic.spec(scan("orders", start=Start("offsets", offsets={0: 70})))
    plan = planner(spec)
    start = plan.initial()
    assert start.at["orders", 0] == 70
    assert plan.end(start, None) is start
    assert plan.end(replace(start, number=3), None).at["orders", 0] == 70
    restored.send(30)
    end = plan.end(start, None)
    assert read(spec, plan.tasks(start, end)).ids() == list(range(20, 30))
    restored.broker.stop()
    restored.broker.start()
    restored.send(10)
    later = plan.end(end, None)
    assert later.epochs["orders", 0] > end.epochs["orders", 0]
    assert read(spec, plan.tasks(end, later)).ids() == list(range(10))
