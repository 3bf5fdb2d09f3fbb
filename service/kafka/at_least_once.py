"""At-least-once writing for upsert topics, without transactions: a task ends when its messages are acknowledged.

A batch that is rewritten after a crash repeats its upserts and deletes. A consumer that keeps the last value of each
key is not affected, provided that the repeated batch is identical. The progress record, which says where the batch
begins and ends, is therefore written before the results.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from rowkind.service.kafka.clients import count_partitions, producer_settings, servers
from rowkind.service.kafka.errors import translate
from rowkind.service.kafka.progress import BatchPartition, Progress
from rowkind.service.kafka.record_builder import RecordBuilder, push, send
from rowkind.service.kafka.spec import WriterSpec


class _Deliveries:
    """A producer, with the partition counts of its topics and the first delivery failure."""

    def __init__(self, spec: WriterSpec) -> None:
        self.spec = spec
        self._failure: KafkaError | None = None
        self.producer: Any = Producer({**producer_settings(spec.kafka), "on_delivery": self._report})
        topics = spec.topics(transactions=False)
        self.partitions = {topic: count_partitions(self.producer, topic) for topic in topics}

    def _report(self, error: KafkaError | None, _message: object) -> None:
        self._failure = self._failure or error

    def flush(self, seconds: float) -> None:
        """Wait up to `seconds` for all acknowledgements. Raises KafkaException if a message was not delivered."""
        left = self.producer.flush(seconds)
        if self._failure is not None:
            raise KafkaException(self._failure)
        if left:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - librdkafka's own code


_kept: dict[tuple[str, str], _Deliveries] = {}


def write(spec: WriterSpec, outgoing: RecordBuilder) -> None:
    """Write the messages and wait for their acknowledgement. After a ChangelogError, the task must be retried."""
    topics = outgoing.topics or [str(spec.dead_letter_topic)]
    with _delivering(spec, f"writing to {', '.join(topics)}") as deliveries:
        send(deliveries.producer, spec, outgoing, deliveries.partitions, reported=True)


def record(spec: WriterSpec, batch_partition: BatchPartition) -> None:
    """Write the progress of a query without exactly-once sinks. Raises ChangelogError as `write` does."""
    push_progress(spec, Progress.of(spec, batch_partition))


def push_progress(spec: WriterSpec, after: Progress) -> None:
    """Write a progress record and wait until readers can see it. Raises ChangelogError as `write` does."""
    topic = spec.progress_topic
    with _delivering(spec, f"writing to {topic}") as deliveries:
        push(deliveries.producer, topic, after.to_bytes(), after.key, after.partition)


@contextmanager
def _delivering(spec: WriterSpec, doing: str) -> Iterator[_Deliveries]:
    """Yield a producer. When the context ends, wait until the brokers have acknowledged the producer's messages."""
    cache = (servers(spec.kafka), spec.query)
    deliveries = _kept.pop(cache, None)
    try:
        if deliveries is None or deliveries.spec != spec:
            deliveries = _Deliveries(spec)
        yield deliveries
        deliveries.flush(spec.transaction_timeout_ms / 1000)
    except KafkaException as error:
        raise translate(error, servers(spec.kafka), doing) from None
    _kept[cache] = deliveries
