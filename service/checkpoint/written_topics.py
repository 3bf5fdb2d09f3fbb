"""Compares the topics to which a query writes with their recorded state, to detect results that have lost rows.

The file `rowkind.topics.json` in the checkpoint records the state of each result topic and of the progress topic when
the query last began or ended. Each start compares the topics with this record. A thread of a running job compares them
every two seconds. A loss is repaired by a rebuild of the query, which writes the difference between the topic and the
result. Without a rebuild, the query stops, or continues with `on_lost: ignore`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Self

from rowkind.service.checkpoint.checkpoint import Checkpoint
from rowkind.service.checkpoint.cut_over import Amount
from rowkind.service.checkpoint.forgotten_deletes import ForgottenDeletes, forgotten_deletes, replaced_tables
from rowkind.service.job.model import Job
from rowkind.service.job.sink import OnLostResult
from rowkind.service.kafka.clients import KafkaSettings
from rowkind.service.kafka.cluster import Cluster
from rowkind.service.kafka.errors import ChangelogError
from rowkind.service.kafka.offsets import Offset
from rowkind.service.kafka.topic_record import TopicRecord, topic_records
from rowkind.service.kafka.topics import progress_name
from rowkind.service.machine.periodic import meanwhile
from rowkind.service.physical.graph import Graph
from rowkind.service.physical.node import topic_sinks
from rowkind.service.physical.source_table import SourceTable
from rowkind.service.query.errors import LostProgressError, LostResultError

_EVERY_SECONDS = 2.0
_LAST_SECONDS = 1.0
"""The maximum wait at the end, in seconds, for a check in progress."""

log = logging.getLogger("rowkind")


@dataclass
class WrittenTopics:
    """The topics of one query.

    - `progress`: its progress topic. `on_lost`: the job's setting for each result topic, by topic name.
    - `requested`: a rebuild was requested for this start, whatever the job file says.
    - `accepted`: the losses of topics with `on_lost: ignore`, by topic name.
    """

    query: str
    graph: Graph
    kafka: KafkaSettings
    checkpoint: Checkpoint
    progress: str
    on_lost: Mapping[str, OnLostResult]
    requested: bool = False
    accepted: dict[str, str] = field(default_factory=dict)
    _before: dict[str, TopicRecord] = field(default_factory=dict)
    _seen: dict[str, str] = field(default_factory=dict)
    _harmed: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._cluster = Cluster(self.kafka)
        self._keeps_all = {sink.topic: sink.mode != "append" for sink in topic_sinks(self.graph.sinks)}

    @classmethod
    def of(
        cls, job: Job, query: str, graph: Graph, kafka: KafkaSettings, checkpoint: Checkpoint, *, requested: bool
    ) -> Self:
        """Return the topics of a job's query, checked against the record unless the query is filling its state.

        Raises the errors of `judge`, or ChangelogError.
        """
        on_lost = {sink.topic: job.sinks[sink.name].on_lost for sink in topic_sinks(graph.sinks)}
        progress = progress_name(job.name, query)
        found = cls(query, graph, kafka, checkpoint, progress, on_lost, requested=requested)
        contents = checkpoint.contents()
        if contents is None or not contents.filling:
            found.begin()
        # The request at the start does not apply to later losses.
        found.requested = False
        return found

    @property
    def tables(self) -> list[SourceTable]:
        """The source tables from whose topics compaction may remove deletes."""
        return replaced_tables(self.graph)

    def begin(self) -> None:
        """Compare the topics with their record, and record them. Raises the errors of `judge`, or ChangelogError."""
        self._before = self.checkpoint.topics()
        now = topic_records(self._cluster, self._names)
        self._harmed = self._harms(now)
        self.judge()
        self._note(now, self.checkpoint.noted_ms())

    def renew(self) -> None:
        """Record the topics after they have been updated. Raises ChangelogError."""
        self._note(topic_records(self._cluster, self._names), self.checkpoint.noted_ms())

    def end(self) -> None:
        """Record the state in which the query leaves its topics, if Kafka answers."""
        with suppress(ChangelogError):
            now = topic_records(self._cluster, self._names)
            if self._before and not self._harms(now):
                self._note(now, time.time() * 1000)

    def look(self) -> None:
        """Compare the topics with their earlier state. A loss counts if it is found twice in a row (`judge`)."""
        if not self._before:
            return
        with suppress(ChangelogError):
            before = self._before
            now = topic_records(self._cluster, self._names)
            found = self._harms(now)
            self._harmed = {name: harm for name, harm in found.items() if name in self._seen}
            self._seen = found
            if not found and before is self._before:
                self._before = now

    def judge(self) -> None:
        """Raise or log the losses found.

        Raises LostProgressError for the progress topic, and LostResultError for a result topic unless its setting is
        `ignore`.
        """
        harmed, self._harmed = self._harmed, {}
        if harm := harmed.pop(self.progress, ""):
            raise self._unknown(harm)
        ignored = {name: harm for name, harm in harmed.items() if self.on_lost[name] == "ignore"}
        if len(ignored) < len(harmed):
            raise self._lost({name: harm for name, harm in harmed.items() if name not in ignored})
        for name, harm in ignored.items():
            log.warning("query %s: topic %s %s; the topic is left as it is (`on_lost: ignore`)", self.query, name, harm)
            self.accepted[name] = harm
            self._before.pop(name, None)

    def forgotten(self, position: Offset | None) -> list[ForgottenDeletes]:
        """Return the tables that may lack deletes made after the query had read up to `position`.

        Raises ChangelogError.
        """
        if position is None:
            return []
        read_last = max(position.now, self.checkpoint.noted_ms())
        return list(forgotten_deletes(self.graph, self._cluster, position.at, read_last))

    def _unknown(self, harm: str) -> LostProgressError:
        lacking = self._lacking
        why = f"the progress topic {self.progress} {harm}"
        return LostProgressError(self.query, f"{why}, and {lacking}" if lacking else why, rebuilds=not lacking)

    def _lost(self, harms: Mapping[str, str]) -> LostResultError:
        lacking = "" if self.requested else self._lacking
        wanted = self.requested or all(self.on_lost[name] == "rebuild" for name in harms)
        return LostResultError(self.query, harms, lacking if wanted else "", rebuilds=wanted and not lacking)

    @property
    def _lacking(self) -> str:
        """A text that says which records a rebuild would lack; empty if it would lack none or was requested."""
        return "" if self.requested else Amount.of(self.graph, self.kafka).lacking

    @property
    def _names(self) -> list[str]:
        return [*self._keeps_all, self.progress]

    def _harms(self, now: Mapping[str, TopicRecord]) -> dict[str, str]:
        found = {
            name: before.harm(now.get(name), keeps_all=self._keeps_all.get(name, False))
            for name, before in self._before.items()
            if name in self._names
        }
        return {name: harm for name, harm in found.items() if harm}

    def _note(self, now: Mapping[str, TopicRecord], at_ms: float) -> None:
        self._seen = {}
        self._before = dict(now)
        self.checkpoint.note_topics(now, at_ms)


class TopicWatch:
    """Watches the topics of all running queries, every two seconds."""

    def __init__(self) -> None:
        self._watched: dict[str, WrittenTopics] = {}

    @classmethod
    @contextmanager
    def begun(cls) -> Iterator[Self]:
        """Yield a watch that checks the topics in a thread until the block ends."""
        watch = cls()
        with meanwhile(watch._look, _EVERY_SECONDS, "topics", _LAST_SECONDS):
            yield watch

    def add(self, topics: WrittenTopics) -> None:
        """Watch the given topics, starting with the next check, in place of the query's earlier topics."""
        self._watched[topics.query] = topics

    def _look(self) -> None:
        for topics in list(self._watched.values()):
            topics.look()
