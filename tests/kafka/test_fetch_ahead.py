"""A fetcher reads one chunk ahead of its caller."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import closing
from threading import get_ident

import pytest
from confluent_kafka import Producer

from rowkind.service.dev.broker import Broker
from rowkind.service.kafka import fetch
from rowkind.service.kafka.errors import StalledReadError
from rowkind.service.kafka.fetch import Fetcher
from rowkind.service.kafka.offsets import Range
from rowkind.service.kafka.record import Records
from tests.kafka.tables import settings

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("both_readers", "small_chunks")]

CHUNK, RECORDS = 10, 35
SECONDS = 10.0


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a chunk have 10 records, or a few more."""
    monkeypatch.setattr(fetch, "_MOST_ROWS", CHUNK)


@pytest.fixture
def topic(broker: Broker, new_topic: Callable[..., str]) -> str:
    """Return a topic with 35 records in one partition."""
    name = new_topic(1)
    producer = Producer(settings(broker))
    for number in range(RECORDS):
        producer.produce(name, str(number).encode(), partition=0)
    assert producer.flush(30) == 0
    return name


def offsets(chunks: Iterable[list[Records]]) -> list[int]:
    """Return the offsets of all records."""
    return [offset for chunk in chunks for records in chunk for offset in records.offset.tolist()]


def test_the_next_chunk_is_read_before_it_is_needed(broker: Broker, topic: str) -> None:
    """While the caller keeps the first chunk, further records are read; all records come once and in order."""
    readers: list[int] = []

    def clock() -> float:
        readers.append(get_ident())
        return time.monotonic()

    with closing(Fetcher(settings(broker), clock)) as fetcher:
        chunks = fetcher.fetch([Range(topic, 0, 0, RECORDS)], {topic: "fail"})
        first = next(chunks)
        deadline = time.monotonic() + SECONDS
        while set(readers) <= {get_ident()}:
            assert time.monotonic() < deadline, "nothing was read ahead"
            time.sleep(0.01)
        assert CHUNK <= len(offsets([first])) < RECORDS
        assert offsets([first, *chunks]) == list(range(RECORDS))


def test_a_fetch_that_is_given_up_ends_at_once(broker: Broker, topic: str) -> None:
    """The thread stops waiting for records, and the next task asks for other offsets, earlier ones too."""
    with closing(Fetcher(settings(broker))) as fetcher:
        chunks = fetcher.fetch([Range(topic, 0, 20, RECORDS + 1_000)], {topic: "fail"})
        assert offsets([next(chunks)])[:CHUNK] == list(range(20, 20 + CHUNK))
        began = time.monotonic()
        chunks.close()
        assert time.monotonic() - began < SECONDS
        assert offsets(fetcher.fetch([Range(topic, 0, 3, 30)], {topic: "fail"})) == list(range(3, 30))


def test_an_error_ahead_reaches_the_caller_after_the_chunks_before_it(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that were read before the error are handed over first; afterwards the fetcher reads again."""
    monkeypatch.setattr(fetch, "_STALL_SECONDS", 1.0)
    with closing(Fetcher(settings(broker))) as fetcher:
        chunks = fetcher.fetch([Range(topic, 0, 0, RECORDS + 1_000)], {topic: "fail"})
        assert offsets([next(chunks)])[:CHUNK] == list(range(CHUNK))
        with pytest.raises(StalledReadError, match=f"at offset {RECORDS}, .* up to offset {RECORDS + 1_000}"):
            offsets(chunks)
        assert offsets(fetcher.fetch([Range(topic, 0, 0, RECORDS)], {topic: "fail"})) == list(range(RECORDS))
