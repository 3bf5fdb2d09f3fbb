"""The in-memory engine: runs a graph batch by batch in this process, with state in dicts.

It runs the same stage loop as Spark's tasks (`service.execute.stage`), with all operators in one stage with one shard.
`rowkind try` and tests use it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import pyarrow as pa

from rowkind.avro import codec
from rowkind.operators.arrangement.arrangement import StateSize
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.block import TimeMarks
from rowkind.operators.columns.changes import Changes, Rows
from rowkind.operators.columns.emission import net
from rowkind.operators.columns.rowtime import END
from rowkind.service.execute.delete_times import with_delete_times
from rowkind.service.execute.failures import LeftOut
from rowkind.service.execute.members import Member
from rowkind.service.execute.promises import Broken
from rowkind.service.execute.route import leave, of_table
from rowkind.service.execute.stage import MemberOutput, ShardBatch, members, run
from rowkind.service.execute.watermarks import NO_TABLE, Watermarks, marks_of
from rowkind.service.physical.graph import Exit, Graph, graph
from rowkind.service.physical.node import PhysicalScan, PhysicalSink

OnUnmatched = Callable[[str, Changes], None]
"""Called with the name of a node and its retractions that found no row."""

OnFailed = Callable[[str, LeftOut], None]
"""Called with the name of a table or operator, and with its rows that were left out."""

Watch = Callable[[Exit, Batch], None]
"""Called with an exit and the batch that leaves through it."""

Observe = Callable[[MemberOutput], None]
"""Called with the output of each operator that had work to do in a batch."""


NOT_TRUNCATED: Mapping[str, int] = MappingProxyType({})

_RECORD = "change {0.offset}"
"""How messages refer to a change in the input file."""


class MemoryState:
    """The state of one shard: the blobs of each arrangement in a dict."""

    seconds = 0.0

    def __init__(self, stores: Mapping[str, MemoryStore] | None = None) -> None:
        self._stores = dict(stores or {})

    def store(self, name: str) -> MemoryStore:
        """Return the blobs of the arrangement with this name."""
        return self._stores.setdefault(name, MemoryStore())

    def items(self) -> Iterator[tuple[str, MemoryStore]]:
        """Yield each arrangement's full name, `<operator's state>.<name>`, and its blobs."""
        yield from self._stores.items()

    def copy(self) -> MemoryState:
        """Return a copy with the same blobs, like the state after a restart from a checkpoint."""
        return MemoryState({name: store.copy() for name, store in self._stores.items()})


class MemoryEngine:
    """Runs the queries of some sinks, and keeps their state between batches.

    `unmatched` is called with retractions that found no row; the caller decides what to do about them. `broken` is
    called for each violation of a table's declared constraints in a batch. `failed` is called with rows that were left
    out because an expression failed on them. `watch` is called with every batch that moves between nodes. `late` is
    called with late changes. `observe` is called with every operator's output.
    """

    def __init__(
        self,
        *sinks: PhysicalSink,
        unmatched: OnUnmatched | None = None,
        broken: Callable[[Broken], None] | None = None,
        failed: OnFailed | None = None,
        watch: Watch | None = None,
        late: OnUnmatched | None = None,
        observe: Observe | None = None,
    ) -> None:
        self.graph = graph(sinks)
        self.state: dict[str, StateSize] = {}
        self._unmatched = unmatched or (lambda _node, _changes: None)
        self._broken = broken or (lambda _broken: None)
        self._failed = failed or (lambda _of, _rows: None)
        self._watch = watch or (lambda _node, _changes: None)
        self._late = late or (lambda _node, _changes: None)
        self._observe = observe or (lambda _output: None)
        self._watermarks = Watermarks()
        self._state = MemoryState()
        self._members = self._fresh_members()

    def _fresh_members(self) -> list[Member]:
        return [
            replace(each, failure=replace(each.failure, of=each.node, record=_RECORD, skip=""))
            for each in members(self.graph, 1)
        ]

    def restart(self) -> None:
        """Continue from the stored form of the state and the watermarks, as a job does after a restart."""
        self._state = self._state.copy()
        self._watermarks = Watermarks.from_blob(self._watermarks.to_blob())
        self._members = self._fresh_members()

    def copy(self, late: OnUnmatched) -> MemoryEngine:
        """Return an engine with the same queries and state, which calls only `late`."""
        other = MemoryEngine(*self.graph.sinks, late=late)
        other._state, other._watermarks = self._state.copy(), self._watermarks
        return other

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that the queries read."""
        return tuple(each.scan.source.table for each in self.graph.scans)

    def batch(
        self, rows: Mapping[str, Rows], now: int, *, ended: bool = False, truncated: Mapping[str, int] = NOT_TRUNCATED
    ) -> dict[str, Changes]:
        """Process a batch at time `now`, in ms since the epoch, and return the net changes of each sink's result.

        `rows`: each table's changes, encoded with the table's declared record. `ended`: there is no further input, so
        every watermark and the processing time move past all times. `truncated`: the arrival number of each truncated
        table's truncation.
        """
        before = self._watermarks
        self._watermarks = after = before.moved(
            [marks_of_tables(self.graph, rows, ended=ended)], now, self.graph.clocks
        )
        inbox: dict[int, list[Batch]] = defaultdict(list)
        for scan in self.graph.scans:
            left_out: list[LeftOut] = []
            failure = replace(of_table(scan), tell=left_out.append, record=_RECORD, skip="")
            own = Emitted(
                with_delete_times(scan, pruned(scan.scan, rows), {}), truncation=truncated.get(scan.scan.source.table)
            )
            for way in scan.exits:
                inbox[way.to].append(leave(way, own, failure))
                self._watch(way, inbox[way.to][-1])
            for each in left_out:
                self._failed(failure.of, each)
        for output in run(self._members, ShardBatch(0, now, before, after, inbox), self._state):
            self._report(output)
            self._observe(output)
            for way, batch in output.sent:
                self._watch(way, batch)
                if way.to >= len(self._members):
                    inbox[way.to].append(batch)
        return {
            sink.name: net(
                Batch.concat(inbox[self.graph.place(sink.name)]).changes,
                sink.mode,
                keyed=sink.keyed,
                by_seq=sink.by_seq,
                ordered=sink.ordered,
            )
            for sink in self.graph.sinks
        }

    def _report(self, output: MemberOutput) -> None:
        node = output.member.node
        self.state[node] = output.state
        if len(output.late):
            self._late(node, output.late)
        if len(output.unmatched):
            self._unmatched(node, output.unmatched)
        for promise in output.broken:
            self._broken(promise)
        for left_out in output.left_out:
            self._failed(node, left_out)


def marks_of_tables(of: Graph, rows: Mapping[str, Rows], *, ended: bool) -> TimeMarks:
    """Return the watermarks implied by the given rows, for tables whose watermark an operator uses."""
    timed = [each.scan for each in of.scans if each.scan.source.table in of.timed_tables]
    if ended:
        return {NO_TABLE: {0: END}} | {scan.source.table: {0: END} for scan in timed}
    marks: dict[str, Mapping[int, int | None]] = {}
    for scan in timed:
        mark, own = scan.source.watermark, rows.get(scan.source.table, Rows.empty())
        if mark is not None and len(own):
            marks[scan.source.table] = marks_of(mark, scan.calc.input, pruned(scan, rows))
    return marks


def pruned(scan: PhysicalScan, tables: Mapping[str, Rows]) -> Rows:
    """Return the rows of a scan's table, reduced to the columns that the scan reads."""
    rows = tables.get(scan.source.table, Rows.empty())
    if scan.calc.input.names == scan.source.declared.names or not len(rows):
        return rows
    payload = codec.read(scan.source.declared, rows.payload).assemble(scan.calc.input, scan.calc.input.names)
    return Rows(rows.kind, rows.seq, payload)


class Fold:
    """The current rows of a changelog: a multiset, or the last row per key for an upsert stream.

    `forgets`: the changelog comes from operators with a TTL. Such operators may retract a row that was derived from an
    expired row, or a row that was never emitted. Such a retraction has no effect. Without a TTL, there are no such
    retractions. `alike`: returns the bytes by which rows are compared, by default the rows' own bytes.
    """

    def __init__(
        self,
        *,
        keyed: bool,
        forgets: bool = False,
        alike: Callable[[pa.BinaryArray], pa.BinaryArray] = lambda payloads: payloads,
    ) -> None:
        self._keyed = keyed
        self._alike = alike
        self._sent: dict[bytes, bytes] = {}
        self._forgets = forgets
        self._rows: Counter[bytes] = Counter()
        self._by_key: dict[bytes, bytes] = {}

    def apply(self, changes: Changes) -> None:
        """Apply the changes of one batch."""
        payloads: Sequence[bytes] = changes.payload.to_pylist()
        weights = changes.weight.tolist()
        if self._keyed:
            for key, payload, weight in zip(changes.key.to_pylist(), payloads, weights, strict=True):
                if weight > 0:
                    self._by_key[key] = payload
                else:
                    self._by_key.pop(key, None)
            return
        for row, payload, weight in zip(self._alike(changes.payload).to_pylist(), payloads, weights, strict=True):
            if weight < 0 and self._forgets and not self._rows[row]:
                continue
            if weight > 0:
                self._sent[row] = payload
            self._rows[row] += weight
            if not self._rows[row]:
                del self._rows[row]

    @property
    def payloads(self) -> list[bytes]:
        """Every row, repeated as often as it occurs."""
        if self._keyed:
            return list(self._by_key.values())
        assert all(count > 0 for count in self._rows.values()), "a result retracts only rows that it contains"
        return [self._sent[row] for row in self._rows.elements()]
