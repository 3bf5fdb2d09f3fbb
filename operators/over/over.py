"""OVER with ORDER BY: each row with the results of window functions over the rows around it.

Maintains every input row with its results. Within a partition, rows are ordered by their order key, and tied rows by
arrival. A change affects only the rows whose frames contain the changed row, and only the affected rows are emitted
again.

    SUM(v) OVER (ORDER BY t)            rows  3 . 5       results  3 . 8
    4 is inserted between the two       rows  3 4 5                3 7 12       one row is inserted, one updated

Algorithm. For each change, the rows before and after the changed row are read from the state, as far as frames extend
(`operators.over.spans`). If a row's frame has been read completely and may have changed, the row's results are
recomputed (`operators.over.function`, column-wise). The old results are read from the state and never recomputed. If a
frame starts at the beginning of the partition, earlier rows need not be read, because each row carries the state of the
functions over all rows up to and including itself. In that case all rows after a change are read; there are none if
rows are inserted at the end.

State. Arrangement "rows", layout *ordered*, stores every input row by partition and order key; retractions find their
rows there. Arrangement "results", in the same order, stores the same rows with their results and carried columns. With
a TTL, later changes nearby do not see an expired row, but the row's effect remains in the state that other rows carry.

If rows are inserted in time order and never retracted, as downstream of a final result, no row is inserted between
existing rows. In that case "rows" does not exist, and "results" stores the tail of each partition: the rows that later
rows' frames may contain, and the last row with its carried state. If all frames are bounded by values, a row expires
once a row with a large enough value has arrived in any partition: no frame of that row or a later one contains the
expired row. So idle partitions are evicted.

(A batched and incremental form of the operator in Leis and others, "Efficient Processing of Window Functions in
Analytical SQL Queries", VLDB 2015.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.arrangement.arrangement import Arrangement, Finished
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import ArrangementSpec
from rowkind.operators.arrangement.netting import net_rows_apart
from rowkind.operators.arrangement.resolving import entries_of, resolve
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.arrangement.touched_keys import TouchedKeys
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, Indices, Int8s, Int64s, Mask
from rowkind.operators.columns.grouping import equal_bytes
from rowkind.operators.columns.packed_columns import Column, pack, unpack
from rowkind.operators.columns.rowtime import RowTime
from rowkind.operators.operator import Output
from rowkind.operators.over.frames import Stretches
from rowkind.operators.over.function import Summed, computed
from rowkind.operators.over.order_distance import LEAST, WHOLE, Scale
from rowkind.operators.over.ordered_rows import OrderedRows
from rowkind.operators.over.spans import Spans, SpansRead
from rowkind.operators.over.window_call import CallArguments, Given, OverCall, Seeds

_SPARE = 2
_FAILED = 1
"""The mark of a row that is not emitted because one of its results does not fit its type."""


@dataclass(frozen=True, slots=True)
class OverSpec:
    """The specification of an OVER operator.

    The plan provides keys and sub-keys as for a rank. Retractions carry the full row that they retract.
    - `arguments` takes payloads and returns the calls' arguments. `packed` packs the calls' results into bytes. An
      emitted row is the payload followed by these bytes.
    - `values`: takes payloads and returns their order values as ascending numbers on the `scale`; `LEAST` or `LARGEST`
      for NULL. None if no frame is measured in distances.
    - `by_seq`: whether a row's changes are applied in `seq` order, as for a source. Otherwise each batch is a net
      multiset of signed rows, as from an operator.
    - `counts_unmatched`: whether retractions that find no row are returned as unmatched.
    - `until`: returns the time when a watermark may evict each row; None if no time in the rows limits how long they
      are stored.
    - `refreshes`: whether a downstream operator has a TTL.
    - `ahead`: set if rows are never retracted and arrive in order within their partitions, and all rows with the same
      value arrive in one batch. `ahead` is then the distance after a row's value within which changes may affect the
      row's results, in units of `values`. None if rows may arrive in any order.
    - `fallible`: the indices of the SUM and AVG calls whose result makes a row fail if it does not fit its type.
    """

    calls: tuple[OverCall, ...]
    arguments: Callable[[pa.BinaryArray], CallArguments]
    packed: Callable[[Sequence[pa.Array]], pa.BinaryArray]
    values: Callable[[pa.BinaryArray], Int64s] | None = None
    ttl_ms: int | None = None
    by_seq: bool = False
    counts_unmatched: bool = True
    until: RowTime | None = None
    refreshes: bool = False
    ahead: int | None = None
    scale: Scale = WHOLE
    fallible: tuple[int, ...] = ()

    @property
    def running(self) -> bool:
        """Whether a change may affect all rows after the changed row."""
        return any(call.running for call in self.calls)

    @property
    def whole(self) -> bool:
        """Whether a change may affect all rows before the changed row."""
        return any(call.whole for call in self.calls)

    @property
    def carries_on(self) -> bool:
        """Whether rows before the affected rows need not be read."""
        expires = self.ttl_ms is not None or self.until is not None
        return not self.whole and not (expires and any(call.running and call.looks_back for call in self.calls))

    @property
    def span(self) -> int | None:
        """The maximum distance between the values of rows in the same frame; None if it does not limit the state."""
        if self.ahead is None or not all(call.frame.by_distance for call in self.calls):
            return None
        return self.back("range") + self.ahead

    @property
    def kinds(self) -> str:
        """The kinds of a stored row's columns: the payload, the packed results, and the carried columns."""
        return "bb" + "".join(computed(call).kinds for call in self.calls)

    def reach(self, kind: str) -> tuple[int, int]:
        """Return the maximum distances from a row to later and to earlier rows whose frames of this kind contain it."""
        frames = [call.frame for call in self.calls if call.frame.kind == kind]
        return max((each.behind for each in frames), default=0), max((each.before for each in frames), default=0)

    def back(self, kind: str) -> int:
        """Return how far frames of this kind extend before their row, ignoring edges at the partition's beginning."""
        frames = [call.frame for call in self.calls if call.frame.kind == kind]
        return max((-edge for each in frames for edge in (0, each.start, each.end) if edge is not None), default=0)


