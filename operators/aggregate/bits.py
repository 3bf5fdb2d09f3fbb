"""BIT_AND, BIT_OR and BIT_XOR. The state is how many rows have each bit set, so that rows can be retracted.

A bit of the result is set if all rows have it set (BIT_AND), any row has it set (BIT_OR), or an odd number of rows have
it set (BIT_XOR). Small counts take one byte each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rowkind.operators.aggregate.accumulators import AccumulatorCall, AccumulatorPiece, counts_where, summed_each
from rowkind.operators.columns.changes import Int64s, Mask
from rowkind.operators.columns.packed_columns import Column

_Numbers = npt.NDArray[np.int8] | Int64s
"""A matrix with one column per row or group. Its first row is the number of rows. The following rows are the number of
rows in which each bit is set, lowest bit first."""


@dataclass(frozen=True, slots=True)
class Bits:
    """The number of rows and, for each bit of an integer argument, the number of rows in which the bit is set."""

    call: AccumulatorCall

    @property
    def kinds(self) -> str:
        """The column kinds of the counts."""
        return "n" * (1 + 8 * self._unsigned.itemsize)

    @property
    def _unsigned(self) -> np.dtype[np.unsignedinteger]:
        assert self.call.argument_type is not None
        return np.dtype(f"u{self.call.argument_type.bit_width // 8}")

    def lift(self, values: pa.Array | None, counted: Mask) -> _Numbers:
        """Return, for each row, the count 1 and the row's bits, or zeros if the row is not aggregated."""
        assert values is not None
        there = counts_where(values, counted)
        plain = values.fill_null(0).to_numpy(zero_copy_only=False)
        octets = np.where(there, plain, 0).astype(plain.dtype).view(np.uint8).reshape(len(plain), plain.itemsize)
        return np.vstack([there, np.unpackbits(octets, axis=1, bitorder="little").T]).astype(np.int8)

    def total(self, pieces: Sequence[AccumulatorPiece], count: int) -> _Numbers:
        """Return the sums of the counts."""
        return np.stack(summed_each(pieces, len(self.kinds), count))

    def to_columns(self, part: _Numbers) -> list[Column]:
        """Return one column per count."""
        return [*part.astype(np.int64)]

    def of_columns(self, columns: Sequence[Column]) -> _Numbers:
        """Convert columns that `to_columns` returned back to the counts."""
        return np.stack([np.asarray(column) for column in columns])

    def finish(self, part: _Numbers) -> pa.Array:
        """Return the result, or NULL if there are no values."""
        rows, having = part[0], part[1:]
        match self.call.function:
            case "bit_and":
                bits = having >= rows
            case "bit_or":
                bits = having > 0
            case _:
                bits = having % 2 == 1
        octets = np.packbits(bits.T, axis=1, bitorder="little")
        values = np.ascontiguousarray(octets).view(self._unsigned.str.replace("u", "i"))[:, 0]
        return pa.array(values, self.call.type, mask=rows <= 0)
