"""As-of join: each left row with the right row that has the same key and is nearest in time, in one direction.

A left row at time t takes the right row with the same key and the greatest time v such that `t >= v`. The condition may
also be `t > v`; with `t <= v` or `t < v`, the left row takes the least v. Of right rows with equal times, the left row
takes the latest to arrive. An unmatched left row is dropped or null-padded. A correction on either side emits exactly
the resulting changes.

Each key has a *line*, on which the rows of both sides have positions. Each left row takes the first right row at or
after the left row's position. For `t >= v` a position is the negated time, so that a later position is an earlier time.
For `t > v` and `t < v`, a left row's position is one higher. So the algorithm needs only one direction and one
comparison.

    t >= v    left  8   right 9 7 5           left -8             right -9 . -7 -5      it takes 7

Algorithm. The changes of both sides are resolved to inserted and retracted rows. A changed right row affects the left
rows after the previous right row's position, up to and including the changed row's position; these left rows are read.
For each affected left row, the right rows are searched from the left row's position to the first right row that stays
(`operators.temporal_join.nearest`). So a left row costs one search, and the key's other rows are not read. Then each
left row is paired twice: with the right row that it took before the batch, with weight -1, and with the right row that
it takes now, with weight +1. Equal pairs cancel.

Watermark. A left row is evicted when no right row that it could take can change any more. A right row is evicted when
no left row that would take it can arrive any more. One of these two conditions depends on the row's own time. The other
condition depends on the time of a right row that may be inserted or retracted later. So on that side, each row is
stored with its eviction time, and is rewritten when this time changes. The rows expire like other rows
(`operators.columns.rowtime`).

    t >= v, t > v    left: its own time                 right: the time of the previous row on the line
    t <= v, t < v    left: the time of the row taken    right: its own time

So both sides keep the rows later than the watermark. Of the earlier rows, each key keeps either the last right row (for
`t >= v` and `t > v`) or the left rows that take no right row or a right row later than the watermark.

Versions (`operators.temporal_join.versions`): the right side may be the original changelog of a table with a key. In
the table, a new row replaces the old row with the same key, but for the join the old row remains valid for its own
period.

State: the arrangements "left" and "right" in layout *ordered* store the rows by key, with the position as the sub-key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.arrangement import Arrangement, Finished
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import ArrangementSpec
from rowkind.operators.arrangement.resolving import Resolved, entries_of, resolve
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.arrangement.touched_keys import TouchedKeys
from rowkind.operators.columns import number_bytes
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, Indices, Int64s, Mask, concat_binary
from rowkind.operators.columns.rowtime import END, RowTime, later
from rowkind.operators.join.output import PAD, Emission, Parents, emit
from rowkind.operators.operator import Output
from rowkind.operators.temporal_join.nearest import NOWHERE, Line, Points, nearest
from rowkind.operators.temporal_join.versions import ENDS, Deletes, resolve_versions

_BEGIN = np.iinfo(np.int64).min

Places = Callable[[pa.BinaryArray], Int64s]
"""A function that takes payloads and returns the rows' positions on their keys' lines.

