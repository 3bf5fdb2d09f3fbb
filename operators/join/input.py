"""One input of a join within a batch: its arrangement, the effect of its changes, and the rows of the touched keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.arrangement.entries import UPPER, Entries
from rowkind.operators.arrangement.layout import ArrangementSpec, Layout
from rowkind.operators.arrangement.resolving import Resolved, entries_of, resolve
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, Int8s, Int64s, Mask, Uint64s
from rowkind.operators.columns.grouping import Groups, distinct, is_in
from rowkind.operators.columns.rowtime import RowTime
from rowkind.operators.join.recomputed_rows import RemadeRows, Remake
from rowkind.operators.join.rows import SideRows, hashes, number_keys

FIRST_COPY = b"\0\0"
"""The suffix of the key of the first of several copies of a row: the number 0 in two bytes."""


@dataclass(frozen=True, slots=True)
class Side:
    """One input of a join.

    - `by_seq`: its changes are applied in the order of seq, and a bare insertion replaces the existing row.
    - `counts_unmatched`: retractions that find no row are returned as unmatched or, with a TTL, are treated as
      retractions of expired rows. False for upsert inputs, in which it is normal that a delete finds no row.
    - `exact`: a retraction carries the row as it was sent; if it finds a different row under its key, it must not
      remove that row.
    - `until`: the time until which a row is stored, if rows have a time of their own.
    - `copied`: each row arrives under several keys; the key of the first copy ends in `FIRST_COPY`. Unmatched and
      repeated changes are reported once.
    - `alike`: in layout *multiset*, the bytes by which rows are compared, for a Normalize; None to compare payloads.
    - `remake`: its rows are not stored but recomputed. If set, neither side has a TTL.
    """

    layout: Layout
    ttl_ms: int | None = None
    by_seq: bool = False
    counts_unmatched: bool = True
    exact: bool = False
    copied: bool = False
    until: RowTime | None = None
    remake: Remake | None = None
    alike: Callable[[pa.BinaryArray], pa.BinaryArray] | None = None


@dataclass(frozen=True, slots=True)
class JoinInput:
    """One side within one batch: its arrangement, and the effect of its changes.

    `expired` are the rows that retractions name although they are no longer stored; `late` is the number of these
    retractions.
    """

    arrangement: Arrangement | RemadeRows
    resolved: Resolved
    unmatched: Changes
    repeated: Changes
    expired: Entries
    late: int
    withdrawn: Entries

    @classmethod
    def open(cls, side: Side, name: str, stores: Mapping[str, BlobStore], batch: Batch, now: int) -> JoinInput:
        """Open the arrangement and resolve the changes and refreshes."""
        changes = batch.changes
        if side.remake is not None:
            rows, none = RemadeRows(side.remake, changes, stores, now), Changes.empty()
            resolved = rows.resolved()
            return cls(rows, resolved, none, none, Entries.empty(), 0, -resolved.removed)
        arrangement = Arrangement(stores[name], ArrangementSpec(name, side.layout, side.ttl_ms, until=side.until), now)
        resolved = resolve(arrangement, batch, by_seq=side.by_seq, exact=side.exact)
        unmatched, expired = resolved.unmatched if side.counts_unmatched else resolved.unmatched[:0], Entries.empty()
        if side.ttl_ms is not None and len(unmatched):
            gone = np.setdiff1d(unmatched, resolved.overtaken)
            unmatched, expired = resolved.overtaken, entries_of(arrangement, changes.take(gone))
        withdrawn = Entries.concat([-resolved.removed, resolved.refreshed])
        late, repeated = len(expired), resolved.repeated
        if side.copied:
            unmatched, repeated = (
                rows[_first_copies(changes.key.take(pa.array(rows)))] for rows in (unmatched, repeated)
            )
            late = int(_first_copies(expired.key).sum())
        return cls(arrangement, resolved, changes.take(unmatched), changes.take(repeated), expired, late, withdrawn)

    def touched(self) -> Uint64s:
        """Return the hashes of the non-NULL keys of added and removed rows."""
        parts = self.resolved.added, self.resolved.removed, self.expired
        return distinct(np.concatenate([hashes(part) for part in parts]))

    def rewritten_elsewhere(self, keys: Uint64s) -> Entries:
        """Return the rewritten rows, except those that `stayed` returns for the keys with these hashes."""
        rewritten = self.resolved.rewritten
        return rewritten.filter(~self.arrangement.finds(rewritten, keys)) if len(rewritten) else rewritten

    def all_there(self) -> Entries:
        """Return all rows of the shard, as they were before the batch."""
        assert isinstance(self.arrangement, Arrangement), "all rows are requested only from an input that is stored"
        return self.arrangement.between(np.zeros(1, np.uint64), np.full(1, ~np.uint64(0)))

    def stayed(self, keys: Uint64s) -> Entries:
        """Return the rows that stay of the keys with these hashes, with refreshes applied."""
        return self.arrangement.lookup(keys, less=self.withdrawn)

    def count(self, others: SideRows, keys: Uint64s) -> Int64s:
        """Count the rows that stay of each key that has one of these hashes and a row that stays in `others`."""
        counts = np.zeros(others.key_count, np.int64)
        if len(keys):
            rows = others.one_of_each_key(np.flatnonzero(is_in(others.stayed.hash, keys)))
            of_key = others.stayed.hash[rows], others.stayed.key.take(pa.array(rows))
            counts[others.keys[others.changed + rows]] = self.arrangement.count(*of_key, self.withdrawn)
        return counts

    def append(self, rows: SideRows, marks: Int8s | None) -> None:
        """Append the entries of the batch; `marks` are the new marks of all `rows`, None if marks are not used."""
        added = self.resolved.added
        if marks is not None:
            added = added.relabel(mark=marks[: rows.added])
            stayed, marks = rows.stayed, marks[rows.changed :]
            changed = np.flatnonzero(marks != stayed.mark)
            before = stayed.take(changed)
            self.arrangement.append(before.relabel(weight=-before.weight))
            self.arrangement.append(before.relabel(mark=marks[changed]))
        self.arrangement.append(self.withdrawn)
        self.arrangement.append(added)


def _first_copies(keys: pa.BinaryArray) -> Mask:
    return np.array([key.endswith(FIRST_COPY) for key in keys.to_pylist()], np.bool_)


def rows_of_touched_keys(
    left: JoinInput,
    right: JoinInput,
    *,
    counts_for_left: bool,
    counts_for_right: bool,
    only_counts: bool = False,
    refreshes: bool = False,
) -> tuple[SideRows, SideRows]:
    """Return both sides' changed rows, and the stored rows that are needed to compute the join's changes.

    The stored rows are those of the keys that changes of the other side touch, and more by these flags:

    - `counts_for_left`: the match count of each left row of those keys is needed. `counts_for_right` likewise.
    - `only_counts`: only the counts are needed, not the rows counted, because no condition is evaluated.
    - `refreshes`: rewritten rows are needed, and the other side's rows of their keys.
    """
    of_left, of_right = left.touched(), right.touched()
    known_left, known_right = of_right, of_left
    if refreshes:
        known_left, known_right = (
            distinct(np.concatenate([touched, hashes(side.resolved.rewritten)]))
            for touched, side in ((of_right, right), (of_left, left))
        )
    left_stayed, right_stayed = left.stayed(known_left), right.stayed(known_right)
    # A pad depends on the other side's rows of its key even if its own side does not change.
    for_left = _others(of_right, left_stayed, known_right) if counts_for_left else of_left[:0]
    for_right = _others(of_left, right_stayed, known_left) if counts_for_right else of_left[:0]
    if not only_counts:
        both = left.stayed(for_right), right.stayed(for_left)
        left_stayed, right_stayed = Entries.concat([left_stayed, both[0]]), Entries.concat([right_stayed, both[1]])
        known_left, known_right = np.concatenate([known_left, for_right]), np.concatenate([known_right, for_left])
    if refreshes:
        left_stayed = Entries.concat([left_stayed, left.rewritten_elsewhere(known_left)])
        right_stayed = Entries.concat([right_stayed, right.rewritten_elsewhere(known_right)])
    left_rows, right_rows = number_rows(left, left_stayed, right, right_stayed)
    if not only_counts:
        return left_rows, right_rows
    return left_rows.beside(left.count(right_rows, for_right)), right_rows.beside(right.count(left_rows, for_left))


def _others(touched: Uint64s, stayed: Entries, known: Uint64s) -> Uint64s:
    """Return the `touched` hashes of keys with `stayed` rows, except hashes that the `known` keys' lookup covered.

    A lookup of a key reads all rows whose hashes have the same upper half, which several keys may share. The exception
    ensures that each row is read once.
    """
    return touched[is_in(touched, distinct(hashes(stayed))) & ~is_in(touched & UPPER, distinct(known & UPPER))]


def number_rows(
    left: JoinInput, left_stayed: Entries, right: JoinInput, right_stayed: Entries
) -> tuple[SideRows, SideRows]:
    """Number the keys of both sides, over their changed rows and the given rows that stay."""
    left_parts = left.resolved.added, left.resolved.removed, left.expired, left_stayed
    right_parts = right.resolved.added, right.resolved.removed, right.expired, right_stayed
    groups = number_keys([*left_parts, *right_parts])
    split = sum(len(part) for part in left_parts)
    return (
        SideRows.of(*left_parts, Groups(groups.ids[:split], groups.count)),
        SideRows.of(*right_parts, Groups(groups.ids[split:], groups.count)),
    )
