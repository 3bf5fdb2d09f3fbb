"""What a join emits: signed pairs of rows become output rows, after equal ones of opposite sign have cancelled.

Where refreshes are asked for, a pair of rows that cancels is one: what the row was made of has been written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.columns.batch import Emitted
from rowkind.operators.columns.changes import Indices, Int64s, Rows, binary, concat_binary, lengths
from rowkind.operators.columns.consolidation import cancelled_pairs, net_weights
from rowkind.operators.columns.hashing import mix, sketch64
from rowkind.operators.netting import inserted, kinds, spelled

PAD = -1
"""The index that stands for the missing row of a side."""


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


def emit(emission: Emission, left: Parents, right: Parents, again: Emission | None = None) -> Emitted:
    """The output rows: what is left of the emission when equal rows of opposite sign have cancelled.

    They come in the order of `operators.emission`: rows that go before rows that come. `again` are rows to be emitted
    as refreshes, and so are then the pairs that cancel; None where nobody waits for any.
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
    """The arrival numbers and the payloads of output rows."""
    payload = pc.binary_join_element_wise(
        left.payload.take(pa.array(emission.left)), right.payload.take(pa.array(emission.right)), b""
    )
    return np.maximum(left.seq[emission.left], right.seq[emission.right]), payload


def _net(emission: Emission, left: Parents, right: Parents) -> Int64s:
    """The weights without pairs of equal output rows of opposite sign; what is left is the latest by seq."""
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
