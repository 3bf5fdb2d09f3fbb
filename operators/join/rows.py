"""The arithmetic of a join over the rows of the touched keys: pairs and pads.

Everything here is indices into the rows of the two sides; payloads are touched only by the condition.
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
"""Pairs that the condition is asked about at a time."""

Condition = Callable[[pa.BinaryArray, pa.BinaryArray], Mask]


@dataclass(frozen=True, slots=True)
class Near:
    """A pair can match only if the right row's time is between the left one's plus `earliest`, and it plus `latest`.

    In microseconds; None for no bound. What times there are of rows whose time is NULL does not matter: they fulfil no
    condition.
    """

    left: RowTime
    right: RowTime
    earliest: int | None
    latest: int | None

    def times(self, left: SideRows, right: SideRows) -> PairTimes:
        """The times of the rows of both sides."""
        return PairTimes(self.left(left.payload), self.right(right.payload), self.earliest, self.latest)


@dataclass(frozen=True, slots=True)
class PairTimes:
    """The times of two sides' rows, and how far from each other those of a pair may lie."""

    left: Int64s
    right: Int64s
    earliest: int | None
    latest: int | None

    @property
    def mirrored(self) -> PairTimes:
        """The same with the sides exchanged."""
        earliest, latest = (None if each is None else -each for each in (self.latest, self.earliest))
        return PairTimes(self.right, self.left, earliest, latest)

    def among(self, left: Indices, right: Indices) -> PairTimes:
        """Those of these rows."""
        return replace(self, left=self.left[left], right=self.right[right])


@dataclass(frozen=True, slots=True)
class PairMatching:
    """Whether pairs of rows with equal keys match: those that are near in time, if that is said, are asked about."""

    asked: Callable[[Indices, Indices], Mask]
    times: PairTimes | None

    @classmethod
    def of(cls, left: SideRows, right: SideRows, condition: Condition, near: Near | None) -> Self:
        """By a condition on the rows of two sides."""

        def asked(left_rows: Indices, right_rows: Indices) -> Mask:
            try:
                return condition(left.payload.take(pa.array(left_rows)), right.payload.take(pa.array(right_rows)))
            except RowFailed as error:
                later = max(left.seq[left_rows[error.row]], right.seq[right_rows[error.row]])
                raise error.came_with(int(later)) from None

        return cls(asked, None if near is None else near.times(left, right))

    @property
    def mirrored(self) -> PairMatching:
        """The same with the sides exchanged."""
        asked = self.asked
        return PairMatching(lambda right, left: asked(left, right), None if self.times is None else self.times.mirrored)


