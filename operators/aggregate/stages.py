"""Aggregates in several steps: the accumulators that one step returns are the arguments of the next step.

If a group has a hot DISTINCT call, the group is split by the call's values (`service.plan.passes.split_distinct`). The
group's other calls are then computed per value first, and added up per group afterwards. The first step returns packed
accumulators instead of final values, so that no value is rounded twice and no intermediate sum overflows. Equal
accumulators have equal bytes. A step between the first and the last step takes accumulators and returns accumulators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from rowkind.operators.aggregate.accumulators import Accumulator, AccumulatorColumn, AccumulatorPiece
from rowkind.operators.columns.changes import Mask
from rowkind.operators.columns.packed_columns import Column, pack, unpack


@dataclass(frozen=True, slots=True)
class FirstStage:
    """The first step: an accumulator whose result is the accumulator itself, packed."""

    whole: Accumulator

    @property
    def kinds(self) -> str:
        """The column kinds of the underlying accumulator."""
        return self.whole.kinds

    def lift(self, values: pa.Array | None, counted: Mask) -> AccumulatorColumn:
        """Return the underlying accumulator's part for single rows."""
        return self.whole.lift(values, counted)

    def total(self, pieces: Sequence[AccumulatorPiece], count: int) -> AccumulatorColumn:
        """Return the sums."""
        return self.whole.total(pieces, count)

    def to_columns(self, part: AccumulatorColumn) -> list[Column]:
        """Return the underlying accumulator's columns."""
        return self.whole.to_columns(part)

    def of_columns(self, columns: Sequence[Column]) -> AccumulatorColumn:
        """Return the underlying accumulator's part."""
        return self.whole.of_columns(columns)

    def finish(self, part: AccumulatorColumn) -> pa.Array:
        """Return the part, packed."""
        return pack(self.whole.to_columns(part))


@dataclass(frozen=True, slots=True)
class StageBetween(FirstStage):
    """A step between the first and the last step. Its rows and its results are packed accumulators."""

    def lift(self, values: pa.Array | None, counted: Mask) -> AccumulatorColumn:
        """Unpack the accumulators that the previous step returned. Every row has an accumulator."""
        assert values is not None
        assert counted.all(), "the first stage has dropped the rows that do not count"
        return self.whole.of_columns(unpack(self.whole.kinds, values))


@dataclass(frozen=True, slots=True)
class SecondStage(StageBetween):
    """The last step: its rows are packed accumulators, and its results are the final results."""

    def finish(self, part: AccumulatorColumn) -> pa.Array:
        """Return the underlying accumulator's result."""
        return self.whole.finish(part)
