"""MATCH_RECOGNIZE: the matches of a row pattern in each partition's rows, in time order.

Maintains the matches, as SQL:2016 defines them, among the rows that the watermark has passed. Rows are only inserted,
and so are matches: an emitted match never changes. A row is buffered until the watermark passes it, because an earlier
row may still arrive. Then the row's position is final, and the search of its partition continues with the row. A match
is emitted when no preferred match is possible any more. So a greedy quantifier waits for a row that it cannot match or,
with WITHIN, for the interval to elapse.

    time of the watermark ──▶|
    ── A ── B ── B ── C ── A ─|─ B ──    A B B C is emitted, A may still begin a match, the last B is buffered

State:
- arrangement "waiting", layout *timed*: the rows that the watermark has not passed. With WITHIN, for each partition
  that may have a started match, also the time by which this match must have ended.
- arrangement "begun", layout *multiset*: for each partition, the passed rows from the first row that may begin a match.
  Earlier rows are never needed again. Nothing is stored for partitions in which no row may begin a match.
- arrangement "numbers", layout *one row per key*, only if matches are numbered: the number of matches per partition.

With WITHIN, "begun" contains only rows from that interval before the watermark. Without WITHIN, a started match stays
open indefinitely. When rows of a partition become due, the search restarts at the partition's first row in "begun",
because only rows are stored, and no search state. So the cost of a batch is proportional to the number of due rows plus
the number of stored rows in their partitions. Rows that cannot begin a match are processed column-wise, the other rows
in Python steps (`operators.match.search`).

If a watermark passes very many rows at once, the operator processes the rows in stages of about `most` rows, in time
order, because a search needs far more memory than the rows themselves. The output is the same, and all of it is emitted
in this batch. In the next batch, it would be late for downstream operators that use the same watermark.

At the end of time, the watermark passes all rows: no more rows arrive, and a row that a match still waits for counts as
missing.
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
from rowkind.operators.arrangement.netting import net_rows_apart
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.changes import Changes, Indices, Int64s, Mask, Rows, Uint64s, constant
from rowkind.operators.columns.grouping import distinct, group
from rowkind.operators.columns.rowtime import END, later
from rowkind.operators.errors import RowFailed
from rowkind.operators.match.calls import MatchAggregate, MatchCall
from rowkind.operators.match.output import CallColumn, MatchedRows
from rowkind.operators.match.search import PatternRows, PatternSearch, PatternSpec, Searched
from rowkind.operators.operator import Output
from rowkind.operators.time.temporal_filter import last_place, places, time_at

_AT_ONCE = 100_000
"""The approximate number of due rows that are searched in one stage."""

_ROW, _ENDS = 0, 1
"""The marks of buffered entries: a row, or the time by which a match must have ended."""


class ReadableRows(PatternRows, Protocol):
    """Rows that can be searched, and from which output rows can be made."""

    def packed(self, rows: Indices, calls: Sequence[CallColumn]) -> pa.BinaryArray:
        """Return the output row for each given row: the row's columns, followed by the values of the calls."""


@dataclass(frozen=True, slots=True)
class MatchSpec:
    """The specification of a MATCH_RECOGNIZE operator.

    The input is append-only. Its sub-keys define the order within a partition, primarily by time.
    - `times`: takes packed rows and returns their times, in microseconds on the scale of watermarks; never NULL.
    - `read`: takes packed rows and returns them as `ReadableRows`.
    - `calls`: the calls whose values follow the row's columns in the output.
    - `all_rows`: whether all rows of each match are emitted, instead of one row per match.
    - `numbered`: whether matches have numbers.
    - `fallible`: the indices of the calls whose result makes a row fail if it does not fit its type.
    - `most`: the approximate number of due rows that are searched in one stage. Rows with the same time in ms are
      always in the same stage.
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
    """The operator for MATCH_RECOGNIZE, which is driven by a watermark.

    It keeps its state in the stores, not in this object.
    """

    spec: MatchSpec

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The arrangements, none of which has a TTL."""
        return {"waiting": None, "begun": None} | ({"numbers": None} if self.spec.numbered else {})

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Apply one batch of one shard; `now` is the watermark (ms since the epoch). Raises RowFailed."""
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
        """Return the buffered and new rows that the watermark has passed, and buffer the other new rows."""
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
        """Return the output at watermark `now`, and entries for the times by which started matches must have ended."""
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
            # If a match started before this batch, the entry for its end is already stored.
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
        """Return the output rows, and the rows that fail because a measure's value does not fit its type."""
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
            assert isinstance(call, MatchAggregate), "only an aggregate's result can exceed its type"
            if None in results[column]:
                failed |= matched.misfits(call, at, readable.values)
        payload, seq = readable.packed(rows, results), partitions.entries.seq[rows]
        return net_rows_apart(failed, payload, seq, np.ones(len(rows), np.int64))

    def _entries(self, changes: Changes, now: int) -> Entries:
        """Return new rows as entries at their times. Sub-keys end with the arrival number, so that they are unique."""
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
    """Split due entries into about the first `most` entries and the rest, and return the stage's last time (ms).

    Entries with the same time in ms are in the same stage, so all rows up to the stage's last time are present.
    """
    if len(due) > most:
        at = time_at(int(np.partition(due.place, most - 1)[most - 1]))
        first = due.place <= last_place(at)
        if not first.all():
            return due.filter(first), due.filter(~first), at
    return due, Entries.empty(), now