@dataclass(frozen=True, slots=True)
class SideRows:
    """The rows of the touched keys on one side: first those added, then those removed, then those that stay.

    `keys` numbers the keys over both sides, from 0 to `key_count` - 1; it is -1 where the key is NULL. Weights are
    positive throughout. `unseen` is how many more rows that stay each key has, where only their number matters. The
    last `expired` of those removed had expired before: nobody sees them, but what they took part in may be out.
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
        """The rows of these four parts, whose keys have these numbers."""
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
        """How many rows are added or removed; the others stay."""
        return self.added + self.removed

    @property
    def seen(self) -> int:
        """Where among those removed the rows begin that had expired."""
        return self.changed - self.expired

    def rewritten(self, now: int) -> Mask:
        """Which rows stay and have been written at time `now`, that of the batch."""
        result = np.zeros(len(self), np.bool_)
        result[self.changed :] = self.stayed.written_at == now
        return result

    def beside(self, unseen: Int64s) -> Self:
        """The same rows, beside so many more of each key that stay."""
        return replace(self, unseen=unseen)

    def one_of_each_key(self, rows: Indices) -> Indices:
        """Of these of the rows that stay, numbered from 0, one for each key that is not NULL."""
        keys = self.keys[self.changed + rows]
        one = np.full(self.key_count, -1)
        one[keys[keys >= 0]] = rows[keys >= 0]
        return one[one >= 0]

    def is_removed(self, rows: Indices) -> Mask:
        """Which of these rows are removed."""
        return (rows >= self.added) & (rows < self.changed)

    def count_by_key(self, first: int, stop: int) -> Int64s:
        """How many rows each key has among these."""
        # NULL keys have the number -1, hence the shift.
        counts = np.bincount(self.keys[first:stop] + 1, self.weight[first:stop], self.key_count + 1)
        return counts[1:].astype(np.int64)


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs that come or go: the matching ones of which at least one row is added or removed.

    `gained` tells those that come. `matches` says of any pairs of rows with equal keys whether they match; None where
    there is no condition and all do.
    """

    left: Indices
    right: Indices
    gained: Mask
    weight: Int64s
    matches: PairMatching | None

    @classmethod
    def of(cls, left: SideRows, right: SideRows, condition: Condition | None, near: Near | None = None) -> Self:
        """All pairs that the batch brings or takes away."""
        matches = None if condition is None else PairMatching.of(left, right, condition, near)
        parts = []
        for left_range, right_range in (
            ((0, left.changed), (right.changed, len(right))),
            ((left.changed, len(left)), (0, right.changed)),
            ((0, left.added), (0, right.added)),
            # Whether rows that had expired, both, were there at one time, nobody knows.
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
        """What these pairs emit."""
        return Emission(self.left, self.right, np.where(self.gained, self.weight, -self.weight))

    def renewed(self, left: SideRows, right: SideRows, now: int) -> Emission:
        """The pairs of the same two sides that stay and of which at least one row was written again at time `now`."""
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
        """The same with the sides exchanged."""
        matches = None if self.matches is None else self.matches.mirrored
        return Pairs(self.right, self.left, self.gained, self.weight, matches)


def pads(outer: SideRows, inner: SideRows, pairs: Pairs, *, marked: bool) -> tuple[Emission, Int8s]:
    """The pads of `outer` rows that come or go, and for each row whether its pad is in the output afterwards.

    `outer` is the left side of `pairs`. `marked` says that the marks tell whether the pads of rows that were there
    before are in the output; otherwise, and for rows that had expired, a pad is there where there was no match.
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
    """How many matches each outer row had before, and has now.

    Only whether a count is zero matters, and not for what a row has before it is added or after it is removed. Where
    a row stays and no match of it comes or goes, both counts may be zero although it has matches.
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
    # A row that stays and gains or loses all it has in these pairs may have other matches, among the rows that stay.
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
    """The number of each row's key, over all parts; -1 where it is NULL."""
    keys = concat_binary([part.key for part in parts])
    groups = group(np.concatenate([part.hash for part in parts]), [keys])
    return Groups(np.where(to_mask(pc.is_null(keys)), -1, groups.ids), groups.count) if keys.null_count else groups


def hashes(entries: Entries) -> Uint64s:
    """The hashes of the rows whose key is not NULL."""
    return entries.hash[to_mask(pc.is_valid(entries.key))] if entries.key.null_count else entries.hash


def _equal_keys(
    left: SideRows,
    left_rows: Indices,
    right: SideRows,
    right_rows: Indices,
    matches: PairMatching | None,
) -> Iterator[tuple[Indices, Indices]]:
    """The pairs of these rows that have equal keys and match, in parts of bounded size where there is a condition."""
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
    """The order of right rows in which those of a key stand together; of each left row where its begin, how many."""
    per_key = np.bincount(right, minlength=key_count)
    first = np.cumsum(per_key) - per_key
    return np.argsort(right, kind="stable"), first[left], per_key[left]


def _near(left: Indices, right: Indices, times: PairTimes) -> tuple[Indices, Indices, Indices]:
    """The same where of a key only those are wanted whose times are near: they stand in the order of their time."""
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
