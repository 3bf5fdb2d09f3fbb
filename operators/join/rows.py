"""The pairs and pads that a batch inserts into or retracts from a join's output.

They are computed from the rows whose keys the batch touches. A *pad* is the null-padded row that stands for an
unmatched row. Rows are given by their indices on their side; only the condition reads payloads. Rows that *stay* are
those that the batch neither adds nor removes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.columns.changes import Indices, Int8s, Int64s, Mask, Uint64s, concat_binary
from rowkind.operators.columns.grouping import Groups, group, members, to_mask
from rowkind.operators.columns.rowtime import RowTime, later
from rowkind.operators.errors import RowFailed
from rowkind.operators.join.output import PAD, Emission

PAIRS_AT_ONCE = 1 << 18
"""The approximate number of pairs on which the condition is evaluated in one call."""

Condition = Callable[[pa.BinaryArray, pa.BinaryArray], Mask]


@dataclass(frozen=True, slots=True)
class Near:
    """The range of time differences within which two rows can match.

    The right row's time minus the left row's time must be from `earliest` to `latest`, in microseconds; None for no
    bound. If a row's time is NULL, the time functions may return any value for the row, because it satisfies no
    condition.
    """

    left: RowTime
    right: RowTime
    earliest: int | None
    latest: int | None

    def times(self, left: SideRows, right: SideRows) -> PairTimes:
        """Return the times of both sides' rows."""
        return PairTimes(self.left(left.payload), self.right(right.payload), self.earliest, self.latest)


@dataclass(frozen=True, slots=True)
class PairTimes:
    """The times of both sides' rows, and the bounds on the time difference between the rows of a pair."""

    left: Int64s
    right: Int64s
    earliest: int | None
    latest: int | None

    @property
    def mirrored(self) -> PairTimes:
        """The same times and bounds with the sides exchanged."""
        earliest, latest = (None if each is None else -each for each in (self.latest, self.earliest))
        return PairTimes(self.right, self.left, earliest, latest)

    def among(self, left: Indices, right: Indices) -> PairTimes:
        """Return the times of the given rows only, with the same bounds."""
        return replace(self, left=self.left[left], right=self.right[right])


@dataclass(frozen=True, slots=True)
class PairMatching:
    """A test of whether two rows with equal keys match.

    If there are time bounds, only pairs within the bounds are tested.
    """

    asked: Callable[[Indices, Indices], Mask]
    times: PairTimes | None

    @classmethod
    def of(cls, left: SideRows, right: SideRows, condition: Condition, near: Near | None) -> Self:
        """Return the test that evaluates `condition` on the rows of both sides."""

        def asked(left_rows: Indices, right_rows: Indices) -> Mask:
            try:
                return condition(left.payload.take(pa.array(left_rows)), right.payload.take(pa.array(right_rows)))
            except RowFailed as error:
                later = max(left.seq[left_rows[error.row]], right.seq[right_rows[error.row]])
                raise error.came_with(int(later)) from None

        return cls(asked, None if near is None else near.times(left, right))

    @property
    def mirrored(self) -> PairMatching:
        """The same test with the sides exchanged."""
        asked = self.asked
        return PairMatching(lambda right, left: asked(left, right), None if self.times is None else self.times.mirrored)


@dataclass(frozen=True, slots=True)
class SideRows:
    """One side's rows with touched keys: first the added rows, then the removed rows, then the rows that stay.

    `keys` contains the number of each row's key: -1 for a NULL key, otherwise from 0 to `key_count` - 1, with the same
    numbers on both sides. All weights are positive. `unseen` contains, for each key, the number of further rows that
    stay and that only need to be counted. `expired` is the number of rows, at the end of the removed rows, that had
    expired before the batch. They are invisible, but their results may be in the output.
    """

    payload: pa.BinaryArray
    weight: Int64s
    seq: Int64s
    mark: Int8s
    keys: Indices
    key_count: int
    added: int
    removed: int
    expired: int
    stayed: Entries
    unseen: Int64s

    @classmethod
    def of(cls, added: Entries, removed: Entries, expired: Entries, stayed: Entries, keys: Groups) -> Self:
        """Combine the four parts; `keys` contains the key number of each of their rows."""
        parts = added, removed, expired, stayed
        return cls(
            concat_binary([part.payload for part in parts]),
            np.concatenate([part.weight for part in parts]),
            np.concatenate([part.seq for part in parts]),
            np.concatenate([part.mark for part in parts]),
            keys.ids,
            keys.count,
            len(added),
            len(removed) + len(expired),
            len(expired),
            stayed,
            np.zeros(keys.count, np.int64),
        )

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def changed(self) -> int:
        """The number of added and removed rows; all other rows stay."""
        return self.added + self.removed

    @property
    def seen(self) -> int:
        """The position of the first expired row; the expired rows are at the end of the removed rows."""
        return self.changed - self.expired

    def rewritten(self, now: int) -> Mask:
        """Return a mask of the rows that stay and were rewritten at the batch's time, `now`."""
        result = np.zeros(len(self), np.bool_)
        result[self.changed :] = self.stayed.written_at == now
        return result

    def beside(self, unseen: Int64s) -> Self:
        """Return a copy with `unseen` set: for each key, the number of further rows that stay."""
        return replace(self, unseen=unseen)

    def one_of_each_key(self, rows: Indices) -> Indices:
        """Return, for each non-NULL key of the given rows, one of the rows with that key.

        Rows are numbered from 0, counting only the rows that stay.
        """
        keys = self.keys[self.changed + rows]
        one = np.full(self.key_count, -1)
        one[keys[keys >= 0]] = rows[keys >= 0]
        return one[one >= 0]

    def is_removed(self, rows: Indices) -> Mask:
        """Return a mask of the given rows that are removed."""
        return (rows >= self.added) & (rows < self.changed)

    def count_by_key(self, first: int, stop: int) -> Int64s:
        """Return, for each key, the number of rows at the positions from `first` to `stop` - 1."""
        # NULL keys have the number -1, hence the shift.
        counts = np.bincount(self.keys[first:stop] + 1, self.weight[first:stop], self.key_count + 1)
        return counts[1:].astype(np.int64)


