"""MATCH_RECOGNIZE: the matches of a row pattern in each partition, whose rows are put into order of time first.

Maintains the matches of SQL:2016 over the rows that the watermark has passed. Rows only come, and so do matches: what
has come out never changes. A row waits until the watermark is there, because one before it may still come; then it is
in its place for good, and the search of its partition goes on over it. A match comes out when nothing that is preferred
to it can come any more. So a greedy quantifier waits for the row that ends it, or, with WITHIN, for time to pass.

    time of the watermark ──▶|
    ── A ── B ── B ── C ── A ─|─ B ──    A B B C came out, A may still begin a match, the last B is not in its place

State:
- arrangement `waiting`, layout *timed*: the rows that the watermark has not passed; and, with WITHIN, for partitions
  in which a match may have begun the time when it must have ended.
- arrangement `begun`, layout *multiset*: by partition the rows in their places from the first one on with which a match
  may have begun. Rows before it are never asked for again, and nothing is kept of partitions without one.
- arrangement `numbers`, layout *one row per key*, only where matches are numbered: how many each partition had.

With WITHIN, `begun` has no rows but those of so much time before the watermark. Without, a match that has begun waits
for ever. Where a batch brings something for a partition, its search begins anew with the first row in `begun`: nothing
of a search is kept but its rows. So a batch costs the rows that are due, and those that are kept for their partitions;
of these, rows with which no match may begin cost columns only, others steps in Python (`pattern_search`).

Where a watermark passes very many rows at once, the operator goes with it by stages, each of about `most` rows in order
of time, as what a search knows of its rows takes far more memory than they do. What comes out is the same. It all
comes out in this batch: whoever goes by the same watermark would find it late in the next one.

The end of time passes everything: then no row comes any more, and what was waited for is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.arrangement.arrangement import Arrangement, Finished
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import ArrangementSpec
from rowkind.operators.arrangement.layout import places as places_in
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.changes import Changes, Indices, Int64s, Mask, Rows, Uint64s, constant
from rowkind.operators.columns.grouping import distinct, group
from rowkind.operators.errors import RowFailed
from rowkind.operators.match_calls import MatchAggregate, MatchCall
from rowkind.operators.match_output import CallColumn, MatchedRows
from rowkind.operators.netting import net_rows_apart
from rowkind.operators.operator import Output
from rowkind.operators.pattern_search import PatternRows, PatternSearch, PatternSpec, Searched
from rowkind.operators.rowtime import END, later
from rowkind.operators.temporal_filter import last_place, places, time_at

_AT_ONCE = 100_000
"""About how many rows that are due are searched at a time."""

_ROW, _ENDS = 0, 1
"""The marks of what waits: a row, or the end of the time in which a match must be."""


class ReadableRows(PatternRows, Protocol):
    """Rows that can be searched and of which what comes out can be made."""

    def packed(self, rows: Indices, calls: Sequence[CallColumn]) -> pa.BinaryArray:
        """For each of these rows what comes out: columns of it, and what the calls come to."""


@dataclass(frozen=True, slots=True)
class MatchSpec:
    """What the plan provides. The input is append-only; its sub-keys are the order in a partition, by time first.

    - `times`: of packed rows, in microseconds on the scale of watermarks; never NULL. `read` makes them readable.
    - `calls`: what comes out behind the row's columns. `all_rows`: all rows of each match come out, and not one.
    - `numbered`: matches have numbers.
    - `fallible`: the numbers of calls that fail a row where they do not fit their types.
    - `most`: about how many rows that are due are searched at a time; all that have one time, in ms, are.
    """

    pattern: PatternSpec
    times: Callable[[pa.BinaryArray], Int64s]
    read: Callable[[pa.BinaryArray], ReadableRows]
    calls: tuple[MatchCall, ...]
    all_rows: bool = False
    numbered: bool = False
    fallible: tuple[int, ...] = ()
    most: int = field(default_factory=lambda: _AT_ONCE)


@dataclass(frozen=True, slots=True)
class MatchRecognize:
    """The operator; it has no state of its own. It goes by a watermark."""

    spec: MatchSpec

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """What is kept; none has a TTL."""
        return {"waiting": None, "begun": None} | ({"numbers": None} if self.spec.numbered else {})

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Apply one batch of one shard; the watermark (ms since the epoch) has come to `now`. Raises RowFailed."""
        waiting = Arrangement(stores["waiting"], ArrangementSpec("waiting", "timed"), now)
        begun = Arrangement(stores["begun"], ArrangementSpec("begun", "multiset"), now)
        numbers = None
        if self.spec.numbered:
            numbers = Arrangement(stores["numbers"], ArrangementSpec("numbers", "one row per key"), now)
        reached = last_place(now)
        due = self._due(waiting, batch.changes.filter(batch.changes.kind == RowKind.INSERT), now)
        kept = _Held.of(begun, None if now >= END else due.hash)
        numbered = None if numbers is None else _Held.of(numbers, np.concatenate([kept.entries.hash, due.hash]))
        found, failed = [], []
        while True:
            part, due, passed = _stage(due, self.spec.most, now)
            partitions = _Partitions.of(kept.entries, part, everything=passed >= END)
            if len(partitions.entries):
                (rows, failing), ends = self._search(partitions, kept, numbered, passed)
                found.append(rows)
                failed.append(failing)
                again = ends.place <= reached
                waiting.append(ends.filter(~again))
                due = Entries.concat([due, ends.filter(again)])
            if not len(due):
                break
        for each in (kept, numbered):
            if each is not None:
                each.write()
        finished = Finished.total(*(each.finish() for each in (waiting, begun, numbers) if each is not None))
        next_ = waiting.first_after(int(reached))
        return Output(
            Emitted.concat(found),
            batch.changes.filter(batch.changes.weight < 0),
            finished.state,
            finished.merged_rows,
            due=None if next_ is None else time_at(next_),
            failed=Rows.concat(failed),
        )

    def _due(self, waiting: Arrangement, come: Changes, now: int) -> Entries:
        """What the watermark has reached, of what waited and of what comes; the rest waits."""
        reached = last_place(now)
        due = waiting.between(np.zeros(1, np.uint64), np.array([reached]))
        waiting.append(-due)
        entries = self._entries(come, now)
        there = entries.place <= reached
        waiting.append(entries.filter(~there))
        return Entries.concat([due, entries.filter(there)])

    def _search(
        self, partitions: _Partitions, kept: _Held, numbered: _Held | None, now: int
    ) -> tuple[tuple[Emitted, Rows], Entries]:
        """What comes out when the watermark is at `now`, and when the time is over of the matches that have begun."""
        entries, position = partitions.entries, partitions.position
        times, readable = self.spec.times(entries.payload), self.spec.read(entries.payload)
        passed = None if now >= END else 1000 * now
        search = PatternSearch(self.spec.pattern, readable, times, passed)
        try:
            found = search.run(partitions.bounds)
        except RowFailed as error:
            raise error.came_with(int(entries.seq[error.row])) from None
        open_from = np.array([each.open_from for each in found], np.int64)
        stays, known = np.arange(len(entries)) >= open_from[partitions.number], position >= 0
        come = entries.filter(~known & stays)
        kept.change(
            position[known & ~stays],
            replace(come, place=places_in("multiset", come.hash, come.sub_key, come.payload)),
        )
        heads = np.empty(0, np.int64)
        if self.spec.pattern.within is not None:
            heads = open_from[open_from < partitions.stop]
            # What began a match before has its end noted already.
            heads = heads[~(known[heads] & partitions.is_first[heads])]
        ends = _ends(entries.take(heads), later(times[heads], (self.spec.pattern.within or 0) - 1))
        return self._put_out(partitions, found, readable, numbered), ends

    def _put_out(
        self,
        partitions: _Partitions,
        found: Sequence[Searched],
        readable: ReadableRows,
        numbered: _Held | None,
    ) -> tuple[Emitted, Rows]:
        """What comes out, and what would if what measures come to fitted their types."""
        counts = np.array([len(each.matches) for each in found], np.int64)
        if not counts.any():
            return Emitted(Rows.empty()), Rows.empty()
        number = np.zeros(counts.sum(), np.int64)
        if numbered is not None:
            number = _numbered(numbered, partitions, counts)
        matched = MatchedRows.of([match for each in found for match in each.matches], number)
        at = np.arange(len(matched.row)) if self.spec.all_rows else matched.last
        rows = matched.row[at]
        results = [matched.call(call, at, readable.values) for call in self.spec.calls]
        failed = np.zeros(len(rows), np.bool_)
        for column in self.spec.fallible:
            call = self.spec.calls[column]
            assert isinstance(call, MatchAggregate), "only a sum may not fit"
            if None in results[column]:
                failed |= matched.misfits(call, at, readable.values)
        payload, seq = readable.packed(rows, results), partitions.entries.seq[rows]
        return net_rows_apart(failed, payload, seq, np.ones(len(rows), np.int64))

    def _entries(self, changes: Changes, now: int) -> Entries:
        """Rows that come, at their times. What is behind the order of a row tells it from all others."""
        count, seq = len(changes), changes.seq
        ms = -(-self.spec.times(changes.payload) // 1000)
        sub_key = pc.binary_join_element_wise(changes.sub_key, _bytes(seq), pa.scalar(b"", pa.binary()))
        return Entries(
            places(ms, changes.payload),
            changes.hash,
            changes.key,
            sub_key,
            changes.payload,
            np.ones(count, np.int64),
            np.full(count, now, np.int64),
            seq,
            np.full(count, _ROW, np.int8),
        )


def _stage(due: Entries, most: int, now: int) -> tuple[Entries, Entries, int]:
    """The first about so many of what is due up to `now`, the others, and the time, in ms, that all of the first have.

    Of one ms all is in the same stage: then all rows up to it are there.
    """
    if len(due) > most:
        at = time_at(int(np.partition(due.place, most - 1)[most - 1]))
        first = due.place <= last_place(at)
        if not first.all():
            return due.filter(first), due.filter(~first), at
    return due, Entries.empty(), now


@dataclass(slots=True)
class _Held:
    """What is kept of the partitions that something is due for, as the stages of a batch leave it; each entry once.

    `stored` says which of the entries the arrangement has, to which `write` adds the others.
    """

    arrangement: Arrangement
    entries: Entries
    stored: Mask

    @classmethod
    def of(cls, arrangement: Arrangement, hashes: Uint64s | None) -> _Held:
        """What is kept of partitions with these hashes; None for all that is kept."""
        if hashes is None:
            found = arrangement.between(np.zeros(1, np.uint64), np.full(1, np.iinfo(np.uint64).max))
        else:
            found = arrangement.lookup(distinct(hashes))
        found = found.take(np.repeat(np.arange(len(found)), found.weight))
        found = found.relabel(weight=np.ones(len(found), np.int64))
        return cls(arrangement, found, np.ones(len(found), np.bool_))

    def change(self, gone: Indices, come: Entries) -> None:
        """Let go of the entries at these positions, and add others."""
        stays = np.ones(len(self.entries), np.bool_)
        stays[gone] = False
        self.arrangement.append(-self.entries.filter(~stays & self.stored))
        self.entries = Entries.concat([self.entries.filter(stays), come])
        self.stored = np.append(self.stored[stays], np.zeros(len(come), np.bool_))

    def write(self) -> None:
        """Bring the arrangement to what is held."""
        self.arrangement.append(self.entries.filter(~self.stored))


@dataclass(frozen=True, slots=True)
class _Partitions:
    """The rows of partitions that something is due for, one partition after the other, each in its order.

    `position` says where a row is in what is kept, -1 for one that is not. `number` is the partition that each row is
    of, `begin` and `stop` where these lie.
    """

    entries: Entries
    position: Indices
    number: Indices
    begin: Indices
    stop: Indices

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """Where each partition begins, and where it ends."""
        return list(zip(self.begin.tolist(), self.stop.tolist(), strict=True))

    @property
    def is_first(self) -> Mask:
        """Which rows are the first of their partition."""
        first = np.zeros(len(self.entries), np.bool_)
        first[self.begin] = True
        return first

    @classmethod
    def of(cls, kept: Entries, due: Entries, *, everything: bool) -> _Partitions:
        """The partitions that something is due for, or all of them, with what is kept of them."""
        every = Entries.concat([kept, due])
        if not len(every):
            none = np.empty(0, np.int64)
            return cls(every, none, none, none, none)
        position = np.append(np.arange(len(kept)), np.full(len(due), -1))
        groups = group(every.hash, [every.key])
        asked = np.full(groups.count, everything)
        asked[groups.ids[len(kept) :]] = True
        at = np.flatnonzero((every.mark == _ROW) & asked[groups.ids])
        at = np.repeat(at, every.weight[at])
        rows, position, number = every.take(at), position[at], groups.ids[at]
        table = pa.table({"partition": number, "order": rows.sub_key, "row": rows.payload})
        keys = [(name, "ascending") for name in table.column_names]
        order = pc.sort_indices(table, sort_keys=keys).to_numpy().astype(np.int64)
        number = number[order]
        entries = rows.take(order).relabel(weight=np.ones(len(order), np.int64))
        edges = np.flatnonzero(np.append(True, number[1:] != number[:-1]))[: len(order)]
        stop = np.append(edges[1:], len(order))[: len(edges)]
        return cls(entries, position[order], np.repeat(np.arange(len(edges)), stop - edges), edges, stop)


def _ends(heads: Entries, last: Int64s) -> Entries:
    """When the time is over in which matches must be that begin with these rows; `last` is the end of it, in us."""
    count = len(heads)
    none = constant(b"", count)
    ends = replace(heads, place=places(-(-last // 1000), heads.payload), sub_key=none, payload=none)
    return replace(ends, seq=np.zeros(count, np.int64), mark=np.full(count, _ENDS, np.int8))


def _numbered(numbered: _Held, partitions: _Partitions, counts: Int64s) -> Int64s:
    """The numbers of the matches of partitions, which have so many, behind those that they had before."""
    own = partitions.entries.take(partitions.begin[counts > 0])
    counts, known = counts[counts > 0], numbered.entries
    both = Entries.concat([known, own])
    groups = group(both.hash, [both.key])
    before = np.zeros(groups.count, np.int64)
    before[groups.ids[: len(known)]] = known.seq
    had = before[groups.ids[len(known) :]]
    none = constant(b"", len(own))
    place = places_in("one row per key", own.hash, none, none)
    numbered.change(
        np.flatnonzero(np.isin(groups.ids[: len(known)], groups.ids[len(known) :])),
        replace(own, place=place, sub_key=none, payload=none, seq=had + counts),
    )
    stops = np.cumsum(counts)
    return np.arange(stops[-1]) - np.repeat(stops - counts, counts) + np.repeat(had, counts) + 1


def _bytes(numbers: Int64s) -> pa.BinaryArray:
    """Numbers as bytes that compare as they do."""
    octets = (numbers ^ np.int64(np.iinfo(np.int64).min)).astype(">i8")
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * 8
    return pa.Array.from_buffers(pa.binary(), len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(octets)])
