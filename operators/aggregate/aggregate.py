"""Aggregate: one row per group, with the results of the aggregate calls.

This operator maintains the result of GROUP BY with the functions in `operators.aggregate.function`. Each function
supports FILTER and DISTINCT.

State. Arrangement "groups" stores one row per group, with the group columns and the accumulators. When the group
changes, its row is replaced. Accumulators are updated incrementally from the batch
(`operators.aggregate.accumulators`). Arrangement "values" exists only if a call needs the values themselves: for
DISTINCT, for MIN, MAX and similar functions over an input with retractions, and for functions of all values such as
COLLECT_LIST (`operators.aggregate.arranged_values`). Arrangement "views" exists only if a user-defined aggregate stores
views, which are collections that the function reads on demand (`operators.aggregate.group_views`). Arrangement "ends"
exists only if groups end at a time that is one of their results (`operators.aggregate.timer_queue`).

A batch is processed in these steps:
- Look up the touched groups.
- Update the number of rows with each value in arrangement "values".
- Add up the stored accumulators, the batch's rows, and the values that appeared or disappeared.
- If a group's minimum or maximum disappeared and no better value replaced it, search for the next minimum or maximum.
- If a function needs all values, read the values of the touched groups.
- If the group's old and new rows differ, emit the old row as -D and the new row as +I.

A group without rows is removed together with its state. Only the row of a global aggregate is kept, with COUNT 0. If a
group receives more retractions than it has rows, the latest retractions are unmatched and have no effect. The operator
cannot check whether a retracted row belonged to the group, so the input must be exact.

Integers and decimals are summed exactly. A sum that does not fit its type is NULL. In the spec's `fallible` calls, such
a sum also makes the group's row fail: the row, and later its retraction, are returned in `failed` instead of being
emitted. Doubles are also summed exactly, and rounded once for the result. Sums therefore do not depend on the order of
rows, and retracting rows restores the earlier sum.

Expiry. A group expires as a whole when it has not been written for the length of the TTL. Its row remains in the
output, as in Flink. Flink ignores retractions for an expired group. In Rowkind, these retractions are unmatched or, if
the group has been created again, applied to the new group. Every change writes its group. A refresh of one of the
group's rows also writes the group if the group exists. If a downstream operator has a TTL, a group that is written
without changing its result is emitted as a refresh. Groups that a watermark closes are evicted in the same way, by a
time in their columns or, with arrangement "ends", by a time in their results. No more rows arrive for these groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rowkind.operators.aggregate.accumulators import Accumulator, AccumulatorColumn, AccumulatorPiece, Extremes
from rowkind.operators.aggregate.arranged_values import ArrangedValues, TouchedValues
from rowkind.operators.aggregate.function import GREATEST
from rowkind.operators.aggregate.gathered import Gathered
from rowkind.operators.aggregate.group_function import Custom, CustomPart, CustomPiece, Views
from rowkind.operators.aggregate.group_state import After, GroupState
from rowkind.operators.aggregate.group_views import GroupViews
from rowkind.operators.aggregate.partial import Lifted, lift
from rowkind.operators.aggregate.spec import AggregateSpec
from rowkind.operators.aggregate.timer_queue import GroupNames, TimerQueue
from rowkind.operators.arrangement.arrangement import Arrangement, Finished
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import ArrangementSpec
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.columns import value_bytes
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, Indices, Mask
from rowkind.operators.columns.grouping import equal_bytes
from rowkind.operators.errors import RowFailed
from rowkind.operators.operator import Output


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The aggregate operator. Its state is in the stores, not in this object.

    Side 0 receives raw changes. Side 1 receives the output of `partial`.
    """

    spec: AggregateSpec

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The TTL of each arrangement in ms, by name. Values and views have twice the TTL of the groups."""
        ttl = self.spec.ttl_ms
        groups: dict[str, int | None] = {"groups": ttl}
        beside = [name for name, there in (("values", self.spec.streams), ("views", self.spec.views)) if there]
        ends: dict[str, int | None] = {} if self.spec.ends is None else {"ends": None}
        return groups | dict.fromkeys(beside, None if ttl is None else 2 * ttl) | ends

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Apply one batch of one shard at time `now` (ms since the epoch)."""
        spec = self.spec
        changes = batch.changes
        assert changes.key.null_count == 0, "the key of a group is never null"
        arrangement = Arrangement(
            stores["groups"], ArrangementSpec("groups", "last write", spec.ttl_ms, until=spec.until), now
        )
        groups = GroupState.of(spec, batch, arrangement)
        lifted = lift(spec, changes)
        unmatched = _beyond_what_is_there(changes, lifted, groups)
        none = changes.filter(unmatched)
        if len(none):
            changes = changes.filter(~unmatched)
            groups = replace(groups, of_change=groups.of_change[~unmatched])
            lifted = lift(spec, changes)
        beside = self._beside(stores, groups, lifted, now)
        parts = self._totals(changes, lifted, groups, beside)
        if beside.values is not None:
            groups, parts = self._gathered(groups, parts, beside.values)
        if beside.arrangements and spec.ttl_ms is not None:
            groups = beside.refresh(groups, now, spec.ttl_ms)
        after = After.of(spec, changes, lifted, groups, parts)
        written = after.emit(spec)
        entries, known, finished = after.entries(spec, now), len(after.gone), []
        if spec.ends is not None:
            endings = TimerQueue(stores["ends"], now)
            due = endings.due(groups.named(np.arange(groups.count)))
            endings.move(
                (groups.named(after.gone), spec.ends(written.old)), (groups.named(after.come), spec.ends(written.new))
            )
            finished.append(endings.finish())
            ended = _kept_of(due, arrangement)
            entries, known = Entries.concat([entries, -ended]), known + len(ended)
            beside.drop(due)
        finished += beside.finish()
        arrangement.replace(entries, known)
        total = Finished.total(*finished, arrangement.finish())
        return Output(written.emitted, none, total.state, total.merged_rows, failed=written.failed)

    def _beside(self, stores: Mapping[str, BlobStore], groups: GroupState, lifted: Lifted, now: int) -> _Beside:
        """Open the values and views of the touched groups. Values and views live as long as their groups."""
        spec = self.spec

        def opened(name: str) -> Arrangement:
            kept = ArrangementSpec(name, "unique key", self.arrangements[name], until=spec.until)
            return Arrangement(stores[name], kept, now)

        values = views = None
        if spec.streams:
            values = ArrangedValues(opened("values"), spec.streams, groups.keys(spec, lifted, now))
        if spec.views:
            views = GroupViews(opened("views"), spec.views, groups.keys(spec, lifted, now))
        return _Beside(values, views)

    def _totals(self, changes: Changes, lifted: Lifted, groups: GroupState, beside: _Beside) -> list[AccumulatorColumn]:
        """Return the accumulators of all touched groups after the batch. `beside` has the groups' values and views."""
        spec = self.spec
        values, views = beside.values, beside.views
        touched = []
        first = 0
        if values is not None:
            touched = values.apply([(groups.of_change[rows.row], rows) for rows in lifted.values])
        rows = lifted.pieces(groups.of_change, changes.weight)
        totals: list[AccumulatorColumn] = []
        alive = np.ones(groups.count, np.bool_)
        for accumulator, source, stored in zip(spec.accumulators, spec.sources, groups.parts, strict=True):
            before = (stored, groups.of_stored, np.ones(len(groups.stored), np.int64))
            if isinstance(accumulator, Custom):
                found = _custom(accumulator, [before, *next(rows)], alive, _views(views, first), (lifted, changes))
                totals.append(found)
                first += len(accumulator.function.views)
            elif source is None:
                totals.append(accumulator.total([before, *next(rows)], groups.count))
                if len(totals) == 1:
                    alive = (totals[0][0] > 0) | spec.is_global
            elif isinstance(accumulator, Gathered):
                totals.append(None)
            elif isinstance(accumulator, Extremes):
                assert values is not None
                totals.append(_extremes(accumulator, before, touched[source], values, groups.count))
            else:
                totals.append(accumulator.total([before, _came_and_went(accumulator, touched[source])], groups.count))
        if views is not None:
            for group in np.flatnonzero(~alive).tolist():
                views.drop(group)
        return totals

    def _gathered(
        self, groups: GroupState, parts: list[AccumulatorColumn], values: ArrangedValues
    ) -> tuple[GroupState, list[AccumulatorColumn]]:
        """Compute the functions of all values for each group, over the values before and after the batch."""
        pairs = zip(self.spec.accumulators, self.spec.sources, strict=True)
        wanted = {number: at for number, (one, at) in enumerate(pairs) if isinstance(one, Gathered) and at is not None}
        if not wanted:
            return groups, parts
        streams = sorted(set(wanted.values()))
        found = dict(zip(streams, values.every(streams), strict=True))
        stored, of_stored = list(groups.parts), pa.array(groups.of_stored)
        for number, source in wanted.items():
            accumulator, every = self.spec.accumulators[number], found[source]
            column = value_bytes.from_bytes(every.value, every.stream.type)
            stored[number] = accumulator.total([(column, every.group, every.before)], groups.count).take(of_stored)
            parts[number] = accumulator.total([(column, every.group, every.after)], groups.count)
        return replace(groups, parts=stored), parts


