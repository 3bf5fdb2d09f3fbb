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

from rowkind.operators.arrangement.arrangement import Arrangement, Finished
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import ArrangementSpec
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, Int8s, Mask, Rows, Uint64s
from rowkind.operators.columns.grouping import Groups
from rowkind.operators.join_input import JoinInput, Side, rows_of_touched_keys
from rowkind.operators.join_output import PAD, Emission, Parents, emit
from rowkind.operators.join_rows import Near, Pairs, SideRows, number_keys, pads
from rowkind.operators.operator import Output
from rowkind.operators.remade_rows import rows_of

JoinKind = Literal["inner", "left", "right", "full"]


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
        """Both inputs' rows, each with its TTL in ms; not of one whose rows are made anew."""
        sides = {"left": self.spec.left, "right": self.spec.right}
        return {name: side.ttl_ms for name, side in sides.items() if side.remake is None}

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Apply one batch of one shard at time `now` (ms since the epoch)."""
        spec = self.spec
        left = JoinInput.open(spec.left, "left", stores, batch.side(0), now)
        right = JoinInput.open(spec.right, "right", stores, batch.side(1), now)
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
        finished = Finished.total(left.arrangement.finish(), right.arrangement.finish())
        return Output(
            emit(
                Emission.concat(emissions),
                Parents.of(left_rows.payload, left_rows.seq, spec.left_pad),
                Parents.of(right_rows.payload, right_rows.seq, spec.right_pad),
                Emission.concat(again) if again else None,
            ),
            Changes.concat([left.unmatched, right.unmatched]),
            finished.state,
            finished.merged_rows,
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
class JoinedRows:
    """The rows that leave a join, made anew of what it keeps: `Remake` for the input `name` of the join that it feeds.

    `calc`: what becomes of them on the way. Its stores come as `<name>.left` and `<name>.right`, and those of a join
    whose rows it makes anew itself as `<name>.left.left` and so on. `spec` has no condition and no TTL.
    """

    spec: JoinSpec
    name: str
    calc: Callable[[Rows], Changes]

    def __call__(self, hashes: Uint64s, stores: Mapping[str, BlobStore], now: int) -> Entries:
        """The rows of the keys with these hashes, and maybe of others, as they are now."""
        spec, mine = self.spec, f"{self.name}."
        own = {name.removeprefix(mine): store for name, store in stores.items() if name.startswith(mine)}
        left = _kept(spec.left, "left", hashes, own, now)
        right = _kept(spec.right, "right", hashes, own, now)
        keys, none = number_keys([left, right]), Entries.empty()
        left_rows = SideRows.of(left, none, none, none, Groups(keys.ids[: len(left)], keys.count))
        right_rows = SideRows.of(right, none, none, none, Groups(keys.ids[len(left) :], keys.count))
        pairs = Pairs.of(left_rows, right_rows, None)
        emissions = [pairs.emission]
        if spec.pads_left:
            emissions.append(pads(left_rows, right_rows, pairs, marked=False)[0])
        if spec.pads_right:
            emissions.append(pads(right_rows, left_rows, pairs.mirrored, marked=False)[0].mirrored)
        emitted = emit(
            Emission.concat(emissions),
            Parents.of(left_rows.payload, left_rows.seq, spec.left_pad),
            Parents.of(right_rows.payload, right_rows.seq, spec.right_pad),
        )
        return rows_of(self.calc(emitted.rows))


def _kept(side: Side, name: str, hashes: Uint64s, stores: Mapping[str, BlobStore], now: int) -> Entries:
    if side.remake is not None:
        return side.remake(hashes, stores, now)
    return Arrangement(stores[name], ArrangementSpec(name, side.layout, side.ttl_ms), now).lookup(hashes)
