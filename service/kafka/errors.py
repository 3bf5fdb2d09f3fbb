# ruff: noqa: SLF001 - the client's own error codes begin with an underscore
"""Errors in the use of Kafka, each with its remedy.

ChangelogError
 ├── UnreachableError         no broker answers
 ├── RefusedError             a broker rejects the client: credentials, TLS or permissions
 ├── MissingTopicError        a topic does not exist
 ├── ReplacedTopicError       a topic was deleted and re-created after the checkpoint was written
 │    ├── TruncatedTopicError a partition has lost its last records, and new records reuse their offsets
 │    └── RestartedTopicError a topic was replaced or truncated, and the job is set to rebuild itself
 ├── ClaimedTopicsError       another job writes to a topic
 ├── UnfitTopicError          a topic's settings do not suit its use
 ├── UnfitSubjectError        the registry's schema for a topic is incompatible with the job's
 ├── LostOffsetsError         retention has deleted records that were not read yet
 ├── StalledReadError         a broker stopped delivering records that it had announced
 ├── UndecodableRowError      a record cannot be decoded to a row, and the job does not tolerate such records
 ├── AppendOnlyError          the query retracts a row, but its sink's mode is append
 ├── PrinterLostError         the job's process does not log printed changes
 └── TransactionError         a batch could not be committed
      ├── FencedError         another run of the same job took over the transactional id
      ├── UnknownOutcomeError the broker did not report whether a commit took place
      ├── WriterLostError     the producer process exited or did not start
      └── ContradictionError  a batch with the same number but different records was already written

`translate` maps confluent_kafka's exceptions to these errors.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException

from rowkind.errors import FAILED, REFUSED, UNREACHABLE, RowkindError
from rowkind.quantities import plural


class ChangelogError(RowkindError):
    """A changelog could not be read or written. The message contains everything that a user needs to know."""

    exit_code = REFUSED


class UnreachableError(ChangelogError):
    """No broker answers. Check that Kafka is running, its address, and the network."""

    exit_code = UNREACHABLE
    retryable = True


class RefusedError(ChangelogError):
    """A broker rejected the client. Check the job's security settings and its Kafka user's permissions."""


class MissingTopicError(ChangelogError):
    """A topic does not exist. Create it with `rowkind topics create`, or fix its name in the job."""


class ReplacedTopicError(ChangelogError):
    """A topic was deleted and re-created, so the checkpoint's offsets are meaningless. Run with `--reset-state`."""

    def __init__(self, topic: str, how: str = "was deleted and re-created after the checkpoint was written") -> None:
        self.topic = topic
        super().__init__(f"Topic {topic} {how}. {self._then}")

    _then = (
        "State and results still contain the old records. To rebuild both from the current topics, use `rowkind run "
        "--reset-state`. With `on_recreated: restart` in the table's `start`, the job rebuilds them automatically."
    )


class RestartedTopicError(ReplacedTopicError):
    """A topic was replaced or truncated, and its table has `on_recreated: restart`. The job rebuilds itself."""

    _then = "The table has `on_recreated: restart`, so the job rebuilds state and results from the topics."


class ClaimedTopicsError(ChangelogError):
    """Another job writes to a result topic. Choose another topic, or take over this topic."""

    def __init__(self, topics: Sequence[str], job: str, progress: str) -> None:
        self.topics, self.job = tuple(topics), job
        super().__init__(
            f"{plural(len(topics), 'topic')} {', '.join(topics)}: already written by job {job}, according to "
            f"its progress topic {progress}. Every row would be written twice.\n"
            f"Write to another topic. If job {job} was deleted or renamed, run `rowkind topics release` with this "
            f"job's file to take the topics over. If the other job is still running, it then stops."
        )


class TruncatedTopicError(ReplacedTopicError):
    """A partition lost records that the job had read. Restore these records, or run with `--reset-state`."""

    def __init__(self, topic: str, partition: int, read: int, end: int) -> None:
        self.partition, self.read, self.end = partition, read, end
        how = truncated(partition, read, end)
        super().__init__(topic, f"{how}. Restore them from a replica or a backup, or continue without them")


