"""Arrangements: an operator's state, a multiset of rows indexed by key, as a few sorted runs of immutable segments.

Each batch appends one small run; `compaction` keeps the number of runs small. The live rows are the sum over all runs.
Rows are ordered by *place*. An entry's place is its 64-bit sort position within a run: the upper half of the key's
hash, followed by 32 bits that distinguish the rows of a key and depend on the layout (`operators.arrangement.layout`).
One interval of places therefore covers all rows of a key, and a single place finds one row of a key with a million
rows. A place only narrows the search: if two keys share a place, this costs time, but never gives a wrong result.

A batch at time `now` does not see expired rows: those written at least a TTL earlier or, if an operator uses its rows'
own times (`operators.columns.rowtime`), those whose `until` time has been reached.

Layout *last write* is for operators that look up every key before they write it; see `last_write`.

If only the number of equal rows matters, they are *counted* (`entries.counted`): merges combine them into one entry
with their total weight. This applies to layouts *multiset* and *timed* unless the spec says otherwise, and to layout
*ordered* if the spec says so. It never applies with a TTL, which runs for each row separately. Readers must not assume
that an entry is a single row: its weight may exceed 1, and may be reduced in part.

(The design is that of arrangements in differential dataflow and of traces in DBSP, with the blob store as allocator.)
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
    """The size of a shard's state: the rows that are live or not yet merged away, and their size as stored, in bytes.

    `expired` is the number of rows that the batch dropped because they had expired.
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
    """The size of the state after a batch, and the number of rows that the batch read for compaction."""

    state: StateSize
    merged_rows: int

    @classmethod
    def total(cls, *parts: Finished) -> Finished:
        """Add up the results of several arrangements."""
        return cls(sum((each.state for each in parts), StateSize()), sum(each.merged_rows for each in parts))


