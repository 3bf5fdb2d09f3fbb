"""Kafka records in columnar form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Self

import numpy as np
import pyarrow as pa

from rowkind.operators.columns.changes import Indices, Int64s, concat_binary
from rowkind.service.kafka.headers import Headers


@dataclass(frozen=True, slots=True)
class OneRecord:
    """One record as stored in its topic; `timestamp` is in ms since the epoch, -1 for none."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def header(self, name: str) -> bytes | None:
        """Return the value of the last header with this name, or None if there is no such header."""
        return dict(self.headers).get(name)


_MADE_STRIDE = 16
"""Only one of this many records counts in the latency, which keeps the cost of measuring it low."""


@dataclass(frozen=True)
class Made:
    """Sampled record times: `at` contains times in ms since the epoch, `records` the number of records at each time."""

    at: Int64s
    records: Int64s

    @classmethod
    def sampled(cls, timestamp: Int64s) -> Self:
        """Return the times of every `_MADE_STRIDE`th record, without -1, which a record without a time has."""
        at = timestamp[::_MADE_STRIDE]
        records = np.full(len(at), _MADE_STRIDE)
        records[-1:] = len(timestamp) - _MADE_STRIDE * (len(at) - 1)
        known = at >= 0
        return cls(at[known], records[known])


@dataclass(frozen=True)
class Records:
    """Records of one topic as columns. The records of each partition are in offset order.

    - `value`: null for a tombstone, which deletes its key in a compacted topic.
    - `key`: null if the record has no key, or if the key was not fetched. Keys are fetched only if a value is null or
      if the fetcher reads `whole` records (`service.kafka.fetch`).
    - `headers`: None if no record has any.
    - `timestamp`: ms since the epoch, or -1 if a record has none.
    """

    topic: str
    partition: Int64s
    offset: Int64s
    value: pa.BinaryArray
    key: pa.BinaryArray
    headers: Headers | None
    timestamp: Int64s

    @property
    def made(self) -> Made:
        """The times of a sample of the records."""
        return Made.sampled(self.timestamp)

    @property
    def each(self) -> Iterator[OneRecord]:
        """Iterate over the records one at a time. They must have been fetched whole."""
        headers = self.headers if self.headers is not None else repeat((), len(self))
        partitions, offsets, times = self.partition.tolist(), self.offset.tolist(), self.timestamp.tolist()
        columns = zip(partitions, offsets, times, self.key.to_pylist(), self.value.to_pylist(), headers, strict=True)
        for partition, offset, timestamp, key, value, own in columns:
            yield OneRecord(partition, offset, timestamp, key, value, tuple(own))

    def __len__(self) -> int:
        return len(self.partition)

    def take(self, rows: Indices) -> Self:
        """Return the records at `rows`, in that order."""
        at = pa.array(rows)
        return replace(
            self,
            partition=self.partition[rows],
            offset=self.offset[rows],
            value=self.value.take(at),
            key=self.key.take(at),
            headers=None if self.headers is None else self.headers.take(rows),
            timestamp=self.timestamp[rows],
        )

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Concatenate records of the same topic."""
        if len(parts) == 1:
            return parts[0]
        headers = None
        if any(part.headers is not None for part in parts):
            headers = Headers.concat(
                [Headers.none(len(part)) if part.headers is None else part.headers for part in parts]
            )
        return cls(
            parts[0].topic,
            np.concatenate([part.partition for part in parts]),
            np.concatenate([part.offset for part in parts]),
            concat_binary([part.value for part in parts]),
            concat_binary([part.key for part in parts]),
            headers,
            np.concatenate([part.timestamp for part in parts]),
        )
