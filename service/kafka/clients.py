"""The settings of Kafka clients, and requests that are retried until the brokers are ready.

The settings are the job's librdkafka settings, merged with Rowkind's own. Rowkind's tuning settings are defaults that
the job may override. Settings that correctness depends on always take precedence.
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
"""librdkafka settings by name, as written in the job file."""

ANSWER_SECONDS = 10.0
"""How long a broker may take to answer a request before the broker counts as unreachable."""

_PAUSE_SECONDS = 0.05
_HEARSAY_SECONDS = 2.0
_LEADERLESS = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}

_CLIENT = {
    # librdkafka writes its own log lines to standard error, bypassing all logging. Important messages are also raised
    # as errors and reported once, in full. `log_level: 6` in the job's settings restores these log lines.
    "log_level": 2,
}
_CONSUMER = {
    # A fetch at the end of a partition must not delay other fetches on the same connection.
    "fetch.wait.max.ms": 5,
    # librdkafka pauses for this many ms when its local queue is full. The default of 1000 reduced throughput by three
    # quarters.
    "fetch.queue.backoff.ms": 1,
    # Records fetched beyond a batch's end are discarded and fetched again by the next batch. With librdkafka's default
    # of 100,000 messages per partition, this doubled the fetched volume and the broker's work.
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
    # The topic limits the message size and rejects larger messages. A second limit in the client could only contradict
    # the topic's.
    "message.max.bytes": 1_000_000_000,
}
_PRODUCER_FIXED = {
    "enable.idempotence": True,
    "acks": "all",
    # The partitioner that Java clients use by default, so that every producer sends a key to the same partition.
    "partitioner": "murmur2_random",
    "delivery.report.only.error": True,
}


def servers(kafka: KafkaSettings) -> str:
    """Return the broker address as written by the user, for use in messages."""
    return kafka.get("bootstrap.servers", "(bootstrap.servers is not set)")


def consumer_settings(kafka: KafkaSettings) -> dict[str, Any]:
    """Return the settings of a consumer that reads only committed records of assigned partitions."""
    return {**_CLIENT, **_CONSUMER, "group.id": "rowkind", **kafka, **_CONSUMER_FIXED}


def producer_settings(kafka: KafkaSettings) -> dict[str, Any]:
    """Return the settings of an idempotent producer."""
    return {**_CLIENT, **_PRODUCER, **kafka, **_PRODUCER_FIXED}


def transactional_settings(kafka: KafkaSettings, transactional_id: str, timeout_ms: int) -> dict[str, Any]:
    """Return the settings of a transactional producer."""
    return {
        **producer_settings(kafka),
        "transactional.id": transactional_id,
        "transaction.timeout.ms": timeout_ms,
        "message.timeout.ms": min(timeout_ms, 300_000),
    }


def reach(kafka: KafkaSettings, seconds: float = ANSWER_SECONDS) -> AdminClient:
    """Return an admin client once the brokers answer. Raises UnreachableError or RefusedError with Kafka's message."""
    complaints: list[KafkaError] = []
    try:
        settings: dict[str, Any] = {**_CLIENT, **kafka, "error_cb": complaints.append}
        client = AdminClient(settings)
    except (KafkaException, ValueError) as error:
        raise RefusedError(f"The kafka settings are invalid: {_text(error)}.") from None
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
    """Call `ask` and return its result, retrying while a partition has no leader or its leader changes."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in _LEADERLESS or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)


def heard(ask: Callable[[], Reply]) -> Reply:
    """Call `ask` and return its result, retrying for 2 s while a topic appears to be missing.

    The controller knows a new topic immediately; the other brokers learn of it with a delay.
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
    """Return a topic's number of partitions, as `client` sees it.

    Raises KafkaException, including for a missing topic.
    """
    metadata = client.list_topics(topic, ANSWER_SECONDS).topics[topic]
    if metadata.error is not None:
        raise KafkaException(metadata.error)
    return len(metadata.partitions)


def _text(error: Exception) -> str:
    first = error.args[0] if error.args else error
    return first.str() if isinstance(first, KafkaError) else str(first)
