"""The arrangement: an operator's state, a multiset of rows indexed by key, as a few sorted runs of immutable segments.

A batch appends one small run; `compaction` keeps the runs few. What is live is the sum over all runs. Rows are in order
of *place*: the upper half of the hash of their key, then 32 bits that tell the rows of a key apart and depend on the
layout (`operators.arrangement.layout`). So all rows of a key are found by one interval, and a single row of a key with
a million others by one number. A place narrows the search and decides nothing: two keys in one place cost time only.

A batch at time `now` does not see rows that have expired: those written a TTL ago, or, where an operator goes by the
times of its rows (`operators.rowtime`), those that are to be kept `until` then.

Layout *last write* is for operators that look up every key before they write it; see `last_write`.

Equal rows are *counted* (`entries.counted`) where only their number matters: merges make one entry of them with their
weight. That is so in layouts *multiset* and *timed*, and in layout *ordered* if the operator says so, but never with a
TTL, which runs for each row by itself. Nobody who reads may take one entry for one row; and of a weight, a part may be
taken back.

(The arrangement of differential dataflow and the trace of DBSP, with the blob store in the part of the allocator.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.arrangement import compaction, last_write
from rowkind.operators.arrangement.entries import UPPER, Entries, consolidate, counted
from rowkind.operators.arrangement.layout import UPPER_ORDERED, ArrangementSpec, places
from rowkind.operators.arrangement.manifest import Manifest, SegmentInfo
from rowkind.operators.arrangement.nearest_scan import reach_of_nearest
from rowkind.operators.arrangement.prefix_scan import Reach, reach_of_first, read
from rowkind.operators.arrangement.segment import Segment
from rowkind.operators.arrangement.segment_store import SegmentStore
from rowkind.operators.arrangement.store import MANIFEST, BlobStore
from rowkind.operators.columns.changes import Indices, Int64s, Mask, Uint64s
from rowkind.operators.columns.grouping import distinct, is_in, to_mask


@dataclass(frozen=True, slots=True)
class StateSize:
    """How much one shard keeps: live and not yet merged-away rows, and their bytes as stored.

    `expired` is how many rows the batch has let go of because their time was over.
    """

    rows: int = 0
    bytes: int = 0
    runs: int = 0
    expired: int = field(default=0, compare=False)

    def __add__(self, other: StateSize) -> StateSize:
        return StateSize(
            self.rows + other.rows, self.bytes + other.bytes, self.runs + other.runs, self.expired + other.expired
        )


@dataclass(frozen=True, slots=True)
class Finished:
    """What a batch left behind, and how many rows it read for compaction."""

    state: StateSize
    merged_rows: int

    @classmethod
    def total(cls, *parts: Finished) -> Finished:
        """What several arrangements left behind."""
        return cls(sum((each.state for each in parts), StateSize()), sum(each.merged_rows for each in parts))


def kept(store: BlobStore, name: str) -> StateSize:
    """How much an arrangement keeps of which nothing is read or written. Raises as `Manifest.from_blob` does."""
    blob = store.get(MANIFEST)
    return StateSize() if blob is None else _size(Manifest.from_blob(blob, name))


def _size(manifest: Manifest) -> StateSize:
    return StateSize(
        sum(run.rows for run in manifest.runs),
        sum(segment.bytes for segment in manifest.segments),
        len(manifest.runs),
    )


class Arrangement:
    """An arrangement of one shard, opened for one batch at time `now`.

    Lookups see the state before the batch; `append` takes what the batch adds; `finish` writes it and merges. Raises
    `StateLost` where an unexpired segment is missing from the store.
    """

    def __init__(self, store: BlobStore, spec: ArrangementSpec, now: int) -> None:
        self.layout = spec.layout
        self.now = now
        self._spec = spec
        self._of_key = UPPER_ORDERED if spec.layout == "ordered" else UPPER
        self._latest_first = spec.latest_first and not spec.replaces
        self._store = store
        self._segment_store = SegmentStore(store, spec.name)
        self._expired_until = spec.expired_until(now)
        self._summed = counted if spec.counts else consolidate
        self._merging = compaction.Merging(self._expired_until, spec.replaces, self._summed)
        blob = store.get(MANIFEST)
        self._manifest = Manifest() if blob is None else Manifest.from_blob(blob, spec.name)
        self._before = blob
        self._segments_before = list(self._manifest.segments)
        self._appended: list[Entries] = []
        self._read_in_vain = 0
        self._expired = 0
        self._drop_expired_segments()

    def alike(self, payload: pa.BinaryArray) -> pa.BinaryArray:
        """What rows are compared by."""
        return payload if self._spec.alike is None else self._spec.alike(payload)

    def places(self, hashes: Uint64s, sub_key: pa.BinaryArray, payload: pa.BinaryArray) -> Uint64s:
        """Where rows stand in it."""
        return places(self.layout, hashes, sub_key, self.alike(payload) if self.layout == "multiset" else payload)

    def written_at(self, payload: pa.BinaryArray) -> Int64s:
        """What rows that come now are said to be written at: now, or where they say it, until when they are kept."""
        until = self._spec.until
        return np.full(len(payload), self.now, np.int64) if until is None else until(payload)

    def first_after(self, place: int) -> int | None:
        """The first place after this one at which there is an entry, if only one that cancels another; None if none."""
        found = []
        for run in self._manifest.runs:
            info = next((info for info in run.segments if info.last > place), None)
            if info is not None:
                places_ = self._segment_store.open(info).entries.place
                found.append(int(places_[np.searchsorted(places_, np.uint64(place), side="right")]))
        return min(found, default=None)

    def lookup(self, hashes: Uint64s, less: Entries | None = None) -> Entries:
        """The live rows whose key has one of these hashes, each with the number of times it is there.

        There may be rows of other keys among them, as there always may be where keys are told by their hashes.
        `less` are entries to count in as if they had been appended already: what is left after a batch's retractions.
        """
        first = self.firsts(hashes)
        found = self._gather(first, first | ~self._of_key)
        if less is None:
            return self._live(found)
        return self.without(found, less.filter(is_in(less.place & self._of_key, first)))

    def without(self, stored: Entries, less: Entries) -> Entries:
        """The live ones of these entries after others that are to be appended; rows that come stay by themselves."""
        goes = less.weight < 0
        left = self._live(Entries.concat([stored, less.filter(goes)]))
        return left if goes.all() else Entries.concat([left, less.filter(~goes)])

    def finds(self, entries: Entries, hashes: Uint64s) -> Mask:
        """Which of these entries a lookup by these hashes would give, if they were there."""
        return is_in(entries.place & self._of_key, self.firsts(hashes))

    def firsts(self, hashes: Uint64s) -> Uint64s:
        """The places at which the rows of keys with these hashes begin, each once, ascending."""
        return distinct(hashes & self._of_key)

    def scan_prefix(self, firsts: Uint64s, enough: int, less: Entries, come: Entries | None) -> tuple[Entries, Reach]:
        """The first live rows from each of the places `firsts` on, and up to where these are all there are.

        Of every run at least `enough` entries are read from each place on, as long as there are so many. `less` are
        entries as for `lookup`, all of them rows of these keys. Where rows with one order key may be read in part,
        `come` are the rows that the batch brings; where they must be read together, None.
        """
        runs = self._manifest.runs
        reach = reach_of_first(self.whole(firsts), enough, runs, self._segment_store, come)
        entries = Entries.concat([less, *map(self._turned, read(reach, runs, self._segment_store))])
        live = self._live(entries.filter(reach.holds(entries)))
        needed = (1 + compaction.MOST_GARBAGE) * len(live) + 2 * len(less)
        self._read_in_vain += max(0, len(entries) - needed)
        return live, reach

    def whole(self, firsts: Uint64s) -> Reach:
        """All that the keys could have whose rows begin at these places."""
        return Reach.whole(firsts, firsts | ~self._of_key, latest_first=self._latest_first)

    def count(self, hashes: Uint64s, keys: pa.BinaryArray, less: Entries) -> Int64s:
        """How many live rows each of these keys has, without reading them; the keys must all differ.

        `less` are entries to count in, as in `lookup`.
        """
        order = np.argsort(hashes)
        first, keys = hashes[order] & self._of_key, keys.take(pa.array(order))
        last = first | ~self._of_key
        counts = np.zeros(len(hashes), np.int64)
        for info, start, stop in self._touched(first, last):
            part = slice(start, stop)
            segment = self._segment_store.open(info)
            counts[part] += segment.weigh(first[part], last[part], keys[part], self._expired_until)
        if len(less):
            counts += Segment(consolidate(less)).weigh(first, last, keys, self._expired_until)
        result = np.empty_like(counts)
        result[order] = counts
        return result

    def at(self, places: Uint64s, payload: pa.BinaryArray | None = None) -> Entries:
        """The live rows at these places, each with the number of times it is there.

        Where very many rows may share a place, `payload` says which payloads are looked for; others are left out.
        """
        wanted = distinct(places)
        if self._spec.replaces:
            return self._live(self._gather(wanted, wanted | ~UPPER))
        return self._live(self._gather(wanted, wanted, payload))

    def between(self, low: Uint64s, high: Uint64s) -> Entries:
        """The live rows with a place in one of these closed intervals, which are disjoint and ascending."""
        return self._live(self._gather(low, high))

    def nearest(
        self, low: Uint64s, high: Uint64s, enough: Int64s, *, backward: bool = False
    ) -> tuple[Entries, Uint64s]:
        """The live rows of these closed intervals from `low` on, and up to which place these are all there are.

        Of some run about `enough` entries are read of each, as long as there are so many. The intervals are disjoint
        and ascending. `backward`: they are read from `high` on, and down to that place.
        """
        reach = reach_of_nearest(low, high, enough, self._manifest.runs, self._segment_store, backward=backward)
        return self.between(reach if backward else low, high if backward else reach), reach

    def append(self, entries: Entries) -> None:
        """Add entries; a negative one must be the exact opposite of what a lookup gave. Not in layout *last write*."""
        assert not self._spec.replaces, "in this layout rows are replaced"
        self._appended.append(entries)

    def replace(self, entries: Entries, known: int) -> None:
        """In layout *last write*: for each key, which all differ, the row that comes, or a negative one that takes it.

        `known` is how many of these keys had a row, as a lookup gave it; one that goes keeps its written_at.
        """
        assert self._spec.replaces, "only in this layout does an entry replace"
        self._manifest.weight += int((entries.weight > 0).sum()) - known
        self._appended.append(last_write.of_batch(entries, self._manifest.next_run))

    def finish(self) -> Finished:
        """Write what was appended, do the batch's share of compaction and let go of what nobody needs."""
        manifest = self._manifest
        added = self._summed(self._turned(Entries.concat(self._appended)))
        self._appended = []
        if not self._spec.replaces:
            manifest.weight += int(added.weight.sum())
        assert manifest.weight >= 0, "an arrangement cannot lose more rows than it got"
        manifest.add_run(self._segment_store.write(added))
        merged_rows = 0
        if manifest.weight == 0:
            self._manifest = manifest = Manifest()
        else:
            merged_rows, expired = compaction.advance(
                manifest, self._segment_store, len(added), self._merging, self._read_in_vain
            )
            self._expired += expired
        self._segment_store.settle(self._segments_before, list(manifest.segments))
        self._write_manifest()
        return Finished(_size(manifest) + StateSize(expired=self._expired), merged_rows)

    def _write_manifest(self) -> None:
        if not self._manifest.runs:
            if self._before is not None:
                self._store.delete(MANIFEST, self._before.size)
            return
        blob = self._manifest.to_blob()
        if self._before is None or not blob.equals(self._before):
            self._store.put(MANIFEST, blob)

    def _drop_expired_segments(self) -> None:
        """Forget, unread, the segments in which every row has expired."""
        expired_until = self._expired_until
        if expired_until is None:
            return

        def unexpired(segments: list[SegmentInfo], merged_until: int = -1) -> list[SegmentInfo]:
            """Those that stay; of the others those behind what has been merged, which is in the merge, are counted."""
            gone = [segment for segment in segments if segment.newest <= expired_until]
            self._expired += sum(segment.rows for segment in gone if segment.first > merged_until)
            return [segment for segment in segments if segment.newest > expired_until]

        merged_until: dict[int, int] = {}
        for merge in self._manifest.merges:
            merge.done = unexpired(merge.done)
            merged_until |= dict.fromkeys(merge.inputs, -1 if merge.cursor is None else merge.cursor[0])
        for run in self._manifest.runs:
            run.segments = unexpired(run.segments, merged_until.get(run.number, -1))
        self._manifest.runs = [run for run in self._manifest.runs if run.segments]
        if not self._manifest.runs:
            self._manifest = Manifest()

    def _gather(self, low: Uint64s, high: Uint64s, payload: pa.BinaryArray | None = None) -> Entries:
        """The entries of all runs with a place in one of the closed intervals, which are disjoint and ascending.

        Where there is `payload`, only entries whose payload is among these.
        """
        found = []
        for info, first, stop in self._touched(low, high):
            segment = self._segment_store.open(info)
            rows = segment.find(low[first:stop], high[first:stop])
            if payload is not None and len(rows):
                rows = rows[to_mask(pc.is_in(_taken(segment.entries.payload, rows), value_set=payload))]
            if len(rows):
                found.append((segment, rows))
        if self._spec.replaces:
            return last_write.rows_at(found)
        return self._turned(Entries.concat([segment.entries.take(rows) for segment, rows in found]))

    def _touched(self, low: Uint64s, high: Uint64s) -> Iterator[tuple[SegmentInfo, int, int]]:
        """The segments that may hold places in the closed intervals, with the first such interval and the one after."""
        for run in self._manifest.runs:
            for info in run.segments:
                first = int(np.searchsorted(high, np.uint64(info.first)))
                stop = int(np.searchsorted(low, np.uint64(info.last), side="right"))
                if first < stop:
                    yield info, first, stop

    def _turned(self, entries: Entries) -> Entries:
        """Entries as they are stored from what they are, and the other way round."""
        return replace(entries, seq=~entries.seq) if self._latest_first else entries

    def _live(self, entries: Entries) -> Entries:
        if self._expired_until is not None:
            entries = entries.filter(entries.written_at > self._expired_until)
        return self._summed(entries) if (entries.weight < 0).any() else entries


def _taken(values: pa.BinaryArray, rows: Indices) -> pa.BinaryArray:
    """The values at these ascending rows, as a view where there is nothing in between."""
    first, count = int(rows[0]), len(rows)
    return values.slice(first, count) if int(rows[-1]) - first == count - 1 else values.take(pa.array(rows))
