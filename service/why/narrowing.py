"""Read only those changes of each table that can matter for a wanted row.

The conditions on the sink's columns are pushed down to the scans. If they reach only one side of a join, that side is
read and computed first. Its rows' keys are then the condition on the other side:

    SELECT … FROM orders o JOIN customers c ON o.customer_id = c.id      order_id = 7
    orders      order_id IN (7)
    customers   id IN (the customer_ids that order 7 has ever had)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.changes import WEIGHTS, Rows
from rowkind.service.execute.stage import MemberOutput
from rowkind.service.execute.values import Values
from rowkind.service.physical.graph import graph
from rowkind.service.physical.node import PhysicalBinary, PhysicalNode, PhysicalOperator, PhysicalScan, PhysicalSink
from rowkind.service.physical.operators import PhysicalJoin, PhysicalLookup
from rowkind.service.physical.tree import walk, without_unions
from rowkind.service.query.memory import MemoryEngine
from rowkind.service.why.atoms import Atom, Atoms, FeedingStep, before_calc, said, to_inputs
from rowkind.service.why.replay import in_order
from rowkind.service.why.sources import SourceChanges, TableReader
from rowkind.service.why.steps import emits

_MARKS = "a time that moves the watermark"


@dataclass(frozen=True)
class TableRead:
    """How a table was read, and how many changes were kept.

    - `by`: the condition of each reading; without any, all rows were kept.
    - `ends`: for each partition, the offset after the last record that counts. `later`: the number of offsets after it.
    """

    table: str
    by: tuple[str, ...]
    records: int
    kept: int
    ends: Mapping[int, int]
    later: int


@dataclass
class Narrowing:
    """Reads the tables of a plan. `read` has what was found, by table."""

    sink: PhysicalSink
    tables: TableReader
    now: int
    found: dict[str, SourceChanges] = field(default_factory=dict)
    reads: dict[str, TableRead] = field(default_factory=dict)
    _whole: set[str] = field(default_factory=set)

    def run(self, atoms: Atoms) -> Mapping[str, SourceChanges]:
        """Read all tables. `atoms` are conditions on the sink's columns. Raises ChangelogError."""
        for each in without_unions(self.sink.input):
            self._read(each, before_calc(each.calc, atoms))
        return self.found

    def _read(self, node: FeedingStep, atoms: Atoms) -> None:
        """Read the tables below a step. `atoms` are conditions on the step's own rows."""
        if isinstance(node, PhysicalScan):
            self._scan(node, atoms)
            return
        pairs = list(to_inputs(node, atoms, reading=True))
        if not isinstance(node, PhysicalBinary):
            for each, own in pairs:
                self._read(each, own)
            return
        sides = {id(each): at for at, side in enumerate(node.sides) for each in without_unions(side)}
        order = sorted(pairs, key=lambda pair: (not pair[1], sides.get(id(pair[0]), 2)))
        done: set[int] = set()
        for each, pushed in order:
            at, own = sides.get(id(each), 2), pushed
            if not own and at < 2 and 1 - at in done and _follows(node, at):
                own = self._matching_keys(node.sides[1 - at], each)
            self._read(each, own)
            if own and not any(not more for other, more in pairs if sides.get(id(other), 2) == at):
                done.add(at)

    def _scan(self, scan: PhysicalScan, atoms: Atoms) -> None:
        table = scan.source.table
        if table in self._whole:
            return
        if not atoms:
            self._whole.add(table)
        # The watermark decides which rows are late or final.
        timed = bool(atoms) and table in graph([self.sink]).timed_tables
        changes = self.tables.read(scan.source, atoms, timed=timed)
        before, by = self.found.get(table), (said(atoms), *([_MARKS] if timed else [])) if atoms else ()
        if before is not None and atoms:
            changes, by = before.merged(changes), tuple(dict.fromkeys((*self.reads[table].by, *by)))
        self.found[table] = changes
        self.reads[table] = TableRead(table, by, changes.read, len(changes.rows), changes.ends, changes.later)

    def _matching_keys(self, side: PhysicalNode, other: FeedingStep) -> Atoms:
        """Return the conditions on the other side's rows: their keys are among those that `side` has ever had."""
        values: list[list[pa.Array]] = [[] for _ in other.calc.key.parts]
        for node in without_unions(side):
            if not node.calc.key.parts:
                return ()
            rows = ever(node, self.found, self.now)
            record = node.source.declared if isinstance(node, PhysicalScan) else emits(node)
            if node.calc.expands:
                return ()
            read = Values(record, node.calc.key.parts, rows, nulls=True)
            for at, part in enumerate(node.calc.key.parts):
                values[at].append(read.of(part))
        return tuple(
            Atom.of(part, found) for part, found in zip(other.calc.key.parts, values, strict=True) if part.columns
        )


def _follows(node: PhysicalBinary, side: int) -> bool:
    """Return whether only those rows of a side matter whose key the other side has."""
    if isinstance(node, PhysicalLookup):
        return True
    assert isinstance(node, PhysicalJoin), "a binary operator is a join or a lookup"
    # A NOT IN is also decided by rows that do not match.
    return node.kind not in ("not in", "in") or side == 0


def ever(node: FeedingStep, tables: Mapping[str, SourceChanges], now: int) -> Rows:
    """Return the rows that a step has had at any time, before its calc, as insertions."""
    if isinstance(node, PhysicalScan):
        return tables[node.source.table].inserted().rows
    parts: list[Rows] = [Rows.empty()]

    def observe(output: MemberOutput) -> None:
        if output.member.node == node.node:
            parts.append(output.emitted.rows)

    engine = MemoryEngine(_as_sink(node), observe=observe)
    own = {each.source.table for each in walk(node) if isinstance(each, PhysicalScan)}
    for batch in in_order({table: tables[table] for table in own if table in tables}, now):
        engine.batch(batch.rows, batch.now)
    rows = Rows.concat(parts)
    rows = rows.filter(WEIGHTS[rows.kind] > 0)
    return replace(rows, kind=np.full(len(rows), RowKind.INSERT, np.int8))


def _as_sink(node: PhysicalOperator) -> PhysicalSink:
    """Return a plan that ends with this step."""
    return PhysicalSink("why", "why", "retract", node, (), node.calc.output, None, exchange=False)
