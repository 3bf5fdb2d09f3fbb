"""Provenance: which rows of each step a row of the result derives from.

The result's row is followed backwards, from each operator to the rows of its inputs:

    join                 the pair of rows whose concatenation is the row; a null-padded row has one of them
    semi join, mark      the left row and its matches; an anti join has only the left row
    aggregate            all rows of the group
    rank, and others     the row itself; if it has a number, also the rows that rank before it
    window function      all rows of the partition
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro import codec
from rowkind.avro.same_rows import SameRows
from rowkind.avro.schema import Record
from rowkind.operators.columns.changes import Mask, binary
from rowkind.service.execute.aggregation import Group
from rowkind.service.execute.calc import condition
from rowkind.service.physical.node import PhysicalBinary, PhysicalOperator
from rowkind.service.physical.operators import (
    PhysicalAggregate,
    PhysicalJoin,
    PhysicalLookup,
    PhysicalMatch,
    PhysicalOver,
    PhysicalRank,
)
from rowkind.service.why.steps import Origin, Passed, PlanRows, StepEdge, emits

_MOST_PAIRS = 2_000_000
"""If more pairs of rows have equal keys, they are not compared one by one. More rows may then be named than needed."""


@dataclass
class Traced:
    """A mask of the rows of each step that the result's rows derive from. `edges` has the rows at each exit."""

    rows: dict[Origin, Mask] = field(default_factory=dict)
    exits: dict[int, list[tuple[StepEdge, Mask]]] = field(default_factory=lambda: defaultdict(list))
    dropped: list[tuple[StepEdge, Mask]] = field(default_factory=list)

    def of(self, steps: PlanRows, origin: Origin) -> Mask:
        """Return the mask of a step's own rows."""
        if origin not in self.rows:
            self.rows[origin] = np.zeros(len(steps.rows(origin)), np.bool_)
        return self.rows[origin]


def trace(
    steps: PlanRows, wanted: Sequence[tuple[int, StepEdge, Mask]], dropped: Sequence[tuple[StepEdge, Mask]] = ()
) -> Traced:
    """Follow rows backwards. `wanted` has the position of a consumer, an exit to it, and a mask of the exit's rows.

    `dropped` has steps and masks of their own rows, which no exit lets pass.
    """
    traced = Traced()
    for edge, mask in dropped:
        traced.of(steps, edge.origin)[mask] = True
        traced.dropped.append((edge, mask))
    for place, edge, mask in wanted:
        _add(steps, traced, place, edge, mask)
    for place in reversed(range(steps.place)):
        mine = traced.of(steps, place)
        if mine.any():
            made = steps.rows(place).payload.filter(pa.array(mine))
            edges = steps.edges[place]
            passed = [steps.passed(edge) for edge in edges]
            for edge, mask in zip(edges, _inputs(steps.operator(place), made, edges, passed), strict=True):
                _add(steps, traced, place, edge, mask)
    return traced


def _add(steps: PlanRows, traced: Traced, place: int, edge: StepEdge, mask: Mask) -> None:
    traced.exits[place].append((edge, mask))
    traced.of(steps, edge.origin)[steps.passed(edge).at[mask]] = True


def _inputs(
    node: PhysicalOperator, made: pa.BinaryArray, edges: Sequence[StepEdge], passed: Sequence[Passed]
) -> list[Mask]:
    """Return for each input a mask of its rows from which an operator has derived the rows `made`."""
    if isinstance(node, PhysicalBinary):
        return _of_join(node, made, edges, passed)
    record = emits(node)
    masks = []
    for of in passed:
        own = node.sides[0].calc.output
        match node:
            case PhysicalAggregate():
                group = node.aggregation.output.select(node.aggregation.group)
                masks.append(_is_in(Group(own, group)(of.changes.payload), Group(record, group)(made)))
            case PhysicalMatch():
                shared = own.select([name for name in own.names if name in record.names])
                masks.append(_is_in(_part(own, shared, of.changes.payload), _part(record, shared, made)))
            case _:
                mask = _is_in(SameRows(own)(of.changes.payload), _part(record, own, made))
                if isinstance(node, PhysicalOver):
                    mask = _is_in(of.changes.key, of.changes.key.filter(pa.array(mask)))
                if isinstance(node, PhysicalRank) and (node.numbers or node.ranking.first > 1):
                    mask = _with_those_before(of, mask)
                masks.append(mask)
    return masks


