"""A join's output rows. They are made from signed pairs of rows; equal pairs with opposite signs cancel.

If refreshes are requested, two pairs that cancel become a refresh, because an input row has been rewritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.arrangement.netting import inserted, kinds, spelled
from rowkind.operators.columns.batch import Emitted
from rowkind.operators.columns.changes import Indices, Int64s, Rows, binary, concat_binary, lengths
from rowkind.operators.columns.consolidation import cancelled_pairs, net_weights
from rowkind.operators.columns.hashing import mix, sketch64

PAD = -1
"""The index that stands for a missing row."""


@dataclass(frozen=True, slots=True)
class Emission:
    """Signed output rows, each given by the indices of its left and right row; `PAD` stands for a missing row."""

    left: Indices
    right: Indices
    weight: Int64s

    @property
    def mirrored(self) -> Emission:
        """The same output rows with the sides exchanged."""
        return Emission(self.right, self.left, self.weight)

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Concatenate all parts."""
        return cls(
            np.concatenate([part.left for part in parts]),
            np.concatenate([part.right for part in parts]),
            np.concatenate([part.weight for part in parts]),
        )

    def take(self, indices: Indices) -> Emission:
        """Return the output rows at `indices`."""
        return Emission(self.left[indices], self.right[indices], self.weight[indices])


@dataclass(frozen=True, slots=True)
class Parents:
    """One side's rows from which output rows are made; the last row is the pad."""

    payload: pa.BinaryArray
    seq: Int64s

    @classmethod
    def of(cls, payload: pa.BinaryArray, seq: Int64s, pad: bytes) -> Self:
        """Return the rows followed by the pad, whose arrival number is lower than any row's."""
        return cls(concat_binary([payload, binary([pad])]), np.append(seq, np.iinfo(np.int64).min))

    def find(self, rows: Indices) -> Indices:
        """Return the indices with `PAD` replaced by the pad's position, because Arrow rejects negative indices."""
        return np.where(rows == PAD, len(self.seq) - 1, rows)


def emit(emission: Emission, left: Parents, right: Parents, again: Emission | None = None) -> Emitted:
    """Return the output rows that remain after equal rows with opposite signs have cancelled.

    Retracted rows come before inserted rows, as described in `operators.columns.emission`. `again` contains rows to
    emit as refreshes, in addition to the pairs that cancel; None if no refreshes are needed.
    """
    emission = Emission(left.find(emission.left), right.find(emission.right), emission.weight)
    weight = _net(emission, left, right)
    refreshed = np.empty(0, np.int64)
    if again is not None:
        pairs = cancelled_pairs(emission.weight, weight)
        refreshed = np.concatenate([pairs, len(weight) + np.repeat(np.arange(len(again.weight)), again.weight)])
        again = Emission(left.find(again.left), right.find(again.right), np.zeros_like(again.weight))
        emission, weight = Emission.concat([emission, again]), np.concatenate([weight, again.weight])
    sizes = lengths(left.payload)[emission.left] + lengths(right.payload)[emission.right]
    rows = spelled(weight, sizes, refreshed)
    net = Rows(kinds(weight[rows]), *_joined(emission.take(rows), left, right))
    if not len(refreshed):
        return Emitted(net)
    return Emitted(net, inserted(*_joined(emission.take(refreshed), left, right)))


def _joined(emission: Emission, left: Parents, right: Parents) -> tuple[Int64s, pa.BinaryArray]:
    """Return the output rows' arrival numbers and payloads."""
    payload = pc.binary_join_element_wise(
        left.payload.take(pa.array(emission.left)), right.payload.take(pa.array(emission.right)), b""
    )
    return np.maximum(left.seq[emission.left], right.seq[emission.right]), payload


def _net(emission: Emission, left: Parents, right: Parents) -> Int64s:
    """Return the weights after equal output rows with opposite signs have cancelled.

    Of equal rows, those with the highest arrival numbers remain.
    """
    if not (emission.weight < 0).any():
        return emission.weight
    return net_weights(
        mix(sketch64(left.payload)[emission.left], sketch64(right.payload)[emission.right]),
        emission.weight,
        lambda rows: (
            left.payload.take(pa.array(emission.left[rows])),
            right.payload.take(pa.array(emission.right[rows])),
        ),
        lambda rows: np.maximum(left.seq[emission.left[rows]], right.seq[emission.right[rows]]),
    )
