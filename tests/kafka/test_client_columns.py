"""The compiled library and confluent-kafka read and write the same records."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer

from rowkind.operators.columns.changes import binary
from rowkind.service.dev.broker import Broker
from rowkind.service.kafka import client_columns
from rowkind.service.kafka.client_columns import produce
from rowkind.service.kafka.fetch import Fetcher
from rowkind.service.kafka.offsets import Range
from rowkind.service.kafka.record import OneRecord
from tests.kafka.tables import settings

pytestmark = pytest.mark.kafka

Fields = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]
"""Value, key and headers."""


@pytest.fixture
def record_by_record(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function after whose call the library counts as missing."""
    return lambda: monkeypatch.setattr(client_columns, "_library", lambda: None)


def some(rng: random.Random) -> Fields:
    """Return a record, often with something unusual about it."""
    headers: list[tuple[str, bytes | None]] = [
        (rng.choice(["op", "a", "é", ""]), rng.choice([b"+I", b"", None, b"\0\xff"])) for _ in range(rng.randrange(4))
    ]
    size = rng.choice([0, 1, 40, 40, 40, 3_000, 60_000] if rng.random() < 0.02 else [0, 1, 40])
    value = None if rng.random() < 0.1 else rng.randbytes(size)
    key = None if rng.random() < 0.1 else rng.randbytes(rng.choice([0, 1, 8]))
    return value, key, headers or None


def fetched(broker: Broker, topics: list[str], *, whole: bool) -> dict[tuple[str, int], list[OneRecord]]:
    """Return all records of topics with two partitions."""
    fetcher = Fetcher(settings(broker), whole=whole)
    places = [(topic, partition) for topic in topics for partition in (0, 1)]
    ranges = [Range(topic, part, 0, fetcher.watermarks(topic, part)[1]) for topic, part in places]
    found: dict[tuple[str, int], list[OneRecord]] = {place: [] for place in places}
    for chunk in fetcher.fetch(ranges, dict.fromkeys(topics, "fail")):
        for records in chunk:
            for record in records.each:
                found[records.topic, record.partition].append(record)
    fetcher.close()
    return found


def test_the_library_is_compiled_where_a_compiler_is() -> None:
    """An installation compiles the library, so these tests compare two things."""
    assert client_columns.is_compiled() == (shutil.which("cc") is not None)


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "values"])
def test_both_read_the_same_records(
    broker: Broker, new_topic: Callable[..., str], record_by_record: Callable[[], None], *, whole: bool
) -> None:
    """Records with and without values, keys and headers, over aborted and open transactions, in two topics."""
    rng, topics = random.Random(7), [new_topic(2), new_topic(2)]
    producer: Any = Producer(settings(broker) | {"transactional.id": topics[0]})
    producer.init_transactions(30)
    sent: dict[tuple[str, int], list[Fields]] = {(topic, part): [] for topic in topics for part in (0, 1)}
    for number in range(6):
        producer.begin_transaction()
        for _ in range(700):
            topic, part, fields = rng.choice(topics), rng.randrange(2), some(rng)
            producer.produce(topic, fields[0], fields[1], part, headers=fields[2])
            if number % 3 < 2:
                sent[topic, part].append(fields)
        assert producer.flush(30) == 0
        producer.commit_transaction(30) if number % 3 < 2 else producer.abort_transaction(30)
    columns = fetched(broker, topics, whole=whole)
    if whole:
        for place, records in columns.items():
            assert [(each.value, each.key, list(each.headers) or None) for each in records] == sent[place]
    record_by_record()
    assert fetched(broker, topics, whole=whole) == columns


def test_both_write_the_same_records(
    broker: Broker, new_topic: Callable[..., str], record_by_record: Callable[[], None]
) -> None:
    """Values and keys with nulls and empty bytes, slices of larger arrays, chosen partitions, and headers by kind."""
    rng = random.Random(8)
    rows = [some(rng)[:2] for _ in range(3_000)]
    values, keys = binary([b"before", *(value for value, _ in rows)])[1:], binary([None, *(key for _, key in rows)])[1:]
    kinds, parts = np.arange(len(rows), dtype=np.int8) % 3, np.array([rng.randrange(2) for _ in rows], np.int32)
    topic, plain = new_topic(2), new_topic(2)
    producer = Producer(settings(broker))
    assert produce(producer, topic, values, keys, parts, ("op", [b"+I", b"\0", b""], kinds))
    assert produce(producer, plain, values, None, None, None)
    assert producer.flush(30) == 0
    record_by_record()
    assert not produce(producer, topic, values, keys, parts, None)
    found = fetched(broker, [topic, plain], whole=True)
    for part in (0, 1):
        wanted = [
            (value, key, (("op", [b"+I", b"\0", b""][kind]),))
            for (value, key), kind, own in zip(rows, kinds.tolist(), parts.tolist(), strict=True)
            if own == part
        ]
        assert [(each.value, each.key, each.headers) for each in found[topic, part]] == wanted
    every = [each for part in (0, 1) for each in found[plain, part]]
    assert sorted(str(each.value) for each in every) == sorted(str(value) for value, _ in rows)
    assert all(each.key is None and each.headers == () for each in every)


def test_a_full_queue_is_waited_for_and_an_error_is_raised(broker: Broker, new_topic: Callable[..., str]) -> None:
    """More records than the producer's queue holds are all sent; a partition that does not exist is an error."""
    topic = new_topic(1)
    producer = Producer(settings(broker) | {"queue.buffering.max.messages": "100"})
    values = pa.array([b"x"] * 5_000, pa.binary())
    produce(producer, topic, values, None, np.zeros(5_000, np.int32), None)
    assert producer.flush(30) == 0
    fetcher = Fetcher(settings(broker))
    assert fetcher.watermarks(topic, 0) == (0, 5_000)
    fetcher.close()
    with pytest.raises(KafkaException, match="UNKNOWN_PARTITION"):
        produce(producer, topic, values[:1], None, np.full(1, 9, np.int32), None)
