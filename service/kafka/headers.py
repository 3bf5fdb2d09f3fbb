"""The headers of records as columns, and the row kinds in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Self

import numpy as np
import pyarrow as pa

from rowkind.operators.columns.changes import Indices, Int8s, Int64s, Mask, binary, concat_binary
from rowkind.service.physical.row_kind import RowKindHeader

HeaderList = list[tuple[str, bytes | None]]
"""The headers of one record in their order; a name may occur more than once."""

MISSING = -1
UNKNOWN = -2


@dataclass(frozen=True)
class Headers:
    """The headers of some records.

    The headers of record `i` are those from `ends[i]` to `ends[i + 1]`. Each has a value, which may be null, and the
    number of its name in `names`.
    """

    ends: Int64s
    names: Sequence[str]
    name: Int64s
    value: pa.BinaryArray

    @classmethod
    def of(cls, records: Iterable[Sequence[tuple[str, bytes | None]] | None]) -> Self:
        """Return the headers of records that are given as lists, or as None for a record without any."""
        lists = [each or () for each in records]
        numbers: dict[str, int] = {}
        name = [numbers.setdefault(header, len(numbers)) for each in lists for header, _ in each]
        ends = np.array([0, *accumulate(map(len, lists))], np.int64)
        return cls(ends, list(numbers), np.array(name, np.int64), binary(value for each in lists for _, value in each))

    @classmethod
    def none(cls, records: int) -> Self:
        """Return the headers of records that have none."""
        return cls(np.zeros(records + 1, np.int64), (), np.empty(0, np.int64), binary(()))

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __bool__(self) -> bool:
        """Whether any record has a header."""
        return len(self.name) > 0

    def __getitem__(self, record: int) -> HeaderList:
        return self._list(slice(int(self.ends[record]), int(self.ends[record + 1])))

    def __iter__(self) -> Iterator[HeaderList]:
        every, ends = self._list(slice(None)), self.ends.tolist()
        return (every[start:end] for start, end in pairwise(ends))

    def _list(self, headers: slice) -> HeaderList:
        names = (self.names[number] for number in self.name[headers].tolist())
        return list(zip(names, self.value[headers].to_pylist(), strict=True))

    def take(self, records: Indices) -> Self:
        """Return the headers of some of the records."""
        counts = np.diff(self.ends)[records]
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        at = np.repeat(self.ends[records] - ends[:-1], counts) + np.arange(ends[-1])
        return type(self)(ends, self.names, self.name[at], self.value.take(pa.array(at)))

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the headers of records."""
        if len(parts) == 1:
            return parts[0]
        numbers: dict[str, int] = {}
        own = [np.array([numbers.setdefault(each, len(numbers)) for each in part.names], np.int64) for part in parts]
        counts = np.concatenate([np.diff(part.ends) for part in parts])
        return cls(
            np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]),
            list(numbers),
            np.concatenate([number[part.name] for number, part in zip(own, parts, strict=True)]),
            concat_binary([part.value for part in parts]),
        )

    def last(self, name: str) -> tuple[Indices, pa.BinaryArray]:
        """Return the records that have a header with this name, and the value of the last one of each."""
        if name not in self.names:
            return np.empty(0, np.int64), binary(())
        at = np.flatnonzero(self.name == list(self.names).index(name))
        record = np.repeat(np.arange(len(self)), np.diff(self.ends))[at]
        is_last: Mask = np.append(record[1:] != record[:-1], np.ones(min(1, len(record)), np.bool_))
        return record[is_last], self.value.take(pa.array(at[is_last]))


def row_kinds(headers: Headers, header: RowKindHeader) -> Int8s:
    """Return each record's row kind, or `MISSING` or `UNKNOWN`. Of several row kind headers, the last one counts."""
    kinds = np.full(len(headers), MISSING, np.int8)
    records, words = headers.last(header.header)
    if len(records):
        coded = words.dictionary_encode(null_encoding="encode")
        ordinals = [header.values.get(word, UNKNOWN) for word in coded.dictionary.to_pylist()]
        kinds[records] = np.array(ordinals, np.int8)[coded.indices.to_numpy(zero_copy_only=False)]
    return kinds
