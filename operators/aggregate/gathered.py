"""Gathered functions: functions computed from all values of a group, such as COLLECT_LIST, LISTAGG and MODE.

Gathered functions have no state of their own. Only the values are stored (`operators.aggregate.arranged_values`). For
each group that the batch touches, the group's values are read, and the function is computed twice: over the values
before the batch, and over the values after the batch. The cost of a change is therefore proportional to the number of
distinct values in its group. Results are not stored. PERCENTILE_CONT and PERCENTILE_DISC are also gathered functions.
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
    """A gathered function as an accumulator. Its parts after `total` are results, which cannot be added up further."""

    call: AccumulatorCall
    kinds: str = ""

    def lift(self, values: pa.Array | None, counted: Mask) -> pa.Array:
        """Return the values unchanged. They always come from the arranged values."""
        assert values is not None
        assert counted.all(), "every arranged row counts"
        return values

    def total(self, pieces: Sequence[AccumulatorPiece], count: int) -> pa.Array:
        """Compute the function over each group's values. Multiplicities may be 0, for values that are not present."""
        assert self.call.gather is not None
        assert self.call.argument_type is not None
        empty = value_bytes.from_bytes(pa.array([], pa.binary()), self.call.argument_type)
        values = pa.concat_arrays([empty, *(part for part, _, _ in pieces)])
        group = np.concatenate([np.empty(0, np.int64), *(group for _, group, _ in pieces)])
        times = np.concatenate([np.empty(0, np.int64), *(times for _, _, times in pieces)])
        there = np.flatnonzero(times > 0)
        return self.call.gather(values.take(pa.array(there)), group[there], times[there], count)

    def to_columns(self, part: pa.Array) -> list[Column]:  # noqa: ARG002 -- no state is stored
        """Return no columns."""
        return []

    def of_columns(self, columns: Sequence[Column]) -> pa.Array:  # noqa: ARG002 -- there are no columns
        """Return an empty array, because no state is stored."""
        return pa.nulls(0)

    def finish(self, part: pa.Array) -> pa.Array:
        """Return the result."""
        return part
