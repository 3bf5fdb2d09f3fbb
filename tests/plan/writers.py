"""A plan run in several shards, each with a writer of its own, as tasks on a cluster run it: in any order."""

from __future__ import annotations

import random
from collections.abc import Mapping

from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.columns.changes import Changes, Rows
from rowkind.operators.emission import net
from rowkind.operators.operator import Operator
from rowkind.service.execute.operators import operator
from rowkind.service.execute.route import Route
from rowkind.service.execute.stages import always_runs, shard_without_key, stateful
from rowkind.service.physical import PhysicalNode, PhysicalScan, PhysicalSink, PhysicalUnion, inputs
from rowkind.service.run.memory import pruned


class Writers:
    """The state of a plan's query by shard, and which writer has written each key of the sink.

    What shards emit is handed on in a random order, because nobody on a cluster waits for another one.
    """

    def __init__(self, sink: PhysicalSink, shards: int, rng: random.Random) -> None:
        self._sink, self._shards, self._rng = sink, shards, rng
        self._operators: dict[str, Operator] = {node.node: operator(node) for node in stateful(sink)}
        self._stores = {
            name: [{arrangement: MemoryStore() for arrangement in each.arrangements} for _ in range(shards)]
            for name, each in self._operators.items()
        }
        self._writer_of: dict[bytes, int] = {}

    def batch(self, rows: Mapping[str, Rows], now: int) -> Changes:
        """What all writers write in one more batch, one writer after the other."""
        parts = self._run(self._sink.input, rows, now)
        if self._sink.exchange:
            parts = self._mixed(parts).split(self._shards)
        written = [net(part, self._sink.mode, keyed=bool(self._sink.key), by_seq=self._sink.by_seq) for part in parts]
        for writer, part in enumerate(written):
            for key in part.key.to_pylist() if self._sink.key else ():
                assert self._writer_of.setdefault(key, writer) == writer, "a key has one writer for good"
        return self._mixed(written)

    def _run(self, node: PhysicalNode, rows: Mapping[str, Rows], now: int) -> list[Changes]:
        """What the shards of a node emit, each by itself."""
        if isinstance(node, PhysicalScan):
            return [Route(node.calc, shards=self._shards)(pruned(node, rows))]
        below = [part for each in inputs(node) for part in self._run(each, rows, now)]
        if isinstance(node, PhysicalUnion):
            return below
        found = []
        for shard, changes in enumerate(self._mixed(below).split(self._shards)):
            if len(changes) or (always_runs(node) and shard == shard_without_key(self._shards)):
                output = self._operators[node.node].process(changes, self._stores[node.node][shard], now)
                assert not len(output.unmatched), f"{node.node} is told to take back what it has not"
                found.append(Route(node.calc, shards=self._shards)(output.rows))
            else:
                found.append(Changes.empty())
        return found

    def _mixed(self, parts: list[Changes]) -> Changes:
        return Changes.concat(self._rng.sample(parts, len(parts)))