The position is `NOWHERE` if a row's time is NULL.
"""


@dataclass(frozen=True, slots=True)
class AsofSide:
    """The specification of one input of an as-of join.

    - `places`: returns the positions of the input's rows.
    - `by_seq`: whether a row's changes are applied in `seq` order, as for a source. Otherwise each batch is a net
      multiset.
    - `counts_unmatched`: whether retractions that find no row are returned as unmatched.
    - `until`: returns the time when each row is evicted. Set only on the side where a row's own time determines this.
    """

    places: Places
    by_seq: bool = False
    counts_unmatched: bool = True
    until: RowTime | None = None


@dataclass(frozen=True, slots=True)
class AsofJoinSpec:
    """The specification of an as-of join. Keys are as for a join; retractions carry the full row that they retract.

    - `right_pad`: the payload that replaces a missing right row; None if unmatched left rows are dropped.
    - `deletes`: what the right side's deletes contain, if the right side is the original changelog of a versioned
      table; otherwise None.
    - `left_ttl_ms`: the time in ms after which left rows expire. Their results are then no longer corrected.
    - `later_us`: if a watermark evicts rows by a right row's time, the delay between that time and the eviction, in
      microseconds. Positions are then times in microseconds, which are negated if the evicted rows are right rows. None
      if no watermark applies.
    - `refreshes`: whether a downstream operator has a TTL.
    """

    left: AsofSide
    right: AsofSide
    right_pad: bytes | None = None
    deletes: Deletes | None = None
    left_ttl_ms: int | None = None
    later_us: int | None = None
    refreshes: bool = False

    def until(self, side: AsofSide) -> RowTime | None:
        """Return the function for the time until which a side's rows are stored when they are first written.

        None if no watermark applies to the side.
        """
        return side.until if side.until is not None or self.later_us is None else _for_good


@dataclass(frozen=True, slots=True)
class AsofJoin:
    """The as-of join operator. It keeps its state in the stores, not in this object."""

    spec: AsofJoinSpec

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The arrangements and their TTLs in ms: one arrangement per input. Only left rows can have a TTL."""
        return {"left": self.spec.left_ttl_ms, "right": None}

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Apply one batch of one shard at time `now` (ms since the epoch)."""
        spec = self.spec
        kept = Arrangement(
            stores["left"], ArrangementSpec("left", "ordered", spec.left_ttl_ms, until=spec.until(spec.left)), now
        )
        versions = Arrangement(stores["right"], ArrangementSpec("right", "ordered", until=spec.until(spec.right)), now)
        keys = TouchedKeys.of(batch.touched)
        left_batch, right_batch = _placed(batch.side(0), spec.left), _placed(batch.side(1), spec.right)
        left = resolve(kept, left_batch, by_seq=spec.left.by_seq)
        if spec.deletes is None:
            right = resolve(versions, right_batch, by_seq=spec.right.by_seq)
        else:
            right = _resolved_versions(versions, keys, batch, right_batch.changes, spec.deletes)
        unmatched, late = _unmatched(left, left_batch, spec.left), Entries.empty()
        if spec.left_ttl_ms is not None:
            unmatched, late = Changes.empty(), entries_of(kept, unmatched)
        change = _RightChange.of(versions, keys, right)
        lets_go = spec.later_us is not None and spec.right.until is None
        rows = _Left.of(keys, left, late, change.stayed(kept, keys, left))
        found = _Right.of(versions, keys, rows.points, change, lets_go=lets_go)
        taken = found.taken(rows.points)
        emission = rows.emission(*taken, padded=spec.right_pad is not None)
        written = [_comes(left)]
        if spec.later_us is not None and spec.left.until is None:
            written = rows.written(found.until(taken[1], spec.later_us))
        for entries in (-_goes(left), *written):
            kept.append(entries)
        for entries in (-change.goes, *found.written(spec.later_us if lets_go else None)):
            versions.append(entries)
        finished = Finished.total(kept.finish(), versions.finish())
        return Output(
            emit(
                emission,
                Parents.of(rows.entries.payload, rows.entries.seq, b""),
                Parents.of(found.payload, found.seq, spec.right_pad or b""),
                emission.take(np.empty(0, np.int64)) if spec.refreshes else None,
            ),
            Changes.concat([unmatched, _unmatched(right, right_batch, spec.right)]),
            finished.state,
            finished.merged_rows,
            len(late),
        )


def _placed(batch: Batch, side: AsofSide) -> Batch:
    """Return the batch with its rows' positions as sub-keys."""
    return batch.with_sub_keys(number_bytes.to_bytes(side.places(batch.touched.payload)))


def _resolved_versions(
    versions: Arrangement, keys: TouchedKeys, batch: Batch, right: Changes, deletes: Deletes
) -> Resolved:
    of_key = keys.of_change[: len(batch.changes)][batch.changes.side == 1]
    return resolve_versions(versions, keys, of_key, right, deletes)


