"""As-of join: each left row with the one right row of its key that is nearest to it in time, on one side.

Maintains, for a row of the left side at time t, the right row of its key with the greatest time v <= t (or < t; or the
least v >= t, or > t); of rows with one time the latest to arrive. A left row that finds none is left out, or padded. A
correction on either side emits what it changes, and nothing else.

Both sides lie on one line for each key, on which each left row takes the first right row there or behind it. For
`t >= v` a place is the time with its sign turned over, so that what lies behind is earlier; where the times must not be
equal, a left row stands one further on. So there is one direction, and one comparison.

    t >= v    left  8   right 9 7 5           left -8             right -9 . -7 -5      it takes 7

The walk. Changes of either side become rows that come and go. A right row that comes or goes changes what left rows
take that lie before it, from behind the right row before it on: these are read. For all left rows concerned, the right
rows are searched from their places on, up to the first that stays (`operators.nearest`); so a left row costs a search
and not a reading of its key. Then each is taken with what it found before the batch, and again with what it finds now;
what is equal cancels.

Watermark. A left row goes when no change can come any more of a right row that it could take, and a right row when no
left row can come any more that would take it. One of the two is by the row's own time. The other is by that of a right
row, which comes and goes: the rows are said to be kept until then when they are written, and once more when that
changes, and expire like anything else (`operators.rowtime`).

    t >= v, t > v    left: its own time                 right: the time of the row before it on the line
    t <= v, t < v    left: the time of what it takes    right: its own time

So what lies behind the watermark stays on both sides; and before it, of each key, the last right row, or the left rows
that take one that is behind it, or none.

Versions (`operators.versions`): the right side is a table with a key as it was sent, whose rows replace each other in
the table, but not in time.

State: arrangements "left" and "right", layout *ordered*, rows by key, with the place as the sub-key.
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
from rowkind.operators.columns import number_bytes
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, Indices, Int64s, Mask, concat_binary
from rowkind.operators.join_output import PAD, Emission, Parents, emit
from rowkind.operators.nearest import NOWHERE, Line, Points, nearest
from rowkind.operators.operator import Output
from rowkind.operators.rowtime import END, RowTime, later
from rowkind.operators.touched_keys import TouchedKeys
from rowkind.operators.versions import ENDS, Deletes, resolve_versions

_BEGIN = np.iinfo(np.int64).min

Places = Callable[[pa.BinaryArray], Int64s]
"""Where rows stand on the line of their key, by their payloads; `NOWHERE` where their time is NULL."""


@dataclass(frozen=True, slots=True)
class AsofSide:
    """One input.

    - `places`: where its rows stand.
    - `by_seq`: changes of one row are to be taken in the order of seq (a source); else each batch is a net multiset.
    - `counts_unmatched`: retractions that find no row come back as unmatched.
    - `until`: when rows are let go of by their own time, of the side where it is that.
    """

    places: Places
    by_seq: bool = False
    counts_unmatched: bool = True
    until: RowTime | None = None


@dataclass(frozen=True, slots=True)
class AsofJoinSpec:
    """What the plan provides: keys as for a join, and retractions that carry the full row that they take back.

    - `right_pad` stands for the row that is missing, where left rows without one are emitted; None where they are not.
    - `deletes`: the right side is a table with versions, as it was sent, whose deletes bring this; None for any other.
    - `left_ttl_ms`: after which left rows are not corrected any more, and stay as they are.
    - `later_us`: how much later than the time of a right row the rows go that go by it, where places are times in
      microseconds, with their sign turned over if it is the right rows that do. None: by no watermark.
    - `refreshes`: whether somebody further down has a TTL.
    """

    left: AsofSide
    right: AsofSide
    right_pad: bytes | None = None
    deletes: Deletes | None = None
    left_ttl_ms: int | None = None
    later_us: int | None = None
    refreshes: bool = False

    def until(self, side: AsofSide) -> RowTime | None:
        """Until when rows of a side are kept, as far as they say it themselves."""
        return side.until if side.until is not None or self.later_us is None else _for_good


@dataclass(frozen=True, slots=True)
class AsofJoin:
    """The operator; it has no state of its own."""

    spec: AsofJoinSpec

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """Both inputs' rows, the left ones with their TTL in ms."""
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
    """The batch with the places of its rows for sub-keys."""
    return batch.with_sub_keys(number_bytes.to_bytes(side.places(batch.touched.payload)))