def kept(store: BlobStore, name: str) -> StateSize:
    """Return an arrangement's size without opening it. Raises the same errors as `Manifest.from_blob`."""
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

    Lookups see the state before the batch. `append` adds the batch's entries, and `finish` writes them and merges runs.
    Raises `StateLost` if an unexpired segment is missing from the store.
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
        """Return the bytes by which rows with these payloads are compared."""
        return payload if self._spec.alike is None else self._spec.alike(payload)

    def places(self, hashes: Uint64s, sub_key: pa.BinaryArray, payload: pa.BinaryArray) -> Uint64s:
        """Return the places of rows in this arrangement."""
        return places(self.layout, hashes, sub_key, self.alike(payload) if self.layout == "multiset" else payload)

    def written_at(self, payload: pa.BinaryArray) -> Int64s:
        """Return the `written_at` of newly inserted rows: `now` or, if the spec has `until`, the result of `until`."""
        until = self._spec.until
        return np.full(len(payload), self.now, np.int64) if until is None else until(payload)

    def first_after(self, place: int) -> int | None:
        """Return the first place after `place` that has an entry, even a cancelled entry; None if there is none."""
        found = []
        for run in self._manifest.runs:
            info = next((info for info in run.segments if info.last > place), None)
            if info is not None:
                places_ = self._segment_store.open(info).entries.place
                found.append(int(places_[np.searchsorted(places_, np.uint64(place), side="right")]))
        return min(found, default=None)

    def lookup(self, hashes: Uint64s, less: Entries | None = None) -> Entries:
        """Return the live rows whose key has one of these hashes, each with its multiplicity as weight.

        The result may contain rows of other keys, because keys are found by their hashes. The entries in `less`, if
        given, are included as if they had already been appended: the result is then the state after a batch's
        retractions.
        """
        first = self.firsts(hashes)
        found = self._gather(first, first | ~self._of_key)
        if less is None:
            return self._live(found)
        return self.without(found, less.filter(is_in(less.place & self._of_key, first)))

    def without(self, stored: Entries, less: Entries) -> Entries:
        """Return the live rows of `stored` after `less` is appended; insertions in `less` stay separate entries."""
        goes = less.weight < 0
        left = self._live(Entries.concat([stored, less.filter(goes)]))
        return left if goes.all() else Entries.concat([left, less.filter(~goes)])

    def finds(self, entries: Entries, hashes: Uint64s) -> Mask:
        """Return which of these entries a lookup by these hashes would return if they were stored."""
        return is_in(entries.place & self._of_key, self.firsts(hashes))

    def firsts(self, hashes: Uint64s) -> Uint64s:
        """Return the distinct places, ascending, at which the rows of keys with these hashes begin."""
        return distinct(hashes & self._of_key)

    def scan_prefix(self, firsts: Uint64s, enough: int, less: Entries, come: Entries | None) -> tuple[Entries, Reach]:
        """Return the first live rows starting at each place in `firsts`, and the reach within which they are complete.

        At least `enough` entries of every run are read per place, if the run has that many. `less` has entries to
        include, as in `lookup`; all of them belong to these keys. `come` has the rows that the batch inserts if rows
        with the same order key may be read in part; it is None if they must be read together.
        """
        runs = self._manifest.runs
        reach = reach_of_first(self.whole(firsts), enough, runs, self._segment_store, come)
        entries = Entries.concat([less, *map(self._turned, read(reach, runs, self._segment_store))])
        live = self._live(entries.filter(reach.holds(entries)))
        needed = (1 + compaction.MOST_GARBAGE) * len(live) + 2 * len(less)
        self._read_in_vain += max(0, len(entries) - needed)
        return live, reach

    def whole(self, firsts: Uint64s) -> Reach:
        """Return a reach that covers all possible rows of the keys whose rows begin at these places."""
        return Reach.whole(firsts, firsts | ~self._of_key, latest_first=self._latest_first)

    def count(self, hashes: Uint64s, keys: pa.BinaryArray, less: Entries) -> Int64s:
        """Return how many live rows each key has, without collecting the rows. The keys must be distinct.

        `less` has entries to include, as in `lookup`.
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
        """Return the live rows at these places, each with its multiplicity as weight.

        If very many rows may share a place, `payload` restricts the result to rows with one of these payloads.
        """
        wanted = distinct(places)
        if self._spec.replaces:
            return self._live(self._gather(wanted, wanted | ~UPPER))
        return self._live(self._gather(wanted, wanted, payload))

    def between(self, low: Uint64s, high: Uint64s) -> Entries:
        """Return the live rows with places in these closed intervals, which must be disjoint and ascending."""
        return self._live(self._gather(low, high))

    def nearest(
        self, low: Uint64s, high: Uint64s, enough: Int64s, *, backward: bool = False
    ) -> tuple[Entries, Uint64s]:
        """Return the first live rows of each closed interval, and the place up to which these rows are complete.

        An interval is read from `low` upwards or, if `backward` is set, from `high` downwards, until about `enough`
        entries of one run have been read. The intervals must be disjoint and ascending.
        """
        reach = reach_of_nearest(low, high, enough, self._manifest.runs, self._segment_store, backward=backward)
        return self.between(reach if backward else low, high if backward else reach), reach

    def append(self, entries: Entries) -> None:
        """Add entries; not for layout *last write*.

        A negative entry must cancel all or part of an entry from a lookup.
        """
        assert not self._spec.replaces, "in this layout, `replace` writes the entries"
        self._appended.append(entries)

    def replace(self, entries: Entries, known: int) -> None:
        """Write one entry per key in layout *last write*: the new row, or a negative entry that deletes the key's row.

        The keys must be distinct. `known` is the number of keys that had a row, according to a lookup. A negative entry
        has the written_at of the row that it deletes.
        """
        assert self._spec.replaces, "in this layout, `append` writes the entries"
        self._manifest.weight += int((entries.weight > 0).sum()) - known
        self._appended.append(last_write.of_batch(entries, self._manifest.next_run))

    def finish(self) -> Finished:
        """Write the appended entries, do the batch's share of compaction, and delete blobs no longer needed."""
        manifest = self._manifest
        added = self._summed(self._turned(Entries.concat(self._appended)))
        self._appended = []
        if not self._spec.replaces:
            manifest.weight += int(added.weight.sum())
        assert manifest.weight >= 0, "an arrangement cannot lose more rows than it received"
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
        """Drop the segments in which every row has expired, without reading them."""
        expired_until = self._expired_until
        if expired_until is None:
            return

        def unexpired(segments: list[SegmentInfo], merged_until: int = -1) -> list[SegmentInfo]:
            """Return the unexpired segments; count the rows of the others, unless a merge has already copied them."""
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
        """Return the entries of all runs with places in these closed intervals, which must be disjoint and ascending.

        If `payload` is given, only entries with one of these payloads are returned.
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
        """Yield each segment that may have entries in the closed intervals, with the index range of those intervals."""
        for run in self._manifest.runs:
            for info in run.segments:
                first = int(np.searchsorted(high, np.uint64(info.first)))
                stop = int(np.searchsorted(low, np.uint64(info.last), side="right"))
                if first < stop:
                    yield info, first, stop

    def _turned(self, entries: Entries) -> Entries:
        """Convert entries from their stored form to their logical form, or the other way round."""
        return replace(entries, seq=~entries.seq) if self._latest_first else entries

    def _live(self, entries: Entries) -> Entries:
        if self._expired_until is not None:
            entries = entries.filter(entries.written_at > self._expired_until)
        return self._summed(entries) if (entries.weight < 0).any() else entries


def _taken(values: pa.BinaryArray, rows: Indices) -> pa.BinaryArray:
    """Return the values at these ascending rows, as a view if the rows are contiguous."""
    first, count = int(rows[0]), len(rows)
    return values.slice(first, count) if int(rows[-1]) - first == count - 1 else values.take(pa.array(rows))