def _unmatched(resolved: Resolved, batch: Batch, side: AsofSide) -> Changes:
    """Return an input's retractions that found no row, or no changes if such retractions are not counted."""
    return batch.changes.take(resolved.unmatched if side.counts_unmatched else resolved.unmatched[:0])


def _for_good(payload: pa.BinaryArray) -> Int64s:
    """Return `END` for each row, because rows are initially stored indefinitely."""
    return np.full(len(payload), END, np.int64)


def _goes(resolved: Resolved) -> Entries:
    """Return the retracted rows, including those that the batch also inserts again."""
    return Entries.concat([resolved.removed, -resolved.refreshed.filter(resolved.refreshed.weight < 0)])


def _comes(resolved: Resolved) -> Entries:
    """Return the inserted rows, including those that the batch also retracts before."""
    return Entries.concat([resolved.added, resolved.rewritten])


@dataclass(frozen=True, slots=True)
class _RightChange:
    """The changes to the right side: the retracted and inserted rows, and their positions in order.

    A change at a position can affect the left rows after `before`, up to and including the changed position. `before`
    is the previous right row's position.
    """

    goes: Entries
    comes: Entries
    places: Points
    before: Int64s

    @classmethod
    def of(cls, versions: Arrangement, keys: TouchedKeys, right: Resolved) -> _RightChange:
        """Derive the changed right rows and their positions from the resolved changes."""
        goes, comes = _goes(right), _comes(right)
        both = Line.of(keys, Entries.concat([goes, comes]))
        around = nearest(versions, keys, both.points, Entries.empty(), backward=True)
        line = Line.of(keys, Entries.concat([around, both.entries])).points
        before = np.append(line.at, _BEGIN)[line.before(both.points)]
        return cls(goes, comes, both.points, before)

    def stayed(self, kept: Arrangement, keys: TouchedKeys, left: Resolved) -> Entries:
        """Return the left rows that stay and may now take a different right row."""
        if not len(self.places):
            return Entries.empty()
        low, high = Points(self.places.key, self.before).places(keys), self.places.places(keys)
        order = np.argsort(low)
        low, high = low[order], np.maximum.accumulate(high[order])
        begin = np.flatnonzero(np.append(True, low[1:] > high[:-1]))
        found, gone = kept.between(low[begin], np.maximum.reduceat(high, begin)), _goes(left)
        return kept.without(found.filter(self._concerns(keys, found)), -gone.filter(self._concerns(keys, gone)))

    def _concerns(self, keys: TouchedKeys, left: Entries) -> Mask:
        """Return a mask of the left rows that may now take a different right row."""
        points = Points(keys.find(left), number_bytes.from_bytes(left.sub_key))
        found = self.places.next_of(points)
        return (found >= 0) & (np.append(self.before, 0)[found] < points.at)


@dataclass(frozen=True, slots=True)
class _Left:
    """The affected left rows: first the retracted rows, then the inserted rows, then the rows that stay.

    `goes` and `comes` are the numbers of retracted and inserted rows.
    """

    entries: Entries
    points: Points
    goes: int
    comes: int

    @classmethod
    def of(cls, keys: TouchedKeys, left: Resolved, late: Entries, stayed: Entries) -> _Left:
        """Combine the given rows; `late` contains expired rows that the batch retracts."""
        goes, comes = Entries.concat([_goes(left), late]), _comes(left)
        entries = Entries.concat([goes, comes, stayed])
        points = Points(keys.find(entries), number_bytes.from_bytes(entries.sub_key))
        return cls(entries, points, len(goes), len(comes))

    def emission(self, before: Indices, now: Indices, *, padded: bool) -> Emission:
        """Return the signed pairs.

        `before` and `now` contain the right row that each left row took before the batch and takes now.
        """
        index = np.arange(len(self.entries))
        went = np.flatnonzero((index < self.goes) | (index >= self.goes + self.comes))
        came = index[self.goes :]
        steps = Emission(
            np.concatenate([went, came]),
            np.concatenate([before[went], now[came]]),
            np.concatenate([-self.entries.weight[went], self.entries.weight[came]]),
        )
        return steps if padded else steps.take(np.flatnonzero(steps.right != PAD))

    def written(self, until: Int64s) -> list[Entries]:
        """Return entries for inserted rows, and for rows that stay and get a new eviction time."""
        stays = self.goes + self.comes
        changed = stays + np.flatnonzero(until[stays:] != self.entries.written_at[stays:])
        rows = replace(self.entries, written_at=until)
        return [rows.slice(self.goes, stays), -self.entries.take(changed), rows.take(changed)]


