"""Aggregate: one row per group, with what the calls say about the group's rows.

Maintains GROUP BY with the functions of `operators.aggregate_function`, each with FILTER and DISTINCT. Arrangement
"groups" holds one row per group, replaced as it changes: the group's columns and its accumulators, so that sums go
forward by what the batch brings (`operators.accumulators`). Arrangement "values" exists only where DISTINCT, extremes
such as MIN and MAX over an input that retracts, or what is made of all values, such as COLLECT_LIST, need to know the
values themselves (`operators.arranged_values`), and arrangement "views" where somebody's own function keeps some
(`operators.group_views`).

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
"ends" (`operators.endings`), in their result; nothing of theirs comes any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rowkind.operators.accumulators import Accumulator, AccumulatorColumn, AccumulatorPiece, Extremes
from rowkind.operators.aggregate_function import GREATEST
from rowkind.operators.aggregate_spec import AggregateSpec
from rowkind.operators.arranged_values import ArrangedValues, TouchedValues
from rowkind.operators.arrangement.arrangement import Arrangement, StateSize
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.columns import value_bytes
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, Mask
from rowkind.operators.columns.grouping import equal_bytes
from rowkind.operators.endings import Endings, GroupNames
from rowkind.operators.errors import RowFailed
from rowkind.operators.gathered import Gathered
from rowkind.operators.group_function import Custom, CustomPart, CustomPiece, Views
from rowkind.operators.group_state import After, GroupState
from rowkind.operators.group_views import GroupViews
from rowkind.operators.operator import Output
from rowkind.operators.partial_aggregate import Lifted, lift


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
        arrangement = Arrangement(stores["groups"], "groups", "last write", spec.ttl_ms, now, until=spec.until)
        groups = GroupState.of(spec, batch, arrangement)
        lifted = lift(spec, changes)
        unmatched = _beyond_what_is_there(changes, lifted, groups)
        if unmatched.any():
            none = changes.filter(unmatched)
            changes = changes.filter(~unmatched)
            groups = replace(groups, of_change=groups.of_change[~unmatched])
            lifted = lift(spec, changes)
        else:
            none = Changes.empty()
        finished = []
        values = views = None
        if spec.streams:
            values = ArrangedValues(self._beside("values", stores, now), spec.streams, groups.keys(spec, lifted, now))
        if spec.views:
            views = GroupViews(self._beside("views", stores, now), spec.views, groups.keys(spec, lifted, now))
        parts = self._totals(changes, lifted, groups, (values, views))
        if values is not None:
            groups, parts = self._gathered(groups, parts, values)
        if values is not None or views is not None:
            groups = self._refreshed(groups, values, views, now)
        after = After.of(spec, changes, lifted, groups, parts)
        written = after.emit(spec)
        entries, known = after.entries(spec, now), len(after.gone)
        if spec.ends is not None:
            endings = Endings(stores["ends"], now)
            due = endings.due(groups.named(np.arange(groups.count)))
            gone, come = (groups.named(numbers) for numbers in (after.gone, after.come))
            endings.move((gone, spec.ends(written.old)), (come, spec.ends(written.new)))
            finished.append(endings.finish())
            ended = _kept_of(due, arrangement)
            entries, known = Entries.concat([entries, -ended]), known + len(ended)
            for beside in (each.arrangement for each in (values, views) if each is not None):
                beside.append(-_kept_of(due, beside))
        if values is not None:
            finished.append(values.arrangement.finish())
        if views is not None:
            views.finish()
            finished.append(views.arrangement.finish())
        arrangement.replace(entries, known)
        finished.append(arrangement.finish())
        return Output(
            written.emitted,
            none,
            sum((one.state for one in finished), StateSize()),
            sum(one.merged_rows for one in finished),
            failed=written.failed,
        )

    def _beside(self, name: str, stores: Mapping[str, BlobStore], now: int) -> Arrangement:
        """What is kept of groups besides; it lives as long as they do."""
        return Arrangement(stores[name], name, "unique key", self.arrangements[name], now, until=self.spec.until)

    def _totals(
        self,
        changes: Changes,
        lifted: Lifted,
        groups: GroupState,
        beside: tuple[ArrangedValues | None, GroupViews | None],
    ) -> list[AccumulatorColumn]:
        """Each accumulator of every group after the batch; `beside` is what is kept of groups besides."""
        spec = self.spec
        values, views = beside
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
                views.forget(group)
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

    def _refreshed(
        self, groups: GroupState, values: ArrangedValues | None, views: GroupViews | None, now: int
    ) -> GroupState:
        """The groups; what is kept of them besides is written again where it has not all been written for a TTL."""
        if self.spec.ttl_ms is None:
            return groups
        due = (groups.at >= 0) & (groups.refreshed <= now - self.spec.ttl_ms)
        if values is not None:
            values.refresh(np.flatnonzero(due))
        if views is not None:
            views.refresh(np.flatnonzero(due))
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
    dead = touched.filter(touched.after == 0)
    old = np.full(count, -1)
    old[of_stored] = np.arange(len(of_stored))
    (stored_bytes,) = accumulator.to_columns(stored)
    suspects = np.flatnonzero((old >= 0)[dead.group])
    at = old[dead.group[suspects]]
    same = equal_bytes(stored_bytes.take(pa.array(at)), dead.value.take(pa.array(suspects)))
    lost = np.zeros(len(of_stored), np.bool_)
    lost[at[same]] = True
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
