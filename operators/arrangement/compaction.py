"""Compaction of runs, in portions proportional to the size of the batches.

Runs are divided into size classes, each `FACTOR` times as large as the previous class. As soon as a class has `FACTOR`
runs, these runs are merged into one. This keeps the number of runs small, and rewrites each row about once per class.
If most stored rows have been cancelled, or if a batch reads many cancelled rows, all runs are merged into one,
regardless of their size.

A merge proceeds in portions. Each portion reads the next rows of all inputs in order of (place, seq), at most as many
as a segment can hold, and writes them to one output segment. (An entry's *place* is its 64-bit sort position within a
run, see `operators.arrangement.layout`.) Between portions, the merge's progress is stored in the manifest, so that the
merge can continue after a restart. A batch of n entries reads at most `FUEL` * n + `SEGMENT_ROWS` rows for compaction,
and advances the smallest merges first. (The design combines LSM-tree tiering with the fuel of differential dataflow's
spine.)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rowkind.operators.arrangement import last_write
from rowkind.operators.arrangement import segment as segments
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.manifest import Manifest, Merge, Run
from rowkind.operators.arrangement.segment import LAST_SEQ
from rowkind.operators.arrangement.segment_store import SegmentStore
from rowkind.operators.columns.changes import Int64s, Uint64s

FACTOR = 4
"""The number of runs of similar size that are merged into one, and the size ratio of adjacent size classes."""

FUEL = 8
"""The number of rows that a batch may read for merges, per entry that the batch appends. `FUEL` must exceed the number
of size classes that a shard can have, log4(rows of the shard / rows of a batch); otherwise, merges fall behind."""

SMALL_RUN = 1024
"""The maximum number of rows of a run in the lowest size class."""

MOST_GARBAGE = 3
"""The maximum number of stored rows per live row, not counting one segment's rows. Above it, all runs are merged."""

MOST_IN_VAIN = 1 << 15
"""The maximum number of cancelled or expired rows that a batch may read with the first rows of keys, not counting
`MOST_GARBAGE` rows per live row. Above it, all runs are merged. For example, if the first rows of a queue are
constantly retracted, garbage accumulates exactly where batches read."""


@dataclass(frozen=True, slots=True)
class Merging:
    """The rules by which a merge reduces the entries that it reads.

    Rows written at or before `expired_until` have expired and are dropped; None means that no row expires. If
    `replaces` is set, entries replace earlier entries with the same key. `summed` adds up entries, and returns them in
    order of (place, seq).
    """

    expired_until: int | None
    replaces: bool
    summed: Callable[..., Entries]


def advance(
    manifest: Manifest, segment_store: SegmentStore, appended: int, merging: Merging, read_in_vain: int = 0
) -> tuple[int, int]:
    """Do the merge work of a batch that appended `appended` entries.

    Return how many rows were read, and how many of them had expired. `read_in_vain` is the number of cancelled or
    expired rows that the batch read, as far as it exceeds the tolerated number (`MOST_GARBAGE`).
    """
    work = expired = 0
    _start(manifest, read_in_vain)
    while manifest.merges and (work == 0 or work < FUEL * appended):
        merge = min(manifest.merges, key=lambda merge: sum(run.rows for run in _inputs(manifest, merge)))
        read, gone = _merge_portion(manifest, merge, segment_store, merging)
        work, expired = work + read, expired + gone
    return work, expired


def _start(manifest: Manifest, read_in_vain: int = 0) -> None:
    """Begin the merges that have become necessary."""
    busy = {number for merge in manifest.merges for number in merge.inputs}
    classes: dict[int, list[int]] = {}
    for run in manifest.runs:
        if run.number not in busy:
            classes.setdefault(_size_class(run.rows), []).append(run.number)
    everything = len(manifest.runs)
    manifest.merges += [
        Merge(numbers, whole=len(numbers) == everything) for numbers in classes.values() if len(numbers) >= FACTOR
    ]
    stored = sum(run.rows for run in manifest.runs)
    wasteful = stored > MOST_GARBAGE * manifest.weight + segments.SEGMENT_ROWS or read_in_vain > MOST_IN_VAIN
    if not manifest.merges and len(manifest.runs) > 1 and wasteful:
        manifest.merges.append(Merge([run.number for run in manifest.runs], whole=True))


def _size_class(rows: int) -> int:
    size, number = SMALL_RUN, 0
    while size < rows:
        size, number = size * FACTOR, number + 1
    return number


def _inputs(manifest: Manifest, merge: Merge) -> list[Run]:
    return [run for run in manifest.runs if run.number in merge.inputs]