@dataclass(frozen=True, slots=True)
class Over:
    """The operator for OVER with ORDER BY. It keeps its state in the stores, not in this object."""

    spec: OverSpec

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The arrangements of rows without results and of rows with results, and their TTL in ms."""
        names = ("rows", "results") if self.spec.ahead is None else ("results",)
        return dict.fromkeys(names, self.spec.ttl_ms)

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Apply one batch of one shard at time `now` (ms since the epoch)."""
        spec, changes = self.spec, batch.changes
        comes = changes.filter(changes.kind == RowKind.INSERT)
        until, moment = spec.until, now
        if spec.span is not None and spec.values is not None:
            until = _Leaving(spec.values, spec.span)
            # No row in a later batch has a smaller value.
            moment = int(spec.values(comes.payload).min()) if len(comes) else LEAST
        kept = {
            name: Arrangement(stores[name], ArrangementSpec(name, "ordered", spec.ttl_ms, until=until), moment)
            for name in self.arrangements
        }
        if spec.ahead is None:
            resolved = resolve(kept["rows"], batch, by_seq=spec.by_seq)
            taken = resolved.refreshed.weight < 0
            gone = Entries.concat([resolved.removed, -resolved.refreshed.filter(taken)]).units
            come, unmatched = Entries.concat([resolved.added, resolved.rewritten]).units, resolved.unmatched
            kept["rows"].append(-gone)
            kept["rows"].append(come)
        else:
            gone, unmatched = Entries.empty(), np.flatnonzero(changes.weight < 0)
            come = entries_of(kept["results"], comes)
        steps = self._steps(kept["results"], TouchedKeys.of(batch.touched), gone, come)
        for part in (-steps.before, -steps.past, steps.stored):
            kept["results"].append(part)
        finished = Finished.total(*(each.finish() for each in kept.values()))
        entries = Entries.concat([steps.before, steps.after])
        payload, result = unpack(spec.kinds, entries.payload)[:2]
        payload = pc.binary_join_element_wise(payload, result, b"")
        rows, failed = net_rows_apart(
            entries.mark == _FAILED,
            payload,
            entries.seq,
            np.repeat([-1, 1], [len(steps.before), len(steps.after)]),
            np.empty(0, np.int64) if spec.refreshes else None,
        )
        return Output(
            rows,
            changes.take(unmatched) if spec.counts_unmatched else Changes.empty(),
            finished.state,
            finished.merged_rows,
            failed=failed,
        )

    def _steps(self, results: Arrangement, keys: TouchedKeys, gone: Entries, come: Entries) -> _Steps:
        """Return the changes to the rows and their results."""
        spec, found = self.spec, [_Steps(*[Entries.empty()] * 4)]
        on, back = spec.running or spec.whole or spec.ahead is not None, not spec.carries_on or spec.ahead is not None
        places = np.concatenate([gone.place, come.place])
        spans = Spans.around(places, sum(spec.reach("rows")) + _SPARE, apart=not on)
        while len(spans.low):
            reading = spans.read(results, back=back, on=on)
            changes = (part.filter(spans.of(part.place)) for part in (gone, come))
            steps, unsure = self._computed(OrderedRows.of(keys, reading.rows, spec.kinds, *changes), reading)
            again = reading.spans.with_others(unsure)
            found.append(_Steps(*(part.filter(~again[reading.own(part.place)]) for part in steps.parts)))
            spans = reading.spans.longer(unsure)
        return _Steps(*map(Entries.concat, zip(*(each.parts for each in found), strict=True)))

    def _computed(self, line: OrderedRows, reading: SpansRead) -> tuple[_Steps, Indices]:
        """Return the changes to the rows, and the spans that must be read further because a result is uncertain."""
        spec, own = self.spec, reading.own(line.entries.place)
        # If only the tail of a partition is stored, the tail's first row carries the state of all earlier rows.
        begins, ends = (reading.begins if spec.ahead is None else reading.vacant)[own], reading.ends[own]
        key = line.key * len(reading.ends) + own
        # All rows, present before or after the batch, in one order.
        values = None if spec.values is None else spec.values(line.payload)
        every = Stretches.of(key, line.order, begins, ends, values, scale=spec.scale)
        concerned = self._concerned(every, line.changed)
        at = np.arange(len(own))
        edges = ((every.begin == at) & ~begins) | ((every.stop - 1 == at) & ~ends)
        now = np.flatnonzero(line.now)
        own_values = None if values is None else values[now]
        rows = Stretches.of(key[now], line.order[now], begins[now], ends[now], own_values, scale=spec.scale)
        results, wants = self._results(line, now, rows, concerned[now])
        steps = self._changed(line, results)
        if spec.ahead is not None:
            # All stored rows of the partitions have been read.
            return steps, np.empty(0, np.int64)
        return steps, np.concatenate([own[concerned & edges], own[now[wants]]])

    def _results(self, line: OrderedRows, now: Indices, rows: Stretches, asked: Mask) -> tuple[_Results, Mask]:
        """Return the rows after the batch with their results, and a mask of the rows with uncertain results."""

        def seeded(stretches: Stretches, seeds: Indices) -> tuple[Stretches, Seeds]:
            stored = line.stored.take(pa.array(now[seeds]))
            return stretches, Seeds(seeds, unpack(self.spec.kinds, stored)[2:])

        of_first = seeded(rows, np.flatnonzero((rows.begin == np.arange(len(now))) & ~rows.begins & line.was[now]))
        of_last = seeded(*rows.from_last_before(asked))
        payload = line.payload.take(pa.array(now))
        arguments = self.spec.arguments(payload)
        outputs: list[pa.Array] = []
        columns: list[Column] = []
        failed, unsure = np.zeros(len(now), np.bool_), np.zeros(len(now), np.bool_)
        for number, call in enumerate(self.spec.calls):
            made = computed(call)
            stretches, seeds = of_last if call.running and not call.looks_back else of_first
            begin, stop, wants = stretches.frame(call.frame)
            unsure |= asked & wants
            seeds = Seeds(seeds.rows, seeds.columns[len(columns) : len(columns) + len(made.kinds)])
            given = Given(stretches, begin, stop, arguments, seeds)
            output, carries = made.over(given)
            outputs.append(output)
            if number in self.spec.fallible and isinstance(made, Summed):
                failed |= made.misfits(given, output)
            columns += carries
        payload = pack([payload, self.spec.packed(outputs), *columns])
        return _Results(now, rows, asked, payload, np.where(failed, _FAILED, 0).astype(np.int8)), unsure

    def _changed(self, line: OrderedRows, results: _Results) -> _Steps:
        """Return the changes to the rows, given their results after the batch."""
        now, was = results.at, line.was[results.at]
        anew = results.asked & ~results.same(line)
        old = np.concatenate([np.flatnonzero(line.was & ~line.now), now[anew & was]])
        new = np.flatnonzero(anew)
        before = replace(line.entries.take(old), payload=line.stored.take(pa.array(old)))
        payload, mark = results.payload.take(pa.array(new)), results.mark[new]
        after = replace(line.entries.take(now[new]), payload=payload, mark=mark)
        if self.spec.ahead is None:
            return _Steps(before, after, after, Entries.empty())
        seen = self._seen(results.rows, self.spec.ahead)
        past = now[~seen & was & ~anew]
        past_rows = replace(line.entries.take(past), payload=line.stored.take(pa.array(past)))
        return _Steps(before, after, after.filter(seen[new]), past_rows)

    def _seen(self, rows: Stretches, ahead: int) -> Mask:
        """Return a mask of the rows to keep in the state.

        These are the rows that may be in later rows' frames, the rows whose results may change, and a few rows before
        them.
        """
        at, first = np.arange(len(rows)), rows.stop
        if rows.value is not None and len(rows):
            oldest = self.spec.scale.moved(rows.value[rows.stop - 1], -self.spec.back("range") - ahead)
            starts = np.flatnonzero(rows.begin == at)
            before = np.add.reduceat((rows.value < oldest).astype(np.int64), starts)
            first = rows.begin + before[np.cumsum(rows.begin == at) - 1]
        seen: Mask = at >= first - self.spec.back("rows") - _SPARE
        return seen

    def _concerned(self, rows: Stretches, changed: Mask) -> Mask:
        """Return a mask of the rows whose frames may contain a change."""
        at, spec = np.arange(len(rows)), self.spec
        if not len(rows):
            return changed
        starts = np.flatnonzero(rows.begin == at)
        group_of = np.cumsum(rows.begin == at) - 1
        first = np.minimum.reduceat(np.where(changed, at, len(at)), starts)[group_of]
        last = np.maximum.reduceat(np.where(changed, at, -1), starts)[group_of]
        # If partitions share places, a row may have been read because of another partition's changes.
        touched = last >= 0
        first, last = np.where(touched, first, 0), np.where(touched, last, 0)
        behind, before = spec.reach("rows")
        found = (at >= first - before) & (at <= last + behind)
        if rows.value is not None:
            behind, before = spec.reach("range")
            low, high = spec.scale.reach(rows.value[first], -before), spec.scale.reach(rows.value[last], behind)
            found |= (rows.value >= low) & (rows.value <= high)
        if spec.running:
            found |= at >= first
        if spec.whole:
            found |= at <= last
        found &= touched
        # If a row is affected, so are its peers.
        starts = np.flatnonzero(rows.peer == at)
        peers: Mask = np.logical_or.reduceat(found, starts)[np.cumsum(rows.peer == at) - 1]
        return peers