@dataclass(frozen=True, slots=True)
class _Beside:
    """The values and views of the touched groups within one batch."""

    values: ArrangedValues | None
    views: GroupViews | None

    @property
    def arrangements(self) -> list[Arrangement]:
        """The arrangements that store the values and views."""
        return [each.arrangement for each in (self.values, self.views) if each is not None]

    def drop(self, groups: GroupNames) -> None:
        """Drop the values and views of these groups."""
        for arrangement in self.arrangements:
            arrangement.append(-_kept_of(groups, arrangement))

    def finish(self) -> list[Finished]:
        """Write the values and views."""
        if self.views is not None:
            self.views.finish()
        return [each.finish() for each in self.arrangements]

    def refresh(self, groups: GroupState, now: int, ttl_ms: int) -> GroupState:
        """Rewrite the values and views of groups whose last full rewrite is at least a TTL old.

        Return the groups with the times of these rewrites.
        """
        due = (groups.at >= 0) & (groups.refreshed <= now - ttl_ms)
        for each in (self.values, self.views):
            if each is not None:
                each.refresh(np.flatnonzero(due))
        return replace(groups, refreshed=np.where(due | (groups.at < 0), now, groups.refreshed))


def _kept_of(groups: GroupNames, arrangement: Arrangement) -> Entries:
    """Return the entries that an arrangement has for these groups."""
    found = arrangement.lookup(groups.hash)
    return found.filter(groups.are_of(found))


