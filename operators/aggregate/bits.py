"""Bits: BIT_AND, BIT_OR and BIT_XOR by how many rows have each bit, so that a row can be taken back.

A bit of the result is set where all rows have it, or any, or an odd number of them. The numbers take a byte each while
they are small.
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
"""How many rows, and below it how many have each bit from the lowest up: a column for each row or group."""


@dataclass(frozen=True, slots=True)
class Bits:
    """A number for each bit of the argument, which is an integer, and one for all."""

    call: AccumulatorCall

    @property
    def kinds(self) -> str:
        """The numbers."""
        return "n" * (1 + 8 * self._unsigned.itemsize)

    @property
    def _unsigned(self) -> np.dtype[np.unsignedinteger]:
        assert self.call.argument_type is not None
        return np.dtype(f"u{self.call.argument_type.bit_width // 8}")

    def lift(self, values: pa.Array | None, counted: Mask) -> _Numbers:
        """The bits of each row; none where it does not count."""
        assert values is not None
        there = counts_where(values, counted)
        plain = values.fill_null(0).to_numpy(zero_copy_only=False)
        octets = np.where(there, plain, 0).astype(plain.dtype).view(np.uint8).reshape(len(plain), plain.itemsize)
        return np.vstack([there, np.unpackbits(octets, axis=1, bitorder="little").T]).astype(np.int8)

    def total(self, pieces: Sequence[AccumulatorPiece], count: int) -> _Numbers:
        """The sums."""
        return np.stack(summed_each(pieces, len(self.kinds), count))

    def to_columns(self, part: _Numbers) -> list[Column]:
        """One for each number."""
        return [*part.astype(np.int64)]

    def of_columns(self, columns: Sequence[Column]) -> _Numbers:
        """The numbers of these columns."""
        return np.stack([np.asarray(column) for column in columns])

    def finish(self, part: _Numbers) -> pa.Array:
        """The bits of the result; NULL where no row counts."""
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
