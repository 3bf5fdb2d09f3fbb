"""The arrangement: an operator's state, a multiset of rows indexed by key, as a few sorted runs of immutable segments.

A batch appends one small run; `merging` keeps the runs few. What is live is the sum over all runs. Rows are ordered by
*place*: the upper half of the hash of their key, then 32 bits that tell the rows of a key apart and depend on the
layout. So all rows of a key are found by one interval, and a single row of a key with a million others by one number.
A place narrows the search and decides nothing: two keys in one place cost time only.

Layouts, as the plan chooses them by what it knows of unique keys:

    one row per key   the key contains a unique key                        place = hash, 0
    unique key        the sub-key is a unique key                          place = hash, hash64(sub-key)
    multiset          nothing is unique; equal rows are kept severally     place = hash, hash64(payload)

(The arrangement of differential dataflow and the trace of DBSP, with the blob store in the part of the allocator.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from operators import merging
from operators.changes import Int64s, Uint64s
from operators.entries import Entries, consolidate
from operators.grouping import distinct, is_in
from operators.hashing import hash64
from operators.manifest import Manifest, SegmentInfo
from operators.operator import StateSize
from operators.segment import Segment
from operators.shelf import Shelf
from operators.store import MANIFEST, BlobStore

Layout = Literal["one row per key", "unique key", "multiset"]

_UPPER = np.uint64(0xFFFFFFFF00000000)
_LOWER = np.uint64(0x00000000FFFFFFFF)


def places(layout: Layout, hashes: Uint64s, sub: pa.BinaryArray, payload: pa.BinaryArray) -> Uint64s:
    """Where rows stand in an arrangement of this layout."""
    match layout:
        case "one row per key":
            return hashes & _UPPER
        case "unique key":
            return (hashes & _UPPER) | (hash64(sub) >> np.uint64(32))
        case "multiset":
            return (hashes & _UPPER) | (hash64(payload) >> np.uint64(32))


@dataclass(frozen=True, slots=True)
class Finished:
    """What a batch left behind, and how many rows it read for merging."""

    state: StateSize
    merged_rows: int


class Arrangement:
    """An arrangement of one shard, opened for one batch at time `now`.

    Lookups see the state before the batch; `append` takes what the batch adds; `finish` writes it and merges. A row is
    invisible from written_at + `ttl_ms` on. Raises `StateLost` where an unexpired segment is missing from the store.
    """

    def __init__(self, store: BlobStore, name: str, layout: Layout, ttl_ms: int | None, now: int) -> None:
        self.layout = layout
        self.now = now
        self._store = store
        self._shelf = Shelf(store, name)
        self._expired_until = None if ttl_ms is None else now - ttl_ms
        blob = store.get(MANIFEST)
        self._manifest = Manifest() if blob is None else Manifest.from_blob(blob, name)
        self._before = blob
        self._names_before = [segment.name for segment in self._manifest.segments]
        self._appended: list[Entries] = []
        self._drop_expired_segments()

    def lookup(self, hashes: Uint64s, less: Entries | None = None) -> Entries:
        """The live rows whose key has one of these hashes, each with the number of times it is there.

        There may be rows of other keys among them, as there always may be where keys are told by their hashes.
        `less` are entries to count in as if they had been appended already: what is left after a batch's retractions.
        """
        upper = distinct(hashes & _UPPER)
        found = self._gather(upper, upper | _LOWER)
        if less is not None:
            found = Entries.concat([found, less.filter(is_in(less.place & _UPPER, upper))])
        return self._live(found)

    def count(self, hashes: Uint64s, keys: pa.BinaryArray, less: Entries) -> Int64s:
        """How many live rows each of these keys has, without reading them; the keys must all differ.

        `less` are entries to count in, as in `lookup`.
        """
        order = np.argsort(hashes)
        first, keys = hashes[order] & _UPPER, keys.take(pa.array(order))
        last = first | ~_UPPER
        counts = np.zeros(len(hashes), np.int64)
        for info, start, stop in self._touched(first, last):
            part = slice(start, stop)
            segment = self._shelf.open(info)
            counts[part] += segment.weigh(first[part], last[part], keys[part], self._expired_until)
        if len(less):
            counts += Segment(consolidate(less)).weigh(first, last, keys, self._expired_until)
        result = np.empty_like(counts)
        result[order] = counts
        return result

    def at(self, places: Uint64s) -> Entries:
        """The live rows at these places, each with the number of times it is there."""
        wanted = distinct(places)
        return self._live(self._gather(wanted, wanted))

    def append(self, entries: Entries) -> None:
        """Add entries; a negative one must be the exact opposite of what a lookup gave."""
        self._appended.append(entries)

    def finish(self) -> Finished:
        """Write what was appended, do the batch's share of merging and let go of what nobody needs."""
        manifest = self._manifest
        added = consolidate(Entries.concat(self._appended))
        self._appended = []
        manifest.weight += int(added.weight.sum())
        assert manifest.weight >= 0, "an arrangement cannot lose more rows than it got"
        manifest.add_run(self._shelf.write(added))
        merged_rows = 0
        if manifest.weight == 0:
            self._manifest = manifest = Manifest()
        else:
            merged_rows = merging.advance(manifest, self._shelf, len(added), self._expired_until)
        segments = list(manifest.segments)
        self._shelf.settle(self._names_before, [segment.name for segment in segments])
        self._write_manifest()
        size = StateSize(
            sum(run.rows for run in manifest.runs), sum(segment.bytes for segment in segments), len(manifest.runs)
        )
        return Finished(size, merged_rows)

    def _write_manifest(self) -> None:
        if not self._manifest.runs:
            if self._before is not None:
                self._store.delete(MANIFEST)
            return
        blob = self._manifest.to_blob()
        if self._before is None or not blob.equals(self._before):
            self._store.put(MANIFEST, blob)

    def _drop_expired_segments(self) -> None:
        """Forget, unread, the segments in which every row has expired; the store may have dropped them by itself."""
        expired_until = self._expired_until
        if expired_until is None:
            return

        def unexpired(segments: list[SegmentInfo]) -> list[SegmentInfo]:
            return [segment for segment in segments if segment.newest > expired_until]

        for run in self._manifest.runs:
            run.segments = unexpired(run.segments)
        for merge in self._manifest.merges:
            merge.done = unexpired(merge.done)
        self._manifest.runs = [run for run in self._manifest.runs if run.segments]
        if not self._manifest.runs:
            self._manifest = Manifest()

    def _gather(self, low: Uint64s, high: Uint64s) -> Entries:
        """The entries of all runs with a place in one of the closed intervals, which are disjoint and ascending."""
        found = []
        for info, first, stop in self._touched(low, high):
            segment = self._shelf.open(info)
            rows = segment.find(low[first:stop], high[first:stop])
            if len(rows):
                found.append(segment.entries.take(rows))
        return Entries.concat(found)

    def _touched(self, low: Uint64s, high: Uint64s) -> Iterator[tuple[SegmentInfo, int, int]]:
        """The segments that may hold places in the closed intervals, with the first such interval and the one after."""
        for run in self._manifest.runs:
            for info in run.segments:
                first = int(np.searchsorted(high, np.uint64(info.first)))
                stop = int(np.searchsorted(low, np.uint64(info.last), side="right"))
                if first < stop:
                    yield info, first, stop

    def _live(self, entries: Entries) -> Entries:
        if self._expired_until is not None:
            entries = entries.filter(entries.written_at > self._expired_until)
        return consolidate(entries) if (entries.weight < 0).any() else entries
