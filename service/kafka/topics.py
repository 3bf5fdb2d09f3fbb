"""A job's topics and their schemas in the registry: created on request, checked at every start."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined] # exported, but not by `__all__`
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicMetadata,
)

from rowkind.avro.errors import ResolutionError, UnknownSubjectError
from rowkind.avro.registry import Registry
from rowkind.avro.resolve import plan as resolution
from rowkind.avro.schema import Record
from rowkind.operators.changelog import ChangelogMode
from rowkind.service.kafka.clients import ANSWER_SECONDS, KafkaSettings, heard, reach, servers
from rowkind.service.kafka.cluster import Cluster, result
from rowkind.service.kafka.errors import MissingTopicError, UnfitSubjectError, UnfitTopicError, translate
from rowkind.service.kafka.sink_formats import AsAvro, Forms

PROGRESS = ".progress"
"""The suffix of every progress topic's name."""

_KEPT: Mapping[str, str] = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""The settings of a topic that keeps every change indefinitely."""


@dataclass(frozen=True)
class Topic:
    """A topic as the job needs it. If `replication` is None, the brokers' default applies."""

    name: str
    partitions: int = 1
    replication: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)


def sink_topic(name: str, form: ChangelogMode, partitions: int = 1, replication: int | None = None) -> Topic:
    """Return a result topic with the settings for its mode.

    An upsert topic is compacted: only the last row of each key counts. A retract topic keeps every change indefinitely,
    because any change may belong to a row that is still in the result. An append topic has the brokers' retention.
    """
    config: dict[ChangelogMode, Mapping[str, str]] = {
        "append": {"cleanup.policy": "delete"},
        "retract": _KEPT,
        "upsert": {"cleanup.policy": "compact"},
    }
    return Topic(name, partitions, replication, config[form])


def source_topic(name: str, mode: ChangelogMode, partitions: int, *, truncates: bool = False) -> Topic:
    """Return a table's topic. An upsert topic is compacted, because only the last row of each key counts.

    With `truncates`, a TRUNCATE of the database becomes an event without a key. A compacted topic does not accept this
    event, and only a topic with a single partition orders the event among all other changes. So the topic has one
    partition and keeps every change indefinitely.
    """
    if truncates:
        return Topic(name, 1, None, _KEPT)
    return Topic(name, partitions, None, {"cleanup.policy": "compact" if mode == "upsert" else "delete"})


def progress_topic(job: str, query: str, tasks: int, replication: int | None = None) -> Topic:
    """Return a query's progress topic: one partition for every task of a batch, kept short by eager compaction."""
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(1 << 20),
        "segment.ms": "3600000",
        "min.cleanable.dirty.ratio": "0.1",
        "delete.retention.ms": "60000",
    }
    return Topic(progress_name(job, query), tasks, replication, config)


def progress_name(job: str, query: str) -> str:
    """Return the name of a query's progress topic."""
    return f"{job}.{query}{PROGRESS}"


def filling_name(job: str, query: str, sink: str, token: str) -> str:
    """Return the name of a sink's temporary topic while the query fills its state. `token` makes the name unique."""
    return f"{job}.{query}.{sink}.filling-{token}"


def group_name(job: str, query: str) -> str:
    """Return the name of the consumer group that shows a query's lag."""
    return f"{job}.{query}"


def dead_letter_topic(name: str, replication: int | None = None) -> Topic:
    """Return a dead letter topic, which has the brokers' default retention."""
    return Topic(name, 1, replication, {"cleanup.policy": "delete"})


