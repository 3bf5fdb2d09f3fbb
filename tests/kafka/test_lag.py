"""The lag of a query, measured on a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from rowkind.avro.registry import FolderRegistry
from rowkind.service.dev.broker import Broker
from rowkind.service.kafka.lag import Lag, LagMeter
from rowkind.service.physical.source_table import Start
from tests.clock import Clock
from tests.kafka.tables import Topic, order, scan, settings

pytestmark = pytest.mark.kafka

NOW = float(round(time.time()))
"""The current time, because brokers drop old records."""


@pytest.fixture
def clock() -> Clock:
    """A clock at NOW."""
    return Clock(NOW)


@pytest.fixture
def wide(broker: Broker, new_topic: Callable[..., str], schemas: FolderRegistry) -> Topic:
    """A topic of orders with two partitions."""
    return Topic(new_topic(2), broker, schemas)


@pytest.fixture
def meter(wide: Topic, clock: Clock) -> Iterator[LagMeter]:
    """A lag meter for these orders."""
    with closing(LagMeter(wide.spec(), f"{wide.name}.main", clock)) as made:
        yield made


def test_the_first_unread_record_says_since_when_a_partition_waits(wide: Topic, meter: LagMeter, clock: Clock) -> None:
    """Before the first batch all records are unread; a record's time is asked again only if the query has moved on."""
    assert meter.look(None) == {(wide.name, 0): Lag(0, 0.0, 0), (wide.name, 1): Lag(0, 0.0, 0)}
    send(wide, 0, NOW - 100, NOW - 60, NOW - 20)
    assert meter.look(None) == {(wide.name, 0): Lag(3, 100.0, 3), (wide.name, 1): Lag(0, 0.0, 0)}
    clock.now += 5
    send(wide, 1, NOW + 1)
    assert meter.look(at(wide, 1, 0)) == {(wide.name, 0): Lag(2, 65.0, 3), (wide.name, 1): Lag(1, 4.0, 1)}
    clock.now += 5
    assert meter.look(at(wide, 1, 1)) == {(wide.name, 0): Lag(2, 70.0, 3), (wide.name, 1): Lag(0, 0.0, 1)}


def test_many_records_of_one_partition_do_not_hide_another(wide: Topic, meter: LagMeter) -> None:
    """With a backlog in each partition, the age of each is known at the first look."""
    for partition, age in ((0, 500), (1, 300)):
        send(wide, partition, *(NOW - age + number / 1000 for number in range(5_000)))
    assert meter.look(None) == {(wide.name, 0): Lag(5_000, 500.0, 5_000), (wide.name, 1): Lag(5_000, 300.0, 5_000)}


def test_a_query_that_begins_at_the_end_has_nothing_behind_it(wide: Topic, clock: Clock) -> None:
    """A table that is read from the latest offsets lags only behind later records."""
    send(wide, 0, NOW - 100)
    spec = wide.spec(scan(wide.name, start=Start("latest")))
    with closing(LagMeter(spec, f"{wide.name}.main", clock)) as latest:
        assert latest.look(None)[wide.name, 0] == Lag(0, 0.0, 1)
        send(wide, 0, NOW - 50)
        assert latest.look(None)[wide.name, 0] == Lag(1, 50.0, 2)


def test_the_group_shows_how_far_the_query_is(wide: Topic, meter: LagMeter) -> None:
    """The consumer group has the offsets that the meter was given last, so that Kafka's tools show them."""
    meter.tell(at(wide, 7, 3))
    meter.tell(at(wide, 8, 3))
    group = {**settings(wide.broker), "group.id": f"{wide.name}.main"}
    with closing(Consumer(group)) as consumer:
        told = consumer.committed([TopicPartition(wide.name, partition) for partition in (0, 1)], 20)
    assert [each.offset for each in told] == [8, 3]


def at(topic: Topic, *offsets: int) -> dict[tuple[str, int], int]:
    """Return positions in the partitions of a topic."""
    return {(topic.name, partition): offset for partition, offset in enumerate(offsets)}


def send(topic: Topic, partition: int, *times: float) -> None:
    """Send a record for each of these times, in seconds of Unix time."""
    producer = Producer(settings(topic.broker))
    for number, at_time in enumerate(times):
        producer.produce(topic.name, topic.value(order(number)), partition=partition, timestamp=round(at_time * 1000))
    assert producer.flush(60) == 0


def test_a_transaction_that_is_open_holds_what_is_behind_it(wide: Topic, meter: LagMeter, clock: Clock) -> None:
    """Lag counts to the partition's end, and `held` is the age of the first record after the last stable offset."""
    send(wide, 1, NOW - 300)
    producer = Producer({**settings(wide.broker), "transactional.id": f"{wide.name}-held"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(wide.name, wide.value(order(1)), partition=1, timestamp=round((NOW - 200) * 1000))
    assert producer.flush(60) == 0
    send(wide, 1, *(NOW - 100 + number for number in range(50)))
    meter.look(at(wide, 0, 1))
    clock.now += 2
    assert meter.look(at(wide, 0, 1)) == {
        (wide.name, 0): Lag(0, 0.0, 0),
        (wide.name, 1): Lag(51, 202.0, 52, held=202.0),
    }
    assert meter.look(at(wide, 0, 0))[wide.name, 1] == Lag(52, 302.0, 52, held=202.0)
    clock.now += 2
    producer.abort_transaction(60)
    deadline = time.monotonic() + 60
    while (found := meter.look(at(wide, 0, 1))[wide.name, 1]).held:
        assert time.monotonic() < deadline, "the transaction is still open"
    # The end of the transaction is a record too.
    assert found.rows == 52


def test_a_transaction_that_ends_soon_holds_nothing(wide: Topic, meter: LagMeter, clock: Clock) -> None:
    """With short transactions one after the other, no partition counts as held."""
    producer = Producer({**settings(wide.broker), "transactional.id": f"{wide.name}-short"})
    producer.init_transactions(60)
    for _ in range(3):
        producer.begin_transaction()
        producer.produce(wide.name, wide.value(order(1)), partition=1)
        assert producer.flush(60) == 0
        assert meter.look(None)[wide.name, 1].held == 0.0
        producer.commit_transaction(60)
        clock.now += 2
    assert meter.look(None)[wide.name, 1].held == 0.0