def truncated(partition: int, read: int, end: int) -> str:
    """Describe the loss in a topic whose partition was read up to offset `read` but now ends at offset `end`."""
    return (
        f"has lost records that were read: partition {partition} was read up to offset {read}, but the records "
        f"starting at offset {end} are gone or have been replaced, as after an unclean leader election or a disk "
        "restore"
    )


class UnfitTopicError(ChangelogError):
    """A topic's settings do not suit its use. Change the settings, or use another topic."""


class UnfitSubjectError(ChangelogError):
    """The registry's schema is incompatible with the job's. Change the query or the schema, or choose another topic."""


class StalledReadError(ChangelogError):
    """Announced records did not arrive. Check the brokers; the batch is read again after a restart."""

    exit_code = FAILED
    retryable = True


class AppendOnlyError(ChangelogError):
    """A query retracts a row, but its sink's mode is append. Set the sink's mode to retract or upsert."""


class PrinterLostError(ChangelogError):
    """The job's process did not log printed changes. The query restarts, repeats the batch, and prints it again."""

    retryable = True


class LostOffsetsError(ChangelogError):
    """Retention has deleted unread records. Set `on_lost` in the table's `start`, or run with `--reset-state`."""

    def __init__(self, topic: str, partition: int, wanted: int, earliest: int) -> None:
        self.topic, self.partition, self.wanted, self.earliest = topic, partition, wanted, earliest
        super().__init__(
            f"Topic {topic}, partition {partition}: the next offset to be read is {wanted}, but the earliest remaining "
            f"record has offset {earliest}; retention has deleted the records in between. The result would lack these "
            f"rows. To continue without them, set `on_lost: earliest` or `latest` in the table's `start`. To rebuild "
            f"the result from the remaining records, use `rowkind run --reset-state`."
        )


class UndecodableRowError(ChangelogError):
    """A record cannot be decoded to a row of its table. Fix the producer, or set a topic in `dead_letters`."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        self.topic, self.partition, self.offset, self.reason = topic, partition, offset, reason
        super().__init__(
            f"Topic {topic}, partition {partition}, offset {offset}: {reason}. "
            f"To continue after such records, set a dead letter topic: `dead_letters: {{topic: …}}`."
        )


class TransactionError(ChangelogError):
    """A batch could not be committed. The batch is written again, exactly once, after a restart."""

    exit_code = FAILED
    retryable = True


class FencedError(TransactionError):
    """Another process took over the transactional id. Check whether a second instance of the same job is running."""

    retryable = False


class UnknownOutcomeError(TransactionError):
    """It is unknown whether a commit took place. The next attempt reads the outcome from the progress topic."""


class WriterLostError(TransactionError):
    """A producer process exited or did not start. The batch is written again, exactly once."""


class ContradictionError(TransactionError):
    """A batch was already written with different records. The query restarts and replays the batch as written."""

    def __init__(self, query: str, number: int) -> None:
        super().__init__(
            f"Batch {number} of query {query} was already written with different records. The query restarts and "
            f"replays the batch as written."
        )


_REFUSALS = {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_MISSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}
_FENCED = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}


def refuses(error: KafkaError) -> bool:
    """Return whether a broker or its TLS layer rejected the client, in which case retrying does not help."""
    return error.code() in _REFUSALS


def fences(error: KafkaError) -> bool:
    """Return whether another producer with the same transactional id has replaced this one."""
    return error.code() in _FENCED


def translate(failure: KafkaException, servers: str, doing: str) -> ChangelogError:
    """Translate a client's exception to a user-facing error. `doing`: what failed, such as "reading topic orders"."""
    error: KafkaError = failure.args[0]
    if refuses(error):
        return RefusedError(f"While {doing}: Kafka at {servers} refuses this client: {error.str()}.")
    if error.code() in _MISSING:
        return MissingTopicError(f"While {doing}: {error.str()}.")
    if error.code() in _TOO_LARGE:
        return UnfitTopicError(
            f"While {doing}: {error.str()}. A row is larger than its topic accepts: raise the topic's "
            f"max.message.bytes."
        )
    if fences(error):
        return FencedError(f"While {doing}: {error.str()}. Check whether a second instance of this job is running.")
    return UnreachableError(
        f"While {doing}: no answer from Kafka at {servers}: {error.str()}. Check that Kafka is running, that "
        f"bootstrap.servers is right, and that this machine can reach the addresses that the brokers advertise."
    )
