"""The driver's requests to the brokers for a source's partitions and their offsets.

A partition's end is its last stable offset. Records at or after that offset cannot be read until an open transaction
ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined] # it is exported by a name

from rowkind.service.kafka.clients import ANSWER_SECONDS, KafkaSettings, heard, patiently, reach, servers
from rowkind.service.kafka.errors import MissingTopicError, translate
from rowkind.service.kafka.offsets import At, Range


@dataclass(frozen=True)
class Topics:
    """The brokers' description of some topics: Kafka's id of each topic, and the partitions of all topics."""

    ids: Mapping[str, str]
    partitions: tuple[At, ...]


class Cluster:
    """Requests to the brokers. A request that fails raises ChangelogError within seconds; the caller may then retry."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self.kafka = kafka
        self._client: AdminClient | None = None

    def topics(self, names: Iterable[str]) -> Topics:
        """Return the named topics with their current partitions. Raises MissingTopicError."""
        wanted = sorted(names)
        return heard(lambda: self._topics(wanted))

    def present(self, names: Iterable[str]) -> Topics:
        """Return the named topics that exist, with their current partitions."""
        return self._topics(sorted(names), all_of_them=False)

    def _topics(self, names: list[str], *, all_of_them: bool = True) -> Topics:
        ids: dict[str, str] = {}
        partitions: list[At] = []
        for name, answer in self._admin.describe_topics(TopicCollection(names), **_PATIENCE).items():
            try:
                topic = result(answer)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    if not all_of_them:
                        continue
                    raise MissingTopicError(
                        f"Topic {name} does not exist at {servers(self.kafka)}. Create it with `rowkind topics "
                        f"create`, or correct its name."
                    ) from None
                raise translate(error, servers(self.kafka), f"looking for topic {name}") from None
            ids[name] = str(topic.topic_id)
            partitions += [(name, partition.id) for partition in topic.partitions]
        return Topics(ids, tuple(sorted(partitions)))

    def earliest(self, partitions: Iterable[At]) -> dict[At, int]:
        """Return the offset of each partition's first record, or of its next record if the partition is empty."""
        return self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def ends(self, partitions: Iterable[At]) -> dict[At, int]:
        """Return the last stable offset of each partition."""
        return self.ends_with_epochs(partitions)[0]

    def ends_with_epochs(self, partitions: Iterable[At]) -> tuple[dict[At, int], dict[At, int]]:
        """Return each partition's last stable offset, and, if it is known, the leader epoch."""
        found = self._found(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        epochs = {at: each.leader_epoch for at, each in found.items() if each.leader_epoch is not None}
        return {at: each.offset for at, each in found.items()}, epochs

    def written(self, partitions: Iterable[At]) -> dict[At, int]:
        """Return the offset after each partition's last record, including records of open transactions."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return self._offsets(partitions, latest, IsolationLevel.READ_UNCOMMITTED)

    def at_time(self, partitions: Iterable[At], timestamp_ms: int) -> dict[At, int]:
        """Return the offset of each partition's first record at or after `timestamp_ms`, or the partition's end."""
        wanted = tuple(partitions)
        found = self._offsets(wanted, OffsetSpec.for_timestamp(timestamp_ms))
        later = [at for at in wanted if found[at] < 0]
        return {**found, **(self.ends(later) if later else {})}

    def first_times(self, partitions: Iterable[At]) -> dict[At, int]:
        """Return the time of each partition's first record, in ms since the epoch. Empty partitions are left out."""
        found = self._found(partitions, OffsetSpec.for_timestamp(0))
        return {at: each.timestamp for at, each in found.items() if each.offset >= 0 and each.timestamp >= 0}

    def record_bytes(self, topic: str, partition: int, begin: int, end: int) -> float:
        """Return the mean size in bytes of the first few values in a range, or 0 if the range is empty."""
        from rowkind.service.kafka.fetch import Fetcher  # noqa: PLC0415 -- loads Arrow, which the first batch does not need

        few = {**self.kafka, **_FEW_BYTES}

        try:
            with closing(Fetcher(few)) as fetcher:
                part = Range(topic, partition, begin, min(end, begin + _FEW_RECORDS))
                chunks = list(fetcher.fetch([part], {topic: "earliest"}))
        except KafkaException as error:
            raise translate(error, servers(self.kafka), f"reading topic {topic}") from None
        found = [records for chunk in chunks for records in chunk]
        return float(sum(each.value.nbytes for each in found) / max(1, sum(map(len, found))))

    def _offsets(
        self,
        partitions: Iterable[At],
        wanted: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[At, int]:
        return {at: found.offset for at, found in self._found(partitions, wanted, isolation).items()}

    def _found(
        self,
        partitions: Iterable[At],
        wanted: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[At, Any]:
        question = {TopicPartition(*at): wanted for at in partitions}
        if not question:
            return {}
        names = ", ".join(sorted({at.topic for at in question}))

        def ask() -> dict[At, Any]:
            answers = self._admin.list_offsets(question, isolation_level=isolation, **_PATIENCE)
            found = {(at.topic, at.partition): result(answer) for at, answer in answers.items()}
            if any(each.offset == OFFSET_INVALID for each in found.values()):
                # A broker that is starting may leave a partition out of its answer, without an error.
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            return found

        try:
            return patiently(ask)
        except KafkaException as error:
            raise translate(error, servers(self.kafka), f"requesting the offsets of topic {names}") from None

    @property
    def _admin(self) -> AdminClient:
        if self._client is None:
            self._client = reach(self.kafka)
        return self._client


_FEW_RECORDS = 100
_FEW_BYTES = {"queued.max.messages.kbytes": "1024"}
_PATIENCE = {"request_timeout": ANSWER_SECONDS}


def result(answer: Future[Any]) -> Any:
    """Return the result of an admin client's future. Raises KafkaException, including when the result takes too long.

    The caller must keep a reference to the client until this function returns.
    """
    try:
        return answer.result(ANSWER_SECONDS + 1)
    except TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None  # noqa: SLF001 - librdkafka's own code