@dataclass(frozen=True, slots=True)
class Pairs:
    """The changed pairs: matching pairs in which at least one row is added or removed.

    `gained` marks the pairs that are inserted; the other pairs are retracted. `matches` tests whether two rows with
    equal keys match; None if there is no condition, so that all rows with equal keys match.
    """

    left: Indices
    right: Indices
    gained: Mask
    weight: Int64s
    matches: PairMatching | None

    @classmethod
    def of(cls, left: SideRows, right: SideRows, condition: Condition | None, near: Near | None = None) -> Self:
        """Return all pairs that the batch inserts or retracts."""
        matches = None if condition is None else PairMatching.of(left, right, condition, near)
        parts = []
        for left_range, right_range in (
            ((0, left.changed), (right.changed, len(right))),
            ((left.changed, len(left)), (0, right.changed)),
            ((0, left.added), (0, right.added)),
            # Expired rows are not paired with each other, because it is unknown whether they ever existed at the same
            # time.
            ((left.added, left.changed), (right.added, right.seen)),
            ((left.added, left.seen), (right.seen, right.changed)),
        ):
            parts += list(_equal_keys(left, np.arange(*left_range), right, np.arange(*right_range), matches))
        left_rows = np.concatenate([part[0] for part in parts]) if parts else np.empty(0, np.int64)
        right_rows = np.concatenate([part[1] for part in parts]) if parts else np.empty(0, np.int64)
        gained = ~(left.is_removed(left_rows) | right.is_removed(right_rows))
        weight = left.weight[left_rows] * right.weight[right_rows]
        return cls(left_rows, right_rows, gained, weight, matches)

    @property
    def emission(self) -> Emission:
        """The signed pairs to emit."""
        return Emission(self.left, self.right, np.where(self.gained, self.weight, -self.weight))

    def renewed(self, left: SideRows, right: SideRows, now: int) -> Emission:
        """Return the matching pairs in which both rows stay and at least one was rewritten at time `now`."""
        again_left, again_right = left.rewritten(now), right.rewritten(now)
        others = np.flatnonzero(~again_left[left.changed :]) + left.changed
        parts = [
            *_equal_keys(left, np.flatnonzero(again_left), right, np.arange(right.changed, len(right)), self.matches),
            *_equal_keys(left, others, right, np.flatnonzero(again_right), self.matches),
        ]
        left_rows, right_rows = (
            np.concatenate([np.empty(0, np.int64), *(part[at] for part in parts)]) for at in (0, 1)
        )
        return Emission(left_rows, right_rows, left.weight[left_rows] * right.weight[right_rows])

    @property
    def mirrored(self) -> Pairs:
        """The same pairs with the sides exchanged."""
        matches = None if self.matches is None else self.matches.mirrored
        return Pairs(self.right, self.left, self.gained, self.weight, matches)


def pads(outer: SideRows, inner: SideRows, pairs: Pairs, *, marked: bool) -> tuple[Emission, Int8s]:
    """Return the changes to the pads of `outer` rows, and whether each row's pad is in the output after the batch.

    `outer` is the left side of `pairs`. If `marked` is set, a stored row's mark records whether its pad was in the
    output before the batch. If `marked` is not set, or if a row has expired, its pad was in the output if the row had
    no match.
    """
    old, new = _match_counts(outer, inner, pairs, marked=marked)
    padded_before = outer.mark.astype(np.bool_) if marked else old == 0
    padded_before[outer.seen : outer.changed] = old[outer.seen : outer.changed] == 0
    padded_before[: outer.added] = False
    padded_after = (new == 0) & (padded_before | (old > 0))
    padded_after[: outer.added] = new[: outer.added] == 0
    padded_after[outer.added : outer.changed] = False
    step = padded_after.astype(np.int64) - padded_before
    rows = np.flatnonzero(step)
    return (
        Emission(rows, np.full(len(rows), PAD), (step * outer.weight)[rows]),
        padded_after.astype(np.int8),
    )


