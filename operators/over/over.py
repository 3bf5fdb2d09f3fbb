"""OVER with an order: each row with what window functions make of the rows around it.

Maintains every row of the input with its results. The rows of a partition are in the order of their order key, ties in
that of arrival; a change concerns the rows whose frames it is in, and no others are sent again.

    SUM(v) OVER (ORDER BY t)            rows  3 . 5       results  3 . 8
    4 comes between the two             rows  3 4 5                3 7 12       one row comes, one changes

The walk. What is there around each change is read from the state, as many rows before and behind as frames reach
(`over_spans`). Rows whose frames are known, and in which the batch may have changed something, are computed anew by
columns (`over_function`). What they were is read and never computed. A frame from the beginning of the partition needs
no rows before: each row carries what has been made of all rows up to it. Then all rows behind a change are read, of
which there are none where rows come at the end.

State: `rows`, layout *ordered*: every row of the input, by partition and order key, in which retractions find theirs.
`results`, in the same order: the same rows, with their results and what they carry. With a TTL, a row that has expired
is as if it had never been for what comes next to it, and what has been made of it stays in what rows carry.

Where rows come in the order of their time and none is taken back, as below a result that is final, nothing comes
between rows that are there. Then there are no `rows`, and `results` has the tail of each partition: what frames of
later rows reach, and the last row with what it carries. Where all frames are bounded by values, a row expires once rows
have come, in whatever partition, whose values are too far away for them to see it. So a partition that nothing comes to
any more is let go of.

(Batched and incremental, the operator of Leis and others, "Efficient Processing of Window Functions in Analytical SQL
Queries", VLDB 2015.)
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
"""The mark of a row with its results that is not emitted: one of them does not fit its type."""


@dataclass(frozen=True, slots=True)
class OverSpec:
    """What the plan provides: keys and sub-keys as for a rank, and retractions with the full row that they take back.

    - `arguments` gives those of the calls for payloads, and `packed` makes bytes of their results; a row that is
      emitted is the payload and these.
    - `values`: what payloads are ordered by as numbers that ascend, where a frame goes by distances, on this `scale`;
      `LEAST` or `LARGEST` where the value is NULL.
    - `by_seq`: the changes of one row are to be taken in the order of seq (a source); else each batch is a net multiset
      of signed rows (an operator).
    - `counts_unmatched`: retractions that find no row come back as unmatched.
    - `until`: when rows may be let go of, by a watermark; None where they have no time of their own.
    - `refreshes`: whether somebody further down has a TTL.
    - `ahead`: of rows that come in the order of their partitions, those of one value in one batch, and never go, how
      far behind a row's value its results may change, in units of `values`. None where rows come in any order.
    - `fallible`: the numbers of calls of SUM and AVG whose results fail a row where they do not fit their types.
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
        """Whether all rows behind a change may change."""
        return any(call.running for call in self.calls)

    @property
    def whole(self) -> bool:
        """Whether all rows before a change may change."""
        return any(call.whole for call in self.calls)

    @property
    def carries_on(self) -> bool:
        """Whether the rows before those concerned need not be read."""
        expires = self.ttl_ms is not None or self.until is not None
        return not self.whole and not (expires and any(call.running and call.looks_back for call in self.calls))

    @property
    def span(self) -> int | None:
        """How far the values of rows that see each other are apart; None where rows are kept however far that is."""
        if self.ahead is None or not all(call.frame.by_distance for call in self.calls):
            return None
        return self.back("range") + self.ahead

    @property
    def kinds(self) -> str:
        """The columns of what is stored of a row: what it is, its results, and what it carries."""
        return "bb" + "".join(computed(call).kinds for call in self.calls)

    def reach(self, kind: str) -> tuple[int, int]:
        """How far behind and before a row there are rows that see it, in frames of this kind."""
        frames = [call.frame for call in self.calls if call.frame.kind == kind]
        return max((each.behind for each in frames), default=0), max((each.before for each in frames), default=0)

    def back(self, kind: str) -> int:
        """How far before a row the edges of its frames of this kind are, but for the beginning of the partition."""
        frames = [call.frame for call in self.calls if call.frame.kind == kind]
        return max((-edge for each in frames for edge in (0, each.start, each.end) if edge is not None), default=0)


