"""Topics that gain partitions: a key's newest row wins, whatever partition and offset it has."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from rowkind.client import table
from rowkind.service.kafka.offsets import Offset
from tests.kafka.tables import Topic, order, planner, read, scan, settings

pytestmark = pytest.mark.kafka

HOUR = 3_600_000
Written = tuple[int, int, int, str]
"""A record: its partition, its time in ms before now, the id of its row, and a name."""


def write(topic: Topic, records: Sequence[Written]) -> None:
    """Write the records; partitions that the topic lacks are added."""
    admin, producer = AdminClient(settings(topic.broker)), Producer(settings(topic.broker))
    there, now = 1, round(time.time() * 1000)
    for partition, age, number, name in records:
        if partition >= there:
            there = partition + 1
            admin.create_partitions([NewPartitions(topic.name, there)])[topic.name].result()
            producer = Producer(settings(topic.broker))
        value, key = topic.value(order(number, name)), topic.key(number)
        producer.produce(topic.name, value, key, partition, timestamp=now - age)
        assert producer.flush(20) == 0


def batches(topic: Topic, rows: int | None, start: Offset | None = None) -> tuple[list[dict[int, str]], Offset]:
    """Return the names by id that each batch reads, from the start, and where the last batch ends."""
    spec = topic.spec(scan(topic.name, mode="upsert"))
    plan = planner(spec)
    begin, found = start or plan.initial(), list[dict[int, str]]()
    while (end := plan.end(begin, rows)) is not begin:
        names = {row["id"]: row["name"] for _, row in read(spec, plan.tasks(begin, end)).rows()}
        found.append(names)
        begin = end
    return found, begin


def folded(found: Sequence[Mapping[int, str]]) -> dict[int, str]:
    """Return the rows that are left after all batches."""
    return {number: name for names in found for number, name in names.items()}


MOVED = [
    *((0, 5 * HOUR - number, number % 3, "old") for number in range(20)),
    (0, 4 * HOUR, 0, "older"),
    (2, 3 * HOUR, 0, "newer"),
    (1, 2 * HOUR, 1, "newer"),
    (0, HOUR, 2, "newer"),
]
"""A topic of one partition that later has three, and keys that have moved."""


@pytest.mark.parametrize("rows", [None, 1, 3, 7])
def test_the_newer_row_of_a_key_that_has_moved_wins(rows: int | None, orders: Topic) -> None:
    """A topic that is read from its start is first read up to the time of each growth, and then further."""
    write(orders, MOVED)
    found, _ = batches(orders, rows)
    assert folded(found) == dict.fromkeys(range(3), "newer")
    if rows is None:
        assert len(found) == 2


def test_a_topic_that_grows_under_a_job_that_lags_is_read_in_order(orders: Topic) -> None:
    """The older records of the old partition are read before the new partitions."""
    write(orders, MOVED[:5])
    found, reached = batches(orders, None)
    write(orders, MOVED[5:])
    later, reached = batches(orders, None, reached)
    assert folded([*found, *later]) == dict.fromkeys(range(3), "newer")
    assert batches(orders, None, reached)[0] == []


def test_several_growths_are_several_cuts(orders: Topic) -> None:
    """Each growth ends a batch, but partitions that existed from the beginning do not."""
    write(orders, [(0, 50, 0, "a"), (1, 40, 0, "b"), (0, 30, 1, "a"), (2, 20, 0, "c"), (3, 20, 1, "c")])
    found, _ = batches(orders, None)
    assert found == [{0: "a"}, {0: "b", 1: "a"}, {0: "c", 1: "c"}]


def test_times_in_the_future_hold_nothing_back(orders: Topic) -> None:
    """A partition with a wrong clock must be read, although other partitions always have older records."""
    write(orders, [(0, HOUR, 0, "a"), (1, -HOUR, 1, "b"), (0, 0, 2, "c")])
    found, _ = batches(orders, None)
    assert found == [{0: "a", 1: "b", 2: "c"}]


def test_the_rows_that_a_topic_stands_for_are_the_newer_ones(orders: Topic, tmp_path: Path) -> None:
    """A client that reads the topic gets the rows in the same order."""
    write(orders, MOVED)
    columns = {"id": "BIGINT", "name": "STRING", "amount": "DECIMAL(10,2)"}
    of = {"topic": orders.name, "mode": "upsert", "columns": columns, "primary_key": "id"}
    job = {
        "job": "grown",
        "kafka": {"bootstrap.servers": orders.broker.bootstrap_servers},
        "registry": {"folder": "schemas"},
        "tables": {"orders": of},
        "sinks": {"all": {"mode": "upsert", "key": "id", "sql": "SELECT * FROM orders"}},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    assert set(table(tmp_path / "job.yaml", "orders")["name"].to_pylist()) == {"newer"}