def _match_counts(outer: SideRows, inner: SideRows, pairs: Pairs, *, marked: bool) -> tuple[Int64s, Int64s]:
    """Return the number of matches of each outer row before and after the batch.

    The counts only show whether they are zero. An added row's first count and a removed row's second count have no
    meaning. If a row stays and its matches do not change, both of its counts may be zero although it has matches.
    """
    if pairs.matches is None:
        stayed = inner.count_by_key(inner.changed, len(inner)) + inner.unseen
        before = stayed + inner.count_by_key(inner.added, inner.changed)
        now = stayed + inner.count_by_key(0, inner.added)
        real = outer.keys >= 0
        if len(before) == 0:
            return np.zeros(len(outer), np.int64), np.zeros(len(outer), np.int64)
        of_each = before[outer.keys]
        if outer.expired and inner.expired:
            expired = slice(outer.seen, outer.changed)
            of_each[expired] -= inner.count_by_key(inner.seen, inner.changed)[outer.keys[expired]]
        return np.where(real, of_each, 0), np.where(real, now[outer.keys], 0)

    weight = inner.weight[pairs.right]
    before, now = (
        np.bincount(pairs.left[side], weight[side], len(outer)).astype(np.int64)
        for side in (~pairs.gained, pairs.gained)
    )
    # If a row stays, and its changed pairs are all inserted or all retracted, the row may also match rows that stay.
    open_now = (before > 0) & (now == 0)
    open_before = (now > 0) & (before == 0)
    undecided = open_now if marked else open_now | open_before
    undecided[: outer.changed] = False
    for left, right in _equal_keys(
        outer, np.flatnonzero(undecided), inner, np.arange(inner.changed, len(inner)), pairs.matches
    ):
        others = np.bincount(left, inner.weight[right], len(outer)).astype(np.int64)
        before += others
        now += others
    return before, now


def number_keys(parts: Sequence[Entries]) -> Groups:
    """Number the keys of all parts together; NULL keys get the number -1."""
    keys = concat_binary([part.key for part in parts])
    groups = group(np.concatenate([part.hash for part in parts]), [keys])
    return Groups(np.where(to_mask(pc.is_null(keys)), -1, groups.ids), groups.count) if keys.null_count else groups


def hashes(entries: Entries) -> Uint64s:
    """Return the key hashes of the rows whose key is not NULL."""
    return entries.hash[to_mask(pc.is_valid(entries.key))] if entries.key.null_count else entries.hash


def _equal_keys(
    left: SideRows,
    left_rows: Indices,
    right: SideRows,
    right_rows: Indices,
    matches: PairMatching | None,
) -> Iterator[tuple[Indices, Indices]]:
    """Yield the pairs of the given rows that have equal keys and match.

    If there is a condition, the pairs are yielded in parts of limited size.
    """
    right_rows = right_rows[right.keys[right_rows] >= 0]
    left_rows = left_rows[left.keys[left_rows] >= 0]
    if len(left_rows) == 0 or len(right_rows) == 0:
        return
    keys = left.keys[left_rows], right.keys[right_rows]
    if matches is None or matches.times is None:
        order, first, counts = _of_keys(*keys, right.key_count)
    else:
        order, first, counts = _near(*keys, matches.times.among(left_rows, right_rows))
    right_rows = right_rows[order]
    some = counts > 0
    left_rows, first, counts = left_rows[some], first[some], counts[some]
    total = np.cumsum(counts)
    bounds: Indices = np.array([0, len(left_rows)])
    if matches is not None and len(total):
        inner = np.searchsorted(total, np.arange(PAIRS_AT_ONCE, total[-1], PAIRS_AT_ONCE))
        bounds = np.unique([0, *inner, len(total)])
    for start, stop in itertools.pairwise(bounds.tolist()):
        owner, rank = members(counts[start:stop])
        part = left_rows[start:stop][owner], right_rows[first[start:stop][owner] + rank]
        if matches is not None:
            mask = matches.asked(*part)
            part = part[0][mask], part[1][mask]
        yield part


def _of_keys(left: Indices, right: Indices, key_count: int) -> tuple[Indices, Indices, Indices]:
    """Return the right rows' order by key and, for each left row, the start and the number of its key's right rows."""
    per_key = np.bincount(right, minlength=key_count)
    first = np.cumsum(per_key) - per_key
    return np.argsort(right, kind="stable"), first[left], per_key[left]


def _near(left: Indices, right: Indices, times: PairTimes) -> tuple[Indices, Indices, Indices]:
    """Return the same as `_of_keys`, but order each key's right rows by time and restrict them to the time bounds."""
    known = np.unique(times.right)
    size = len(known)
    place = right * size + np.searchsorted(known, times.right)
    order = np.argsort(place, kind="stable")
    low, high = np.zeros(len(left), np.int64), np.full(len(left), size)
    if times.earliest is not None:
        low = np.searchsorted(known, later(times.left, times.earliest), side="left")
    if times.latest is not None:
        high = np.searchsorted(known, later(times.left, times.latest), side="right")
    first, end = (np.searchsorted(place[order], left * size + each) for each in (low, high))
    return order, first, np.maximum(end - first, 0)