def _custom(
    accumulator: Custom,
    pieces: Sequence[CustomPiece],
    alive: Mask,
    views: Callable[[int], Views],
    batch: tuple[Lifted, Changes],
) -> CustomPart:
    """Return a user-defined function's part after the batch. The first piece has the stored groups.

    Raises RowFailed, with the arrival number of the failed row if it is known.
    """
    try:
        return accumulator.after(pieces[0], pieces[1:], alive, views)
    except RowFailed as error:
        lifted, changes = batch
        raw = next((form.row for form in lifted.forms if not form.packed), None)
        if raw is None or error.row < 0:
            raise
        raise error.came_with(int(changes.seq[raw[error.row]])) from None


def _views(views: GroupViews | None, first: int) -> Callable[[int], Views]:
    """Return a function that maps a group to a user-defined function's views, which are numbered from `first`."""
    return lambda group: Views(views, group, first)


def _beyond_what_is_there(changes: Changes, lifted: Lifted, groups: GroupState) -> Mask:
    """Return a mask of the retractions that exceed the number of rows in their group: the latest ones of the group."""
    unmatched = np.zeros(len(changes), np.bool_)
    row, rows = lifted.row, lifted.rows
    of, sign = groups.of_change[row], changes.weight[row]
    if (sign > 0).all():
        return unmatched
    there = np.zeros(groups.count, np.int64)
    there[groups.of_stored] = groups.parts[0][0]
    np.add.at(there, of, np.where(sign > 0, rows, 0))
    taken = np.zeros(groups.count, np.int64)
    np.add.at(taken, of, np.where(sign < 0, rows, 0))
    suspects = np.flatnonzero((taken > there)[of] & (sign < 0))
    if len(suspects) == 0:
        return unmatched
    order = suspects[np.lexsort((changes.seq[row[suspects]], of[suspects]))]
    total = np.cumsum(rows[order])
    first = np.concatenate(([True], of[order][1:] != of[order][:-1]))
    before = (total - rows[order])[first][np.cumsum(first) - 1]
    unmatched[row[order[total - before > there[of[order]]]]] = True
    return unmatched


