"""Replay: a query that starts from an older checkpoint does the batches again that were written since, as they were.

    checkpoint: … 41 | on record: 42 43 … 57, of which 57 may be written in part | then: new batches

What a query computes depends on how its records are cut into batches and on the times of these: late rows, lookups and
windows of processing time, arrivals. With other batches its state would differ from what the result topics hold. The
progress topic has every batch (`service.kafka.progress`). The source offers these first, each with its records, number
and time. Tasks write nothing of a batch that all have written, and complete the last one.

If a batch is not on record any more, the job rebuilds the state from its topics and writes the difference, as long as
these hold every record that they ever held (`ReplayError.rebuilds`). Otherwise the query does not start, because a
rebuild would retract what was computed from records that are gone. `--reset-state` does so on request.
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
from rowkind.service.physical.graph import Graph
from rowkind.service.query.errors import ReplayError, StrangeCheckpointError
from rowkind.service.query.streaming import Deployment, replay_file, start, writer

log = logging.getLogger("rowkind")


@dataclass(frozen=True)
class QueryStart:
    """Starts the query of a graph from a checkpoint, which this run has claimed."""

    spark: SparkSession
    graph: Graph
    checkpoint: Checkpoint

    def __call__(self, at: Deployment) -> StreamingQuery:
        """Start it; it replays first what the checkpoint lacks.

        Raises ReplayError, StrangeCheckpointError, CheckpointFolderError or a ChangelogError.
        """
        written, batches = self._behind(at)
        replay_file(at).write_text(json.dumps([each.to_json() for each in batches]), "utf-8")
        if batches:
            log.warning(
                "query %s: the checkpoint is older than the results; %d batches are replayed", at.name, len(batches)
            )
        at = replace(at, written=0 if written is None else written.batch)
        return start(self.spark, self.graph, self.checkpoint.folder, at)

    def last_written(self, at: Deployment) -> Progress | None:
        """The last batch that was written, if the checkpoint does not know it. Raises as a call does."""
        written, batches = self._behind(at)
        return written if batches else None

    def _behind(self, at: Deployment) -> tuple[Progress | None, Sequence[Offset]]:
        """The last batch that was written, and the batches that the checkpoint lacks."""
        written, known = self._written(at), self.checkpoint.last()
        if written is None or (known is not None and known.number > written.batch):
            return written, ()
        first = 0 if known is None else known.number + 1
        found = [written]
        if first <= written.batch:
            spec = writer(self.graph, at)
            if spec.transactions:
                # A transaction of an earlier run may be about to end: afterwards it is known how.
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
            raise self._forgotten(at, f"batch {missing[0]} is not on record any more")
        batches = [records[number] for number in numbers]
        if batches:
            self._check(at, batches, [each for each in own if each.batch >= first])
        return written, batches

    def _check(self, at: Deployment, batches: Sequence[Offset], records: Sequence[Progress]) -> None:
        """Make sure that these batches lead to the state that the results come from. Raises ReplayError."""
        kafka, sinks = at.connection.kafka, self.graph.sinks
        for each in records:
            if each.sinks and (others := sorted({sink.name for sink in sinks}.difference(each.sinks))):
                raise ReplayError(at.name, f"another query has written sink {', '.join(others)} since then")
        if at.filling and not any(partitions(kafka, at.topic(sink)) for sink in sinks):
            raise self._forgotten(at, "the result topics have been brought up to date since then")
        begin, end = batches[0].begin, batches[-1].at
        for (topic, partition), earliest in Cluster(kafka).earliest(begin).items():
            if begin[topic, partition] < min(earliest, end[topic, partition]):
                raise ReplayError(
                    at.name,
                    f"they begin at offset {begin[topic, partition]} of topic {topic}, partition {partition}, the "
                    f"earliest record of which has offset {earliest}",
                )

    def _forgotten(self, at: Deployment, why: str) -> ReplayError:
        """Rebuilt from topics that are not whole, results would lack what only the records that are gone gave."""
        lacking = Amount.of(self.graph, at.connection.kafka).lacking
        return ReplayError(at.name, f"{why}, and {lacking}" if lacking else why, rebuilds=not lacking)

    def _written(self, at: Deployment) -> Progress | None:
        """What was written last from this checkpoint."""
        own = _own(self.checkpoint, last_progress(at.connection.kafka, at.progress_topic))
        return max(own, key=attrgetter("batch"), default=None)


def last_progress(kafka: KafkaSettings, topic: str) -> list[Progress]:
    """What each task of a query has written last. Raises a ChangelogError."""
    found = [read(kafka, topic, partition) for partition in range(partitions(kafka, topic))]
    return [each for each in found if each is not None]


def _own(checkpoint: Checkpoint, found: Iterable[Progress]) -> list[Progress]:
    identity = checkpoint.identity()
    return [each for each in found if each.checkpoint == identity]


def _end(written: Progress) -> Offset:
    """The end of a batch on record; an earlier release had its number and time beside it."""
    end = Offset.from_json(json.loads(written.extent))
    return end if end.number >= 0 else replace(end, number=written.batch, now=written.now)
