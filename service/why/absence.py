"""Why a row is not in a result: the first step that leaves it out, and by which condition.

The search begins at the sink. As long as a step gets no rows that could become the wanted row, the search continues in
the input that has none. It ends at a filter or operator that gets such rows and emits none, or at a table without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.changelog import SYMBOLS
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import WEIGHTS, Int64s, Mask
from rowkind.operators.rank.ranking import Ranking
from rowkind.quantities import counted
from rowkind.service.execute.values import Values, passes
from rowkind.service.physical.node import PhysicalBinary, PhysicalOperator, PhysicalUnary
from rowkind.service.physical.operators import (
    PhysicalAggregate,
    PhysicalJoin,
    PhysicalLookup,
    PhysicalMatch,
    PhysicalRank,
    PhysicalTemporalFilter,
)
from rowkind.service.plan.explain.display_names import display_text
from rowkind.service.why.atoms import Atom, Atoms, before_calc, matching, said, to_inputs
from rowkind.service.why.sources import SourceChanges
from rowkind.service.why.steps import Origin, PlanRows, StepEdge

CauseKind = Literal[
    "no row", "deleted", "changed", "filter", "null key", "no match", "match", "rank", "value", "late", "step"
]


@dataclass(frozen=True)
class Cause:
    """A reason for which the row is not there: the step, what kind of reason, and the reason in a sentence.

    `rows` are rows of a step that the sentence is about. `changes` are indices of changes of `table`.
    """

    step: str
    kind: CauseKind
    text: str
    rows: tuple[Origin, Mask] | None = None
    table: str = ""
    changes: Int64s = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True)
class _Input:
    """An input of a step: the conditions on its rows, and masks of the rows that satisfy them before and after."""

    edge: StepEdge
    atoms: Atoms
    own: Mask
    passed: Mask


@dataclass
class Absence:
    """Searches for the causes.

    `kept` has the rows at each exit that could become the wanted row. `dropped` has the steps' own rows that a filter
    drops.
    """

    steps: PlanRows
    kept: list[tuple[int, StepEdge, Mask]] = field(default_factory=list)
    dropped: list[tuple[StepEdge, Mask]] = field(default_factory=list)

    def causes(self, atoms: Atoms) -> list[Cause]:
        """Return the causes for which the sink has no row that satisfies the conditions."""
        edges = self.steps.edges[self.steps.place]
        inputs = [self._input(edge, before_calc(edge.way.calc, atoms)) for edge in edges]
        return [cause for each in inputs for cause in (self._computed(each, atoms) or self._of(each))]

    def _computed(self, each: _Input, atoms: Atoms) -> list[Cause]:
        """Return the cause that rows reach the sink, but have another value in a column that has no source column."""
        if not each.passed.any():
            return []
        self.kept.append((self.steps.place, each.edge, each.passed))
        lost = tuple(atom for atom in atoms if not before_calc(each.edge.way.calc, (atom,)))
        rows = each.edge.origin, _origins(self.steps, each)
        text = f"the step has {counted(int(each.passed.sum()), 'row')}, but none with {said(lost)}"
        return [Cause(each.edge.way.node, "value", text, rows)]

    def _input(self, edge: StepEdge, atoms: Atoms) -> _Input:
        rows = self.steps.rows(edge.origin)
        own = matching(atoms, self.steps.record(edge.origin), rows)
        return _Input(edge, atoms, own, own[self.steps.passed(edge).at])

    def _of_any(self, inputs: Sequence[_Input]) -> list[Cause]:
        """Return the causes for which none of the inputs of a union has a row."""
        return [cause for each in inputs for cause in self._of(each)]

    def _of(self, each: _Input) -> list[Cause]:
        """Return the causes for which an input has no row that passes its calc."""
        origin = each.edge.origin
        if each.own.any():
            self.dropped.append((each.edge, each.own))
            return [self._filtered(each)]
        if isinstance(origin, str):
            return [self._no_row(each)]
        return self._operator(origin, each)

    def _filtered(self, each: _Input) -> Cause:
        """Return why the calc drops rows: its filter, or a NULL in a key that must match."""
        calc, origin, step = each.edge.way.calc, each.edge.origin, each.edge.way.node
        rows = self.steps.rows(origin).filter(each.own)
        what = counted(len(rows), "row")
        kept = np.ones(len(rows), np.bool_)
        if calc.predicate is not None and not calc.expands:
            kept = passes(calc.predicate, self.steps.record(origin), rows.payload, nulls=True)
        if calc.predicate is not None and not kept.any():
            text = f"the filter {display_text(calc.predicate.text)} is not true for {what}"
            return Cause(step, "filter", text, (origin, each.own))
        if calc.key.drop_null and not calc.expands:
            key = " and ".join(display_text(part.text) for part in calc.key.parts)
            return Cause(step, "null key", f"{key} is NULL, and NULL matches no row", (origin, each.own))
        return Cause(step, "filter", f"the step expands {what}, and no row of the result passes", (origin, each.own))

    def _no_row(self, each: _Input) -> Cause:
        """Return why a table has no such row: it never had one, or the row was deleted or changed."""
        table, step = str(each.edge.origin), each.edge.way.node
        changes = self.steps.tables[table]
        ever = matching(each.atoms, changes.source.declared, changes.rows) & (WEIGHTS[changes.rows.kind] > 0)
        if not ever.any():
            where = ", ".join(f"{end:,} of partition {partition}" for partition, end in sorted(changes.ends.items()))
            text = f"table {table} has never had a row with {said(each.atoms)}"
            return Cause(step, "no row", f"{text}, before offset {where}" if where else text, table=table)
        last = _last_of(changes, ever)
        place = ArrivalNumber.of(int(changes.rows.seq[last]))
        at = f"offset {place.offset:,} of partition {place.partition}"
        if WEIGHTS[changes.rows.kind[last]] < 0:
            symbol = SYMBOLS[changes.rows.kind[last]]
            text = f"the row of table {table} with {said(each.atoms)} was deleted by the {symbol} at {at}"
            return Cause(step, "deleted", text, table=table, changes=np.array([last]))
        text = f"the row of table {table} with {said(each.atoms)} was changed at {at}, and has another value now"
        return Cause(step, "changed", text, table=table, changes=np.array([last]))

    def _operator(self, place: int, output: _Input) -> list[Cause]:
        """Return the causes for which an operator emits no row that satisfies the conditions."""
        node = self.steps.operator(place)
        pairs = list(to_inputs(node, output.atoms, reading=False))
        inputs = [self._input(edge, own) for edge, (_, own) in zip(self.steps.edges[place], pairs, strict=True)]
        if isinstance(node, PhysicalBinary):
            return self._join(place, node, inputs)
        if not any(each.passed.any() for each in inputs):
            return self._of_any(inputs)
        for each in inputs:
            self.kept.append((place, each.edge, each.passed))
        assert isinstance(node, PhysicalUnary), "an operator has one or two inputs"
        with_rows = [each for each in inputs if each.passed.any()]
        if (late := self._late(node, with_rows)) is not None:
            return [late]
        if isinstance(node, PhysicalRank):
            return [self._ranked(node, each) for each in with_rows]
        step = node.node
        rows = with_rows[0].edge.origin, _origins(self.steps, with_rows[0])
        if isinstance(node, PhysicalTemporalFilter):
            return [Cause(step, "step", "the row's time has not been reached yet, or has passed", rows)]
        other = self._other_values(place, node, output)
        match = isinstance(node, PhysicalMatch)
        why = "the row is in no match of the pattern" if match else "the step has not emitted a result for the row yet"
        return [other or Cause(step, "step", why, rows)]

    def _other_values(self, place: int, node: PhysicalUnary, output: _Input) -> Cause | None:
        """Return the cause that an operator emits rows for the same input, but with other values than the wanted."""
        given = node.aggregation.group if isinstance(node, PhysicalAggregate) else node.sides[0].calc.output.names
        known = tuple(each for each in output.atoms if set(each.expression.columns) <= set(given))
        computed = tuple(each for each in output.atoms if each not in known)
        mask = matching(known, self.steps.record(place), self.steps.rows(place))
        if not computed or not mask.any():
            return None
        where = f" with {said(known)}" if known else ""
        text = f"the step has {counted(int(mask.sum()), 'row')}{where}, but none with {said(computed)}"
        return Cause(node.node, "value", text, (place, mask))

    def _late(self, node: PhysicalOperator, inputs: Sequence[_Input]) -> Cause | None:
        """Return the cause that all rows of some inputs with rows were late for an operator."""
        late = self.steps.late(node.node)
        if not len(late) or not inputs:
            return None
        for each in inputs:
            passed, own = self.steps.passed(each.edge).changes, late.filter(late.side == each.edge.way.calc.side)
            mine = passed.filter(each.passed)
            # The rows of a group may have been aggregated before they reached the operator.
            pair = (mine.key, own.key) if isinstance(node, PhysicalAggregate) else (mine.payload, own.payload)
            if not pc.all(pc.is_in(pair[0], value_set=pair[1])).as_py():
                return None
        what = counted(sum(int(each.passed.sum()) for each in inputs), "row")
        text = f"the step dropped {what} as late: the watermark had already passed the results that they could change"
        return Cause(node.node, "late", text, (inputs[0].edge.origin, _origins(self.steps, inputs[0])))

    def _ranked(self, node: PhysicalRank, each: _Input) -> Cause:
        """Return the rank number of the row, and the rows before it."""
        changes = self.steps.passed(each.edge).changes
        mine = int(np.flatnonzero(each.passed)[0])
        partition = np.flatnonzero(
            pc.equal(changes.key, changes.key[mine]).fill_null(False).to_numpy(zero_copy_only=False)
        )
        subs, seqs = changes.sub_key.take(pa.array(partition)).to_pylist(), changes.seq[partition].tolist()
        sign = -1 if node.ranking.ties == "latest first" else 1
        order = sorted(range(len(partition)), key=lambda at: (subs[at], sign * seqs[at]))
        place = [int(partition[at]) for at in order].index(mine)
        above = [subs[at] for at in order if subs[at] < subs[order[place]]]
        numbers = {"row_number": place + 1, "rank": len(above) + 1, "dense_rank": len(set(above)) + 1}
        ranking, number = node.ranking, numbers[node.ranking.function]
        by = f" by {display_text(', '.join(node.order))}" if node.order else ""
        of = f" of its partition ({display_text(', '.join(node.partition))})" if node.partition else ""
        if ranking.first <= number <= (ranking.last or number):
            text = f"none of the {counted(len(order), 'row')}{of} has the wanted number: the row found has {number:,}"
            return Cause(node.node, "rank", text, (each.edge.origin, _origins(self.steps, each)))
        before = np.zeros(len(self.steps.rows(each.edge.origin)), np.bool_)
        at = self.steps.passed(each.edge).at
        before[[at[partition[row]] for row in order[: min(place, ranking.last or ranking.first)]]] = True
        text = f"the row has number {number:,}{by}{of}, and only {_range(ranking)} emitted"
        return Cause(node.node, "rank", text, (each.edge.origin, before))

    def _join(self, place: int, node: PhysicalBinary, inputs: Sequence[_Input]) -> list[Cause]:
        sides = [[each for each in inputs if each.edge.way.calc.side == side] for side in (0, 1)]
        named = [side for side in sides if any(each.atoms for each in side)] or sides[:1]
        kind = node.kind if isinstance(node, PhysicalJoin) else "lookup"
        needed = named if kind in ("inner", "full") else [side for side in named if side is sides[0]]
        empty = next((side for side in needed if not _has(side)), None)
        if empty is not None and (len(named) == 1 or not _has(named[0]) or not _has(named[1])):
            for each in (each for side in named if side is not empty for each in side):
                self.kept.append((place, each.edge, each.passed))
            return [*self._of_any(empty), *self._unmatched(node, named, empty)]
        first = named[0] if _has(named[0]) else sides[0]
        second = [self._with_keys(first, each) for each in sides[1 if first is sides[0] else 0]]
        for each in (*first, *second):
            self.kept.append((place, each.edge, each.passed))
        there = next((each for each in second if each.passed.any()), None)
        key = said(second[0].atoms) if second and second[0].atoms else ""
        if there is None:
            cause = Cause(node.node, "no match", f"{_side(second)} has no row{' with ' + key if key else ''}")
            return [*self._of_any(second), cause]
        for side in (first, second):
            if (late := self._late(node, [each for each in side if each.passed.any()])) is not None:
                return [late]
        rows, with_ = (there.edge.origin, _origins(self.steps, there)), f" with {key}" if key else ""
        if kind in ("anti", "not in"):
            return [Cause(node.node, "match", f"the row has a match{with_}, and the anti join drops it", rows)]
        why = _misfit(node)
        return [Cause(node.node, "no match", f"{_side(second)} has rows{with_}, but {why}", rows)]

    def _unmatched(
        self, node: PhysicalBinary, named: Sequence[Sequence[_Input]], empty: Sequence[_Input]
    ) -> list[Cause]:
        """Return the cause that one side has a row and the other has none, if both sides were searched."""
        if not any(_has(side) for side in named):
            return []
        return [Cause(node.node, "no match", f"{_side(empty)} has no row with {said(empty[0].atoms)}")]

    def _with_keys(self, first: Sequence[_Input], each: _Input) -> _Input:
        """Add the condition that the keys are those of the other side's rows."""
        atoms: list[Atom] = []
        for number, part in enumerate(each.edge.way.calc.key.parts):
            columns = []
            for one in first:
                origin, calc = one.edge.origin, one.edge.way.calc
                rows = self.steps.rows(origin).filter(_origins(self.steps, one))
                if calc.expands:
                    return each
                there = calc.key.parts[number]
                columns.append(Values(self.steps.record(origin), [there], rows, nulls=True).of(there))
            if part.columns:
                atoms.append(Atom.of(part, columns))
        return self._input(each.edge, (*each.atoms, *atoms))


