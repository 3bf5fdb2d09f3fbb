"""A job's topics: the topics that it reads, the topics to which it writes, and the schemas of its result topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rowkind.avro.registry import Registry
from rowkind.service.job.model import Job
from rowkind.service.job.registry import open_registry
from rowkind.service.kafka import topics
from rowkind.service.kafka.sink_formats import AsConnectJson, AsJson, Forms
from rowkind.service.kafka.topics import Topic
from rowkind.service.physical.node import PhysicalScan, PhysicalSink
from rowkind.service.physical.source_table import SourceTable
from rowkind.service.physical.tree import walk
from rowkind.service.plan.pipeline import PlannedQuery

PlannedQueries = Mapping[str, PlannedQuery]
"""The plans of a job's queries, by query name."""


@dataclass(frozen=True)
class Connection:
    """A job's external systems: Kafka, as settings with librdkafka's names, and the registry."""

    kafka: dict[str, str]
    registry: Registry


def connect(job: Job) -> Connection:
    """Return the connection of a job that has a `kafka` section."""
    assert job.kafka is not None, "the command line has checked that the job has a `kafka` section"
    return Connection(job.brokers, open_registry(job))


def create(job: Job, queries: PlannedQueries, at: Connection, *, sources: bool = False) -> list[str]:
    """Create the missing topics that the job may create, and return their names.

    With `sources`, the topics of its tables are included, for a first try. Nothing is created if one of the other
    topics is missing or does not fit. Raises ChangelogError.
    """
    wanted = {topic.name: topic for topic in _written(job, queries, may=True)}
    if sources:
        wanted |= {
            name: topics.source_topic(name, source.mode, job.parallelism, truncates=source.truncates)
            for name, source in _read(queries).items()
        }
    topics.require(at.kafka, [topic for topic in _all(job, queries) if topic.name not in wanted])
    return topics.create(at.kafka, wanted.values())


def check(job: Job, queries: PlannedQueries, at: Connection) -> list[str]:
    """Check that every topic exists and fits, and return advice on unusual settings. Raises ChangelogError."""
    return topics.check(at.kafka, _all(job, queries))


def register(sink: PhysicalSink, at: Connection) -> Forms:
    """Return the formats of the keys and values of a sink with a topic. Avro schemas are registered.

    Raises ChangelogError or RegistryError.
    """
    if sink.format == "json":
        form = AsConnectJson if sink.connect_schema else AsJson
        return Forms(form(sink.value), None if sink.key_record is None else form(sink.key_record))
    return topics.register(at.registry, sink.topic, sink.value, sink.key_record)


def _all(job: Job, queries: PlannedQueries) -> list[Topic]:
    """Return every topic that the queries use."""
    wanted = [*_written(job, queries, may=False), *(_as_it_should_be(each) for each in _read(queries).values())]
    return [*{topic.name: topic for topic in wanted}.values()]


def _written(job: Job, queries: PlannedQueries, *, may: bool) -> list[Topic]:
    """Return the topics to which the queries write; if `may` is set, only the topics that the job may create."""
    wanted: list[Topic] = []
    for query, planned in queries.items():
        own = [(sink, job.sinks[sink.name]) for sink in planned.sinks if job.sinks[sink.name].create or not may]
        wanted += [
            topics.sink_topic(sink.topic, sink.mode, of.partitions or job.parallelism, of.replication)
            for sink, of in own
            if sink.to == "topic"
        ]
        copies = max((of.replication or 0 for _, of in own), default=0) or None
        if own:
            wanted.append(topics.progress_topic(job.name, query, job.parallelism, copies))
        if own and job.dead_letters.topic is not None:
            wanted.append(topics.dead_letter_topic(job.dead_letters.topic, copies))
    return wanted


def _as_it_should_be(source: SourceTable) -> Topic:
    """Return a table's topic with its required settings. The owner of an upsert topic chooses its retention."""
    return Topic(source.topic) if source.mode == "upsert" else topics.source_topic(source.topic, source.mode, 1)


def _read(queries: PlannedQueries) -> dict[str, SourceTable]:
    """Return one table for each topic of Kafka. If several tables read it, prefer one whose truncations count."""
    scans = [node for query in queries.values() for sink in query.sinks for node in walk(sink)]
    sources = [node.source for node in scans if isinstance(node, PhysicalScan) and node.source.generation is None]
    return {source.topic: source for source in sorted(sources, key=lambda each: each.truncates)}
