"""Semi join, anti join and mark join: left rows with a match, without a match, or all left rows with a match flag.

A semi join maintains the rows of L for which R has a row with an equal key that satisfies an optional further condition
(EXISTS and IN). An anti join maintains the other rows of L (NOT EXISTS and NOT IN). Each left row is emitted once,
however many matches it has. A mark join maintains all rows of L, with the match flag as an additional column. A mark
join implements EXISTS and IN under OR, in CASE or in the select list (Neumann and Kemper, Unnesting Arbitrary Queries,
2015). Two arrangements, "left" and "right", store the rows of the two inputs by join key.

The algorithm is that of the join (`operators.join.join`), except that no pairs are emitted. A left join's output
consists of the inner join's pairs and a null-padded row for each row of the anti join. So an anti join changes exactly
as a left join's pads do, and a semi join outputs the remaining left rows. Replacing a left row without changing whether
it matches emits -D and +I. If a left row moves to another key but neither its bytes nor its match status changes,
nothing is emitted.

NULL keys match nothing: a row with a NULL key never passes a semi join and always passes an anti join.

NULL-aware anti join, for NOT IN. `x NOT IN (SELECT y FROM R)` is true if R is empty, for any x; otherwise it is true if
x is not NULL, no y is NULL and no y equals x. Whether R is empty and whether it contains a NULL depends on all rows of
R, so no shard can derive it from its own rows. Therefore a third input, side 2, sends two *facts* to each shard:
`NOT_EMPTY` and `HAS_NULL`. A fact is true while this input has at least one row with the fact's key. A third
arrangement, "facts", counts these rows. When a fact changes, all left rows of the shard must be read.

A null-aware mark join uses the same facts for the third result of IN. The result is NULL if no y equals x, R is not
empty, and x or at least one y is NULL.

Rows expire as in the join. Starting at written_at + TTL, a row is invisible, and its results stay in the output. If the
last match of a left row expires, nothing is emitted. If the last visible match is retracted, the left row leaves the
semi join or enters the anti join. So if the right side has a TTL, each left row's mark records its state. It is 1 while
the row counts as unmatched (in the output of an anti join), and 0 while the row counts as matched (in the output of a
semi join). An expired left row stays in the output. A retraction that finds no row in an input with a TTL is treated as
the retraction of an expired row. On the left side, this retracts the left row if the visible right rows imply that it
is in the output. On the right side, this counts as the retraction of a match.

If a downstream operator has a TTL, a left row that stays in the output is emitted as a refresh when it is rewritten. A
semi or mark join also emits a refresh when one of the row's matches is inserted or rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.arrangement.arrangement import Arrangement, Finished
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import ArrangementSpec
from rowkind.operators.arrangement.netting import net_rows
from rowkind.operators.arrangement.resolving import resolve
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.changes import Changes, Indices, Int8s, Mask, binary
from rowkind.operators.columns.grouping import to_mask
from rowkind.operators.columns.hashing import hash64
from rowkind.operators.join.facts import HAS_NULL, NOT_EMPTY
from rowkind.operators.join.input import JoinInput, Side, number_rows, rows_of_touched_keys
from rowkind.operators.join.rows import Condition, Near, Pairs, SideRows, pads
from rowkind.operators.operator import Output

SemiJoinKind = Literal["semi", "anti", "null-aware anti", "mark", "null-aware mark"]


@dataclass(frozen=True, slots=True)
class SemiJoinSpec:
    """The specification of a semi join, an anti join or a mark join.

    As for a join, the plan encodes equal keys of both sides as equal bytes, and chooses the shard by the key's hash. A
    key for which SQL's equality cannot be true is null. On the left side of an anti join or a mark join, a NULL key may
    have any hash; elsewhere, rows with NULL keys may be dropped upstream. `condition` takes pairs of left and right
    payloads and returns a mask of the pairs for which the SQL condition is true. `near` excludes pairs that cannot
    match because of their times. Conditions on L alone are applied upstream for a semi join, and belong to `condition`
    for the other kinds. `answers` contains the bytes that a mark join appends to a row's payload for the flags FALSE,
    TRUE and NULL.

    For the null-aware kinds, the facts must also be broadcast to *every* shard (their hashes do not matter) in the same
    batch as the right rows that they describe. The facts are a net changelog. It contains a row with the key
    `NOT_EMPTY` exactly while R has a row, and a row with the key `HAS_NULL` exactly while R contains a NULL. The plan
    may send R itself a second time. It is cheaper to send a global aggregate over R with COUNT(*) and COUNT(*) FILTER
    (WHERE y IS NULL), as one row for each count above zero. Right rows with NULL keys need not be sent as side 1. If
    there is only one shard, no broadcast is needed.

    A null-aware kind cannot have a condition. Its right side cannot have a TTL, because it would be unknown whether
    expired rows belong to R. For a correlated NOT IN, whose R depends on the left row, the plan uses an anti join on
    the correlated columns with the condition `(x = y) IS NOT FALSE` instead.

    `refreshes` says whether a downstream operator has a TTL.
    """

    kind: SemiJoinKind
    left: Side
    right: Side
    condition: Condition | None = None
    refreshes: bool = False
    answers: tuple[bytes, bytes, bytes] = (b"", b"", b"")
    near: Near | None = None

    @property
    def null_aware(self) -> bool:
        """Whether the join has a third input, which carries facts."""
        return self.kind in ("null-aware anti", "null-aware mark")

    def __post_init__(self) -> None:
        if self.null_aware:
            assert self.condition is None, "a NOT IN with a condition must be an anti join with a condition"
            assert self.right.ttl_ms is None, "rows of a NOT IN subquery cannot expire"


@dataclass(frozen=True, slots=True)
class SemiJoin:
    """The operator for semi joins, anti joins and mark joins. It keeps its state in the stores, not in this object."""

    spec: SemiJoinSpec

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The arrangements and their TTLs in ms: one per input, and one for facts if the kind is null-aware."""
        both = {"left": self.spec.left.ttl_ms, "right": self.spec.right.ttl_ms}
        return {**both, "facts": None} if self.spec.null_aware else both

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Apply one batch of one shard at time `now` (ms since the epoch)."""
        spec = self.spec
        left = JoinInput.open(spec.left, "left", stores, batch.side(0), now)
        right = JoinInput.open(spec.right, "right", stores, batch.side(1), now)
        facts = None
        if spec.null_aware:
            facts = _Facts.open(stores["facts"], batch.side(2), now)
        if facts is not None and facts.before != facts.after:
            left_rows, right_rows = _all_rows(left, right)
        else:
            left_rows, right_rows = rows_of_touched_keys(
                left,
                right,
                counts_for_left=True,
                counts_for_right=False,
                only_counts=spec.condition is None,
                refreshes=spec.refreshes,
            )
        marked = spec.right.ttl_ms is not None
        pairs = _no_pairs()
        if spec.condition is not None:
            pairs = Pairs.of(left_rows, right_rows, spec.condition, spec.near)
        unmatched = _Unmatched.of(left_rows, right_rows, pairs, marked=marked)
        again = None
        if spec.refreshes:
            again, matched = self._written(left_rows, right_rows, pairs, now)
            unmatched = unmatched.without(matched)
        emit = self._answered if spec.kind in ("mark", "null-aware mark") else self._emit
        rows = emit(left_rows, unmatched, facts, again)
        left.append(left_rows, unmatched.after.astype(np.int8) if marked else None)
        right.append(right_rows, None)
        written = (left, right) if facts is None else (left, right, facts)
        finished = Finished.total(*(each.arrangement.finish() for each in written))
        return Output(
            rows,
            Changes.concat([left.unmatched, right.unmatched]),
            finished.state,
            finished.merged_rows,
            left.late + right.late,
            Changes.concat([left.repeated, right.repeated]),
        )

    def _written(self, left: SideRows, right: SideRows, pairs: Pairs, now: int) -> tuple[Mask, Indices]:
        """Return a mask of the left rows to refresh, and the indices of left rows that are known to have a match.

        A left row is refreshed if it was rewritten, or if one of its matches was inserted or rewritten. The indices
        refer only to rows that stay. In an anti join, a match never refreshes an output row, because only unmatched
        rows are emitted.
        """
        written = left.rewritten(now)
        if pairs.matches is not None:
            matched = pairs.renewed(left, right, now).left
            written[pairs.left[pairs.gained]] = True
            written[matched] = True
            return written, matched
        match = right.rewritten(now)
        match[: right.added] = True
        of_key = np.zeros(left.key_count + 1, np.bool_)
        of_key[right.keys[match]] = True
        # NULL keys have the number -1, which as an index is the position after all other keys.
        of_key[-1] = False
        return written | of_key[left.keys], np.empty(0, np.int64)

    def _emit(self, left: SideRows, unmatched: _Unmatched, facts: _Facts | None, again: Mask | None) -> Emitted:
        """Return the left rows that enter or leave the output, and refreshes of the `again` rows that do neither."""
        before, after = unmatched.before, unmatched.after
        if self.spec.kind == "semi":
            before, after = ~before, ~after
        if facts is not None:
            has_key = left.keys >= 0
            before, after = facts.before.passes(before, has_key), facts.after.passes(after, has_key)
        index = np.arange(len(left))
        step = (after & ~left.is_removed(index)).astype(np.int64) - (before & (index >= left.added))
        refreshed = None
        if again is not None:
            stays = np.flatnonzero(again & before & after & (index >= left.changed))
            refreshed = np.repeat(stays, left.weight[stays])
        return net_rows(left.payload, left.seq, step * left.weight, refreshed)

    def _answered(self, left: SideRows, unmatched: _Unmatched, facts: _Facts | None, again: Mask | None) -> Emitted:
        """Return the left rows that are inserted, retracted or get a new flag, and refreshes of the rows in `again`."""
        before, after = (unmatched.before == 0).astype(np.int8), (unmatched.after == 0).astype(np.int8)
        if facts is not None:
            has_key = left.keys >= 0
            before, after = (
                facts.before.answers(unmatched.before, has_key),
                facts.after.answers(unmatched.after, has_key),
            )
        index = np.arange(len(left))
        other = (index >= left.changed) & (before != after)
        goes, comes = np.flatnonzero(left.is_removed(index) | other), np.flatnonzero((index < left.added) | other)
        stays = np.empty(0, np.int64)
        if again is not None:
            stays = np.flatnonzero(again & (index >= left.changed) & ~other)
        rows = np.concatenate([goes, comes, stays])
        answers = np.concatenate([before[goes], after[comes], after[stays]])
        payload = pc.binary_join_element_wise(
            left.payload.take(pa.array(rows)), pa.array(self.spec.answers, pa.binary()).take(pa.array(answers)), b""
        )
        weight = np.concatenate([-left.weight[goes], left.weight[comes], np.zeros(len(stays), np.int64)])
        refreshed = np.repeat(np.arange(len(rows) - len(stays), len(rows)), left.weight[stays])
        return net_rows(payload, left.seq[rows], weight, None if again is None else refreshed)


@dataclass(frozen=True, slots=True)
class _Unmatched:
    """Which left rows count as unmatched before the batch and after it.

    If marks are used, a stored row's mark says whether the row counts as unmatched before the batch. The first value of
    an added row and the second value of a removed row have no meaning. If a row stays and its matches do not change,
    both values may be wrong, but then they are equal.
    """

    before: Mask
    after: Mask

    @classmethod
    def of(cls, left: SideRows, right: SideRows, pairs: Pairs, *, marked: bool) -> _Unmatched:
        """Compare the left rows with all right rows that have equal keys.

        `pairs` is used only if there is a condition.
        """
        emission, padded = pads(left, right, pairs, marked=marked)
        after = padded.astype(np.bool_)
        before = after.copy()
        before[emission.left] = emission.weight < 0
        return cls(before, after)

    def without(self, matched: Indices) -> _Unmatched:
        """Return a copy in which the given rows count as matched both before and after the batch."""
        before, after = self.before.copy(), self.after.copy()
        before[matched] = after[matched] = False
        return _Unmatched(before, after)


def _no_pairs() -> Pairs:
    none = np.empty(0, np.int64)
    return Pairs(none, none, none.astype(np.bool_), none, None)


@dataclass(frozen=True, slots=True)
class _Truth:
    """The facts about R: whether it has rows, and whether it contains a NULL."""

    not_empty: bool
    has_null: bool

    def passes(self, unmatched: Mask, has_key: Mask) -> Mask:
        """Return a mask of the left rows for which NOT IN is true."""
        if not self.not_empty:
            return np.ones(len(unmatched), np.bool_)
        return unmatched & has_key & (not self.has_null)

    def answers(self, unmatched: Mask, has_key: Mask) -> Int8s:
        """Return the result of IN for each left row: 0 for FALSE, 1 for TRUE, 2 for NULL."""
        found = (~unmatched).astype(np.int8)
        if self.not_empty:
            found[unmatched & ~(has_key & (not self.has_null))] = 2
        return found


@dataclass(frozen=True, slots=True)
class _Facts:
    """The third input during one batch: the facts before the batch and after it."""

    arrangement: Arrangement
    before: _Truth
    after: _Truth

    @classmethod
    def open(cls, store: BlobStore, batch: Batch, now: int) -> _Facts:
        """Open the facts' arrangement, resolve the batch's changes and append them."""
        arrangement = Arrangement(store, ArrangementSpec("facts", "multiset"), now)
        # A broadcast row's hash may be one that only routes the row to a shard, so the key's hash is computed again.
        changes, refreshes = (replace(part, hash=hash64(part.key)) for part in (batch.changes, batch.refreshes))
        resolved = resolve(arrangement, replace(batch, changes=changes, refreshes=refreshes), by_seq=False)
        removed = resolved.removed.relabel(weight=-resolved.removed.weight)
        stored = arrangement.lookup(hash64(binary([NOT_EMPTY, HAS_NULL])))
        for entries in (resolved.added, removed, resolved.refreshed):
            arrangement.append(entries)
        return cls(arrangement, _truth([stored]), _truth([stored, resolved.added, removed, resolved.refreshed]))


def _truth(parts: list[Entries]) -> _Truth:
    entries = Entries.concat(parts)

    def there(key: bytes) -> bool:
        return int(entries.weight[to_mask(pc.equal(entries.key, pa.scalar(key, pa.binary())))].sum()) > 0

    return _Truth(there(NOT_EMPTY), there(HAS_NULL))


def _all_rows(left: JoinInput, right: JoinInput) -> tuple[SideRows, SideRows]:
    """Return all left rows of the shard, and the right rows with the same keys."""
    left_stayed = left.stayed(left.all_there().hash)
    right_stayed = right.stayed(np.concatenate([left_stayed.hash, left.touched()]))
    return number_rows(left, left_stayed, right, right_stayed)
