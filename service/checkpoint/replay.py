"""Replay: a query that starts from an older checkpoint repeats the batches written since then, exactly as they were.

    checkpoint: … 41 | recorded: 42 43 … 57, of which 57 may be incomplete | then: new batches

A query's result depends on how its records are divided into batches and on the times of the batches. These affect late
rows, processing-time lookups and windows, and arrival times. With different batches, the state would differ from the
result topics. The progress topic records every batch (`service.kafka.progress`). The source offers these batches first,
each with its records, number and time. Tasks do not rewrite batches that all tasks have written. If only some tasks
have written the last batch, the other tasks complete it.

If a batch is no longer recorded, the job rebuilds the state from its topics and writes the difference, provided that
the topics still have every record that they ever had (`ReplayError.rebuilds`). Otherwise, the query does not start,
because a rebuild would retract results that were computed from lost records. `--reset-state` requests this explicitly.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rowkind.service.checkpoint.checkpoint import Checkpoint
from rowkind.service.checkpoint.cut_over import Amount, take_over
from rowkind.service.kafka.clients import KafkaSettings
from rowkind.service.kafka.cluster import Cluster
from rowkind.service.kafka.offsets import Offset
from rowkind.service.kafka.progress import Progress, read, recorded
from rowkind.service.kafka.topics import partitions
from rowkind.service.physical.generation import is_generated
from rowkind.service.physical.graph import Graph
from rowkind.service.physical.node import topic_sinks
from rowkind.service.query.errors import ReplayError, StrangeCheckpointError
from rowkind.service.query.streaming import Deployment, replay_file, start, writer

log = logging.getLogger("rowkind")


@dataclass(frozen=True)
class QueryStart:
    """Starts a graph's query from a checkpoint that this run has claimed."""

    spark: SparkSession
    graph: Graph
    checkpoint: Checkpoint

    def __call__(self, at: Deployment) -> StreamingQuery:
        """Start the query. It first replays the batches that the checkpoint lacks.

        Raises ReplayError, StrangeCheckpointError, CheckpointFolderError or ChangelogError.
        """
        written, batches = self._behind(at)
        replay_file(at).write_text(json.dumps([each.to_json() for each in batches]), "utf-8")
        if batches:
            log.warning(
                "query %s: the checkpoint is older than the results; batches to replay: %d", at.name, len(batches)
            )
        at = replace(at, written=0 if written is None else written.batch)
        return start(self.spark, self.graph, self.checkpoint.folder, at)

    def last_written(self, at: Deployment) -> Progress | None:
        """Return the last written batch if the checkpoint lacks it, else None. Raises the same errors as a start."""
        written, batches = self._behind(at)
        return written if batches else None

    def _behind(self, at: Deployment) -> tuple[Progress | None, Sequence[Offset]]:
        """Return the last written batch, and the batches that the checkpoint lacks."""
        written, known = self._written(at), self.checkpoint.last()
        if written is None or (known is not None and known.number > written.batch):
            return written, ()
        first = 0 if known is None else known.number + 1
        found = [written]
        if first <= written.batch:
            spec = writer(self.graph, at)
            if spec.transactions:
                # An earlier run's transaction may still be open. Taking over ends it, so that its outcome is known.
                take_over(spec)
                written = self._written(at) or written
            found = [*recorded(at.connection.kafka, at.progress_topic), written]
        own = [each for each in _own(self.checkpoint, found) if each.batch >= first - 1]
        records = {each.batch: _end(each) for each in own if each.extent}
        if known is not None and known.number in records and not records[known.number].is_cut_as(known):
            if self.checkpoint.rests():
                raise StrangeCheckpointError(self.checkpoint.folder)
            self.checkpoint.undo()
            return self._behind(at)
        numbers = range(first, written.batch + 1)
        if missing := [number for number in numbers if number not in records]:
            raise self._forgotten(at, f"batch {missing[0]} is no longer recorded")
        batches = [records[number] for number in numbers]
        if batches:
            self._check(at, batches, [each for each in own if each.batch >= first])
        return written, batches

    def _check(self, at: Deployment, batches: Sequence[Offset], records: Sequence[Progress]) -> None:
        """Check that replaying the given batches reproduces the state that produced the results. Raises ReplayError."""
        kafka, sinks = at.connection.kafka, self.graph.sinks
        for each in records:
            if each.sinks and (others := sorted({sink.name for sink in sinks}.difference(each.sinks))):
                raise ReplayError(at.name, f"another query has since written to sink {', '.join(others)}")
        if at.filling and not any(partitions(kafka, at.topic(sink)) for sink in topic_sinks(sinks)):
            raise self._forgotten(at, "the result topics have since been updated")
        begin, end = batches[0].begin, batches[-1].at
        begin = {at: offset for at, offset in begin.items() if not is_generated(at[0])}
        for (topic, partition), earliest in Cluster(kafka).earliest(begin).items():
            if begin[topic, partition] < min(earliest, end[topic, partition]):
                raise ReplayError(
                    at.name,
                    f"they begin at offset {begin[topic, partition]} of topic {topic}, partition {partition}, but "
                    f"the earliest remaining record there has offset {earliest}",
                )

    def _forgotten(self, at: Deployment, why: str) -> ReplayError:
        """Return the error for a missing batch. It forbids a rebuild that would lose results of deleted records."""
        lacking = Amount.of(self.graph, at.connection.kafka).lacking
        return ReplayError(at.name, f"{why}, and {lacking}" if lacking else why, rebuilds=not lacking)

    def _written(self, at: Deployment) -> Progress | None:
        """Return the last progress written from this checkpoint."""
        own = _own(self.checkpoint, last_progress(at.connection.kafka, at.progress_topic))
        return max(own, key=attrgetter("batch"), default=None)


def last_progress(kafka: KafkaSettings, topic: str) -> list[Progress]:
    """Return the last progress of each of a query's tasks. Raises ChangelogError."""
    found = [read(kafka, topic, partition) for partition in range(partitions(kafka, topic))]
    return [each for each in found if each is not None]


def _own(checkpoint: Checkpoint, found: Iterable[Progress]) -> list[Progress]:
    identity = checkpoint.identity()
    return [each for each in found if each.checkpoint == identity]


def _end(written: Progress) -> Offset:
    """Return the end of a recorded batch. Earlier releases recorded the batch's number and time separately."""
    end = Offset.from_json(json.loads(written.extent))
    return end if end.number >= 0 else replace(end, number=written.batch, now=written.now)
