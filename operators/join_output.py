"""What a join emits: signed pairs of rows become output rows, after equal ones of opposite sign have cancelled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.columns.changes import Indices, Int64s, RowKind, Rows, binary, concat_binary, lengths
from rowkind.operators.columns.consolidation import net_weights, spelled_out
from rowkind.operators.columns.hashing import mix, sketch64
from rowkind.operators.errors import BatchTooLarge

PAD = -1
"""The index that stands for the missing row of a side."""

LARGEST = (1 << 31) - 1
"""Bytes of payload that rows emitted together may have."""


@dataclass(frozen=True, slots=True)
class Emission:
    """Signed output rows: a row of each side, -1 for the pad."""

    left: Indices
    right: Indices
    weight: Int64s

    @property
    def mirrored(self) -> Emission:
        """The same with the sides exchanged."""
        return Emission(self.right, self.left, self.weight)

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """All parts, one after the other."""
        return cls(
            np.concatenate([part.left for part in parts]),
            np.concatenate([part.right for part in parts]),
            np.concatenate([part.weight for part in parts]),
        )

    def take(self, indices: Indices) -> Emission:
        """The output rows at `indices`."""
        return Emission(self.left[indices], self.right[indices], self.weight[indices])


@dataclass(frozen=True, slots=True)
class Parents:
    """The rows of one side that output rows are made of, with the pad as the last one."""

    payload: pa.BinaryArray
    seq: Int64s

    @classmethod
    def of(cls, payload: pa.BinaryArray, seq: Int64s, pad: bytes) -> Self:
        """These rows, and the pad, which comes before all others in time."""
        return cls(concat_binary([payload, binary([pad])]), np.append(seq, np.iinfo(np.int64).min))

    def find(self, rows: Indices) -> Indices:
        """The indices with the pad's spelled out, as Arrow wants them."""
        return np.where(rows == PAD, len(self.seq) - 1, rows)


def emit(emission: Emission, left: Parents, right: Parents) -> Rows:
    """The output rows: what is left of the emission when equal rows of opposite sign have cancelled.

    They come in the order of `operators.emission`: rows that go before rows that come.
    """
    left_payload, right_payload = left.payload, right.payload
    emission = Emission(left.find(emission.left), right.find(emission.right), emission.weight)
    emission = _cancel(emission, left, right)
    size = int((lengths(left_payload)[emission.left] + lengths(right_payload)[emission.right]) @ abs(emission.weight))
    if size > LARGEST:
        raise BatchTooLarge(int(abs(emission.weight).sum()), size)
    emission = emission.take(spelled_out(emission.weight))
    return Rows(
        np.where(emission.weight > 0, RowKind.INSERT, RowKind.DELETE).astype(np.int8),
        np.maximum(left.seq[emission.left], right.seq[emission.right]),
        pc.binary_join_element_wise(
            left_payload.take(pa.array(emission.left)), right_payload.take(pa.array(emission.right)), b""
        ),
    )


def _cancel(emission: Emission, left: Parents, right: Parents) -> Emission:
    """The same emission without pairs of equal output rows of opposite sign; what is left is the latest by seq."""
    if not (emission.weight < 0).any():
        return emission
    weight = net_weights(
        mix(sketch64(left.payload)[emission.left], sketch64(right.payload)[emission.right]),
        emission.weight,
        lambda rows: (
            left.payload.take(pa.array(emission.left[rows])),
            right.payload.take(pa.array(emission.right[rows])),
        ),
        lambda rows: np.maximum(left.seq[emission.left[rows]], right.seq[emission.right[rows]]),
    )
    return Emission(emission.left, emission.right, weight)
