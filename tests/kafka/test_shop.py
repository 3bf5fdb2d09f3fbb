"""The demo's order book, on topics that outlive it."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from rowkind.avro.registry import FolderRegistry
from rowkind.service.dev.broker import Broker
from rowkind.service.dev.demo.data import order_book
from rowkind.service.dev.demo.shop import Shop
from rowkind.service.job.load import load

pytestmark = pytest.mark.kafka

_JOB = Path(__file__).parents[2] / "examples" / "orders-payments" / "job.yaml"
_PARTITIONS = 4


def test_a_shop_that_opens_again_goes_on_where_it_stopped(broker: Broker, tmp_path: Path) -> None:
    """However often the shop stops, its topics end with the same records as without stops."""
    chance = random.Random(3)
    settings = {"KAFKA": broker.bootstrap_servers, "SCHEMAS": str(tmp_path / "schemas"), "CHECKPOINT": ""}
    job = load(_JOB, settings)
    events = list(order_book(400, seed=11))
    seen: list[list[bytes | None]] = []
    for stops in ([len(events)], [*sorted(chance.sample(range(len(events)), 3)), len(events)]):
        suffix = f"-{os.getpid()}-{len(stops)}"
        tables = {name: each.model_copy(update={"topic": name + suffix}) for name, each in job.tables.items()}
        for stop in stops:
            shop = Shop(job.model_copy(update={"tables": tables}), FolderRegistry(tmp_path / "schemas"))
            shop.produce(events[:stop], per_second=1e6)
        seen.append([value for name in ("orders", "payments") for value in _values(broker, name + suffix)])
    assert seen[0] == seen[1]
    assert len(seen[0]) == len(events)


def _values(broker: Broker, topic: str) -> list[bytes | None]:
    """Return the values of all partitions, one after the other, without schema ids."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "shop"})
    found: list[bytes | None] = []
    for partition in range(_PARTITIONS):
        end = consumer.get_watermark_offsets(TopicPartition(topic, partition))[1]
        consumer.assign([TopicPartition(topic, partition, 0)])
        while end > 0:
            (message,) = consumer.consume(1, 20)
            found.append((message.value() or b"")[5:])
            end -= 1
    consumer.close()
    return found