def _resolved_versions(
    versions: Arrangement, keys: TouchedKeys, batch: Batch, right: Changes, deletes: Deletes
) -> Resolved:
    of_key = keys.of_change[: len(batch.changes)][batch.changes.side == 1]
    return resolve_versions(versions, keys, of_key, right, deletes)


def _unmatched(resolved: Resolved, batch: Batch, side: AsofSide) -> Changes:
    """The retractions of an input that found no row, where they count."""
    return batch.changes.take(resolved.unmatched if side.counts_unmatched else resolved.unmatched[:0])


def _for_good(payload: pa.BinaryArray) -> Int64s:
    """Until when rows are kept as long as nobody has said it."""
    return np.full(len(payload), END, np.int64)


def _goes(resolved: Resolved) -> Entries:
    """The rows that go, those among them that come again."""
    return Entries.concat([resolved.removed, -resolved.refreshed.filter(resolved.refreshed.weight < 0)])


def _comes(resolved: Resolved) -> Entries:
    """The rows that come, those among them that went."""
    return Entries.concat([resolved.added, resolved.rewritten])


@dataclass(frozen=True, slots=True)
class _RightChange:
    """What becomes of the right side: rows that go and come, and where they are, in order.

    A left row may take another one than before if it lies up to such a place, from behind `before` on: the place of the
    right row before.
    """

    goes: Entries
    comes: Entries
    places: Points
    before: Int64s

    @classmethod
    def of(cls, versions: Arrangement, keys: TouchedKeys, right: Resolved) -> _RightChange:
        """What these changes do."""
        goes, comes = _goes(right), _comes(right)
        both = Line.of(keys, Entries.concat([goes, comes]))
        around = nearest(versions, keys, both.points, Entries.empty(), backward=True)
        line = Line.of(keys, Entries.concat([around, both.entries])).points
        before = np.append(line.at, _BEGIN)[line.before(both.points)]
        return cls(goes, comes, both.points, before)

    def stayed(self, kept: Arrangement, keys: TouchedKeys, left: Resolved) -> Entries:
        """The left rows that may take another row, of those that are there before and after."""
        if not len(self.places):
            return Entries.empty()
        low, high = Points(self.places.key, self.before).places(keys), self.places.places(keys)
        order = np.argsort(low)
        low, high = low[order], np.maximum.accumulate(high[order])
        begin = np.flatnonzero(np.append(True, low[1:] > high[:-1]))
        found, gone = kept.between(low[begin], np.maximum.reduceat(high, begin)), _goes(left)
        return kept.without(found.filter(self._concerns(keys, found)), -gone.filter(self._concerns(keys, gone)))

    def _concerns(self, keys: TouchedKeys, left: Entries) -> Mask:
        """Which of these left rows may take another row."""
        points = Points(keys.find(left), number_bytes.from_bytes(left.sub_key))
        found = self.places.next_of(points)
        return (found >= 0) & (np.append(self.before, 0)[found] < points.at)