def _with_those_before(of: Passed, mask: Mask) -> Mask:
    """Return the marked rows and all rows of their partitions that rank before them, which decide their numbers."""
    last: dict[bytes, bytes] = {}
    marked = pa.array(mask)
    for key, order in zip(
        of.changes.key.filter(marked).to_pylist(), of.changes.sub_key.filter(marked).to_pylist(), strict=True
    ):
        last[key] = max(order, last.get(key, order))
    found = mask.copy()
    at = np.flatnonzero(_is_in(of.changes.key, binary(last)))
    keys, orders = (column.take(pa.array(at)).to_pylist() for column in (of.changes.key, of.changes.sub_key))
    found[at] |= np.fromiter((order <= last[key] for key, order in zip(keys, orders, strict=True)), np.bool_, len(at))
    return found


def _part(record: Record, part: Record, payloads: pa.BinaryArray) -> pa.BinaryArray:
    """Return some columns of each row, in a form whose bytes are equal for equal values."""
    return SameRows(part)(codec.read(record, payloads).assemble(part, list(part.names)))


def _is_in(values: pa.BinaryArray, among: pa.BinaryArray) -> Mask:
    mask: Mask = pc.is_in(values, value_set=among).to_numpy(zero_copy_only=False)
    return mask


def _of_join(
    node: PhysicalBinary, made: pa.BinaryArray, edges: Sequence[StepEdge], passed: Sequence[Passed]
) -> list[Mask]:
    masks = [np.zeros(len(of.at), np.bool_) for of in passed]
    lefts, rights = ([at for at, edge in enumerate(edges) if edge.way.calc.side == side] for side in (0, 1))
    record, left, right = emits(node), node.sides[0].calc.output, node.sides[1].calc.output
    emits_right = isinstance(node, PhysicalLookup) or (
        isinstance(node, PhysicalJoin) and node.kind in ("inner", "left", "right", "full")
    )
    left_part = _part(record, left, made) if len(left.fields) else binary([b""] * len(made))
    for at in lefts:
        masks[at] = _is_in(SameRows(left)(passed[at].changes.payload), left_part)
    if not emits_right:
        if isinstance(node, PhysicalJoin) and node.kind in ("semi", "mark", "in"):
            _matches_of_left(node, masks, lefts, rights, passed)
        return masks
    right_part = _part(record, right, made)
    for at in rights:
        masks[at] = _is_in(SameRows(right)(passed[at].changes.payload), right_part)
    _pair_up(set(made.to_pylist()), masks, lefts, rights, passed)
    return masks


def _by_key(
    masks: Sequence[Mask], sides: Sequence[int], passed: Sequence[Passed]
) -> dict[bytes, list[tuple[int, int]]]:
    """Return the marked rows of some inputs by key, each as the input's number and the row's index."""
    found: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
    for side in sides:
        at = np.flatnonzero(masks[side])
        for index, key in zip(at.tolist(), passed[side].changes.key.take(pa.array(at)).to_pylist(), strict=True):
            if key is not None:
                found[key].append((side, index))
    return found


def _pair_up(
    made: set[bytes], masks: list[Mask], lefts: Sequence[int], rights: Sequence[int], passed: Sequence[Passed]
) -> None:
    """Keep the marked rows that form a pair with an equal key. A row without a pair is kept if it is null-padded."""
    left, right = _by_key(masks, lefts, passed), _by_key(masks, rights, passed)
    if sum(len(rows) * len(right.get(key, ())) for key, rows in left.items()) > _MOST_PAIRS:
        return
    payloads = {at: passed[at].changes.payload for at in (*lefts, *rights)}
    paired: set[tuple[int, int]] = set()
    joined: set[bytes] = set()
    for key, rows in left.items():
        others = [(row, payloads[row[0]][row[1]].as_py()) for row in right.get(key, ())]
        for row in rows if others else ():
            own = payloads[row[0]][row[1]].as_py()
            for other, bytes_ in others:
                if own + bytes_ in made:
                    paired |= {row, other}
                    joined.add(own + bytes_)
    alone = made - joined
    for at in (*lefts, *rights):
        for index in np.flatnonzero(masks[at]).tolist():
            if (at, index) not in paired:
                own = payloads[at][index].as_py()
                masks[at][index] = any(each.startswith(own) if at in lefts else each.endswith(own) for each in alone)


def _matches_of_left(
    node: PhysicalJoin, masks: list[Mask], lefts: Sequence[int], rights: Sequence[int], passed: Sequence[Passed]
) -> None:
    """Mark the right rows that match a marked left row."""
    left = _by_key(masks, lefts, passed)
    for side in rights:
        masks[side] = _is_in(passed[side].changes.key, binary(left))
    if node.condition is None:
        return
    holds = condition(node.condition, node.left.calc.output, node.right.calc.output, "null")
    for side in rights:
        for index in np.flatnonzero(masks[side]).tolist():
            key = passed[side].changes.key[index].as_py()
            mine = binary([passed[at].changes.payload[row].as_py() for at, row in left[key]])
            other = binary([passed[side].changes.payload[index].as_py()] * len(mine))
            masks[side][index] = bool(holds(mine, other).any())
