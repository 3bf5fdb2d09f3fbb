"""A plan that runs in several shards, each with its own writer and in random order, as tasks on a cluster."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping

from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.changes import Changes, Rows
from rowkind.operators.columns.emission import net
from rowkind.service.execute.failures import OnFailure
from rowkind.service.execute.members import Member, addressed
from rowkind.service.execute.route import deliver, leave
from rowkind.service.execute.stage import ShardBatch, members, run
from rowkind.service.execute.watermarks import Watermarks
from rowkind.service.physical.graph import Exit, graph
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.query.memory import MemoryState, pruned

Inbox = dict[tuple[int, int], list[Batch]]
"""The changes that reach each place of a graph in each shard."""


class Writers:
    """The state of a plan's query by shard, and the writer of each key of the sink.

    The output of the shards is delivered in random order, because tasks on a cluster do not wait for each other.
    """

    def __init__(self, sink: PhysicalSink, shards: int, rng: random.Random) -> None:
        self._sink, self._shards, self._rng = sink, shards, rng
        self._graph = graph([sink])
        self._members = members(self._graph, shards)
        self._states = [MemoryState() for _ in range(shards)]
        self._writer_of: dict[bytes, int] = {}

    def batch(self, rows: Mapping[str, Rows], now: int) -> Changes:
        """Run one more batch; return the output of all writers, one writer after the other."""
        inbox: Inbox = defaultdict(list)
        for each in self._graph.scans:
            for way in each.exits:
                self._deliver(way, leave(way, Emitted(pruned(each.scan, rows)), OnFailure(way.node)), None, inbox)
        for member in self._members:
            for shard in range(self._shards):
                self._run(member, shard, inbox, now)
        at = self._graph.place(self._sink.name)
        parts = [self._mixed(inbox[at, shard]).changes for shard in range(self._shards)]
        written = [net(part, self._sink.mode, keyed=bool(self._sink.key), by_seq=self._sink.by_seq) for part in parts]
        for writer, part in enumerate(written):
            for key in part.key.to_pylist() if self._sink.key else ():
                assert self._writer_of.setdefault(key, writer) == writer, "a key must have one writer"
        return Changes.concat(self._rng.sample(written, len(written)))

    def _run(self, member: Member, shard: int, inbox: Inbox, now: int) -> None:
        """Run one shard of an operator over its changes, and deliver its output."""
        own = {member.place: [self._mixed(inbox[member.place, shard])]}
        time = Watermarks(now=now)
        for output in run([member], ShardBatch(shard, now, time, time, own), self._states[shard]):
            assert not len(output.unmatched), f"{member.node} gets a retraction of a row that it does not have"
            for way, sent in output.sent:
                self._deliver(way, sent, shard, inbox)

    def _deliver(self, way: Exit, batch: Batch, own: int | None, inbox: Inbox) -> None:
        for shard, _, part in deliver(way, batch, self._shards, own):
            inbox[way.to, shard].append(addressed(part, way.to))

    def _mixed(self, parts: list[Batch]) -> Batch:
        return Batch.concat(self._rng.sample(parts, len(parts)))