@dataclass(frozen=True, slots=True)
class _Left:
    """The left rows concerned: first those that go, then those that come, then those that stay."""

    entries: Entries
    points: Points
    goes: int
    comes: int

    @classmethod
    def of(cls, keys: TouchedKeys, left: Resolved, late: Entries, stayed: Entries) -> _Left:
        """These rows; `late` go although they have expired."""
        goes, comes = Entries.concat([_goes(left), late]), _comes(left)
        entries = Entries.concat([goes, comes, stayed])
        points = Points(keys.find(entries), number_bytes.from_bytes(entries.sub_key))
        return cls(entries, points, len(goes), len(comes))

    def emission(self, before: Indices, now: Indices, *, padded: bool) -> Emission:
        """What goes and comes, given which right row each took before the batch and takes now."""
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
        """The entries by which rows come, with the time until which they are kept, and that of others changes."""
        stays = self.goes + self.comes
        changed = stays + np.flatnonzero(until[stays:] != self.entries.written_at[stays:])
        rows = replace(self.entries, written_at=until)
        return [rows.slice(self.goes, stays), -self.entries.take(changed), rows.take(changed)]


@dataclass(frozen=True, slots=True)
class _Right:
    """The right rows that left rows concerned find: as it was before the batch, and as it is now."""

    before: Line
    now: Line
    change: _RightChange

    @classmethod
    def of(
        cls, versions: Arrangement, keys: TouchedKeys, asked: Points, change: _RightChange, *, lets_go: bool
    ) -> _Right:
        """Those from these places on; if some are let go of, those around a change as well."""
        points = [asked, change.places]
        if lets_go:
            points += [Points(change.places.key, at) for at in (change.before, change.places.at + 1)]
        wanted = Points.concat(*points)
        # What has no place finds nothing, and before the first row there is none.
        wanted = wanted.filter((wanted.at < NOWHERE) & (wanted.at > _BEGIN))
        stored = nearest(versions, keys, wanted, change.goes)
        now = Entries.concat([versions.without(stored, -change.goes), change.comes])
        return cls(Line.of(keys, stored), Line.of(keys, now), change)

    @property
    def payload(self) -> pa.BinaryArray:
        """Those of all these rows."""
        return concat_binary([self.before.entries.payload, self.now.entries.payload])

    @property
    def seq(self) -> Int64s:
        """Those of all these rows."""
        return np.concatenate([self.before.entries.seq, self.now.entries.seq])

    def taken(self, points: Points) -> tuple[Indices, Indices]:
        """Which rows left rows at these points took, and which they take now; `PAD` for none."""
        before, now = (_found(line, points) for line in (self.before, self.now))
        return before, np.where(now == PAD, PAD, now + len(self.before.points))

    def until(self, taken: Indices, later_us: int) -> Int64s:
        """Until when left rows are kept that take these rows: so long after their times."""
        at = np.append(np.concatenate([self.before.points.at, self.now.points.at]), 0)[taken]
        return np.where(taken == PAD, END, -(-later(at, later_us) // 1000))

    def written(self, later_us: int | None) -> list[Entries]:
        """The entries by which rows come, with the time until which they are kept, and that of others changes."""
        if later_us is None or not len(self.change.places):
            return [self.change.comes]
        rows, places = self.now.points, self.change.places
        behind = rows.next_of(Points(places.key, places.at + 1))
        concerned = np.isin(np.arange(len(rows)), behind)
        own = places.next_of(rows)
        concerned |= (own >= 0) & (np.append(places.at, 0)[own] == rows.at)
        # Rows at one place are kept equally long.
        first = rows.next_of(rows)
        concerned = concerned[first]
        before = rows.before(rows)
        # What ends a key goes with the last version that it ends: no row is what it says.
        until = np.where(self.now.entries.mark == ENDS, -(later(rows.at, -later_us) // 1000), END)
        until = np.where(before >= 0, -(later(rows.at[before], -later_us) // 1000), until)
        changed = np.flatnonzero(concerned & (until != self.now.entries.written_at))
        old = self.now.entries.take(changed)
        return [self.change.comes, -old, replace(old, written_at=until[changed])]


def _found(line: Line, points: Points) -> Indices:
    """The row that each point finds, unless it is that its key has none there."""
    found = line.points.next_of(points)
    return np.where(np.append(line.entries.mark, ENDS)[found] == ENDS, PAD, found)
