"""Columnar changes: the data that operators and query tasks exchange.

Two types alternate in every query. An operator or a scan emits `Rows`: columns of row kinds, arrival numbers and packed
rows. A calc then filters and projects the rows, and determines their destination. The result is `Changes`: the same
columns with a side, a hash, a key and a sub-key for the consumer. The consumer takes `Changes` and emits `Rows` again.
`columns.batch` defines the other contents of a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int8s = npt.NDArray[np.int8]
Int16s = npt.NDArray[np.int16]
Int64s = npt.NDArray[np.int64]
Uint64s = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]

WEIGHTS = np.array([1, -1, 1, -1], dtype=np.int64)
"""The weight that each row kind adds in a multiset, indexed by the ordinal of the row kind."""


def binary(values: Iterable[bytes | None]) -> pa.BinaryArray:
    """Return an Arrow array of bytes from Python values, for tests and slow paths."""
    return pa.array(list(values), pa.binary())


def constant(value: bytes, length: int) -> pa.BinaryArray:
    """Return an array of `length` elements that are all `value`."""
    offsets = pa.py_buffer(np.arange(length + 1, dtype=np.int32) * np.int32(len(value)))
    return pa.Array.from_buffers(pa.binary(), length, [None, offsets, pa.py_buffer(value * length)])


def concat_binary(arrays: Sequence[pa.BinaryArray]) -> pa.BinaryArray:
    """Concatenate arrays into a single array."""
    if len(arrays) == 1:
        return arrays[0]
    return pa.concat_arrays(arrays) if arrays else binary(())


def lengths(values: pa.BinaryArray) -> Int64s:
    """Return the length of each value in bytes. Nulls are not allowed."""
    result: Int64s = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    return result


@dataclass(frozen=True, slots=True)
class Rows:
    """Changes without a destination: columns kind (int8), seq (int64) and payload (binary, Avro in the edge's schema).

    `seq` is the arrival number of the change within its table. A joined row has the larger arrival number of its two
    input rows.
    """

    kind: Int8s
    seq: Int64s
    payload: pa.BinaryArray

    def __len__(self) -> int:
        return len(self.kind)

    @classmethod
    @cache
    def empty(cls) -> Self:
        """Return an empty set of rows."""
        return cls(np.empty(0, np.int8), np.empty(0, np.int64), binary(()))

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the parts."""
        if not parts:
            return cls.empty()
        return cls(
            np.concatenate([part.kind for part in parts]),
            np.concatenate([part.seq for part in parts]),
            concat_binary([part.payload for part in parts]),
        )

    def take(self, indices: Indices) -> Self:
        """Return the rows at `indices`, in that order."""
        return type(self)(self.kind[indices], self.seq[indices], self.payload.take(pa.array(indices)))

    def filter(self, mask: Mask) -> Self:
        """Return the rows where `mask` is true, in order."""
        return self if mask.all() else self.take(np.flatnonzero(mask))


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes with a destination: `Rows`, with additional columns side (int8), hash (uint64), key and sub_key (binary).

    Between stages, `side` is int16, because it also identifies the consumer (`service.execute.members`).

    - `hash` is `hashing.hash64` of the key. Only rows with a null key have a different hash, which spreads them over
      the shards.
    - `key` has a canonical form: the bytes of two keys are the same if and only if SQL considers the keys equal. The
      key is null if a key column that must not match NULL is NULL; a row with a null key matches nothing.
    - `sub_key` is never null. It is empty if the consumer's arrangement has no sub-keys.
    """

    side: Int8s | Int16s
    kind: Int8s
    hash: Uint64s
    key: pa.BinaryArray
    sub_key: pa.BinaryArray
    seq: Int64s
    payload: pa.BinaryArray

    def __len__(self) -> int:
        return len(self.kind)

    @classmethod
    @cache
    def empty(cls) -> Self:
        """Return an empty set of changes."""
        return cls(
            np.empty(0, np.int8),
            np.empty(0, np.int8),
            np.empty(0, np.uint64),
            binary(()),
            binary(()),
            np.empty(0, np.int64),
            binary(()),
        )

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the parts."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls.empty()
        return cls(
            np.concatenate([part.side for part in parts]),
            np.concatenate([part.kind for part in parts]),
            np.concatenate([part.hash for part in parts]),
            concat_binary([part.key for part in parts]),
            concat_binary([part.sub_key for part in parts]),
            np.concatenate([part.seq for part in parts]),
            concat_binary([part.payload for part in parts]),
        )

    @property
    def weight(self) -> Int64s:
        """The weight of each change: +1 for +I and +U, -1 for -U and -D."""
        return WEIGHTS[self.kind]

    @property
    def nbytes(self) -> int:
        """The approximate size in bytes."""
        return int(self.key.nbytes + self.sub_key.nbytes + self.payload.nbytes + 18 * len(self))

    @property
    def rows(self) -> Rows:
        """The same changes without their destination."""
        return Rows(self.kind, self.seq, self.payload)

    def take(self, indices: Indices) -> Self:
        """Return the changes at `indices`, in that order."""
        at = pa.array(indices)
        return type(self)(
            self.side[indices],
            self.kind[indices],
            self.hash[indices],
            self.key.take(at),
            self.sub_key.take(at),
            self.seq[indices],
            self.payload.take(at),
        )

    def filter(self, mask: Mask) -> Self:
        """Return the changes where `mask` is true, in order."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def slice(self, start: int, end: int) -> Self:
        """Return views of the changes from index `start` up to, but not including, index `end`."""
        return type(self)(
            self.side[start:end],
            self.kind[start:end],
            self.hash[start:end],
            self.key.slice(start, end - start),
            self.sub_key.slice(start, end - start),
            self.seq[start:end],
            self.payload.slice(start, end - start),
        )

    def split(self, shards: int, by: Uint64s | None = None) -> list[Self]:
        """Split the changes by shard (`hash mod shards`), in order. If `by` is given, use it instead of the hashes."""
        if shards == 1 or not len(self):
            return [self] * shards
        # NumPy sorts numbers of 16 bits by radix, which takes a third of the time.
        dtype = np.uint16 if shards < 1 << 16 else np.int64
        shard = ((self.hash if by is None else by) % np.uint64(shards)).astype(dtype)
        order = np.argsort(shard, kind="stable")
        bounds = np.searchsorted(shard[order], np.arange(shards + 1))
        return [self.take(order[bounds[i] : bounds[i + 1]]) for i in range(shards)]