def create(kafka: KafkaSettings, topics: Iterable[Topic]) -> list[str]:
    """Create the missing topics and return their names. Add missing partitions to existing progress topics.

    Raises ChangelogError.
    """
    admin, wanted = reach(kafka), {topic.name: topic for topic in topics}
    # Create only missing topics: an attempt to create an existing topic requires a permission that a job may lack.
    present = admin.list_topics(timeout=ANSWER_SECONDS).topics
    for name in wanted.keys() & present.keys():
        if name.endswith(PROGRESS):
            _widen(kafka, admin, wanted[name])
    made: list[str] = []
    new = [
        NewTopic(topic.name, topic.partitions, topic.replication or -1, config=dict(topic.config))
        for topic in wanted.values()
        if topic.name not in present
    ]
    answers = admin.create_topics(new, operation_timeout=ANSWER_SECONDS) if new else {}
    for name, answer in answers.items():
        try:
            result(answer)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                continue  # Another client has just created it.
            if error.args[0].code() in _UNFIT:
                raise UnfitTopicError(f"Topic {name} cannot be created: {error.args[0].str()}.") from None
            raise translate(error, servers(kafka), f"creating topic {name}") from None
        made.append(name)
    _await(admin, made)
    return made


def delete(kafka: KafkaSettings, done_with: Iterable[str]) -> None:
    """Delete the given topics; missing topics are ignored. Raises ChangelogError."""
    admin, wanted = reach(kafka), list(done_with)
    for name, answer in admin.delete_topics(wanted, operation_timeout=ANSWER_SECONDS).items() if wanted else ():
        try:
            result(answer)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise translate(error, servers(kafka), f"deleting topic {name}") from None


def names(kafka: KafkaSettings) -> list[str]:
    """Return the names of all topics. Raises ChangelogError."""
    return list(reach(kafka).list_topics(timeout=ANSWER_SECONDS).topics)


def partitions(kafka: KafkaSettings, name: str) -> int:
    """Return how many partitions a topic has, or 0 if it does not exist. Raises ChangelogError."""
    # List all topics: a request for one topic by its name may create it.
    present = reach(kafka).list_topics(timeout=ANSWER_SECONDS).topics
    return len(present[name].partitions) if name in present else 0


def with_records(kafka: KafkaSettings, of: Collection[str]) -> list[str]:
    """Return those of the given topics that exist and have records. Raises ChangelogError."""
    if not of:
        return []
    present = reach(kafka).list_topics(timeout=ANSWER_SECONDS).topics
    cluster = Cluster(kafka)
    all_of_them = [(name, number) for name in of if name in present for number in present[name].partitions]
    begin, end = cluster.earliest(all_of_them), cluster.ends(all_of_them)
    return sorted({at[0] for at in all_of_them if end[at] > begin[at]})


def _widen(kafka: KafkaSettings, admin: AdminClient, topic: Topic) -> None:
    if partitions(kafka, topic.name) >= topic.partitions:
        return
    more = [NewPartitions(topic.name, topic.partitions)]
    try:
        result(admin.create_partitions(more, operation_timeout=ANSWER_SECONDS)[topic.name])
    except KafkaException as error:
        raise translate(error, servers(kafka), f"adding partitions to topic {topic.name}") from None


def _await(admin: AdminClient, names: Sequence[str]) -> None:
    """Wait until the brokers' metadata includes the new topics.

    Their metadata lags slightly behind the controller's.
    """
    deadline = time.monotonic() + ANSWER_SECONDS
    while set(names) - admin.list_topics(timeout=ANSWER_SECONDS).topics.keys() and time.monotonic() < deadline:
        admin.poll(0.05)


def check(kafka: KafkaSettings, topics: Sequence[Topic]) -> list[str]:
    """Check that the topics exist and suit their use. Return advice about settings that work but are unusual.

    Raises MissingTopicError, which names all missing topics, or UnfitTopicError.
    """
    return _advice(require(kafka, topics), topics)


