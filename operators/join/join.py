"""Join: all pairs of left and right rows with equal keys and, for an outer join, null-padded unmatched rows.

Maintains the inner, left, right or full join of L and R on equal keys and an optional further condition. A *pad* is the
null-padded row that an outer join emits for an unmatched row. Two arrangements, "left" and "right", store the rows of
the two inputs by join key.

Algorithm. The changes of each side are resolved to added rows (A) and removed rows (X). The operator then looks up, on
both sides, the rows with touched keys that stay (S): those that the batch neither adds nor removes. Join is bilinear,
so with old = S + X and new = S + A the change of all pairs is

    + A_l A_r  + A_l S_r  + S_l A_r  - X_l X_r  - X_l S_r  - S_l X_r

Left rows that stay are never paired with right rows that stay. The pad of an outer side's row is in the output exactly
while the row has no match. So pads are emitted for the unmatched rows in A, and retracted for the rows in X that had no
match. The pad of a row in S is emitted if the row's match count becomes zero, and retracted if the count becomes
positive. Without a condition, matches are counted per key; with a condition, they are counted from the pairs above. If
these pairs do not show whether a row in S has other matches, the row is also compared with the other side's rows in S.
Finally, equal output rows with opposite signs cancel, for example if a row moved from one key to another. The remaining
output rows are emitted.

NULL keys match nothing. Payloads must be self-delimiting under their schemas: two concatenations of a left and a right
payload must be equal only if the left payloads are equal and the right payloads are equal.

Expiry. Starting at written_at + TTL, a row is invisible: it no longer matches. Its results stay in the output, as in
Flink. The row's pairs are not retracted when the row expires, nor when a matching row is deleted later. If a row's last
match expires, its pad is not emitted. So if the other side has a TTL, the number of visible matches does not determine
whether a pad is in the output. Instead, each row's mark records this: it is 1 while the row's pad is in the output. A
pad is retracted only if it is in the output, and emitted again only when a retraction removes the last visible match.
If a row is rewritten after it has expired, it counts as a new row.

If a row is rewritten while it is visible, its TTL restarts and its mark is kept; nothing else changes. If a downstream
operator has a TTL, the row's results are emitted as refreshes (`JoinSpec.refreshes`). The results are the row's pairs
with rows that stay, or its pad.

If a retraction finds no row in an input with a TTL, it is treated as the retraction of an expired row (E), as in Flink.
It retracts the expired row's pairs with the rows that were visible before the batch (- E_l X_r - E_l S_r, and the same
with the sides exchanged). If there are no pairs, it retracts the expired row's pad. On the other side, a row's pad is
emitted again if the retraction removes the row's last visible match. The operator does not know which pairs it emitted
earlier. So it retracts a pair that was never emitted if one of the rows arrived after the other had expired. E_l and
E_r are never paired. In an upsert input, deletes carry only keys, so a late delete has nothing to retract and is not an
error.
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
from rowkind.operators.join.input import JoinInput, Side, rows_of_touched_keys
from rowkind.operators.join.output import PAD, Emission, Parents, emit
from rowkind.operators.join.recomputed_rows import rows_of
from rowkind.operators.join.rows import Near, Pairs, SideRows, number_keys, pads
from rowkind.operators.operator import Output

JoinKind = Literal["inner", "left", "right", "full"]


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """The specification of a join.

    `condition` takes pairs of left and right payloads and returns a mask of the pairs for which the SQL condition is
    true. `near` excludes pairs that cannot match because of their times. The condition is not evaluated for these
    pairs, so even if a key has many rows, each row is compared only with rows that are near in time. `left_pad` and
    `right_pad` are the payloads that replace a missing left or right row. `refreshes` says whether a downstream
    operator has a TTL.
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
        """Whether unmatched left rows are emitted, null-padded."""
        return self.kind in ("left", "full")

    @property
    def pads_right(self) -> bool:
        """Whether unmatched right rows are emitted, null-padded."""
        return self.kind in ("right", "full")


@dataclass(frozen=True, slots=True)
class Join:
    """The join operator. It keeps its state in the stores, not in this object."""

    spec: JoinSpec

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The arrangements and their TTLs in ms: one per input, except for inputs whose rows are recomputed."""
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
    """Return the pads to refresh: those of rewritten `outer` rows that stay in the output.

    `outer` is the left side of `steps` and `renewed`.
    """
    alone = outer.rewritten(now) & padded.astype(np.bool_)
    alone[steps.left] = False
    # `padded` is unreliable for rows that stay with unchanged matches, but a pair in `renewed` proves that its left row
    # has a match.
    alone[renewed.left] = False
    rows = np.flatnonzero(alone)
    return Emission(rows, np.full(len(rows), PAD), outer.weight[rows])


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """A function that recomputes a join's output rows from the join's state.

    It is the `Remake` of the downstream join's input `name`. `calc` is the calc between the two joins. This join's
    stores are named `<name>.left` and `<name>.right`. If one of this join's own inputs is recomputed, its stores are
    named accordingly. For example, the stores of the join that feeds the left input are named `<name>.left.left` and
    `<name>.left.right`, and so on. `spec` has no condition and no TTL.
    """

    spec: JoinSpec
    name: str
    calc: Callable[[Rows], Changes]

    def __call__(self, hashes: Uint64s, stores: Mapping[str, BlobStore], now: int) -> Entries:
        """Return the current rows whose key hashes are in `hashes`, and possibly rows with other keys."""
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