def _merge_portion(manifest: Manifest, merge: Merge, segment_store: SegmentStore, merging: Merging) -> tuple[int, int]:
    """Advance the merge by one portion, and complete the merge if this is the last portion.

    Return how many rows were read, and how many of the rows that remained after adding up equal rows had expired.
    """
    inputs = _inputs(manifest, merge)
    size, rows = sum(run.bytes for run in inputs), sum(run.rows for run in inputs)
    limit = max(1, min(segments.SEGMENT_ROWS, segments.SEGMENT_BYTES * rows // max(1, size)))
    windows, end = _windows(inputs, merge.cursor, segment_store, limit)
    read = [window.up_to(end) for window in windows]
    entries = merging.summed(*itertools.chain.from_iterable(read))
    if merging.replaces:
        entries = last_write.latest(entries)
        if merge.whole:
            entries = entries.filter(~last_write.is_needless(entries, merge.cursor and merge.cursor[0]))
    expired = 0
    if merging.expired_until is not None:
        before = len(entries)
        entries = entries.filter(entries.written_at > merging.expired_until)
        expired = before - len(entries)
    merge.done += segment_store.write(entries)
    merge.weight += int(entries.weight[entries.weight > 0].sum()) if merging.replaces else int(entries.weight.sum())
    merge.cursor = end
    if end is None:
        manifest.runs = [run for run in manifest.runs if run.number not in merge.inputs]
        manifest.merges.remove(merge)
        if not manifest.runs:
            manifest.weight = min(manifest.weight, merge.weight)
        manifest.add_run(merge.done)
        _start(manifest)
    return sum(len(piece) for pieces in read for piece in pieces), expired


@dataclass(frozen=True, slots=True)
class _Window:
    """The next rows of one input run: pieces of its segments, and the concatenated places and seqs of all pieces."""

    pieces: list[Entries]
    place: Uint64s
    seq: Int64s
    whole: bool

    @classmethod
    def of(cls, run: Run, cursor: tuple[int, int] | None, segment_store: SegmentStore, limit: int) -> _Window:
        """Return the rows after `cursor`, at least `limit` + 1 of them if the run has that many."""
        pieces: list[Entries] = []
        missing, whole = limit + 1, True
        for info in run.segments:
            if cursor is not None and info.last < cursor[0]:
                continue
            if missing <= 0:
                whole = False
                break
            segment = segment_store.open(info)
            first = segment.after(*cursor) if cursor is not None and info.first <= cursor[0] else 0
            stop = min(info.rows, first + missing)
            pieces.append(segment.entries.slice(first, stop))
            missing -= stop - first
            whole = stop == info.rows
        places = [piece.place for piece in pieces] or [np.empty(0, np.uint64)]
        seqs = [piece.seq for piece in pieces] or [np.empty(0, np.int64)]
        return cls(pieces, np.concatenate(places), np.concatenate(seqs), whole)

    def count(self, place: int, seq: int = LAST_SEQ) -> int:
        """Return the number of rows up to and including (place, seq)."""
        stop = int(np.searchsorted(self.place, np.uint64(place), side="right"))
        if seq == LAST_SEQ:
            return stop
        first = int(np.searchsorted(self.place, np.uint64(place)))
        return first + int(np.searchsorted(self.seq[first:stop], seq, side="right"))

    def up_to(self, end: tuple[int, int] | None) -> list[Entries]:
        """Return the rows up to and including `end`, or all rows if `end` is None."""
        if end is None:
            return self.pieces
        missing, result = self.count(*end), []
        for piece in self.pieces:
            result.append(piece.slice(0, min(len(piece), missing)))
            missing -= len(result[-1])
        return result


def _windows(
    inputs: Sequence[Run], cursor: tuple[int, int] | None, segment_store: SegmentStore, limit: int
) -> tuple[list[_Window], tuple[int, int] | None]:
    """Return the next rows of each input, and the (place, seq) at which the portion ends; None for the last portion."""
    windows = [_Window.of(run, cursor, segment_store, limit) for run in inputs]
    if all(window.whole for window in windows) and sum(len(window.place) for window in windows) <= limit:
        return windows, None
    windows_with_rows = [window for window in windows if len(window.place)]
    place = min(int(window.place[0]) for window in windows_with_rows)
    if sum(window.count(place) for window in windows) <= limit:
        last = max(int(window.place[-1]) for window in windows_with_rows)
        place = _largest(place, last, lambda at: sum(window.count(at) for window in windows) <= limit)
        return windows, (place, LAST_SEQ)
    # The place has more rows than a portion can read, such as many equal rows of a key, so the rows are divided by seq.
    seqs = [window.seq[: window.count(place)] for window in windows if window.count(place)]
    seq = min(int(of_window[0]) for of_window in seqs)
    if sum(window.count(place, seq) for window in windows) > limit:
        return _windows(inputs, cursor, segment_store, 2 * limit)
    last = max(int(of_window[-1]) for of_window in seqs)
    return windows, (
        place,
        _largest(seq, last, lambda at: sum(window.count(place, at) for window in windows) <= limit),
    )


def _largest(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the largest number in `low`..`high` for which `holds` is true; it must be true for all smaller numbers."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
