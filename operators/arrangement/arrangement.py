"""Arrangements: an operator's state, a multiset of rows indexed by key, stored as a few sorted runs of segments.

Each batch appends one small run, and `compaction` keeps the number of runs small. The live rows are the sum over all
runs. Entries are ordered by *place*. An entry's place is its 64-bit sort position within a run: the upper half of the
key's hash, followed by 32 bits that distinguish the rows of a key and depend on the layout
(`operators.arrangement.layout`). One interval of places therefore covers all rows of a key, and a single row of a key
with a million rows can be found by its place. Places only narrow the search: two keys that share a place cost time, but
never give a wrong result.

Expired rows are invisible to a batch at time `now`: rows that were written at least a TTL before `now` or, if an
operator uses times of the rows (`operators.columns.rowtime`), rows whose `until` time has been reached.

Layout *last write* is for operators that look up every key before they write the key (`last_write`).

If only the number of equal rows matters, equal rows are *counted* (`summing.counted`): merges combine them into one
entry with their total weight. In layouts *multiset* and *timed*, equal rows are counted unless the spec says otherwise.
In layout *ordered*, they are counted if the spec says so. With a TTL, they are never counted, because the TTL runs for
each row separately. Readers must not assume that an entry is a single row: the weight of an entry may exceed 1, and a
retraction may reduce the weight without cancelling the entry.

(The design is that of arrangements in differential dataflow and of traces in DBSP, with the blob store as allocator.)
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.operators.arrangement import compaction, compiled, last_write
from rowkind.operators.arrangement.entries import UPPER, Entries
from rowkind.operators.arrangement.layout import UPPER_ORDERED, ArrangementSpec, places
from rowkind.operators.arrangement.manifest import Manifest, SegmentInfo
from rowkind.operators.arrangement.nearest_scan import reach_of_nearest
from rowkind.operators.arrangement.prefix_scan import Reach, reach_of_first, read
from rowkind.operators.arrangement.segment import weigh
from rowkind.operators.arrangement.segment_store import SegmentStore
from rowkind.operators.arrangement.store import MANIFEST, BlobStore
from rowkind.operators.arrangement.summing import consolidate, counted
from rowkind.operators.columns.changes import Indices, Int64s, Mask, Uint64s
from rowkind.operators.columns.grouping import distinct, is_in, to_mask


@dataclass(frozen=True, slots=True)
class StateSize:
    """The size of a shard's state: the number of stored rows, live or not yet merged away, and their size in bytes.

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
    """Return an arrangement's size, reading only its manifest. Raises the same errors as `Manifest.from_blob`."""
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
        self._rules = compiled.Liveness(self._expired_until, self._latest_first, spec.replaces)
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
        """Return the bytes that decide whether rows with the given payloads are equal."""
        return payload if self._spec.alike is None else self._spec.alike(payload)

    def places(self, hashes: Uint64s, sub_key: pa.BinaryArray, payload: pa.BinaryArray) -> Uint64s:
        """Return the places of rows in this arrangement."""
        return places(self.layout, hashes, sub_key, self.alike(payload) if self.layout == "multiset" else payload)

    def written_at(self, payload: pa.BinaryArray) -> Int64s:
        """Return the `written_at` of newly inserted rows: `now` or, if the spec has `until`, the result of `until`."""
        until = self._spec.until
        return np.full(len(payload), self.now, np.int64) if until is None else until(payload)

    def first_after(self, place: int) -> int | None:
        """Return the first place after `place` with an entry, even a cancelled one; None if there is no such place."""
        found = []
        for run in self._manifest.runs:
            info = next((info for info in run.segments if info.last > place), None)
            if info is not None:
                places_ = self._segment_store.open(info).place
                found.append(int(places_[np.searchsorted(places_, np.uint64(place), side="right")]))
        return min(found, default=None)

    def lookup(self, hashes: Uint64s, less: Entries | None = None) -> Entries:
        """Return the live rows whose key has one of the given hashes, each with its multiplicity as weight.

        The result may contain rows of other keys, because keys are found by the upper bits of their hashes. If `less`
        is given, its entries are treated as if they had already been appended. For example, the result is the state
        after a batch's retractions if `less` contains the retractions.
        """
        first = self.firsts(hashes)
        last = first | ~self._of_key
        if less is None or not len(less):
            return self._live_at(first, last)
        concerned = is_in(less.place & self._of_key, first)
        goes = less.weight < 0
        left = self._live_at(first, last, (less, np.flatnonzero(concerned & goes)))
        return Entries.concat([left, less.take(np.flatnonzero(concerned & ~goes))])

    def without(self, stored: Entries, less: Entries) -> Entries:
        """Return the live rows of `stored` after `less` is appended. Insertions in `less` remain separate entries."""
        goes = less.weight < 0
        left = self._live(Entries.concat([stored, less.filter(goes)]))
        return left if goes.all() else Entries.concat([left, less.filter(~goes)])

    def finds(self, entries: Entries, hashes: Uint64s) -> Mask:
        """Return which of the entries would be found by a lookup with these hashes if the entries were stored."""
        return is_in(entries.place & self._of_key, self.firsts(hashes))

    def firsts(self, hashes: Uint64s) -> Uint64s:
        """Return the first place of the rows of keys with these hashes: distinct places in ascending order."""
        return distinct(hashes & self._of_key)

    def scan_prefix(self, firsts: Uint64s, enough: int, less: Entries, come: Entries | None) -> tuple[Entries, Reach]:
        """Return the first live rows of each key, and the range in which the returned rows are complete.

        The rows of each key begin at a place in `firsts`. They are read up to the first point at which some run has
        `enough` entries of the key, or completely if no run has so many. `less` contains entries of these keys that are
        treated as appended, as in `lookup`. If it is enough to read some of the rows with the same order key, `come`
        contains the rows that the batch inserts. If rows with the same order key must be read together, `come` is None.
        """
        runs = self._manifest.runs
        reach = reach_of_first(self.whole(firsts), enough, runs, self._segment_store, come)
        held = less.filter(reach.holds(less))
        found = self._compiled(reach.firsts, reach.place, last=reach.seq, less=(held, np.arange(len(held))))
        if found is None:
            entries = Entries.concat([*map(self._turned, read(reach, runs, self._segment_store)), held])
            live, rows = self._live(entries), len(entries)
        else:
            live, rows = found.live, found.read
        needed = (1 + compaction.MOST_GARBAGE) * len(live) + 2 * len(less)
        self._read_in_vain += max(0, rows - needed)
        return live, reach

    def whole(self, firsts: Uint64s) -> Reach:
        """Return a range that covers all possible rows of the keys whose rows begin at the places `firsts`."""
        return Reach.whole(firsts, firsts | ~self._of_key, latest_first=self._latest_first)

    def count(self, hashes: Uint64s, keys: pa.BinaryArray, less: Entries) -> Int64s:
        """Return how many live rows each key has, without collecting the rows. The keys must be distinct.

        The entries in `less` are treated as appended, as in `lookup`.
        """
        order = np.argsort(hashes)
        first, keys = hashes[order] & self._of_key, keys.take(pa.array(order))
        last = first | ~self._of_key
        infos, start, stop = self._concerned(first, last)
        segments = [self._segment_store.open(info) for info in infos]
        intervals = compiled.Intervals(first, last, start, stop)
        counts = compiled.count([segment.view for segment in segments], intervals, keys, self._expired_until)
        if counts is None:
            counts = np.zeros(len(hashes), np.int64)
            for segment, *part in zip(segments, start.tolist(), stop.tolist(), strict=True):
                of = slice(*part)
                counts[of] += weigh(segment.entries, first[of], last[of], keys[of], self._expired_until)
        if len(less):
            counts += weigh(consolidate(less), first, last, keys, self._expired_until)
        result = np.empty_like(counts)
        result[order] = counts
        return result

    def at(self, places: Uint64s, payload: pa.BinaryArray | None = None) -> Entries:
        """Return the live rows at the given places, each with its multiplicity as weight.

        If `payload` is given, only rows with one of these payloads are returned. This is useful if very many rows may
        share a place.
        """
        wanted = distinct(places)
        if self._spec.replaces:
            return self._live_at(wanted, wanted | ~UPPER)
        return self._live_at(wanted, wanted, payload=payload)

    def between(self, low: Uint64s, high: Uint64s) -> Entries:
        """Return the live rows with places in the given closed intervals, which must be disjoint and ascending."""
        return self._live_at(low, high)

    def nearest(
        self, low: Uint64s, high: Uint64s, enough: Int64s, *, backward: bool = False
    ) -> tuple[Entries, Uint64s]:
        """Return the first live rows of each closed interval, and the place up to which the rows are complete.

        An interval is read from `low` upwards or, if `backward` is set, from `high` downwards, until some run has
        contributed about `enough` entries. `enough` has a number for each interval. The intervals must be disjoint and
        ascending.
        """
        reach = reach_of_nearest(low, high, enough, self._manifest.runs, self._segment_store, backward=backward)
        return self.between(reach if backward else low, high if backward else reach), reach

    def append(self, entries: Entries) -> None:
        """Add entries to the arrangement. In layout *last write*, use `replace` instead.

        A negative entry must cancel an entry that a lookup returned, or a part of that entry's weight.
        """
        assert not self._spec.replaces, "in this layout, `replace` writes the entries"
        self._appended.append(entries)

    def replace(self, entries: Entries, known: int) -> None:
        """Write one entry per key in layout *last write*: the new row, or a negative entry that deletes the key's row.

        The keys must be distinct. `known` is the number of these keys for which a lookup found a row. A negative entry
        must have the written_at of the row that it deletes.
        """
        assert self._spec.replaces, "in this layout, `append` writes the entries"
        self._manifest.weight += int((entries.weight > 0).sum()) - known
        self._appended.append(last_write.of_batch(entries, self._manifest.next_run))

    def finish(self) -> Finished:
        """Write the appended entries, do the batch's share of compaction, and delete blobs that are no longer used."""
        manifest = self._manifest
        added = self._summed(*map(self._turned, self._appended))
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
            """Return the unexpired segments. Count the rows of the others, except rows that a merge has copied."""
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

    def _live_at(
        self,
        low: Uint64s,
        high: Uint64s,
        less: tuple[Entries, Indices] | None = None,
        payload: pa.BinaryArray | None = None,
    ) -> Entries:
        """Return the live rows with places in the given closed intervals, which must be disjoint and ascending.

        `less`: entries, and the indices of those that are treated as stored. If `payload` is given, only rows with one
        of these payloads are returned.
        """
        found = self._compiled(low, high, less=less, payload=payload)
        if found is not None:
            return found.live
        entries = self._gather(low, high, payload)
        return self._live(entries if less is None else Entries.concat([entries, less[0].take(less[1])]))

    def _compiled(
        self,
        low: Uint64s,
        high: Uint64s,
        *,
        last: Int64s | None = None,
        less: tuple[Entries, Indices] | None = None,
        payload: pa.BinaryArray | None = None,
    ) -> compiled.Found | None:
        """Return what the compiled library finds in the intervals, or None. The arguments are those of `_live_at`.

        `last`: the greatest stored seq of rows at the last place of each interval.
        """
        infos, first, stop = self._concerned(low, high)
        views = [self._segment_store.open(info).view for info in infos]
        stored = None if less is None else (self._turned(less[0]), less[1])
        intervals = compiled.Intervals(low, high, first, stop, last)
        found = compiled.lookup(views, intervals, self._rules, less=stored, payloads=payload)
        if found is None:
            return None
        live = found.live
        if self._spec.replaces:
            live = replace(live, place=live.place & UPPER)
        elif found.negative and self._spec.counts:
            live = self._summed(live)
        return replace(found, live=live)

    def _gather(self, low: Uint64s, high: Uint64s, payload: pa.BinaryArray | None = None) -> Entries:
        """Return the entries of all runs with places in the given closed intervals.

        The intervals must be disjoint and ascending. If `payload` is given, only entries with one of these payloads are
        returned.
        """
        found = []
        for info, *part in zip(*self._concerned(low, high), strict=True):
            segment, of = self._segment_store.open(info), slice(*part)
            rows = segment.find(low[of], high[of])
            if payload is not None and len(rows):
                rows = rows[to_mask(pc.is_in(segment.entries.payload.take(pa.array(rows)), value_set=payload))]
            if len(rows):
                found.append((segment, rows))
        if self._spec.replaces:
            return last_write.rows_at(found)
        return self._turned(Entries.concat([segment.entries.take(rows) for segment, rows in found]))

    def _concerned(self, low: Uint64s, high: Uint64s) -> tuple[list[SegmentInfo], Indices, Indices]:
        """Return the segments that may have entries in the intervals, and the range of the intervals of each."""
        infos = [info for run in self._manifest.runs for info in run.segments]
        first = np.searchsorted(high, np.array([info.first for info in infos], np.uint64))
        stop = np.searchsorted(low, np.array([info.last for info in infos], np.uint64), side="right")
        some = np.flatnonzero(first < stop)
        return [infos[number] for number in some.tolist()], first[some], stop[some]

    def _turned(self, entries: Entries) -> Entries:
        """Convert entries from their stored form to their logical form, or the other way round."""
        return replace(entries, seq=~entries.seq) if self._latest_first else entries

    def _live(self, entries: Entries) -> Entries:
        if self._expired_until is not None:
            entries = entries.filter(entries.written_at > self._expired_until)
        return self._summed(entries) if (entries.weight < 0).any() else entries