@dataclass(frozen=True, slots=True)
class _Right:
    """The right rows that the affected left rows take, before the batch and after it."""

    before: Line
    now: Line
    change: _RightChange

    @classmethod
    def of(
        cls, versions: Arrangement, keys: TouchedKeys, asked: Points, change: _RightChange, *, lets_go: bool
    ) -> _Right:
        """Read the right rows starting at the positions `asked`.

        If a watermark evicts right rows by a right row's time (`lets_go`), also read the rows around each change.
        """
        points = [asked, change.places]
        if lets_go:
            points += [Points(change.places.key, at) for at in (change.before, change.places.at + 1)]
        wanted = Points.concat(*points)
        # A left row without a position finds no right row, and no row is before the first position.
        wanted = wanted.filter((wanted.at < NOWHERE) & (wanted.at > _BEGIN))
        stored = nearest(versions, keys, wanted, change.goes)
        now = Entries.concat([versions.without(stored, -change.goes), change.comes])
        return cls(Line.of(keys, stored), Line.of(keys, now), change)

    @property
    def payload(self) -> pa.BinaryArray:
        """The payloads of the rows before the batch, followed by the payloads after it."""
        return concat_binary([self.before.entries.payload, self.now.entries.payload])

    @property
    def seq(self) -> Int64s:
        """The arrival numbers of the rows before the batch, followed by the arrival numbers after it."""
        return np.concatenate([self.before.entries.seq, self.now.entries.seq])

    def taken(self, points: Points) -> tuple[Indices, Indices]:
        """Return the right rows that left rows at `points` took before the batch, and those that they take now.

        `PAD` stands for no right row.
        """
        before, now = (_found(line, points) for line in (self.before, self.now))
        return before, np.where(now == PAD, PAD, now + len(self.before.points))

    def until(self, taken: Indices, later_us: int) -> Int64s:
        """Return the time until which left rows are stored, given the right rows that they take.

        The result is in ms, rounded up. It is `later_us` after the right row's time, or `END` if no right row is taken.
        """
        at = np.append(np.concatenate([self.before.points.at, self.now.points.at]), 0)[taken]
        return np.where(taken == PAD, END, -(-later(at, later_us) // 1000))

    def written(self, later_us: int | None) -> list[Entries]:
        """Return entries for inserted rows, and for rows whose eviction time changes."""
        if later_us is None or not len(self.change.places):
            return [self.change.comes]
        rows, places = self.now.points, self.change.places
        behind = rows.next_of(Points(places.key, places.at + 1))
        concerned = np.isin(np.arange(len(rows)), behind)
        own = places.next_of(rows)
        concerned |= (own >= 0) & (np.append(places.at, 0)[own] == rows.at)
        # Rows at the same position are evicted at the same time.
        first = rows.next_of(rows)
        concerned = concerned[first]
        before = rows.before(rows)
        # No left row takes a key's end. So the end is evicted together with the last version that it ends.
        until = np.where(self.now.entries.mark == ENDS, -(later(rows.at, -later_us) // 1000), END)
        until = np.where(before >= 0, -(later(rows.at[before], -later_us) // 1000), until)
        changed = np.flatnonzero(concerned & (until != self.now.entries.written_at))
        old = self.now.entries.take(changed)
        return [self.change.comes, -old, replace(old, written_at=until[changed])]


def _found(line: Line, points: Points) -> Indices:
    """Return the row that each point finds; `PAD` if there is no row, or if the row marks the end of its key."""
    found = line.points.next_of(points)
    return np.where(np.append(line.entries.mark, ENDS)[found] == ENDS, PAD, found)
