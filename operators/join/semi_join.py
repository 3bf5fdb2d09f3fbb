"""Semi join, anti join and mark join: left rows with a match, left rows without one, or all rows with a match flag.

Maintains the rows of L that have (semi) or do not have (anti) a row of R with equal key that meets an optional further
condition: EXISTS and IN, NOT EXISTS and NOT IN. Each left row is emitted once, however many matches it has. A mark join
maintains all rows of L, each with the match flag as one more column. It implements EXISTS and IN under OR, in CASE or
in the select list (Neumann and Kemper, Unnesting Arbitrary Queries, 2015). Two arrangements, "left" and "right", store
the rows of the two inputs by join key.

The walk is that of the join (`operators.join.join`) without its pairs. An outer join is the inner join plus the
null-padded rows of the anti join. So an anti join emits the changes of a left join's pads, and a semi join the
remaining left rows. Replacing a left row without changing whether it matches emits -D and +I. If it moves to another
key without a change of its bytes, nothing is emitted.

NULL keys match nothing: such a row never passes a semi join and always passes an anti join.

NULL-aware anti join, for NOT IN. `x NOT IN (SELECT y FROM R)` is true if R is empty, for any x; otherwise it is true if
x is not NULL, no y is NULL and no y equals x. Whether R is empty and whether it contains a NULL depends on all rows of
R, so no shard can derive it from its own rows. A third input, side 2, sends both to each shard as *facts*: a fact is
true while the side has at least one row with the key `NOT_EMPTY` or `HAS_NULL`. A third arrangement, "facts", counts
these rows. When a fact changes, all left rows of the shard must be read.

A null-aware mark join uses the same facts for the third result of IN: NULL if no y equals x, R is not empty, and x or
some y is NULL.

Expiry is as for the join. A row is invisible from written_at + TTL on, and its results stay in the output. If the last
match of a left row expires, the row neither leaves a semi join nor enters an anti join; if the last visible match is
retracted, it does. So if the right side has a TTL, the mark of each left row records its state: 1 while it counts as
unmatched (in the output of an anti join), 0 while it counts as matched (in the output of a semi join). An expired left
row stays in the output. A retraction that finds no row in an input with a TTL is treated as the retraction of an
expired row. On the left it retracts the row if, by the visible right rows, the row would be in the output. On the right
it counts as the retraction of a match.

If a downstream operator has a TTL, a left row that stays in the output is emitted as a refresh when it is rewritten. A
semi or mark join also emits one when a match of the row is inserted or rewritten.
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

    The plan provides, as for a join: equal keys on both sides as equal bytes, null where SQL's equality cannot be true,
    and the shard by the hash of the key. On the left of an anti join and a mark join, a NULL key may have any hash;
    elsewhere rows with NULL keys may be dropped upstream. `condition` takes equally many left and right payloads and is
    true only where the SQL condition is true. `near` excludes pairs that cannot match by their times. Further
    conditions on L alone are applied upstream for a semi join, and belong to `condition` for the others. `answers` are
    the bytes that a mark join appends to a row's payload if the flag is FALSE, TRUE or NULL.

    For the null-aware kinds, facts must also reach *every* shard (a broadcast; their hash does not matter) in the same
    batch as the right rows that they describe. They are a net changelog of rows with key `NOT_EMPTY`, which has a row
    exactly while R has one, and likewise for `HAS_NULL`. Either R itself is sent a second time or, more cheaply, a
    global aggregate over R of COUNT(*) and COUNT(*) FILTER (WHERE y IS NULL) with a row for each count above zero.
    Right rows with NULL keys need not be sent as side 1. With one shard no broadcast is needed.

    A null-aware kind cannot have a condition, nor a TTL on the right, because it would be unknown whether expired rows
    belong to R. A correlated NOT IN, whose R depends on the left row, is an anti join on the correlated columns with
    the condition `(x = y) IS NOT FALSE` instead.

    `refreshes`: whether a downstream operator has a TTL.
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
        """Whether there is a third input, with facts."""
        return self.kind in ("null-aware anti", "null-aware mark")

    def __post_init__(self) -> None:
        if self.null_aware:
            assert self.condition is None, "NOT IN with a condition is an anti join with a condition"
            assert self.right.ttl_ms is None, "rows of a NOT IN subquery cannot expire"


@dataclass(frozen=True, slots=True)
class SemiJoin:
    """The operator. Its state is in the stores, not in this object."""

    spec: SemiJoinSpec

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The rows of both inputs, each with its TTL in ms, and the facts."""
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
        """Return which left rows are rewritten or have a written match, and the rows that stay and have a known match.

        Only refreshes use this. An anti join emits only unmatched rows, so a written match never refreshes one.
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
        # NULL keys have the number -1, which is the position after all others.
        of_key[-1] = False
        return written | of_key[left.keys], np.empty(0, np.int64)

    def _emit(self, left: SideRows, unmatched: _Unmatched, facts: _Facts | None, again: Mask | None) -> Emitted:
        """Return the left rows that enter or leave the output, and refreshes of written rows that stay in it."""
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
        """Return the inserted and retracted left rows, those whose flag changed, and refreshes of written rows."""
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
    """Which left rows had no match before the batch and have none after it; for rows that stay marks decide, if used.

    The values before an addition and after a removal do not matter. For a row that stays and whose matches do not
    change, both values may be wrong, but then they are equal.
    """

    before: Mask
    after: Mask

    @classmethod
    def of(cls, left: SideRows, right: SideRows, pairs: Pairs, *, marked: bool) -> _Unmatched:
        """Compare left rows with all right rows of the touched keys; `pairs` are used only with a condition."""
        emission, padded = pads(left, right, pairs, marked=marked)
        after = padded.astype(np.bool_)
        before = after.copy()
        before[emission.left] = emission.weight < 0
        return cls(before, after)

    def without(self, matched: Indices) -> _Unmatched:
        """Return the same, except that these rows have a match before and after."""
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
        """Return for which left rows NOT IN is true."""
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
    """The third input within one batch: the facts before it and after it."""

    arrangement: Arrangement
    before: _Truth
    after: _Truth

    @classmethod
    def open(cls, store: BlobStore, batch: Batch, now: int) -> _Facts:
        """Open the arrangement, resolve the changes and append them."""
        arrangement = Arrangement(store, ArrangementSpec("facts", "multiset"), now)
        # A broadcast row may carry a hash that only routes it to its shard.
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
    """Return all left rows of the shard, and the right rows of their keys."""
    left_stayed = left.stayed(left.all_there().hash)
    right_stayed = right.stayed(np.concatenate([left_stayed.hash, left.touched()]))
    return number_rows(left, left_stayed, right, right_stayed)