@dataclass(slots=True)
class _Held:
    """The stored entries of partitions with due entries, updated after each stage of the batch.

    Each entry has weight 1. `stored` marks the entries that the arrangement already contains; `write` appends the
    other entries.
    """

    arrangement: Arrangement
    entries: Entries
    stored: Mask

    @classmethod
    def of(cls, arrangement: Arrangement, hashes: Uint64s | None) -> _Held:
        """Read the stored entries of the partitions with these hashes, or of all partitions if `hashes` is None."""
        if hashes is None:
            found = arrangement.between(np.zeros(1, np.uint64), np.full(1, np.iinfo(np.uint64).max))
        else:
            found = arrangement.lookup(distinct(hashes))
        found = found.take(np.repeat(np.arange(len(found)), found.weight))
        found = found.relabel(weight=np.ones(len(found), np.int64))
        return cls(arrangement, found, np.ones(len(found), np.bool_))

    def change(self, gone: Indices, come: Entries) -> None:
        """Remove the entries at the positions `gone`, and add the entries `come`."""
        stays = np.ones(len(self.entries), np.bool_)
        stays[gone] = False
        self.arrangement.append(-self.entries.filter(~stays & self.stored))
        self.entries = Entries.concat([self.entries.filter(stays), come])
        self.stored = np.append(self.stored[stays], np.zeros(len(come), np.bool_))

    def write(self) -> None:
        """Append the new entries to the arrangement."""
        self.arrangement.append(self.entries.filter(~self.stored))


@dataclass(frozen=True, slots=True)
class _Partitions:
    """The rows of partitions with due entries, one partition after the other, ordered within each partition.

    `position` contains each row's position among the stored entries, or -1 for a new row. `number` contains each row's
    partition number. `begin` and `stop` contain the bounds of each partition.
    """

    entries: Entries
    position: Indices
    number: Indices
    begin: Indices
    stop: Indices

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """The bounds of each partition: its first position and the position after its last row."""
        return list(zip(self.begin.tolist(), self.stop.tolist(), strict=True))

    @property
    def is_first(self) -> Mask:
        """A mask of the rows that are the first row of their partition."""
        first = np.zeros(len(self.entries), np.bool_)
        first[self.begin] = True
        return first

    @classmethod
    def of(cls, kept: Entries, due: Entries, *, everything: bool) -> _Partitions:
        """Combine the stored and due entries of the partitions that have due entries.

        If `everything` is set, combine the entries of all partitions.
        """
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
    """Return entries for the times `last` (µs) by which matches that begin with the rows `heads` must have ended."""
    count = len(heads)
    none = constant(b"", count)
    ends = replace(heads, place=places(-(-last // 1000), heads.payload), sub_key=none, payload=none)
    return replace(ends, seq=np.zeros(count, np.int64), mark=np.full(count, _ENDS, np.int8))


def _numbered(numbered: _Held, partitions: _Partitions, counts: Int64s) -> Int64s:
    """Number each partition's new matches, continuing after its earlier matches.

    `counts` contains the number of new matches per partition.
    """
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
    """Return numbers as bytes that compare in the same order as the numbers."""
    octets = (numbers ^ np.int64(np.iinfo(np.int64).min)).astype(">i8")
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * 8
    return pa.Array.from_buffers(pa.binary(), len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(octets)])
