"""A new query in the place of an old one, whose result is in the topics already.

Written again from the start, every row of a retract topic would be there twice. So the query **fills** its state first:
it reads what its topics hold, and writes its result to a topic of its own for each sink, which nobody else reads. Once
it has read what there was when it began, at least as far as the old one ever came, the result topics are brought to the
same rows by the difference (`service.checkpoint.difference`), in one transaction. From there on it writes to them
itself.

The note in the checkpoint says that it fills. It loses its mark after the difference was written, and a run that is
killed before fills on and compares again.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Self

from rowkind.service.checkpoint.checkpoint import Checkpoint
from rowkind.service.checkpoint.difference import write_difference
from rowkind.service.job.model import Job
from rowkind.service.kafka import topics
from rowkind.service.kafka.clients import KafkaSettings
from rowkind.service.kafka.cluster import Cluster
from rowkind.service.kafka.errors import ChangelogError
from rowkind.service.kafka.planning import initial
from rowkind.service.kafka.spec import WriterSpec, starts
from rowkind.service.kafka.transaction import TransactionalWriter
from rowkind.service.physical.graph import Graph
from rowkind.service.query.streaming import Deployment, writer

log = logging.getLogger("rowkind")


@dataclass(frozen=True)
class Amount:
    """What a query has to read to fill its state: so many rows; `begun` are the topics that it does not read whole."""

    rows: int
    begun: tuple[str, ...]

    @classmethod
    def of(cls, graph: Graph, kafka: KafkaSettings) -> Self:
        """By the offsets that the brokers have now. Raises a ChangelogError."""
        cluster = Cluster(kafka)
        begin = initial(cluster, starts(graph.scans)).at
        ends = cluster.ends(begin)
        return cls(
            sum(max(0, ends[at] - begin[at]) for at in begin), tuple(sorted({at[0] for at in begin if begin[at] > 0}))
        )

    @property
    def lacking(self) -> str:
        """What a rebuild lacks, nothing if it lacks nothing."""
        if not self.begun:
            return ""
        return f"not every record of {', '.join(self.begun)} can be read again: some are deleted, or `start` skips them"

    @property
    def warning(self) -> str:
        """What to know of topics that are not read whole, nothing if they are."""
        if not self.begun:
            return ""
        return f"{self.lacking}, so the results lose what was computed from the other records"


@dataclass(frozen=True)
class CutOver:
    """Of one query. `filling` is how it runs until it is full, and `at` how it does afterwards."""

    graph: Graph
    checkpoint: Checkpoint
    filling: Deployment
    at: Deployment

    def begin(self) -> Deployment:
        """How the query runs while it fills; the topics that it needs for that are there. Raises a ChangelogError."""
        kafka, job = self.at.connection.kafka, self.at.job
        results = Cluster(kafka).topics(sink.topic for sink in self.graph.sinks).partitions
        wanted = []
        for sink in self.graph.sinks:
            count = sum(topic == sink.topic for topic, _ in results)
            topic = topics.sink_topic(self.filling.topic(sink), sink.mode, count, job.sinks[sink.name].replication)
            wanted.append(replace(topic, config={**topic.config, "retention.ms": "-1"}))
        topics.create(kafka, wanted)
        if warning := Amount.of(self.graph, kafka).warning:
            log.warning("query %s: %s", self.at.name, warning)
        names = ", ".join(sink.topic for sink in self.graph.sinks)
        log.info("query %s fills its state; until that is done, nothing is written to %s", self.at.name, names)
        return self.filling

    def end(self) -> None:
        """Bring the result topics to what the query has found. Raises a ChangelogError."""
        spec = writer(self.graph, self.at)
        take_over(spec)
        wanted = {sink.name: self.filling.topic(sink) for sink in self.graph.sinks}
        written = write_difference(spec, wanted, spec.transactional_id(0), self.at.connection.registry)
        self.checkpoint.filled()
        for sink in self.graph.sinks:
            log.info(
                "sink %s: topic %s was brought up to date by %d changes", sink.name, sink.topic, written[sink.name]
            )
        _delete(self.at.connection.kafka, list(wanted.values()))


def take_over(spec: WriterSpec) -> None:
    """See that no earlier run writes for this query any more, and that what it wrote last can be read.

    Raises a ChangelogError.
    """
    for partition in range(topics.partitions(spec.kafka, spec.progress_topic)):
        writing = TransactionalWriter(spec, partition)
        writing.sign()
        writing.discard()


def clear(job: Job, kafka: KafkaSettings, going_on: Collection[str]) -> None:
    """Delete the topics of queries of a job that filled their states and will not go on. Raises a ChangelogError.

    Those that do have a token in the names of theirs.
    """
    pattern = re.compile(rf"{re.escape(job.name)}\.[^.]+\.[^.]+\.filling-(\w+)")
    found = {name: match[1] for name in topics.names(kafka) if (match := pattern.fullmatch(name))}
    _delete(kafka, [name for name, token in found.items() if token not in going_on])


def _delete(kafka: KafkaSettings, names: Sequence[str]) -> None:
    try:
        topics.delete(kafka, names)
    except ChangelogError as error:
        log.warning("topics %s are needed no more and cannot be deleted: %s", ", ".join(names), error)
