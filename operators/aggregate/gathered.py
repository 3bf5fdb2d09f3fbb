"""Gathered: functions that are made of all values of a group, such as COLLECT_LIST, LISTAGG, PERCENTILE and MODE.

Nothing is added up for them and nothing is kept besides the values themselves (`operators.aggregate.arranged_values`):
for each group that the batch touches they are read, and the result is made twice, of the values before the batch and of
those after it. So a change costs as much as its group has different values, and a result is stored nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rowkind.operators.aggregate.accumulators import AccumulatorCall, AccumulatorPiece
from rowkind.operators.columns import value_bytes
from rowkind.operators.columns.changes import Mask
from rowkind.operators.columns.packed_columns import Column


@dataclass(frozen=True, slots=True)
class Gathered:
    """The result of each group, which is the sum of its values here: it cannot be added up any further."""

    call: AccumulatorCall
    kinds: str = ""

    def lift(self, values: pa.Array | None, counted: Mask) -> pa.Array:
        """The values, which come from the arranged ones alone."""
        assert values is not None
        assert counted.all(), "what does not count is not arranged"
        return values

    def total(self, pieces: Sequence[AccumulatorPiece], count: int) -> pa.Array:
        """What is made of the values of each group; signs are how often a value is there, 0 for one that is not."""
        assert self.call.gather is not None
        assert self.call.argument_type is not None
        empty = value_bytes.from_bytes(pa.array([], pa.binary()), self.call.argument_type)
        values = pa.concat_arrays([empty, *(part for part, _, _ in pieces)])
        group = np.concatenate([np.empty(0, np.int64), *(group for _, group, _ in pieces)])
        times = np.concatenate([np.empty(0, np.int64), *(times for _, _, times in pieces)])
        there = np.flatnonzero(times > 0)
        return self.call.gather(values.take(pa.array(there)), group[there], times[there], count)

    def to_columns(self, part: pa.Array) -> list[Column]:  # noqa: ARG002 -- nothing is kept of it
        """Nothing."""
        return []

    def of_columns(self, columns: Sequence[Column]) -> pa.Array:  # noqa: ARG002 -- there are none
        """Nothing: what is stored says nothing of it."""
        return pa.nulls(0)

    def finish(self, part: pa.Array) -> pa.Array:
        """The result."""
        return part
