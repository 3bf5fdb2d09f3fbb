"""Replaces an old query with a new one whose result topics already have rows.

If the new query wrote to these topics from the start, every row of a retract topic would occur in the topic twice. So
the query first **fills** its state: it reads its source topics, and writes its result to a separate topic for each
sink, which has no other readers. The query reads up to the topics' ends at the time when it began, which is at least as
far as the old query ever read. Then the difference is written to the result topics in one transaction, so that they
have the same rows (`service.checkpoint.difference`). After that, the query writes to the result topics itself. A sink
without a topic has nothing to compare: it prints the complete result while the query fills its state.

The checkpoint's metadata says that the query is filling. This mark is removed after the difference has been written. If
a run is killed before that, the next run continues to fill, and compares the topics again.
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
from rowkind.service.physical.generation import is_generated
from rowkind.service.physical.graph import Graph
from rowkind.service.physical.node import topic_sinks
from rowkind.service.query.streaming import Deployment, writer

log = logging.getLogger("rowkind")


@dataclass(frozen=True)
class Amount:
    """How much a query reads to fill its state: the number of `rows`, and the topics that are incomplete (`begun`).

    Generated tables do not count.
    """

    rows: int
    begun: tuple[str, ...]

    @classmethod
    def of(cls, graph: Graph, kafka: KafkaSettings) -> Self:
        """Return how much a query would read, computed from the brokers' current offsets. Raises ChangelogError."""
        cluster = Cluster(kafka)
        topics_ = {topic: start for topic, start in starts(graph.scans).items() if not is_generated(topic)}
        begin = initial(cluster, topics_).at
        ends = cluster.ends(begin)
        return cls(
            sum(max(0, ends[at] - begin[at]) for at in begin), tuple(sorted({at[0] for at in begin if begin[at] > 0}))
        )

    @property
    def lacking(self) -> str:
        """A text that says which records a rebuild would lack; empty if it would lack none."""
        if not self.begun:
            return ""
        return f"not all records of {', '.join(self.begun)} can be read again: some were deleted, or `start` skips them"

    @property
    def warning(self) -> str:
        """A warning about topics that cannot be read completely; empty if there are none."""
        if not self.begun:
            return ""
        return f"{self.lacking}, so the results lose the rows that were computed from the other records"


@dataclass(frozen=True)
class CutOver:
    """The cut-over of one query. The query runs as `filling` until its state is full, and as `at` afterwards."""

    graph: Graph
    checkpoint: Checkpoint
    filling: Deployment
    at: Deployment

    def begin(self) -> Deployment:
        """Create the topics needed for filling, and return the deployment for filling. Raises ChangelogError."""
        kafka, job = self.at.connection.kafka, self.at.job
        sinks = topic_sinks(self.graph.sinks)
        results = Cluster(kafka).topics(sink.topic for sink in sinks).partitions
        wanted = []
        for sink in sinks:
            count = sum(topic == sink.topic for topic, _ in results)
            topic = topics.sink_topic(self.filling.topic(sink), sink.mode, count, job.sinks[sink.name].replication)
            wanted.append(replace(topic, config={**topic.config, "retention.ms": "-1"}))
        topics.create(kafka, wanted)
        if warning := Amount.of(self.graph, kafka).warning:
            log.warning("query %s: %s", self.at.name, warning)
        names = ", ".join(sink.topic for sink in sinks)
        log.info("query %s fills its state; until it has finished, nothing is written to %s", self.at.name, names)
        return self.filling

    def end(self) -> None:
        """Update the result topics so that they equal the query's result. Raises ChangelogError."""
        spec = writer(self.graph, self.at)
        take_over(spec)
        wanted = {sink.name: self.filling.topic(sink) for sink in topic_sinks(self.graph.sinks)}
        written = write_difference(spec, wanted, spec.transactional_id(0), self.at.connection.registry)
        self.checkpoint.filled()
        for sink in topic_sinks(self.graph.sinks):
            log.info("sink %s: topic %s was updated; changes written: %d", sink.name, sink.topic, written[sink.name])
        _delete(self.at.connection.kafka, list(wanted.values()))


def take_over(spec: WriterSpec) -> None:
    """Ensure that no earlier run still writes for this query, and that the earlier run's last writes are visible.

    Raises ChangelogError.
    """
    for partition in range(topics.partitions(spec.kafka, spec.progress_topic)):
        writing = TransactionalWriter(spec, partition)
        writing.sign()
        writing.discard()


def clear(job: Job, kafka: KafkaSettings, going_on: Collection[str]) -> None:
    """Delete the filling topics of a job's queries that will not continue to fill. Raises ChangelogError.

    The filling topics of queries that continue have one of the tokens `going_on` in their names.
    """
    pattern = re.compile(rf"{re.escape(job.name)}\.[^.]+\.[^.]+\.filling-(\w+)")
    found = {name: match[1] for name in topics.names(kafka) if (match := pattern.fullmatch(name))}
    _delete(kafka, [name for name, token in found.items() if token not in going_on])


def _delete(kafka: KafkaSettings, names: Sequence[str]) -> None:
    try:
        topics.delete(kafka, names)
    except ChangelogError as error:
        log.warning("topics %s are no longer needed, but cannot be deleted: %s", ", ".join(names), error)
