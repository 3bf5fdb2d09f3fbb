"""The topics of a job: what it reads, what it writes, and the schemas it writes under."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rowkind.avro.registry import Registry
from rowkind.operators.changelog import ChangelogMode
from rowkind.service.job.model import Job
from rowkind.service.job.registry import open_registry
from rowkind.service.kafka import topics
from rowkind.service.kafka.sink_formats import AsConnectJson, AsJson, Forms
from rowkind.service.kafka.topics import Topic
from rowkind.service.physical.node import PhysicalScan, PhysicalSink
from rowkind.service.physical.tree import walk
from rowkind.service.plan.pipeline import PlannedQuery

PlannedQueries = Mapping[str, PlannedQuery]
"""The plans of each query, by its name."""


@dataclass(frozen=True)
class Connection:
    """The outside of a job: Kafka's settings under librdkafka's names, and the registry."""

    kafka: dict[str, str]
    registry: Registry


def connect(job: Job) -> Connection:
    """The connection of a job that has a `kafka` section."""
    assert job.kafka is not None, "the command line checks that a job to be run has a kafka section"
    return Connection(job.brokers, open_registry(job))


def create(job: Job, queries: PlannedQueries, at: Connection, *, sources: bool = False) -> list[str]:
    """Make the topics that are missing and that the job may make; their names.

    With `sources`, the topics of its tables as well, for a first try. Raises a ChangelogError.
    """
    wanted = _written(job, queries, may=True)
    if sources:
        wanted += [topics.source_topic(name, mode, job.parallelism) for name, mode in _read(queries).items()]
    return topics.create(at.kafka, {topic.name: topic for topic in wanted}.values())


def check(job: Job, queries: PlannedQueries, at: Connection) -> list[str]:
    """Make sure that every topic is there and fits; advice on what is unusual. Raises a ChangelogError."""
    wanted = [*_written(job, queries, may=False), *(_as_it_should_be(*each) for each in _read(queries).items())]
    return topics.check(at.kafka, list({topic.name: topic for topic in wanted}.values()))


def register(sink: PhysicalSink, at: Connection) -> Forms:
    """How a sink's keys and values are written; the schemas of Avro are registered.

    Raises a ChangelogError or a RegistryError.
    """
    if sink.format == "json":
        form = AsConnectJson if sink.connect_schema else AsJson
        return Forms(form(sink.value), None if sink.key_record is None else form(sink.key_record))
    return topics.register(at.registry, sink.topic, sink.value, sink.key_record)


def _written(job: Job, queries: PlannedQueries, *, may: bool) -> list[Topic]:
    """The topics that the queries write to; with `may`, those of sinks whose topics the job may make."""
    wanted: list[Topic] = []
    for query, planned in queries.items():
        own = [(sink, job.sinks[sink.name]) for sink in planned.sinks if job.sinks[sink.name].create or not may]
        wanted += [
            topics.sink_topic(sink.topic, sink.mode, of.partitions or job.parallelism, of.replication)
            for sink, of in own
        ]
        copies = max((of.replication or 0 for _, of in own), default=0) or None
        if own:
            wanted.append(topics.progress_topic(job.name, query, job.parallelism, copies))
        if own and job.dead_letters.topic is not None:
            wanted.append(topics.dead_letter_topic(job.dead_letters.topic, copies))
    return wanted


def _as_it_should_be(name: str, mode: ChangelogMode) -> Topic:
    """A table's topic; whether it keeps rows that replace each other for ever is up to its owner."""
    return Topic(name) if mode == "upsert" else topics.source_topic(name, mode, 1)


def _read(queries: PlannedQueries) -> dict[str, ChangelogMode]:
    """The topics of the tables, and what their changes say."""
    scans = [node for query in queries.values() for sink in query.sinks for node in walk(sink)]
    return {node.source.topic: node.source.mode for node in scans if isinstance(node, PhysicalScan)}