@dataclass(frozen=True, slots=True)
class _Leaving:
    """The expiry of rows: the least value at which an inserted row's frame no longer contains the expiring row."""

    values: Callable[[pa.BinaryArray], Int64s]
    span: int

    def __call__(self, payload: pa.BinaryArray) -> Int64s:
        return WHOLE.moved(self.values(payload), self.span + 1)


@dataclass(frozen=True, slots=True)
class _Results:
    """The rows after a batch, each packed with its results, and the rows' marks.

    `at` contains the rows' positions among all ordered rows; `asked` marks the rows whose results may have changed.
    """

    at: Indices
    rows: Stretches
    asked: Mask
    payload: pa.BinaryArray
    mark: Int8s

    def same(self, line: OrderedRows) -> Mask:
        """Return a mask of the rows that are already stored in exactly this form."""
        same = np.zeros(len(self.at), np.bool_)
        stays = np.flatnonzero(line.was[self.at])
        stored = line.stored.take(pa.array(self.at[stays]))
        same[stays] = equal_bytes(self.payload.take(pa.array(stays)), stored)
        same &= self.mark == line.entries.mark[self.at]
        return same


@dataclass(frozen=True, slots=True)
class _Steps:
    """Changes to rows with their results: the old form `before`, and the new form `after`.

    `stored` contains the rows of `after` that are to be stored. `past` contains rows that are to be removed from the
    state because their results are final.
    """

    before: Entries
    after: Entries
    stored: Entries
    past: Entries

    @property
    def parts(self) -> tuple[Entries, Entries, Entries, Entries]:
        """All four parts, in this order."""
        return self.before, self.after, self.stored, self.past