@dataclass(frozen=True, slots=True)
class Over:
    """The operator; it has no state of its own."""

    spec: OverSpec

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The rows, with and without their results, with their TTL in ms."""
        names = ("rows", "results") if self.spec.ahead is None else ("results",)
        return dict.fromkeys(names, self.spec.ttl_ms)

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Apply one batch of one shard at time `now` (ms since the epoch)."""
        spec, changes = self.spec, batch.changes
        comes = changes.filter(changes.kind == RowKind.INSERT)
        until, moment = spec.until, now
        if spec.span is not None and spec.values is not None:
            until = _Leaving(spec.values, spec.span)
            # No row comes any more whose value is less.
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
        """What becomes of rows with their results."""
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
        """What becomes of the rows, and of which spans more must be read to be certain."""
        spec, own = self.spec, reading.own(line.entries.place)
        # Of a partition of which the tail is kept, what was before is in what that carries.
        begins, ends = (reading.begins if spec.ahead is None else reading.vacant)[own], reading.ends[own]
        key = line.key * len(reading.ends) + own
        # What refers to the rows before the batch and after it, in one order.
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
            # All that there is of the partitions has been read.
            return steps, np.empty(0, np.int64)
        return steps, np.concatenate([own[concerned & edges], own[now[wants]]])

    def _results(self, line: OrderedRows, now: Indices, rows: Stretches, asked: Mask) -> tuple[_Results, Mask]:
        """The rows after the batch with their results, and which of these are not certain."""

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
        """What becomes of rows with their results, given those after the batch."""
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
        """The rows that later ones see, or those whose results may change, with the ones before them that carry on."""
        at, first = np.arange(len(rows)), rows.stop
        if rows.value is not None and len(rows):
            oldest = self.spec.scale.moved(rows.value[rows.stop - 1], -self.spec.back("range") - ahead)
            starts = np.flatnonzero(rows.begin == at)
            before = np.add.reduceat((rows.value < oldest).astype(np.int64), starts)
            first = rows.begin + before[np.cumsum(rows.begin == at) - 1]
        seen: Mask = at >= first - self.spec.back("rows") - _SPARE
        return seen

    def _concerned(self, rows: Stretches, changed: Mask) -> Mask:
        """The rows in whose frames there may be something else than before."""
        at, spec = np.arange(len(rows)), self.spec
        if not len(rows):
            return changed
        starts = np.flatnonzero(rows.begin == at)
        group_of = np.cumsum(rows.begin == at) - 1
        first = np.minimum.reduceat(np.where(changed, at, len(at)), starts)[group_of]
        last = np.maximum.reduceat(np.where(changed, at, -1), starts)[group_of]
        # Where partitions share their places, one may have been read for the changes of the other.
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
        # Peers see each other.
        starts = np.flatnonzero(rows.peer == at)
        peers: Mask = np.logical_or.reduceat(found, starts)[np.cumsum(rows.peer == at) - 1]
        return peers


@dataclass(frozen=True, slots=True)
class _Leaving:
    """From which value on rows that come do not see these rows any more."""

    values: Callable[[pa.BinaryArray], Int64s]
    span: int

    def __call__(self, payload: pa.BinaryArray) -> Int64s:
        return WHOLE.moved(self.values(payload), self.span + 1)


@dataclass(frozen=True, slots=True)
class _Results:
    """The rows after a batch: where they are, those that may differ, and each packed with its results and its mark."""

    at: Indices
    rows: Stretches
    asked: Mask
    payload: pa.BinaryArray
    mark: Int8s

    def same(self, line: OrderedRows) -> Mask:
        """Which of them are stored just so."""
        same = np.zeros(len(self.at), np.bool_)
        stays = np.flatnonzero(line.was[self.at])
        stored = line.stored.take(pa.array(self.at[stays]))
        same[stays] = equal_bytes(self.payload.take(pa.array(stays)), stored)
        same &= self.mark == line.entries.mark[self.at]
        return same


@dataclass(frozen=True, slots=True)
class _Steps:
    """Rows with their results: as they are no longer `before`, and `after`; of these the ones that are `stored`.

    `past` are rows that are not kept any more, and have been put out for good.
    """

    before: Entries
    after: Entries
    stored: Entries
    past: Entries

    @property
    def parts(self) -> tuple[Entries, Entries, Entries, Entries]:
        """All of them, in this order."""
        return self.before, self.after, self.stored, self.past
