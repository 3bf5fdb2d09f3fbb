"""The keys that a batch touches, numbered from 0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.columns.changes import Changes, Indices, Uint64s, concat_binary
from rowkind.operators.columns.grouping import group


@dataclass(frozen=True, slots=True)
class TouchedKeys:
    """The key number of each change, and the hash and key for each key number."""

    of_change: Indices
    hash: Uint64s
    key: pa.BinaryArray

    @classmethod
    def of(cls, changes: Changes) -> TouchedKeys:
        """Number the keys of these changes."""
        groups = group(changes.hash, [changes.key])
        first = np.empty(groups.count, np.int64)
        first[groups.ids[::-1]] = np.arange(len(changes))[::-1]
        return cls(groups.ids, changes.hash[first], changes.key.take(pa.array(first)))

    def find(self, entries: Entries) -> Indices:
        """Return the key number of each entry, or -1 if the batch does not touch its key."""
        groups = group(np.concatenate([self.hash, entries.hash]), [concat_binary([self.key, entries.key])])
        number = np.full(groups.count, -1)
        number[groups.ids[: len(self.hash)]] = np.arange(len(self.hash))
        found: Indices = number[groups.ids[len(self.hash) :]]
        return found
