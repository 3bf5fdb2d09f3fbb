# ruff: noqa: SLF001 - the client's own codes are spelled with an underscore
"""Errors between the service and Kafka, each with what to do about it.

ChangelogError
 ├── UnreachableError         no broker answers
 ├── RefusedError             a broker rejects the client: credentials, TLS or access rights
 ├── MissingTopicError        a topic does not exist
 ├── ReplacedTopicError       a topic was deleted and re-created after the checkpoint was written
 │    ├── TruncatedTopicError the last records of a partition are lost, and new records take their offsets
 │    └── RestartedTopicError either of these, in a job that rebuilds itself in this case
 ├── ClaimedTopicsError       another job writes a topic
 ├── UnfitTopicError          a topic's settings do not suit its use
 ├── UnfitSubjectError        the registry's schema for a topic is incompatible with the job's
 ├── LostOffsetsError         retention has deleted records that were not read yet
 ├── StalledReadError         a broker stopped delivering records that it had announced
 ├── UndecodableRowError      a record is not a row of its table, and the job tolerates no such records
 ├── AppendOnlyError          an append topic would get a retraction
 └── TransactionError         a batch could not be committed
      ├── FencedError         another run of the same job took over the transactional id
      ├── UnknownOutcomeError the broker did not report whether a commit took place
      ├── WriterLostError     the process that holds the producer is gone
      └── ContradictionError  a batch with the same number but other records was written before

`translate` maps confluent_kafka's exceptions to these errors.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException

from rowkind.errors import FAILED, REFUSED, UNREACHABLE, RowkindError


class ChangelogError(RowkindError):
    """A changelog could not be read or written. The message says everything that a user needs to know."""

    exit_code = REFUSED


class UnreachableError(ChangelogError):
    """No broker answers. Check that Kafka runs, the address, and the network between."""

    exit_code = UNREACHABLE
    retryable = True


class RefusedError(ChangelogError):
    """A broker refuses the client. Check the job's security settings and the access rights of its Kafka user."""


class MissingTopicError(ChangelogError):
    """A topic does not exist. Create it with `rowkind topics create`, or fix its name in the job."""


class ReplacedTopicError(ChangelogError):
    """A topic was deleted and re-created, so the checkpoint's offsets are meaningless. Rebuild the job's state."""

    def __init__(self, topic: str, how: str = "was deleted and made anew since the checkpoint was written") -> None:
        self.topic = topic
        super().__init__(f"Topic {topic} {how}. {self._then}")

    _then = (
        "What was read of the old one is still in state and results: `rowkind run --reset-state` builds both from what "
        "the topics hold now, and with `on_recreated: restart` in the table's `start` the job does so by itself."
    )


class RestartedTopicError(ReplacedTopicError):
    """A topic was replaced or truncated, and its table has `on_recreated: restart`. The job rebuilds itself."""

    _then = "As the job says, state and results are built from what the topics hold now."


class ClaimedTopicsError(ChangelogError):
    """Another job writes a result topic. Choose another topic, or take this one over."""

    def __init__(self, topics: Sequence[str], job: str, progress: str) -> None:
        self.topics, self.job = tuple(topics), job
        super().__init__(
            f"topic{'' if len(topics) == 1 else 's'} {', '.join(topics)}: job {job} writes there already, as its "
            f"progress topic {progress} says. Every row would be there twice.\n"
            f"Write to another topic. If job {job} was deleted or renamed, `rowkind topics release` with the file of "
            f"this job takes the topics from it; if it still runs, it stops then."
        )


class TruncatedTopicError(ReplacedTopicError):
    """A partition lost records that were read, and new ones take their offsets. Restore them, or rebuild the state."""

    def __init__(self, topic: str, partition: int, read: int, end: int) -> None:
        self.partition, self.read, self.end = partition, read, end
        how = truncated(partition, read, end)
        super().__init__(topic, f"{how}. Restore them from a replica or a backup, or do without them")


