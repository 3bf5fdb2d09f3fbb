"""The in-memory engine: a graph run batch by batch in this process, with state in dicts.

It executes the same calcs, operators and netting as Spark does, in one shard, which makes it the quick way to try a
query and the plain way to test one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from rowkind.avro import codec
from rowkind.operators.arrangement.arrangement import StateSize
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.columns.changes import Changes, Rows, TimeMarks
from rowkind.operators.emission import net
from rowkind.operators.errors import RowFailed
from rowkind.operators.operator import Operator
from rowkind.operators.rowtime import END
from rowkind.service.execute.delete_times import DeleteTimes, with_delete_times
from rowkind.service.execute.failures import LeftOut, OnFailure, failed_in_operator, misfits
from rowkind.service.execute.fallible import misfit
from rowkind.service.execute.lateness import Lateness, may_be_late
from rowkind.service.execute.operators import operator, sources, tables
from rowkind.service.execute.promises import Broken, broken
from rowkind.service.execute.route import leave, of_table
from rowkind.service.execute.watermarks import NO_TABLE, Passing, Watermarks, marks_of, passing
from rowkind.service.graph import Exit, Graph, always_runs, graph, waits
from rowkind.service.physical import PhysicalOperator, PhysicalScan, PhysicalSink

OnUnmatched = Callable[[str, Changes], None]
"""Told the node and the retractions that found no row to take back."""

OnFailed = Callable[[str, LeftOut], None]
"""Told whose rows were left out, in words, and which."""

Watch = Callable[[Exit, Changes], None]
"""Told what goes out by an exit in a batch."""


_RECORD = "change {0.offset}"
"""How a change is found in a file of them."""


class MemoryEngine:
    """Keeps the state of some sinks' queries between batches.

    `unmatched` is called for retractions that found nothing; what to make of them is the caller's policy. `broken` is
    called for each promise of a table that a batch did not keep. `failed` is
    called for rows that were left out because an expression fails on them. `watch` sees all that moves between nodes.
    `late` is told of the changes that came too late.
    """

    def __init__(
        self,
        *sinks: PhysicalSink,
        unmatched: OnUnmatched | None = None,
        broken: Callable[[Broken], None] | None = None,
        failed: OnFailed | None = None,
        watch: Watch | None = None,
        late: OnUnmatched | None = None,
    ) -> None:
        self.graph = graph(sinks)
        self.state: dict[str, StateSize] = {}
        self._unmatched = unmatched or (lambda _node, _changes: None)
        self._broken = broken or (lambda _broken: None)
        self._failed = failed or (lambda _of, _rows: None)
        self._watch = watch or (lambda _node, _changes: None)
        self._operators = [operator(each.node, refreshes=each.refreshes) for each in self.graph.operators]
        self._misfits = [misfit(each.node) for each in self.graph.operators]
        self._late = late or (lambda _node, _changes: None)
        self._watermarks = Watermarks()
        self._stores = stores_of(self.graph, self._operators)

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that are read."""
        return tuple(each.scan.source.table for each in self.graph.scans)

    def batch(self, rows: Mapping[str, Rows], now: int, *, ended: bool = False) -> dict[str, Changes]:
        """The net changes of each sink's result after one more batch at time `now`, in ms since the epoch.

        `rows` are the changes of each table, under the table's declared record. With `ended` there will be none any
        more, so that every watermark passes everything, and so does the time at which rows are processed.
        """
        inbox: dict[int, list[Changes]] = defaultdict(list)
        before = self._watermarks
        self._watermarks = after = before.moved(
            [marks_of_tables(self.graph, rows, ended=ended)], now, self.graph.clocks
        )
        for table in self.graph.scans:
            own = with_delete_times(table, pruned(table.scan, rows), {})
            self._send(table.exits, own, inbox, self._told(of_table(table)))
        for place, each in enumerate(self.graph.operators):
            changes = Changes.concat(inbox[place])
            if not len(changes) and not always_runs(each.node) and not waits(each.node):
                continue
            if (times := DeleteTimes.of(each.node)) is not None:
                changes = times(changes, before)
            time = Passing(now, now) if each.clock is None else passing(before, after, each.clock)
            if may_be_late(each.node):
                late = Lateness(each.node)(changes, time.before)
                if late.any():
                    self._late(each.node.node, changes.filter(late))
                    changes = changes.filter(~late)
            moment = time.after if waits(each.node) else time.before
            try:
                output = self._operators[place].process(changes, self._stores[place], moment)
            except RowFailed as error:
                raise failed_in_operator(error, replace(_failure(each.node), record=_RECORD)) from None
            self.state[each.node.node] = output.state
            if len(output.unmatched):
                self._unmatched(each.node.node, output.unmatched)
            for promise in broken(output, sources(each.node)):
                self._broken(promise)
            failure = self._told(_failure(each.node))
            misfits(output.failed, self._misfits[place], each.node.calc.on_error, failure)
            self._send(each.exits, output.rows, inbox, failure)
        return {
            sink.name: net(
                Changes.concat(inbox[self.graph.place(sink.name)]),
                sink.mode,
                keyed=bool(sink.key),
                by_seq=sink.by_seq,
                ordered=sink.ordered,
            )
            for sink in self.graph.sinks
        }

    def _told(self, failure: OnFailure) -> OnFailure:
        return replace(failure, tell=partial(self._failed, failure.of), record=_RECORD, skip="")

    def _send(self, exits: Sequence[Exit], rows: Rows, inbox: dict[int, list[Changes]], failure: OnFailure) -> None:
        for way in exits:
            changes = leave(way, rows, failure)
            self._watch(way, changes)
            inbox[way.to].append(changes)


def stores_of(of: Graph, operators: Sequence[Operator]) -> list[dict[str, MemoryStore]]:
    """What the operators of a graph find in the state of one shard before the first batch, in the order of places."""
    own = [{name: MemoryStore() for name in each.arrangements} for each in operators]
    return [
        stores | {name: own[place][known] for name, (place, known) in each.reads.items()}
        for stores, each in zip(own, of.operators, strict=True)
    ]


def marks_of_tables(of: Graph, rows: Mapping[str, Rows], *, ended: bool) -> TimeMarks:
    """How far these rows say that the time of their tables has come, where somebody goes by it."""
    timed = [each.scan for each in of.scans if each.scan.source.table in of.timed_tables]
    if ended:
        return {NO_TABLE: {0: END}} | {scan.source.table: {0: END} for scan in timed}
    marks: dict[str, Mapping[int, int | None]] = {}
    for scan in timed:
        mark, own = scan.source.watermark, rows.get(scan.source.table, Rows.empty())
        if mark is not None and len(own):
            marks[scan.source.table] = marks_of(mark, scan.calc.input, pruned(scan, rows))
    return marks


def _failure(node: PhysicalOperator) -> OnFailure:
    return OnFailure(node.node, tables=tables(node))


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
    forgotten, or was not; such a retraction finds nothing and changes nothing. Elsewhere there is none. `alike` gives
    the bytes by which rows are equal, if not their own.
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
        """Every row as often as it is there."""
        if self._keyed:
            return list(self._by_key.values())
        assert all(count > 0 for count in self._rows.values()), "a result never takes back a row that it did not give"
        return [self._sent[row] for row in self._rows.elements()]
