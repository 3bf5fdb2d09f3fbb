"""Rows of a join's input that are not kept, since what they are made of is: by the join that feeds it.

Where one join feeds another by the same key, in the same shard, all that the second could keep of the first are pairs
of rows that the first keeps already. So nothing is kept of them. The rows of the keys that the other input touches are
made anew by joining what the first one keeps, and what the batch has brought among them is taken out again: that leaves
the rows that stay. A tree of joins by one key keeps its inputs and nothing in between, as Flink's multi-way join and
Materialize's delta joins do, and each of its joins stays one of two inputs.

What it costs is one more join of the touched keys; they would be read and paired in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.arrangement import Finished, StateSize
from rowkind.operators.arrangement.entries import Entries, counted
from rowkind.operators.arrangement.layout import places
from rowkind.operators.arrangement.resolving import Resolved
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.columns.changes import Changes, Int64s, Mask, Uint64s, concat_binary
from rowkind.operators.columns.grouping import distinct, group, is_in

Stores = Mapping[str, BlobStore]

Remake = Callable[[Uint64s, Stores, int], Entries]
"""The rows of the keys with these hashes as they are after the batch, from the stores of the joins below."""


class RemadeRows:
    """Stands where an arrangement would: within a batch, which has changed the joins below already.

    `changes` are the input's, net and of rows that are there; no refreshes.
    """

    def __init__(self, remake: Remake, changes: Changes, stores: Stores, now: int) -> None:
        self._remake, self._stores, self._now = remake, stores, now
        net = counted(rows_of(changes))
        self._added = net.filter(net.weight > 0)
        self._removed = -net.filter(net.weight < 0)

    def resolved(self) -> Resolved:
        """What the changes are: a join takes back what it gave."""
        return Resolved(self._added, self._removed, Entries.empty(), np.empty(0, np.int64))

    def lookup(self, hashes: Uint64s, less: Entries | None = None) -> Entries:  # noqa: ARG002 - the batch is known here
        """The rows of the keys with these hashes, and maybe others, that were there before the batch and stay."""
        if not len(hashes):
            return Entries.empty()
        stay = counted(Entries.concat([self._remake(hashes, self._stores, self._now), -self._added]))
        # What was added of keys that nobody asks about has nothing to be taken out of.
        return stay.filter(stay.weight > 0)

    def count(self, hashes: Uint64s, keys: pa.BinaryArray, less: Entries) -> Int64s:  # noqa: ARG002 - as in `lookup`
        """How many rows of each of these keys were there before the batch and stay."""
        rows = self.lookup(hashes)
        groups = group(np.concatenate([hashes, rows.hash]), [concat_binary([keys, rows.key])])
        counts = np.zeros(groups.count, np.int64)
        np.add.at(counts, groups.ids[len(hashes) :], rows.weight)
        return counts[groups.ids[: len(hashes)]]

    def finds(self, entries: Entries, hashes: Uint64s) -> Mask:
        """Which of these entries a lookup by these hashes would give, if they were there."""
        return is_in(entries.hash, distinct(hashes))

    def append(self, entries: Entries) -> None:
        """Nothing is kept."""

    def finish(self) -> Finished:
        """Nothing is kept."""
        return Finished(StateSize(), 0)


def rows_of(changes: Changes) -> Entries:
    """Changes as entries of a multiset that nothing is known of but what is in it."""
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
