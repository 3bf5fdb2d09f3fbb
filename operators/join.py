"""Join: all pairs of a left and a right row with equal keys, and pad rows for rows without a match.

Maintains L join R on equal key and an optional further condition: inner, left, right or full. Two arrangements,
"left" and "right", hold the rows of the two inputs by join key.

The walk. Changes of each side are resolved to rows that are added (A) and removed (X); the rows of the touched keys
that stay (S) are looked up on both sides. Join is bilinear, so with old = S + X and new = S + A the change of all
pairs is

    + A_l A_r  + A_l S_r  + S_l A_r  - X_l X_r  - X_l S_r  - S_l X_r

which never pairs rows that stay with each other. A row of an outer side has its pad in the output exactly while it has
no match: the pad is emitted for A, taken back for X, and for S where the match count comes from or goes to zero. Counts
are by key; with a condition they come from the pairs above, and only where those leave it open whether other matches
exist are the staying rows of that key paired with it. What is left after equal rows of opposite sign have cancelled
(rows that moved from one key to another) is emitted.

NULL keys match nothing. Payloads must be self-delimiting under their schemas, so that left and right bytes side by
side are equal only where both are.

Expiry. A row is invisible from written_at + TTL on: it no longer matches, and what it took part in stays in the output
as it is, as in Flink: its pairs are not taken back when it expires, nor when its partner is deleted later, and a pad
does not come back because the last match expired. So where the other side has a TTL, the number of visible matches
does not tell whether a pad is in the output, and each row's mark keeps it: 1 while its pad is out. A pad is taken back
only if it is out, and comes back only when a retraction takes the last visible match. A row that comes after its
predecessor expired is a new row.

A row that is written again while visible lives longer, keeps its mark and changes nothing. Where somebody further down
has a TTL, what it takes part in is emitted as refreshes (`JoinSpec.refreshes`): its pairs with rows that stay, or its
pad.

A retraction that finds no row in an input with a TTL is taken for one of a row that has expired (E), as in Flink: it
takes back its pairs with what is visible before the batch, - E_l X_r - E_l S_r and mirrored, or where there is none its
pad, and a pad of the other side comes back with the last visible match that a retraction takes. Nobody knows what there
was: a row that came after the other one expired loses a pair that was never emitted. E_l and E_r never met. An upsert
input's deletes name only keys, so that a late one has nothing to take back and is nothing unusual.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.arrangement import Arrangement, Layout
from rowkind.operators.arrangement.entries import UPPER, Entries
from rowkind.operators.arrangement.resolving import Resolved, entries_of, resolve
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.columns.changes import Changes, Int8s, Int64s, Mask, Uint64s
from rowkind.operators.columns.grouping import Groups, distinct, is_in
from rowkind.operators.join_output import PAD, Emission, Parents, emit
from rowkind.operators.join_rows import Near, Pairs, SideRows, hashes, number_keys, pads
from rowkind.operators.operator import Output
from rowkind.operators.rowtime import RowTime

JoinKind = Literal["inner", "left", "right", "full"]

FIRST_COPY = b"\0\0"
"""What the key of the first of several copies of a row ends in: the number 0 in two bytes."""


@dataclass(frozen=True, slots=True)
class Side:
    """One input of a join.

    - `by_seq`: its changes are to be taken in the order of seq, and a bare insertion replaces.
    - `counts_unmatched`: retractions that find no row come back as unmatched, or with a TTL stand for rows that have
      expired; false for upsert inputs, where a delete of a row that is not there is nothing unusual.
    - `exact`: retractions are of rows as they were sent, so that one which meets another row must not take that.
    - `until`: until when rows are kept, where they have a time of their own.
    - `copied`: each row comes under several keys, that of the first copy with `FIRST_COPY` at its end: what is
      unmatched or repeated is told once.
    """

    layout: Layout
    ttl_ms: int | None = None
    by_seq: bool = False
    counts_unmatched: bool = True
    exact: bool = False
    copied: bool = False
    until: RowTime | None = None


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """What a join computes.

    `condition` gets as many left as right payloads and says which pairs match; it is true only where SQL's condition
    is true, and `near` says of which pairs it cannot be: these it is not asked about, so that the rows of a hot key are
    compared with those of their time only. The pads are the payloads that stand for a missing row. `refreshes`: whether
    somebody further down has a TTL.
    """

    kind: JoinKind
    left: Side
    right: Side
    condition: Callable[[pa.BinaryArray, pa.BinaryArray], Mask] | None = None
    left_pad: bytes = b""
    right_pad: bytes = b""
    refreshes: bool = False
    near: Near | None = None

    @property
    def pads_left(self) -> bool:
        """Whether left rows without a match are emitted."""
        return self.kind in ("left", "full")

    @property
    def pads_right(self) -> bool:
        """Whether right rows without a match are emitted."""
        return self.kind in ("right", "full")


@dataclass(frozen=True, slots=True)
class Join:
    """The operator; it has no state of its own."""

    spec: JoinSpec

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """Both inputs' rows, each with its TTL in ms."""
        return {"left": self.spec.left.ttl_ms, "right": self.spec.right.ttl_ms}

    def process(self, changes: Changes, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Apply one batch of one shard at time `now` (ms since the epoch)."""
        spec = self.spec
        left = JoinInput.open(spec.left, "left", stores["left"], changes.filter(changes.side == 0), now)
        right = JoinInput.open(spec.right, "right", stores["right"], changes.filter(changes.side == 1), now)
        left_rows, right_rows = self._rows_of_touched_keys(left, right)
        pairs = Pairs.of(left_rows, right_rows, spec.condition, spec.near)
        emissions = [pairs.emission]
        renewed = pairs.renewed(left_rows, right_rows, now) if spec.refreshes else None
        again = [] if renewed is None else [renewed]
        left_marks = right_marks = None
        if spec.pads_left:
            marked = spec.right.ttl_ms is not None
            emission, padded = pads(left_rows, right_rows, pairs, marked=marked)
            emissions.append(emission)
            left_marks = padded if marked else None
            if renewed is not None:
                again.append(_pads_again(left_rows, padded, emission, renewed, now))
        if spec.pads_right:
            marked = spec.left.ttl_ms is not None
            emission, padded = pads(right_rows, left_rows, pairs.mirrored, marked=marked)
            emissions.append(emission.mirrored)
            right_marks = padded if marked else None
            if renewed is not None:
                again.append(_pads_again(right_rows, padded, emission, renewed.mirrored, now).mirrored)
        left.append(left_rows, left_marks)
        right.append(right_rows, right_marks)
        of_left, of_right = left.arrangement.finish(), right.arrangement.finish()
        return Output(
            emit(
                Emission.concat(emissions),
                Parents.of(left_rows.payload, left_rows.seq, spec.left_pad),
                Parents.of(right_rows.payload, right_rows.seq, spec.right_pad),
                Emission.concat(again) if again else None,
            ),
            Changes.concat([left.unmatched, right.unmatched]),
            of_left.state + of_right.state,
            of_left.merged_rows + of_right.merged_rows,
            left.late + right.late,
            Changes.concat([left.repeated, right.repeated]),
        )

    def _rows_of_touched_keys(self, left: JoinInput, right: JoinInput) -> tuple[SideRows, SideRows]:
        spec = self.spec
        return rows_of_touched_keys(
            left,
            right,
            counts_for_left=spec.pads_left,
            counts_for_right=spec.pads_right,
            only_counts=spec.condition is None,
            refreshes=spec.refreshes,
        )


def _pads_again(outer: SideRows, padded: Int8s, steps: Emission, renewed: Emission, now: int) -> Emission:
    """The pads that stay, of rows that were written again; `outer` is the left side of the pads' steps and of pairs."""
    alone = outer.rewritten(now) & padded.astype(np.bool_)
    alone[steps.left] = False
    # Where no match comes or goes, `padded` need not know of those that stay.
    alone[renewed.left] = False
    rows = np.flatnonzero(alone)
    return Emission(rows, np.full(len(rows), PAD), outer.weight[rows])


@dataclass(frozen=True, slots=True)
class JoinInput:
    """One side within one batch: its arrangement, and what the changes do to it.

    `expired` are rows that are not there any more, which retractions take back all the same; there are `late` of these.
    """

    arrangement: Arrangement
    resolved: Resolved
    unmatched: Changes
    repeated: Changes
    expired: Entries
    late: int
    withdrawn: Entries

    @classmethod
    def open(cls, side: Side, name: str, store: BlobStore, changes: Changes, now: int) -> JoinInput:
        """Open the arrangement and resolve the changes."""
        arrangement = Arrangement(store, name, side.layout, side.ttl_ms, now, until=side.until)
        resolved = resolve(arrangement, changes, by_seq=side.by_seq, exact=side.exact)
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
        """The hashes of the keys, not NULL, of which rows are added or removed."""
        parts = self.resolved.added, self.resolved.removed, self.expired
        return distinct(np.concatenate([hashes(part) for part in parts]))

    def rewritten_elsewhere(self, keys: Uint64s) -> Entries:
        """The rows that are written again, without those that `stayed` gives for the keys with these hashes."""
        rewritten = self.resolved.rewritten
        return rewritten.filter(~self.arrangement.finds(rewritten, keys)) if len(rewritten) else rewritten

    def stayed(self, keys: Uint64s) -> Entries:
        """The rows of the keys with these hashes that were and still are there; refreshed ones as refreshed."""
        return self.arrangement.lookup(keys, less=self.withdrawn)

    def count(self, others: SideRows, keys: Uint64s) -> Int64s:
        """How many rows that stay there are of each key with one of these hashes, as far as `others` stay with it."""
        counts = np.zeros(others.key_count, np.int64)
        if len(keys):
            rows = others.one_of_each_key(np.flatnonzero(is_in(others.stayed.hash, keys)))
            of_key = others.stayed.hash[rows], others.stayed.key.take(pa.array(rows))
            counts[others.keys[others.changed + rows]] = self.arrangement.count(*of_key, self.withdrawn)
        return counts

    def append(self, rows: SideRows, marks: Int8s | None) -> None:
        """Append the entries of the batch; `marks` are the new marks of all `rows`, None where they do not matter."""
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
    """The rows that each side needs to know of the keys that either side touches.

    `counts_for_left` says that it matters for each left row of those keys how many matches it has; likewise right.
    `only_counts` says that nothing else matters there: no condition will be asked about the matches. `refreshes` says
    that rows which are written again matter too, with the other side's rows of their keys.
    """
    of_left, of_right = left.touched(), right.touched()
    known_left, known_right = of_right, of_left
    if refreshes:
        known_left, known_right = (
            distinct(np.concatenate([touched, hashes(side.resolved.rewritten)]))
            for touched, side in ((of_right, right), (of_left, left))
        )
    left_stayed, right_stayed = left.stayed(known_left), right.stayed(known_right)
    # A pad depends on the other side's rows of its key also where its own side does not change.
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
    """The hashes among `touched` of keys that have rows that stay, without those of places where `known` ones stand.

    What is known has been looked up by place, which several keys may share: rows are read once.
    """
    return touched[is_in(touched, distinct(hashes(stayed))) & ~is_in(touched & UPPER, distinct(known & UPPER))]


def number_rows(
    left: JoinInput, left_stayed: Entries, right: JoinInput, right_stayed: Entries
) -> tuple[SideRows, SideRows]:
    """The rows of both sides that change and those given, which stay, with their keys numbered."""
    left_parts = left.resolved.added, left.resolved.removed, left.expired, left_stayed
    right_parts = right.resolved.added, right.resolved.removed, right.expired, right_stayed
    groups = number_keys([*left_parts, *right_parts])
    split = sum(len(part) for part in left_parts)
    return (
        SideRows.of(*left_parts, Groups(groups.ids[:split], groups.count)),
        SideRows.of(*right_parts, Groups(groups.ids[split:], groups.count)),
    )