def _came_and_went(accumulator: Accumulator, touched: TouchedValues) -> AccumulatorPiece:
    """Return the values that each group gained (+1) or lost (-1)."""
    touched = touched.filter((touched.before > 0) != (touched.after > 0))
    values = value_bytes.from_bytes(touched.value, touched.stream.type)
    part = accumulator.lift(values, np.ones(len(values), np.bool_))
    return part, touched.group, np.where(touched.after > 0, 1, -1)


def _extremes(
    accumulator: Extremes, before: AccumulatorPiece, touched: TouchedValues, values: ArrangedValues, count: int
) -> AccumulatorColumn:
    """Return each group's minimum or maximum after the batch.

    If the old value was retracted and no better value was inserted, the next value is read from the state.
    """
    stored, of_stored, ones = before
    live = touched.filter(touched.after > 0)
    came = value_bytes.from_bytes(live.value, live.stream.type), live.group, np.ones(len(live.group), np.int64)
    best = accumulator.total([before, came], count)
    (stored_bytes,) = accumulator.to_columns(stored)
    lost = _lost(stored_bytes, of_stored, touched.filter(touched.after == 0), count)
    if not lost.any():
        return best
    # If a group's best value differs from the lost value, the batch has inserted a better value.
    lost_rows = np.flatnonzero(lost)
    (best_bytes,) = accumulator.to_columns(best)
    start = stored_bytes.take(pa.array(lost_rows))
    open_ = equal_bytes(best_bytes.take(pa.array(of_stored[lost_rows])), start)
    wanted = lost_rows[open_]
    upwards = accumulator.call.function not in GREATEST
    of, found = values.next_values(touched.stream, of_stored[wanted], start.filter(pa.array(open_)), upwards=upwards)
    kept = np.flatnonzero(~lost)
    pieces = [
        (stored.take(pa.array(kept)), of_stored[kept], ones[kept]),
        came,
        (value_bytes.from_bytes(found, live.stream.type), of, np.ones(len(of), np.int64)),
    ]
    return accumulator.total(pieces, count)


def _lost(stored: pa.BinaryArray, of_stored: Indices, dead: TouchedValues, groups: int) -> Mask:
    """Return a mask of the stored minima or maxima that no row of the group has any longer."""
    old = np.full(groups, -1)
    old[of_stored] = np.arange(len(of_stored))
    suspects = np.flatnonzero((old >= 0)[dead.group])
    at = old[dead.group[suspects]]
    same = equal_bytes(stored.take(pa.array(at)), dead.value.take(pa.array(suspects)))
    lost = np.zeros(len(of_stored), np.bool_)
    lost[at[same]] = True
    return lost