def truncated(partition: int, read: int, end: int) -> str:
    """Describe a topic with a partition that was read up to offset `read` but now ends at offset `end`."""
    return (
        f"has lost records that were read: partition {partition} was read up to offset {read}, and what lies from "
        f"offset {end} on is gone or another record, as after an unclean leader election or on a disk that was restored"
    )


class UnfitTopicError(ChangelogError):
    """A topic's settings do not suit its use. Change them, or choose another topic."""


class UnfitSubjectError(ChangelogError):
    """The registry's schema is incompatible with the job's. Change the query or the schema, or choose another topic."""


class StalledReadError(ChangelogError):
    """Announced records did not arrive. Check the brokers; the batch is read again after a restart."""

    exit_code = FAILED
    retryable = True


class AppendOnlyError(ChangelogError):
    """An append topic would get a retraction. Set the sink's mode to retract or upsert."""


class LostOffsetsError(ChangelogError):
    """Retention has deleted unread records. Increase the retention. Rebuild the state, or set `start.on_lost`."""

    def __init__(self, topic: str, partition: int, wanted: int, earliest: int) -> None:
        self.topic, self.partition, self.wanted, self.earliest = topic, partition, wanted, earliest
        super().__init__(
            f"Topic {topic}, partition {partition}: offset {wanted} was to be read next, but the earliest record that "
            f"is left has offset {earliest}; retention has deleted what lay between. The result would lack those rows: "
            f"set on_lost to earliest or latest for this table to go on without them, or build the result anew of what "
            f"is left, by `rowkind run --reset-state`."
        )


class UndecodableRowError(ChangelogError):
    """A record is not a row of its table. Fix the producer, or let the job send such records to a dead letter topic."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        self.topic, self.partition, self.offset, self.reason = topic, partition, offset, reason
        super().__init__(
            f"Topic {topic}, partition {partition}, offset {offset}: {reason}. "
            f"To go on past such records, let the job send them to a dead letter topic."
        )


class TransactionError(ChangelogError):
    """A batch could not be committed. It is written again, exactly once, after a restart."""

    exit_code = FAILED
    retryable = True


class FencedError(TransactionError):
    """Another process took over the transactional id. Check whether a second instance of the same job is running."""

    retryable = False


class UnknownOutcomeError(TransactionError):
    """It is unknown whether a commit took place. The next attempt reads the outcome from the progress topic."""


class WriterLostError(TransactionError):
    """The process that holds a producer has ended or cannot start. The batch is written again, exactly once."""


class ContradictionError(TransactionError):
    """A batch was written before with other records. The query restarts and replays the batch that was written."""

    def __init__(self, query: str, number: int) -> None:
        super().__init__(f"Batch {number} of query {query} was written before with other records: it is replayed.")


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
    """Whether a broker or its TLS layer rejected the client, so that waiting will not help."""
    return error.code() in _REFUSALS


def fences(error: KafkaError) -> bool:
    """Whether this producer was replaced by another one under the same transactional id."""
    return error.code() in _FENCED


def translate(failure: KafkaException, servers: str, doing: str) -> ChangelogError:
    """Translate a client's exception to an error for the user; `doing` names the attempt: "reading topic orders"."""
    error: KafkaError = failure.args[0]
    if refuses(error):
        return RefusedError(f"While {doing}: Kafka at {servers} refuses this client: {error.str()}.")
    if error.code() in _MISSING:
        return MissingTopicError(f"While {doing}: {error.str()}.")
    if error.code() in _TOO_LARGE:
        return UnfitTopicError(
            f"While {doing}: {error.str()}. A row is larger than its topic takes: raise the topic's max.message.bytes."
        )
    if fences(error):
        return FencedError(f"While {doing}: {error.str()}. Does a second run of this job exist?")
    return UnreachableError(
        f"While {doing}: no answer from Kafka at {servers}: {error.str()}. Check that Kafka runs, that "
        f"bootstrap.servers is right, and that this machine can reach the addresses that the brokers advertise."
    )