def require(kafka: KafkaSettings, topics: Sequence[Topic]) -> AdminClient:
    """Check that the topics exist and suit their use, without their settings. Return the client that was used.

    Raises MissingTopicError, which names all missing topics, or UnfitTopicError.
    """
    admin = reach(kafka)

    def ask() -> Mapping[str, TopicMetadata]:
        present = admin.list_topics(timeout=ANSWER_SECONDS).topics
        if missing := [topic.name for topic in topics if topic.name not in present]:
            raise MissingTopicError(
                f"No such topic: {', '.join(missing)} (at {servers(kafka)}). `rowkind topics create` creates the "
                f"topics of a job."
            )
        return present

    present = heard(ask)
    for topic in topics:
        count = len(present[topic.name].partitions)
        if topic.name.endswith(PROGRESS) and count < topic.partitions:
            raise UnfitTopicError(
                f"The progress topic {topic.name} has too few partitions: it has {count}, but needs "
                f"{topic.partitions}, one per task. Add partitions to the topic."
            )
    return admin


def settings_of(kafka: KafkaSettings, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the topics' settings. Topics whose settings this user cannot see are left out. Raises ChangelogError."""
    return _settings(reach(kafka), names) if names else {}


def _settings(admin: AdminClient, names: Sequence[str]) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    answers = admin.describe_configs(resources, request_timeout=ANSWER_SECONDS) if resources else {}
    found: dict[str, dict[str, str]] = {}
    for name, (_, answer) in zip(names, answers.items(), strict=True):
        # A job without permission to see a topic's settings may still be allowed to use the topic.
        with suppress(KafkaException):
            found[name] = {setting: entry.value for setting, entry in result(answer).items()}
    return found


def _advice(admin: AdminClient, topics: Sequence[Topic]) -> list[str]:
    settings = _settings(admin, [topic.name for topic in topics])
    advice: list[str] = []
    for topic in topics:
        if topic.name not in settings:
            continue
        actual = settings[topic.name]["cleanup.policy"]
        if "delete" in actual and topic.config.get("retention.ms") == "-1":
            kept = {name: settings[topic.name].get(name, "-1") for name in ("retention.ms", "retention.bytes")}
            if limits := [f"{name}={value}" for name, value in kept.items() if value != "-1"]:
                advice.append(
                    f"topic {topic.name} has {', '.join(limits)}, so it will lose rows that are still in the result: "
                    "set -1, or `on_lost: ignore` in the sink if these rows may be lost"
                )
        wanted = topic.config.get("cleanup.policy", actual)
        if wanted == "compact" and "compact" not in actual:
            advice.append(
                f"topic {topic.name} has cleanup.policy={actual}: rows that do not change for long will be lost"
            )
        if wanted == "delete" and "compact" in actual:
            advice.append(
                f"topic {topic.name} has cleanup.policy={actual}: compaction will remove changes that readers need"
            )
    return advice


def register(registry: Registry, topic: str, value: Record, key: Record | None) -> Forms:
    """Register a topic's schemas as `<topic>-value` and `<topic>-key`, and return the topic's Avro formats.

    A schema that differs from the registered one becomes its next version, if readers that use the registered schema
    can read the new rows too. Otherwise, UnfitSubjectError is raised. A RegistryError may also be raised.
    """
    return Forms(
        AsAvro(register_schema(registry, f"{topic}-value", value)),
        None if key is None else AsAvro(register_schema(registry, f"{topic}-key", key)),
    )


def register_schema(registry: Registry, subject: str, record: Record) -> int:
    """Register a schema under its subject, with the same rules as `register`, and return the schema's id."""
    try:
        present = registry.latest(subject)
    except UnknownSubjectError:
        return registry.register(subject, record)
    try:
        resolution(record, present)
    except ResolutionError as error:
        raise UnfitSubjectError(
            f"Subject {subject} has a schema that cannot read the rows that the job would write: {error}. The "
            f"registered columns are ({_columns(present)}), the job's columns are ({_columns(record)}). Change the "
            "query's columns, or write to another topic."
        ) from None
    return registry.register(subject, record)


def _columns(record: Record) -> str:
    return ", ".join(
        f"{field.name} {field.type.sql}{'' if field.type.nullable else ' NOT NULL'}" for field in record.fields
    )


_UNFIT = {KafkaError.INVALID_REPLICATION_FACTOR, KafkaError.INVALID_PARTITIONS, KafkaError.INVALID_CONFIG}
