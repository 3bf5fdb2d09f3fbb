"""What a join emits: signed pairs of rows become output rows, after equal ones of opposite sign have cancelled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.columns.changes import Indices, Int64s, RowKind, Rows, Uint64s, binary, concat_binary, lengths
from rowkind.operators.columns.grouping import group
from rowkind.operators.columns.hashing import hash64, mix, sketch64
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
    """The output rows: what is left of the emission when equal rows of opposite sign have cancelled."""
    left_payload, right_payload = left.payload, right.payload
    emission = Emission(left.find(emission.left), right.find(emission.right), emission.weight)
    emission = _cancel(emission, left, right)
    size = int((lengths(left_payload)[emission.left] + lengths(right_payload)[emission.right]) @ abs(emission.weight))
    if size > LARGEST:
        raise BatchTooLarge(int(abs(emission.weight).sum()), size)
    if (abs(emission.weight) != 1).any():
        emission = emission.take(np.repeat(np.arange(len(emission.weight)), abs(emission.weight)))
    return Rows(
        np.where(emission.weight > 0, RowKind.INSERT, RowKind.DELETE).astype(np.int8),
        np.maximum(left.seq[emission.left], right.seq[emission.right]),
        pc.binary_join_element_wise(
            left_payload.take(pa.array(emission.left)), right_payload.take(pa.array(emission.right)), b""
        ),
    )


def _cancel(emission: Emission, left: Parents, right: Parents) -> Emission:
    """The same emission without pairs of equal output rows of opposite sign; what is left is the latest by seq."""
    negative = emission.weight < 0
    if not negative.any() or negative.all():
        return emission
    codes = mix(sketch64(left.payload)[emission.left], sketch64(right.payload)[emission.right])
    weight = cancelled(
        codes,
        emission.weight,
        lambda rows: np.maximum(left.seq[emission.left[rows]], right.seq[emission.right[rows]]),
        lambda rows: (
            left.payload.take(pa.array(emission.left[rows])),
            right.payload.take(pa.array(emission.right[rows])),
        ),
    )
    if weight is emission.weight:
        return emission
    return Emission(emission.left, emission.right, weight).take(np.flatnonzero(weight))


def cancelled(
    codes: Uint64s,
    weight: Int64s,
    seq: Callable[[Indices], Int64s],
    columns: Callable[[Indices], Sequence[pa.BinaryArray]],
) -> Int64s:
    """The weights of rows when equal ones of opposite sign have cancelled: what is left is the latest by seq.

    Equal rows have equal codes. `seq` and `columns` give the seqs and all bytes of the rows they are asked for.
    """
    negative = weight < 0
    rows = _tied(codes)
    if not negative[rows].any() or negative[rows].all():
        return weight
    # Rows that look alike at a glance: now by all of their bytes.
    parts = columns(rows)
    groups = group(functools.reduce(mix, map(hash64, parts)), parts)
    contested = (np.bincount(groups.ids[negative[rows]], minlength=groups.count) > 0)[groups.ids]
    contested &= (np.bincount(groups.ids[~negative[rows]], minlength=groups.count) > 0)[groups.ids]
    rows, ids = rows[contested], groups.ids[contested]
    sums = np.zeros(groups.count, np.int64)
    np.add.at(sums, ids, weight[rows])
    of_the_sign = (weight[rows] > 0) == (sums > 0)[ids]
    order = np.lexsort((seq(rows), of_the_sign))
    latest = np.full(groups.count, -1)
    latest[ids[order]] = rows[order]
    weight = weight.copy()
    weight[rows] = 0
    weight[latest[latest >= 0]] = sums[latest >= 0]
    return weight


def _tied(codes: Uint64s) -> Indices:
    """The rows that share their code with another row."""
    ascending = np.argsort(codes)
    ordered = codes[ascending]
    ties = ordered[1:] == ordered[:-1]
    return ascending[np.concatenate((ties, [False])) | np.concatenate(([False], ties))]
