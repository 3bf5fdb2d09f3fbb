"""Steps of one aggregate: accumulators that are results of the first and arguments of the second.

A group with a hot DISTINCT is split by its values (`service.plan.passes.split_distinct`), and what else is asked of it
then is added up per value, and per group over those. So that nothing is rounded twice or overflows on the way, the
first step's result is not a sum but its accumulator, packed; equal accumulators have equal bytes. A step between two
adds up accumulators to others.
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
    """An accumulator whose result is itself."""

    whole: Accumulator

    @property
    def kinds(self) -> str:
        """As they are."""
        return self.whole.kinds

    def lift(self, values: pa.Array | None, counted: Mask) -> AccumulatorColumn:
        """Single rows."""
        return self.whole.lift(values, counted)

    def total(self, pieces: Sequence[AccumulatorPiece], count: int) -> AccumulatorColumn:
        """The sums."""
        return self.whole.total(pieces, count)

    def to_columns(self, part: AccumulatorColumn) -> list[Column]:
        """As they are."""
        return self.whole.to_columns(part)

    def of_columns(self, columns: Sequence[Column]) -> AccumulatorColumn:
        """As they are."""
        return self.whole.of_columns(columns)

    def finish(self, part: AccumulatorColumn) -> pa.Array:
        """The part, packed."""
        return pack(self.whole.to_columns(part))


@dataclass(frozen=True, slots=True)
class StageBetween(FirstStage):
    """An accumulator whose rows are accumulators, packed, and whose result is itself."""

    def lift(self, values: pa.Array | None, counted: Mask) -> AccumulatorColumn:
        """What the first stage has added up; there is no row without."""
        assert values is not None
        assert counted.all(), "what a row counts for has been decided in the first stage"
        return self.whole.of_columns(unpack(self.whole.kinds, values))


@dataclass(frozen=True, slots=True)
class SecondStage(StageBetween):
    """An accumulator whose rows are accumulators, packed."""

    def finish(self, part: AccumulatorColumn) -> pa.Array:
        """The result of the whole."""
        return self.whole.finish(part)