def _range(ranking: Ranking) -> str:
    """Say which numbers are emitted."""
    if ranking.last is None:
        return f"{ranking.first} and above are"
    return f"{ranking.first} is" if ranking.first == ranking.last else f"{ranking.first} to {ranking.last} are"


def _misfit(node: PhysicalBinary) -> str:
    """Say why rows with equal keys do not match."""
    if isinstance(node, PhysicalLookup):
        fits = "was there when the left row was read" if node.match is None else "has a time that fits the left row"
        return f"none of them {fits}"
    condition = node.condition if isinstance(node, PhysicalJoin) else None
    return "none of them fits" if condition is None else f"{display_text(condition.text)} is not true"


def _has(side: Sequence[_Input]) -> bool:
    return any(each.passed.any() for each in side)


def _side(inputs: Sequence[_Input]) -> str:
    return "its right side" if inputs and inputs[0].edge.way.calc.side == 1 else "its left side"


def _origins(steps: PlanRows, each: _Input) -> Mask:
    """Return a mask of the origin's rows that pass the exit and satisfy the conditions."""
    mask = np.zeros(len(each.own), np.bool_)
    mask[steps.passed(each.edge).at[each.passed]] = True
    return mask


def _last_of(changes: SourceChanges, ever: Mask) -> int:
    """Return the index of the last change of the rows at `ever`."""
    keys = changes.keys
    same: Mask = pc.is_in(keys, value_set=keys.filter(pa.array(ever))).to_numpy(zero_copy_only=False)
    return int(np.flatnonzero(same)[-1])
