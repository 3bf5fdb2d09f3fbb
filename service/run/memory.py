"""The in-memory engine: a physical plan run batch by batch in this process, with state in dicts.

It executes the same calcs, operators and netting as Spark does, in one shard, which makes it the quick way to try a
query and the plain way to test one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from rowkind.avro import codec
from rowkind.operators.arrangement.arrangement import StateSize
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.columns.changes import Changes, RowKind, Rows
from rowkind.operators.emission import net
from rowkind.operators.operator import Operator
from rowkind.service.execute import calc
from rowkind.service.execute.operators import operator
from rowkind.service.execute.stages import always_runs, stateful
from rowkind.service.physical import PhysicalNode, PhysicalScan, PhysicalSink, PhysicalUnion, inputs, walk

OnUnmatched = Callable[[str, Changes], None]
"""Told the node and the retractions that found no row to take back."""

Watch = Callable[[PhysicalNode, Changes], None]
"""Told a node and what leaves its calc in a batch."""


class MemoryEngine:
    """Keeps the state of one sink's query between batches.

    `unmatched` is called for retractions that found nothing; what to make of them is the caller's policy. `watch` sees
    all that moves between the nodes.
    """

    def __init__(self, sink: PhysicalSink, unmatched: OnUnmatched | None = None, watch: Watch | None = None) -> None:
        self.sink = sink
        self.state: dict[str, StateSize] = {}
        self._unmatched = unmatched or (lambda _node, _changes: None)
        self._watch = watch or (lambda _node, _changes: None)
        self._operators: dict[str, Operator] = {node.node: operator(node) for node in stateful(sink)}
        self._stores = {
            name: {arrangement: MemoryStore() for arrangement in each.arrangements}
            for name, each in self._operators.items()
        }

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that the query reads."""
        return tuple(dict.fromkeys(node.source.table for node in walk(self.sink) if isinstance(node, PhysicalScan)))

    def batch(self, rows: Mapping[str, Rows], now: int) -> Changes:
        """The net changes of the result after one more batch at time `now`, in ms since the epoch.

        `rows` are the changes of each table, under the table's declared record.
        """
        changes = self._run(self.sink.input, rows, now)
        dead = changes.kind == RowKind.DEAD_LETTER
        assert not dead.any(), "rows that cannot be read never enter the in-memory engine"
        sink = self.sink
        return net(changes, sink.mode, keyed=bool(sink.key), by_seq=sink.by_seq)

    def _run(self, node: PhysicalNode, rows: Mapping[str, Rows], now: int) -> Changes:
        if isinstance(node, PhysicalScan):
            changes = calc.run(node.calc, pruned(node, rows))
            self._watch(node, changes)
            return changes
        changes = Changes.concat([self._run(below, rows, now) for below in inputs(node)])
        if isinstance(node, PhysicalUnion):
            return changes
        if not len(changes) and not always_runs(node):
            return changes
        output = self._operators[node.node].process(changes, self._stores[node.node], now)
        self.state[node.node] = output.state
        if len(output.unmatched):
            self._unmatched(node.node, output.unmatched)
        changes = calc.run(node.calc, output.rows)
        self._watch(node, changes)
        return changes


def pruned(scan: PhysicalScan, tables: Mapping[str, Rows]) -> Rows:
    """The rows of a scan's table, with the columns that the scan reads."""
    rows = tables.get(scan.source.table, Rows.empty())
    if scan.calc.input.names == scan.source.declared.names or not len(rows):
        return rows
    payload = codec.read(scan.source.declared, rows.payload).assemble(scan.calc.input, scan.calc.input.names)
    return Rows(rows.kind, rows.seq, payload)


class Fold:
    """The rows that a changelog stands for, kept up to date: a multiset, or by key for an upsert stream.

    `forgets`: the changelog comes from operators with a TTL, which may take back what was made of a row that they have
    forgotten, or was not; such a retraction finds nothing and changes nothing. Elsewhere there is none.
    """

    def __init__(self, *, keyed: bool, forgets: bool = False) -> None:
        self._keyed = keyed
        self._forgets = forgets
        self._rows: Counter[bytes] = Counter()
        self._by_key: dict[bytes, bytes] = {}

    def apply(self, changes: Changes) -> None:
        """Add the changes of one batch."""
        payloads: Sequence[bytes] = changes.payload.to_pylist()
        weights = changes.weight.tolist()
        if self._keyed:
            for key, payload, weight in zip(changes.key.to_pylist(), payloads, weights, strict=True):
                if weight > 0:
                    self._by_key[key] = payload
                else:
                    self._by_key.pop(key, None)
            return
        for payload, weight in zip(payloads, weights, strict=True):
            if weight < 0 and self._forgets and not self._rows[payload]:
                continue
            self._rows[payload] += weight
            if not self._rows[payload]:
                del self._rows[payload]

    @property
    def payloads(self) -> list[bytes]:
        """Every row as often as it is there."""
        if self._keyed:
            return list(self._by_key.values())
        assert all(count > 0 for count in self._rows.values()), "a result never takes back a row that it did not give"
        return list(self._rows.elements())
