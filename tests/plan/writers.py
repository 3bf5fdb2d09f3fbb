"""A plan run in several shards, each with a writer of its own, as tasks on a cluster run it: in any order."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence

from rowkind.operators.columns.changes import Changes, Rows
from rowkind.operators.emission import net
from rowkind.service.execute.failures import OnFailure
from rowkind.service.execute.members import addressed
from rowkind.service.execute.operators import operator
from rowkind.service.execute.route import deliver, leave, shard_without_key
from rowkind.service.graph import Exit, always_runs, graph
from rowkind.service.physical import PhysicalSink
from rowkind.service.run.memory import pruned, stores_of

Inbox = dict[tuple[int, int], list[Changes]]
"""What comes to each place of a graph in each shard."""


class Writers:
    """The state of a plan's query by shard, and which writer has written each key of the sink.

    What shards emit is handed on in a random order, because nobody on a cluster waits for another one.
    """

    def __init__(self, sink: PhysicalSink, shards: int, rng: random.Random) -> None:
        self._sink, self._shards, self._rng = sink, shards, rng
        self._graph = graph([sink])
        self._operators = [operator(each.node, refreshes=each.refreshes) for each in self._graph.operators]
        self._stores = [stores_of(self._graph, self._operators) for _ in range(shards)]
        self._writer_of: dict[bytes, int] = {}

    def batch(self, rows: Mapping[str, Rows], now: int) -> Changes:
        """What all writers write in one more batch, one writer after the other."""
        inbox: Inbox = defaultdict(list)
        for each in self._graph.scans:
            self._send(each.exits, pruned(each.scan, rows), None, inbox)
        for place in range(len(self._operators)):
            for shard in range(self._shards):
                self._run(place, shard, inbox, now)
        at = self._graph.place(self._sink.name)
        parts = [self._mixed(inbox[at, shard]) for shard in range(self._shards)]
        written = [net(part, self._sink.mode, keyed=bool(self._sink.key), by_seq=self._sink.by_seq) for part in parts]
        for writer, part in enumerate(written):
            for key in part.key.to_pylist() if self._sink.key else ():
                assert self._writer_of.setdefault(key, writer) == writer, "a key has one writer for good"
        return self._mixed(written)

    def _run(self, place: int, shard: int, inbox: Inbox, now: int) -> None:
        """Let one shard of an operator take in what has come, and send on what it emits."""
        each = self._graph.operators[place]
        changes = self._mixed(inbox[place, shard])
        if len(changes) or (always_runs(each.node) and shard == shard_without_key(self._shards)):
            output = self._operators[place].process(changes, self._stores[shard][place], now)
            assert not len(output.unmatched), f"{each.node.node} is told to take back what it has not"
            self._send(each.exits, output.rows, shard, inbox)

    def _send(self, exits: Sequence[Exit], rows: Rows, own: int | None, inbox: Inbox) -> None:
        for way in exits:
            for shard, _, part in deliver(way, leave(way, rows, OnFailure(way.node)), self._shards, own):
                inbox[way.to, shard].append(addressed(part, way.to))

    def _mixed(self, parts: list[Changes]) -> Changes:
        return Changes.concat(self._rng.sample(parts, len(parts)))
