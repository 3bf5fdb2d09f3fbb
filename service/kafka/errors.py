# ruff: noqa: SLF001 - the client's own codes are spelled with an underscore
"""What can go wrong between the service and Kafka, each with what to do about it.

ChangelogError
 ├── UnreachableError         no broker answers
 ├── RefusedError             a broker answers and says no: credentials, TLS or rights
 ├── MissingTopicError        a topic is not there
 ├── ReplacedTopicError       a topic was deleted and made anew under a checkpoint
 │    ├── TruncatedTopicError its last records are gone, and others take their offsets
 │    └── RestartedTopicError either of these, and the job starts anew then
 ├── ClaimedTopicsError       another job writes a topic
 ├── UnfitTopicError          a topic is there with settings that do not suit it
 ├── UnfitSubjectError        the registry holds another schema for a topic than the job has
 ├── LostOffsetsError         retention has deleted records that were not read yet
 ├── StalledReadError         a broker stopped delivering records that it had announced
 ├── UndecodableRowError      a record is no row of its table, and the job tolerates none such
 ├── AppendOnlyError          an append topic was given a retraction
 └── TransactionError         a batch could not be committed
      ├── FencedError         another run of the same job took the transactional id over
      ├── UnknownOutcomeError the broker did not say whether a commit took place
      ├── WriterLostError     the process that holds the producer is gone
      └── ContradictionError  a batch with the same number and other records was written before

`translate` maps confluent_kafka's exceptions to these at the edge.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException

from rowkind.errors import FAILED, REFUSED, UNREACHABLE, RowkindError


class ChangelogError(RowkindError):
    """A changelog could not be read or written. The message is all that a user needs to see."""

    exit_code = REFUSED


class UnreachableError(ChangelogError):
    """No broker answers. Check that Kafka runs, the address, and the network between."""

    exit_code = UNREACHABLE
    retryable = True


class RefusedError(ChangelogError):
    """A broker refuses us. Check the security settings of the job and the rights of its user."""


class MissingTopicError(ChangelogError):
    """A topic is not there. Create it, `rowkind topics create` does, or mend its name in the job."""


class ReplacedTopicError(ChangelogError):
    """A topic was deleted and made anew, so that the checkpoint's offsets mean nothing. Rebuild what is made of it."""

    def __init__(self, topic: str, how: str = "was deleted and made anew since the checkpoint was written") -> None:
        self.topic = topic
        super().__init__(f"Topic {topic} {how}. {self._then}")

    _then = (
        "What was read of the old one is still in state and results: `rowkind run --reset-state` builds both from what "
        "the topics hold now, and with `on_recreated: restart` in the table's `start` the job does so by itself."
    )


class RestartedTopicError(ReplacedTopicError):
    """The same, and the job says that it is to be rebuilt then."""

    _then = "As the job says, state and results are built from what the topics hold now."


class ClaimedTopicsError(ChangelogError):
    """Another job writes a result topic. Name another topic, or take this one over."""

    def __init__(self, topics: Sequence[str], job: str, progress: str) -> None:
        self.topics, self.job = tuple(topics), job
        super().__init__(
            f"topic{'' if len(topics) == 1 else 's'} {', '.join(topics)}: job {job} writes there already, as its "
            f"progress topic {progress} says. Every row would be there twice.\n"
            f"Write to another topic. If job {job} was deleted or renamed, `rowkind topics release` with the file of "
            f"this job takes the topics from it; if it still runs, it stops then."
        )


class TruncatedTopicError(ReplacedTopicError):
    """A partition has lost records that were read, so that new ones take their offsets. Rebuild, or restore them."""

    def __init__(self, topic: str, partition: int, read: int, end: int) -> None:
        self.partition, self.read, self.end = partition, read, end
        how = truncated(partition, read, end)
        super().__init__(topic, f"{how}. Restore them from a replica or a backup, or do without them")


def truncated(partition: int, read: int, end: int) -> str:
    """What has become of a topic whose partition was read up to an offset and has the records up to `end` alone."""
    return (
        f"has lost records that were read: partition {partition} was read up to offset {read}, and what lies from "
        f"offset {end} on is gone or another record, as after an unclean leader election or on a disk that was restored"
    )


class UnfitTopicError(ChangelogError):
    """A topic's settings do not suit what it is for. Change them, or name another topic."""


class UnfitSubjectError(ChangelogError):
    """The registry's schema differs from the job's. Change the query or the schema, or name another topic."""


class StalledReadError(ChangelogError):
    """Announced records did not come. Look at the brokers; the batch is read again after a restart."""

    exit_code = FAILED
    retryable = True


class AppendOnlyError(ChangelogError):
    """A row was to be taken back from an append topic. Give the sink the mode retract or upsert."""


class LostOffsetsError(ChangelogError):
    """Records that were to be read are gone. Lengthen retention; rebuild, or set `start.on_lost`."""

    def __init__(self, topic: str, partition: int, wanted: int, earliest: int) -> None:
        self.topic, self.partition, self.wanted, self.earliest = topic, partition, wanted, earliest
        super().__init__(
            f"Topic {topic}, partition {partition}: offset {wanted} was to be read next, but the earliest record that "
            f"is left has offset {earliest}; retention has deleted what lay between. The result would lack those rows: "
            f"set on_lost to earliest or latest for this table to go on without them, or build the result anew of what "
            f"is left, by `rowkind run --reset-state`."
        )


class UndecodableRowError(ChangelogError):
    """A record is no row of its table. Mend the producer, or let the job send such records to a dead letter topic."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        self.topic, self.partition, self.offset, self.reason = topic, partition, offset, reason
        super().__init__(
            f"Topic {topic}, partition {partition}, offset {offset}: {reason}. "
            f"To go on past such records, let the job send them to a dead letter topic."
        )


class TransactionError(ChangelogError):
    """A batch could not be committed. It is written again after a restart, once."""

    exit_code = FAILED
    retryable = True


class FencedError(TransactionError):
    """Another process took over the transactional id. Look for a second run of the same job."""

    retryable = False


class UnknownOutcomeError(TransactionError):
    """Nobody knows whether a commit took place. The next attempt asks the progress topic."""


class WriterLostError(TransactionError):
    """The process that holds a producer ended or cannot start. The batch is written again, once."""


class ContradictionError(TransactionError):
    """A batch was written with other records. The query starts again and replays the batch that was written."""

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
    """Whether a broker, or its TLS, said no to us: waiting will not help."""
    return error.code() in _REFUSALS


def fences(error: KafkaError) -> bool:
    """Whether this producer was replaced by another one under the same transactional id."""
    return error.code() in _FENCED


def translate(failure: KafkaException, servers: str, doing: str) -> ChangelogError:
    """What a client's exception means to a user; `doing` says what was tried, as in "reading topic orders"."""
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
