"""Aggregate: one row per group, with what the calls say about the group's rows.

Maintains GROUP BY with the functions of `operators.aggregate.function`, each with FILTER and DISTINCT. Arrangement
"groups" holds one row per group, replaced as it changes: the group's columns and its accumulators, so that sums go
forward by what the batch brings (`operators.aggregate.accumulators`). Arrangement "values" exists only where DISTINCT,
extremes such as MIN and MAX over an input that retracts, or what is made of all values, such as COLLECT_LIST, need to
know the values themselves (`operators.aggregate.arranged_values`), and arrangement "views" where somebody's own
function keeps some (`operators.aggregate.group_views`).

The walk: look the touched groups up; count the batch's rows into their values; add up what is stored, what the batch
brings, and what came and went among the values; where an extreme has gone and nothing beats it, look for the next one;
where all values are asked for, read those of the touched groups; emit the old row as -D and the new one as +I where
they differ. A group without rows goes, and leaves nothing; the one row of a global aggregate stays, with COUNT 0.

Retractions of a group beyond the rows that it has are unmatched, the latest of them, and leave no trace. Whether a
retraction is of a row that the group has is not known here: the input is exact.

Integers and decimals are summed exactly. Where a sum does not fit its type, it is NULL, or the group's row fails and
comes back in `failed`, as does its retraction later. Doubles are summed exactly too, and rounded once for the result:
sums do not depend on the order of rows and come back to what they were when rows go.

Expiry. A group is forgotten as a whole when it has not been written for the TTL: its row stays in the output, as in
Flink, which passes over retractions of a group that it has forgotten: here they are unmatched or, where it has begun
anew, are taken for those of new rows. Every change writes its group, and so does a refresh of one of its rows, where
there is a group. Where somebody further down has a TTL, a group that is written and has the same result is emitted as a
refresh. Groups that are closed by a watermark are forgotten likewise, by a time in their columns or, with arrangement
"ends" (`operators.aggregate.timer_queue`), in their result; nothing of theirs comes any more.
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
    """The operator; it has no state of its own. It takes raw changes as side 0, and what `partial` made as side 1."""

    spec: AggregateSpec

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The groups with their TTL in ms, and their values and views, which outlive them for a while."""
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
        """What is kept of groups besides; it lives as long as they do."""
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
        """Each accumulator of every group after the batch; `beside` is what is kept of groups besides."""
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
        """What is made of all values of each group, before the batch and after it."""
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
    """What is kept of groups besides their rows, within one batch."""

    values: ArrangedValues | None
    views: GroupViews | None

    @property
    def arrangements(self) -> list[Arrangement]:
        """Where it is kept."""
        return [each.arrangement for each in (self.values, self.views) if each is not None]

    def drop(self, groups: GroupNames) -> None:
        """Drop what is kept of these groups."""
        for arrangement in self.arrangements:
            arrangement.append(-_kept_of(groups, arrangement))

    def finish(self) -> list[Finished]:
        """Write it."""
        if self.views is not None:
            self.views.finish()
        return [each.finish() for each in self.arrangements]

    def refresh(self, groups: GroupState, now: int, ttl_ms: int) -> GroupState:
        """The groups; what is kept of them is written again where it has not all been written for a TTL."""
        due = (groups.at >= 0) & (groups.refreshed <= now - ttl_ms)
        for each in (self.values, self.views):
            if each is not None:
                each.refresh(np.flatnonzero(due))
        return replace(groups, refreshed=np.where(due | (groups.at < 0), now, groups.refreshed))


def _kept_of(groups: GroupNames, arrangement: Arrangement) -> Entries:
    """What is kept of some groups."""
    found = arrangement.lookup(groups.hash)
    return found.filter(groups.are_of(found))


def _custom(
    accumulator: Custom,
    pieces: Sequence[CustomPiece],
    alive: Mask,
    views: Callable[[int], Views],
    batch: tuple[Lifted, Changes],
) -> CustomPart:
    """The groups of somebody's function after the batch, whose stored ones are the first of these pieces.

    Raises RowFailed with the arrival number of the row.
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
    """What leads to the views of one function, whose first one has this number, in a group."""
    return lambda group: Views(views, group, first)


def _beyond_what_is_there(changes: Changes, lifted: Lifted, groups: GroupState) -> Mask:
    """The changes that take away more rows of their group than it has: the latest retractions."""
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
    """The values that their group has now and had not before, and the other way round."""
    touched = touched.filter((touched.before > 0) != (touched.after > 0))
    values = value_bytes.from_bytes(touched.value, touched.stream.type)
    part = accumulator.lift(values, np.ones(len(values), np.bool_))
    return part, touched.group, np.where(touched.after > 0, 1, -1)


def _extremes(
    accumulator: Extremes, before: AccumulatorPiece, touched: TouchedValues, values: ArrangedValues, count: int
) -> AccumulatorColumn:
    """The extremes after the batch: the old one or one that came, or where the old one went, perhaps the next one."""
    stored, of_stored, ones = before
    live = touched.filter(touched.after > 0)
    came = value_bytes.from_bytes(live.value, live.stream.type), live.group, np.ones(len(live.group), np.int64)
    best = accumulator.total([before, came], count)
    (stored_bytes,) = accumulator.to_columns(stored)
    lost = _lost(stored_bytes, of_stored, touched.filter(touched.after == 0), count)
    if not lost.any():
        return best
    # A group whose best value is another than the lost one has been given a better one.
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
    """Which of the stored values of groups are among those that are there no more."""
    old = np.full(groups, -1)
    old[of_stored] = np.arange(len(of_stored))
    suspects = np.flatnonzero((old >= 0)[dead.group])
    at = old[dead.group[suspects]]
    same = equal_bytes(stored.take(pa.array(at)), dead.value.take(pa.array(suspects)))
    lost = np.zeros(len(of_stored), np.bool_)
    lost[at[same]] = True
    return lost
