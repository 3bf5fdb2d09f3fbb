"""Exactly-once writing: for each batch and partition, one Kafka transaction that includes the progress.

librdkafka cannot distinguish a late commit of an earlier transaction from a commit of the current one, because it does
not implement KIP-890. So the producer is discarded after any error or timeout. The next producer with the same
transactional id fences requests that are still in flight and aborts an open transaction. It then reads the outcome from
the progress topic.
"""

from __future__ import annotations

from typing import Any, Literal

from confluent_kafka import KafkaError, KafkaException, Producer

from rowkind.quantities import plural
from rowkind.service.kafka import progress
from rowkind.service.kafka.clients import ANSWER_SECONDS, count_partitions, servers, transactional_settings
from rowkind.service.kafka.errors import (
    ChangelogError,
    ContradictionError,
    FencedError,
    MissingTopicError,
    RefusedError,
    TransactionError,
    UnfitTopicError,
    UnknownOutcomeError,
    translate,
)
from rowkind.service.kafka.progress import BatchPartition, Progress
from rowkind.service.kafka.record_builder import RecordBuilder, push, send
from rowkind.service.kafka.spec import WriterSpec

Outcome = Literal["committed", "skipped"]

_TRIALS = 3
_HOPELESS = (RefusedError, MissingTopicError, UnfitTopicError)
"""Errors that would recur on every attempt."""


class TransactionalWriter:
    """A producer with one transactional id, and the last progress that its partition has committed."""

    def __init__(self, spec: WriterSpec, partition: int) -> None:
        """Fence earlier producers of this id, abort their transaction, and read the progress. Raises ChangelogError."""
        self.spec = spec
        self._partition = partition
        transactional_id = spec.transactional_id(partition)
        settings = transactional_settings(spec.kafka, transactional_id, spec.transaction_timeout_ms)
        self._producer: Any = Producer(settings)
        try:
            self._producer.init_transactions(2 * ANSWER_SECONDS)
            topics = spec.topics(transactions=True)
            self._partitions = {topic: count_partitions(self._producer, topic) for topic in topics}
        except KafkaException as error:
            raise translate(error, servers(spec.kafka), f"opening transactional id {transactional_id}") from None
        self._progress = progress.read(spec.kafka, spec.progress_topic, partition)
        if self._progress is not None and self._progress.run > spec.run:
            raise FencedError(
                f"A later run of this job has taken over {_topics(spec)}, so this run can no longer write to it. Run "
                f"only one instance of a job at a time."
            )

    def write(self, batch_partition: BatchPartition, outgoing: RecordBuilder) -> Outcome:
        """Commit `outgoing` together with its progress. A batch that is already committed is skipped.

        Raises KafkaException, after which this writer must not be used again, or ContradictionError.
        """
        if self._progress is not None and self._progress.covers(batch_partition):
            if self._progress.contradicts(batch_partition):
                raise ContradictionError(self.spec.query, batch_partition.batch)
            return "skipped"
        after = Progress.of(self.spec, batch_partition)
        self._producer.begin_transaction()
        send(self._producer, self.spec, outgoing, self._partitions, reported=False)
        push(self._producer, self.spec.progress_topic, after.to_bytes(), after.key, self._partition)
        self._producer.commit_transaction(self.spec.transaction_timeout_ms / 1000)
        self._progress = after
        return "committed"

    def sign(self) -> None:
        """Write the current progress again under this run's name, so that earlier runs can no longer write.

        Raises ChangelogError.
        """
        before = self._progress or Progress.of(self.spec, BatchPartition("", -1, self._partition))
        after = before.signed(self.spec)
        try:
            self._producer.begin_transaction()
            push(self._producer, self.spec.progress_topic, after.to_bytes(), after.key, self._partition)
            self._producer.commit_transaction(self.spec.transaction_timeout_ms / 1000)
        except KafkaException as error:
            raise _meaning(self.spec, error) from None

    def discard(self) -> None:
        """Drop the producer without any further request to the brokers."""
        self._producer.purge()
        self._producer = None


_writers: dict[tuple[str, str], TransactionalWriter] = {}


def write_once(spec: WriterSpec, batch_partition: BatchPartition, outgoing: RecordBuilder) -> tuple[Outcome, int]:
    """Write `outgoing` exactly once, however earlier attempts ended. Return the outcome and the number of retries.

    Producers are kept in the process. TransactionError is raised after three failed attempts, any other ChangelogError
    immediately.
    """
    cache = (servers(spec.kafka), spec.transactional_id(batch_partition.partition))
    failure: KafkaException | None = None
    for trial in range(_TRIALS):
        writer = _writers.pop(cache, None)
        if writer is None or writer.spec != spec:
            writer = TransactionalWriter(spec, batch_partition.partition)
        try:
            outcome = writer.write(batch_partition, outgoing)
        except KafkaException as error:
            writer.discard()
            failure = error
            meant = _meaning(spec, error)
            if isinstance(meant, _HOPELESS):
                raise meant from None
        else:
            _writers[cache] = writer
            return outcome, trial
    assert failure is not None, "a successful trial returns from the loop"
    raise _meaning(spec, failure) from None


def _topics(spec: WriterSpec) -> str:
    """Return a transaction's topics as text for messages."""
    topics = spec.topics(transactions=True)
    return f"{plural(max(1, len(topics)), 'topic')} {', '.join(topics) or spec.dead_letter_topic}"


def _meaning(spec: WriterSpec, failure: KafkaException) -> ChangelogError:
    doing = f"committing to {_topics(spec)}"
    meant = translate(failure, servers(spec.kafka), doing)
    if isinstance(meant, (FencedError, *_HOPELESS)):
        return meant
    error: KafkaError = failure.args[0]
    if error.code() == KafkaError._TIMED_OUT:  # noqa: SLF001 - librdkafka's own codes have an underscore
        return UnknownOutcomeError(f"While {doing}: it is unknown whether the commit took place: {error.str()}.")
    if error.code() == KafkaError.INVALID_TIMESTAMP:
        return TransactionError(
            f"While {doing}: {error.str()}. The clocks of this machine and the broker differ by more than the topic's "
            f"message.timestamp.after.max.ms and message.timestamp.before.max.ms allow. Correct the clock."
        )
    return TransactionError(f"While {doing}: {error.str()}.")
