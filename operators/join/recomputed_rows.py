"""Join input rows that are recomputed from the upstream join's state instead of being stored.

If one join feeds another that has the same key and runs in the same shard, the second join's input consists of pairs of
rows that the first join already stores. So the second join does not store these pairs. For the keys that its other
input touches, it recomputes the pairs from the first join's state and subtracts those that the batch has added. The
remaining pairs are the rows that stay. So a tree of joins on the same key stores only its inputs and no intermediate
results, like Flink's multi-way join and Materialize's delta joins, but each join still has two inputs.

The cost is one more join of the rows with touched keys, which would be read and paired in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.arrangement import Finished, StateSize
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import places
from rowkind.operators.arrangement.resolving import Resolved
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.arrangement.summing import counted
from rowkind.operators.columns.changes import Changes, Int64s, Mask, Uint64s, concat_binary
from rowkind.operators.columns.grouping import distinct, group, is_in

Stores = Mapping[str, BlobStore]

Remake = Callable[[Uint64s, Stores, int], Entries]
"""A function that takes key hashes, the upstream joins' stores and the time in ms.

It returns the rows whose keys have these hashes, as they are after the batch.
"""


class RemadeRows:
    """A replacement for an arrangement, for one batch. The upstream joins have already applied the batch.

    `changes` are the input's net changes. Each retraction finds its row, and there are no refreshes.
    """

    def __init__(self, remake: Remake, changes: Changes, stores: Stores, now: int) -> None:
        self._remake, self._stores, self._now = remake, stores, now
        net = counted(rows_of(changes))
        self._added = net.filter(net.weight > 0)
        self._removed = -net.filter(net.weight < 0)

    def resolved(self) -> Resolved:
        """Return the changes in resolved form.

        Every retraction has a match, because an upstream join retracts only rows that it has emitted.
        """
        return Resolved(self._added, self._removed, Entries.empty(), np.empty(0, np.int64))

    def lookup(self, hashes: Uint64s, less: Entries | None = None) -> Entries:  # noqa: ARG002 - the batch is known here
        """Return the rows that stay and whose key hashes are in `hashes`, and possibly rows with other keys."""
        if not len(hashes):
            return Entries.empty()
        stay = counted(Entries.concat([self._remake(hashes, self._stores, self._now), -self._added]))
        # Rows that the batch added under other keys have negative weights here, because nothing was recomputed for
        # those keys.
        return stay.filter(stay.weight > 0)

    def count(self, hashes: Uint64s, keys: pa.BinaryArray, less: Entries) -> Int64s:  # noqa: ARG002 - as in `lookup`
        """Return, for each of these keys, the number of rows that stay."""
        rows = self.lookup(hashes)
        groups = group(np.concatenate([hashes, rows.hash]), [concat_binary([keys, rows.key])])
        counts = np.zeros(groups.count, np.int64)
        np.add.at(counts, groups.ids[len(hashes) :], rows.weight)
        return counts[groups.ids[: len(hashes)]]

    def finds(self, entries: Entries, hashes: Uint64s) -> Mask:
        """Return a mask of the entries that a lookup of `hashes` would return if the entries were stored."""
        return is_in(entries.hash, distinct(hashes))

    def append(self, entries: Entries) -> None:
        """Do nothing: no rows are stored."""

    def finish(self) -> Finished:
        """Return an empty state: no rows are stored."""
        return Finished(StateSize(), 0)


def rows_of(changes: Changes) -> Entries:
    """Return the changes as entries of a multiset, without write times and marks."""
    rows = len(changes)
    return Entries(
        places("multiset", changes.hash, changes.sub_key, changes.payload),
        changes.hash,
        changes.key,
        changes.sub_key,
        changes.payload,
        changes.weight.astype(np.int64),
        np.zeros(rows, np.int64),
        changes.seq,
        np.zeros(rows, np.int8),
    )
