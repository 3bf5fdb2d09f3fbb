"""How clients are set up: the job's librdkafka settings, and ours beneath and above them.

What only tunes stands beneath the user's settings and can be changed by them; what correctness rests on stands above.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from rowkind.service.kafka.errors import MissingTopicError, RefusedError, refuses, translate

Reply = TypeVar("Reply")

KafkaSettings = Mapping[str, str]
"""librdkafka settings by their own names, as the job has them."""

ANSWER_SECONDS = 10.0
"""How long a broker may take to answer a question before it counts as unreachable."""

_PAUSE_SECONDS = 0.05
_HEARSAY_SECONDS = 2.0
_LEADERLESS = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}

_CLIENT = {
    # librdkafka's own lines go to standard error past any logging. What matters of them comes as errors too, and is
    # told once and whole; `log_level: 6` among the job's settings brings the lines back.
    "log_level": 2,
}
_CONSUMER = {
    # A fetch at the end of a partition must not hold up the others on the same connection.
    "fetch.wait.max.ms": 5,
    # After the local queue was full for a moment, librdkafka rests for this long: 1000 by default, which cost
    # three quarters of the throughput.
    "fetch.queue.backoff.ms": 1,
    # What has been fetched beyond a batch's end is thrown away and fetched again by the next one. At 100,000 messages a
    # partition, librdkafka's default, that was as much as what was read, and half of what the broker had to do.
    "queued.min.messages": 5_000,
    "queued.max.messages.kbytes": 32768,
}
_CONSUMER_FIXED = {
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
}
_PRODUCER = {
    "compression.type": "lz4",
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 131_072,
    # How large a message may be is up to its topic, which says so: there is one place to set it.
    "message.max.bytes": 1_000_000_000,
}
_PRODUCER_FIXED = {
    "enable.idempotence": True,
    "acks": "all",
    # The Java clients' default, so that other producers and consumers find a key where they expect it.
    "partitioner": "murmur2_random",
    "delivery.report.only.error": True,
}


def servers(kafka: KafkaSettings) -> str:
    """The address as the user wrote it, for messages."""
    return kafka.get("bootstrap.servers", "(bootstrap.servers is not set)")


def consumer_settings(kafka: KafkaSettings) -> dict[str, Any]:
    """Settings of a consumer that reads assigned partitions and nothing that is not committed."""
    return {**_CLIENT, **_CONSUMER, "group.id": "rowkind", **kafka, **_CONSUMER_FIXED}


def producer_settings(kafka: KafkaSettings) -> dict[str, Any]:
    """Settings of an idempotent producer."""
    return {**_CLIENT, **_PRODUCER, **kafka, **_PRODUCER_FIXED}


def transactional_settings(kafka: KafkaSettings, transactional_id: str, timeout_ms: int) -> dict[str, Any]:
    """Settings of a producer that writes in transactions."""
    return {
        **producer_settings(kafka),
        "transactional.id": transactional_id,
        "transaction.timeout.ms": timeout_ms,
        "message.timeout.ms": min(timeout_ms, 300_000),
    }


def reach(kafka: KafkaSettings, seconds: float = ANSWER_SECONDS) -> AdminClient:
    """An admin client of brokers that answer. Raises UnreachableError or RefusedError, with the broker's own words."""
    complaints: list[KafkaError] = []
    try:
        settings: dict[str, Any] = {**_CLIENT, **kafka, "error_cb": complaints.append}
        client = AdminClient(settings)
    except (KafkaException, ValueError) as error:
        raise RefusedError(f"The kafka settings are not understood: {_text(error)}.") from None
    deadline = time.monotonic() + seconds
    while True:
        try:
            client.list_topics("__rowkind_is_anybody_there", timeout=max(0.1, min(1.0, deadline - time.monotonic())))
        except KafkaException as error:
            client.poll(0)
            refusal = next((complaint for complaint in complaints if refuses(complaint)), None)
            if refusal is not None or time.monotonic() > deadline:
                said = refusal or next(iter(complaints), error.args[0])
                raise translate(KafkaException(said), servers(kafka), "connecting") from None
        else:
            return client


def patiently(ask: Callable[[], Reply]) -> Reply:
    """The answer to a question that is asked again while partitions change their leader, as new ones do too."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in _LEADERLESS or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)


def heard(ask: Callable[[], Reply]) -> Reply:
    """The answer to a question about topics, asked again for a moment while one of them is not there.

    A topic that was just made is known to the controller, from which each broker hears of it by and by.
    Raises MissingTopicError.
    """
    deadline = time.monotonic() + _HEARSAY_SECONDS
    while True:
        try:
            return ask()
        except MissingTopicError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)


def count_partitions(client: Any, topic: str) -> int:
    """How many partitions a topic has, as any client sees it. Raises KafkaException, also where it is not there."""
    metadata = client.list_topics(topic, ANSWER_SECONDS).topics[topic]
    if metadata.error is not None:
        raise KafkaException(metadata.error)
    return len(metadata.partitions)


def _text(error: Exception) -> str:
    first = error.args[0] if error.args else error
    return first.str() if isinstance(first, KafkaError) else str(first)
