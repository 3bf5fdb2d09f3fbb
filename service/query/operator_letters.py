"""Dead letters from operators: unmatched retractions, late rows, and rows on which an expression fails.

The value is the row as JSON, with the columns that reached the operator. A row that comes directly from a table has an
origin, which identifies the source record. A row that another operator produced, or that comes from one of several
inputs, has no origin. If rows were pre-aggregated before they reached an aggregate, only their group is known.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rowkind.avro.json_rows import decode
from rowkind.avro.schema import Record
from rowkind.avro.time_text import PER_SECOND, moment_text
from rowkind.operators.aggregate.partial import PARTIAL, group_of_sums
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import WEIGHTS, Changes, binary
from rowkind.operators.columns.rowtime import END
from rowkind.service.execute.aggregation import spec_of
from rowkind.service.execute.expressions import ExpressionError
from rowkind.service.execute.failures import LeftOut
from rowkind.service.execute.lateness import Lateness
from rowkind.service.kafka.dead_letter import EXPRESSION, DeadLetter
from rowkind.service.physical.calc import is_internal
from rowkind.service.physical.node import PhysicalNode, PhysicalOperator, PhysicalScan
from rowkind.service.physical.operators import PhysicalAggregate, PhysicalJoin
from rowkind.service.physical.tree import clock, walk


@dataclass(frozen=True)
class UnmatchedLetters:
    """Creates dead letters for an operator's unmatched retractions. Instances can be pickled."""

    node: PhysicalOperator

    def __call__(self, lost: Changes) -> pa.BinaryArray:
        """Return one dead letter for each retraction, containing the row as it reached the operator."""

        def why(kind: RowKind, _at: int) -> str:
            return f"{kind.symbol} of a row that does not exist (never inserted, already deleted, or expired)"

        return _letters(self.node, lost, "UnmatchedRetraction", why)


@dataclass(frozen=True)
class LateLetters:
    """Creates dead letters for changes that reached an operator late. Instances can be pickled."""

    node: PhysicalOperator

    def __call__(self, late: Changes, watermark: int) -> pa.BinaryArray:
        """Return one dead letter for each late change. `watermark`: the current watermark in ms."""
        of = clock(self.node)
        assert of is not None, "late rows exist only with a watermark"
        over = Lateness(self.node).times(late)

        def why(kind: RowKind, at: int) -> str:
            return (
                f"{kind.symbol} of a late row: all results that it could change were final at "
                f"{_moment(int(over[at]))}, and the watermark of {of.name} was at {_moment(watermark)}"
            )

        return _letters(self.node, late, "LateRow", why)


def _moment(ms: int) -> str:
    """Return the time of a row or a watermark as text, in UTC."""
    if ms >= END:
        return "the end of the input"
    return f"{moment_text(ms, PER_SECOND['millis'])}Z"


def tells_late(node: PhysicalOperator) -> bool:
    """Return whether an operator's late changes become dead letters."""
    of = clock(node)
    tables = {table for table, _ in of.tables} if of is not None and any(node.closings) else set()
    marks = (
        each.source.watermark for each in walk(node) if isinstance(each, PhysicalScan) and each.source.table in tables
    )
    return any(mark is not None and mark.late == "dead_letter" for mark in marks)


@dataclass(frozen=True)
class LeftOutLetters:
    """Creates dead letters for an operator's output rows on which an expression failed. Instances can be pickled."""

    node: PhysicalOperator

    def __call__(self, left_out: LeftOut) -> pa.BinaryArray:
        """Return one dead letter for each inserted row."""
        rows = decode(self.node.calc.input, left_out.rows.payload)
        told = zip(left_out.rows.kind.tolist(), rows, left_out.reasons, strict=True)
        return binary(self._letter(row, reason) for kind, row, reason in told if WEIGHTS[kind] > 0)

    def _letter(self, row: Mapping[str, object], reason: str) -> bytes:
        value = json.dumps({name: each for name, each in row.items() if not is_internal(name)}, default=str)
        name, error = self.node.node, ExpressionError.__name__
        return DeadLetter(name, stage=EXPRESSION, error=error, message=reason, value=value.encode()).to_bytes()


def sides(node: PhysicalOperator) -> tuple[str, ...]:
    """Return the names of an operator's sides. A side has the name of the node that feeds it."""
    # A NOT IN receives its facts on side 2. An aggregate receives pre-aggregated sums on side 1.
    more = node.facts[:1] if isinstance(node, PhysicalJoin) else node.sides * isinstance(node, PhysicalAggregate)
    return tuple(map(_name, (*node.sides, *more)))


def _rows(node: PhysicalOperator, side: int, payloads: pa.BinaryArray) -> tuple[PhysicalNode, Record, pa.BinaryArray]:
    """Return the node that a side's changes come from, the record of these changes, and their payloads."""
    if isinstance(node, PhysicalAggregate) and side == PARTIAL:
        aggregation = node.aggregation
        groups = group_of_sums(spec_of(aggregation), payloads)
        return node.input, aggregation.output.select(aggregation.group), groups
    facts = node.facts if isinstance(node, PhysicalJoin) else ()
    source = (*node.sides, *facts)[side]
    return source, source.calc.output, payloads


def _letters(
    node: PhysicalOperator, changes: Changes, error: str, why: Callable[[RowKind, int], str]
) -> pa.BinaryArray:
    """Return one dead letter for each of the given changes, which reached an operator."""
    letters: list[bytes | None] = [None] * len(changes)
    for side in np.unique(changes.side).tolist():
        members = np.flatnonzero(changes.side == side)
        source, record, payloads = _rows(node, side, changes.payload.take(pa.array(members)))
        for at, row in zip(members.tolist(), decode(record, payloads), strict=True):
            letter = _letter(node.node, source, row, error, why(RowKind(int(changes.kind[at])), at))
            if isinstance(source, PhysicalScan):
                place = ArrivalNumber.of(int(changes.seq[at]))
                letter = replace(letter, topic=source.source.topic, partition=place.partition, offset=place.offset)
            letters[at] = letter.to_bytes()
    return binary(letters)


def _letter(stage: str, source: PhysicalNode, row: Mapping[str, object], error: str, message: str) -> DeadLetter:
    value = {_column(source, name): value for name, value in row.items() if not is_internal(name)}
    return DeadLetter(
        table=source.source.table if isinstance(source, PhysicalScan) else _name(source),
        stage=stage,
        error=error,
        message=message,
        value=json.dumps(value, default=str).encode(),
    )


def _name(source: PhysicalNode) -> str:
    return source.node


def _column(source: PhysicalNode, name: str) -> str:
    return name.removeprefix(f"{source.alias}.") if isinstance(source, PhysicalScan) else name
