"""The topics of a job: what it reads, what it writes, and the schemas it writes under."""

from __future__ import annotations

from dataclasses import dataclass

from rowkind.avro.registry import Registry
from rowkind.service.job.model import Job
from rowkind.service.job.registry import open_registry
from rowkind.service.kafka import topics
from rowkind.service.kafka.topics import SchemaIds, Topic
from rowkind.service.physical import PhysicalScan, PhysicalSink, walk


@dataclass(frozen=True)
class Connection:
    """The outside of a job: Kafka's settings under librdkafka's names, and the registry."""

    kafka: dict[str, str]
    registry: Registry


def connect(job: Job) -> Connection:
    """The connection of a job that has a `kafka` section."""
    assert job.kafka is not None, "the command line checks that a job to be run has a kafka section"
    return Connection(dict(job.kafka), open_registry(job))


def create(job: Job, sinks: list[PhysicalSink], at: Connection, *, sources: bool = False) -> list[str]:
    """Make the topics that are missing and that the job may make; their names.

    With `sources`, the topics of its tables as well, for a first try. Raises a ChangelogError.
    """
    wanted = [topic for sink in sinks if job.sinks[sink.name].create for topic in written(job, sink)]
    if sources:
        wanted += [Topic(scan.source.topic, job.parallelism) for sink in sinks for scan in _scans(sink)]
    return topics.create(at.kafka, {topic.name: topic for topic in wanted}.values())


def check(job: Job, sinks: list[PhysicalSink], at: Connection) -> list[str]:
    """Make sure that every topic is there and fits; advice on what is unusual. Raises a ChangelogError."""
    wanted = [topic for sink in sinks for topic in written(job, sink)]
    wanted += [Topic(scan.source.topic) for sink in sinks for scan in _scans(sink)]
    return topics.check(at.kafka, list({topic.name: topic for topic in wanted}.values()))


def register(sink: PhysicalSink, at: Connection) -> SchemaIds:
    """The ids under which a sink's keys and values are written. Raises a ChangelogError or a RegistryError."""
    return topics.register(at.registry, sink.topic, sink.value, sink.key_record)


def written(job: Job, sink: PhysicalSink) -> list[Topic]:
    """The topics that one sink writes to."""
    of = job.sinks[sink.name]
    wanted = [topics.sink_topic(sink.topic, sink.mode, of.partitions or job.parallelism, of.replication)]
    if sink.delivery == "exactly_once":
        wanted.append(topics.progress_topic(job.name, sink.name, job.parallelism, of.replication))
    if job.dead_letters.topic is not None:
        wanted.append(topics.dead_letter_topic(job.dead_letters.topic, of.replication))
    return wanted


def _scans(sink: PhysicalSink) -> list[PhysicalScan]:
    return [node for node in walk(sink) if isinstance(node, PhysicalScan)]
