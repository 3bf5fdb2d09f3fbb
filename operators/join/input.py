"""One input of a join during one batch: its arrangement, its resolved changes, and its rows with touched keys."""

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
"""The suffix of the first copy's key, for rows that are sent in several copies: the number 0 in two bytes."""


@dataclass(frozen=True, slots=True)
class Side:
    """The specification of one join input.

    - `by_seq`: whether changes are applied in `seq` order, and an insertion without a retraction replaces the existing
      row.
    - `counts_unmatched`: whether retractions that find no row have an effect: they are returned as unmatched or, if the
      input has a TTL, are treated as retractions of expired rows. False for upsert inputs, where a delete often finds
      no row.
    - `exact`: whether a retraction carries the row as it was sent. If that retraction finds a different row under its
      key, it must not remove that row.
    - `until`: returns the time until which each row is stored; None if no time in the rows limits how long they are
      stored.
    - `copied`: whether each row arrives under several keys. The first copy's key ends in `FIRST_COPY`. Unmatched and
      repeated changes are reported only for the first copy.
    - `alike`: for a Normalize in layout *multiset*, returns the bytes by which rows are compared; None to compare
      payloads.
    - `remake`: recomputes the rows, so that they need not be stored; None to store them. If it is set, neither side has
      a TTL.
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
    """One input of a join during one batch: its arrangement and its resolved changes.

    `expired` contains the rows of retractions that find no stored row and are therefore treated as retractions of
    expired rows. `late` is the number of these retractions.
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
        """Open the input's arrangement, and resolve the batch's changes and refreshes against it."""
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
        """Return the key hashes of the added, removed and expired rows whose keys are not NULL."""
        parts = self.resolved.added, self.resolved.removed, self.expired
        return distinct(np.concatenate([hashes(part) for part in parts]))

    def rewritten_elsewhere(self, keys: Uint64s) -> Entries:
        """Return the rewritten rows that `stayed(keys)` omits."""
        rewritten = self.resolved.rewritten
        return rewritten.filter(~self.arrangement.finds(rewritten, keys)) if len(rewritten) else rewritten

    def all_there(self) -> Entries:
        """Return all rows of the shard as they were before the batch."""
        assert isinstance(self.arrangement, Arrangement), "only an input with stored rows can return all rows"
        return self.arrangement.between(np.zeros(1, np.uint64), np.full(1, ~np.uint64(0)))

    def stayed(self, keys: Uint64s) -> Entries:
        """Return the rows with these key hashes that the batch neither adds nor removes, with refreshes applied."""
        return self.arrangement.lookup(keys, less=self.withdrawn)

    def count(self, others: SideRows, keys: Uint64s) -> Int64s:
        """Return, for each key number, how many of this input's rows the batch neither adds nor removes.

        `keys` contains key hashes. A key's rows are counted only if the key has one of these hashes and a row with the
        key in `others` stays too. All other keys get 0.
        """
        counts = np.zeros(others.key_count, np.int64)
        if len(keys):
            rows = others.one_of_each_key(np.flatnonzero(is_in(others.stayed.hash, keys)))
            of_key = others.stayed.hash[rows], others.stayed.key.take(pa.array(rows))
            counts[others.keys[others.changed + rows]] = self.arrangement.count(*of_key, self.withdrawn)
        return counts

    def append(self, rows: SideRows, marks: Int8s | None) -> None:
        """Append the batch's entries to the arrangement.

        `marks` contains the new mark of each row in `rows`; None if marks are not used.
        """
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

    By default, the stored rows are those whose keys the other side's changes touch. The flags request more:

    - `counts_for_left` and `counts_for_right`: the match counts of the left or right rows are needed.
    - `only_counts`: the matching rows need only be counted, not returned, because no condition is evaluated.
    - `refreshes`: the rewritten rows, and the other side's rows with the same keys, are needed too.
    """
    of_left, of_right = left.touched(), right.touched()
    known_left, known_right = of_right, of_left
    if refreshes:
        known_left, known_right = (
            distinct(np.concatenate([touched, hashes(side.resolved.rewritten)]))
            for touched, side in ((of_right, right), (of_left, left))
        )
    left_stayed, right_stayed = left.stayed(known_left), right.stayed(known_right)
    # A row's pad depends on all of the other side's rows with the same key, including unchanged ones.
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
    """Return the `touched` hashes that occur in `stayed`, except hashes that the lookup of `known` has covered.

    A lookup of a key reads all rows whose hashes have the same upper half, including rows with other keys. Excluding
    the covered hashes ensures that each row is read only once.
    """
    return touched[is_in(touched, distinct(hashes(stayed))) & ~is_in(touched & UPPER, distinct(known & UPPER))]


def number_rows(
    left: JoinInput, left_stayed: Entries, right: JoinInput, right_stayed: Entries
) -> tuple[SideRows, SideRows]:
    """Combine each side's changed rows with its unchanged rows, and number the keys of both sides together."""
    left_parts = left.resolved.added, left.resolved.removed, left.expired, left_stayed
    right_parts = right.resolved.added, right.resolved.removed, right.expired, right_stayed
    groups = number_keys([*left_parts, *right_parts])
    split = sum(len(part) for part in left_parts)
    return (
        SideRows.of(*left_parts, Groups(groups.ids[:split], groups.count)),
        SideRows.of(*right_parts, Groups(groups.ids[split:], groups.count)),
    )
