"""The guarantees of the arrangement, one by one: stored rows, expiry, and errors."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pyarrow as pa
import pytest

from rowkind.operators.arrangement import compaction, segment
from rowkind.operators.arrangement.arrangement import Arrangement, Finished
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import ArrangementSpec, Layout, places
from rowkind.operators.arrangement.manifest import Manifest
from rowkind.operators.arrangement.segment_format import FORMAT
from rowkind.operators.arrangement.store import MANIFEST, MemoryStore
from rowkind.operators.columns.changes import binary
from rowkind.operators.columns.hashing import hash64
from rowkind.operators.errors import StateCorrupted, StateFormatUnknown, StateLost


def entries(
    payloads: list[bytes],
    *,
    key: bytes = b"key",
    weight: int = 1,
    written_at: int = 0,
    seqs: list[int] | None = None,
    layout: Layout = "multiset",
) -> Entries:
    """Return entries of one key, one per payload, with seqs from 0 unless given."""
    count = len(payloads)
    keys, subs, rows = binary([key] * count), binary([b""] * count), binary(payloads)
    hashes = hash64(keys)
    return Entries(
        places(layout, hashes, subs, rows),
        hashes,
        keys,
        subs,
        rows,
        np.full(count, weight),
        np.full(count, written_at),
        np.array(range(count) if seqs is None else seqs, np.int64),
        np.zeros(count, np.int8),
    )


def put(store: MemoryStore, *parts: Entries, ttl_ms: int | None = None, now: int = 0) -> Finished:
    """Append these entries as one batch."""
    arrangement = Arrangement(store, ArrangementSpec("rows", "multiset", ttl_ms), now)
    for part in parts:
        arrangement.append(part)
    return arrangement.finish()


def rows(store: MemoryStore, *, ttl_ms: int | None = None, now: int = 0, key: bytes = b"key") -> list[bytes]:
    """Return the live rows of a key, sorted."""
    found = Arrangement(store, ArrangementSpec("rows", "multiset", ttl_ms), now).lookup(hash64(binary([key])))
    units = found.payload.take(pa.array(np.repeat(np.arange(len(found)), found.weight)))
    return sorted(units.to_pylist())


def test_a_batch_that_changes_nothing_touches_no_blob() -> None:
    """An empty batch writes neither a segment nor a manifest."""
    store = MemoryStore()
    put(store)
    assert list(store) == []
    put(store, entries([b"a"]))
    before = store.copy()
    put(store)
    assert {name: store.get(name) for name in store} == {name: before.get(name) for name in before}


def test_what_comes_and_goes_within_a_batch_is_never_written() -> None:
    """Entries that cancel within a batch are never written."""
    store = MemoryStore()
    put(store, entries([b"a"]), entries([b"a"], weight=-1))
    assert list(store) == []


def test_retracting_all_rows_leaves_no_blob_even_while_a_merge_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """If all rows are retracted, the runs, finished portions of a merge and the manifest are deleted."""
    monkeypatch.setattr(segment, "SEGMENT_ROWS", 2)
    monkeypatch.setattr(compaction, "SMALL_RUN", 8)
    monkeypatch.setattr(compaction, "FUEL", 0)
    store = MemoryStore()
    parts = [entries([b"%d %d" % (batch, row) for row in range(4)]) for batch in range(4)]
    for part in parts:
        put(store, part)
    blob = store.get(MANIFEST)
    assert blob is not None
    assert Manifest.from_blob(blob, "rows").merges
    put(store, *(part.relabel(weight=-part.weight) for part in parts))
    assert list(store) == []


def test_a_segment_shared_by_two_runs_stays_until_both_are_gone() -> None:
    """Segments with equal content share one blob, which is deleted once no run needs it."""
    store = MemoryStore()
    put(store, entries([b"a"]), entries([b"x"], key=b"other"))
    part = entries([b"b", b"c"])
    put(store, part)
    put(store, part)
    assert len(list(store)) == 3
    assert rows(store) == [b"a", b"b", b"b", b"c", b"c"]


def test_a_row_is_invisible_from_written_at_plus_ttl_on() -> None:
    """A row is visible until 1 ms before `written_at` plus the TTL."""
    store = MemoryStore()
    put(store, entries([b"a"], written_at=100), ttl_ms=10, now=100)
    assert rows(store, ttl_ms=10, now=109) == [b"a"]
    assert rows(store, ttl_ms=10, now=110) == []


def test_a_ttl_may_be_raised() -> None:
    """The TTL at the time of the lookup decides whether a row is visible, not the one at the time of the write."""
    store = MemoryStore()
    put(store, entries([b"a"], written_at=0), ttl_ms=10, now=0)
    assert rows(store, ttl_ms=100, now=50) == [b"a"]


def test_expired_segments_are_dropped_unread() -> None:
    """Expired segments are dropped even if their blobs are missing, and the manifest with the last one."""
    store = MemoryStore()
    put(store, entries([b"a"], written_at=0), ttl_ms=10, now=0)
    for name in set(store) - {MANIFEST}:
        store.delete(name, 0)
    put(store, ttl_ms=10, now=10)
    assert list(store) == []


def test_rows_that_expire_are_counted_once() -> None:
    """An expired row is counted once, whether it is dropped with its segment, in a merge, or in both."""
    store = MemoryStore()
    expired = 0
    for batch in range(60):
        one = entries([b"%d" % number for number in range(40)], key=b"k%d" % batch, written_at=batch)
        expired += put(store, one, ttl_ms=20, now=batch).state.expired
    assert 0 < expired <= 40 * 40
    expired += put(store, ttl_ms=20, now=1_000).state.expired
    assert expired == 60 * 40


def test_rows_that_expired_in_a_merge_do_not_keep_the_state_from_emptying() -> None:
    """After rows have expired in a merge, retracting the others leaves no blob."""
    store = MemoryStore()
    young = [entries([b"%d" % number], written_at=9, seqs=[number]) for number in range(4)]
    put(store, entries([b"old"], written_at=0), young[0], ttl_ms=10, now=9)
    for part in young[1:]:
        put(store, part, ttl_ms=10, now=12)
    assert rows(store, ttl_ms=10, now=12) == [b"0", b"1", b"2", b"3"]
    put(store, *(part.relabel(weight=-part.weight) for part in young), ttl_ms=10, now=13)
    assert list(store) == []


def test_a_missing_segment_that_has_not_expired_is_an_error_that_names_it() -> None:
    """`StateLost` names the arrangement and the blob."""
    store = MemoryStore()
    put(store, entries([b"a"]))
    (name,) = set(store) - {MANIFEST}
    store.delete(name, 0)
    with pytest.raises(StateLost, match=name) as error:
        rows(store)
    assert (error.value.arrangement, error.value.blob) == ("rows", name)


def test_blobs_of_another_format_are_refused_by_name() -> None:
    """Blobs with an unknown format version and truncated blobs are refused with their names."""
    store = MemoryStore()
    put(store, entries([b"a"]))
    (name,) = set(store) - {MANIFEST}
    manifest, blob = store.get(MANIFEST), store.get(name)
    assert manifest is not None
    assert blob is not None
    store.put(name, pa.py_buffer(blob.to_pybytes().replace(FORMAT, b"rowkind segment 9\n")))
    with pytest.raises(StateFormatUnknown, match="segment 9"):
        rows(store)
    store.put(name, blob.slice(0, blob.size // 2))
    with pytest.raises(StateCorrupted, match=name):
        rows(store)
    store.put(MANIFEST, pa.py_buffer(b"rowkind manifest 9\n{}"))
    with pytest.raises(StateFormatUnknown, match="manifest 9"):
        rows(store)
    store.put(MANIFEST, manifest.slice(0, manifest.size - 5))
    with pytest.raises(StateCorrupted, match=MANIFEST):
        rows(store)


def test_segments_are_cut_by_rows_and_by_bytes() -> None:
    """No segment exceeds its limits of rows and bytes unless it is a single row, even if row sizes differ widely."""
    store = MemoryStore()
    small = [b"%d" % number for number in range(segment.SEGMENT_ROWS + 1)]
    large = [b"x" * (1 << 20) + b"%d" % number for number in range(30)]
    put(store, entries(small), entries(large, key=b"large"))
    blob = store.get(MANIFEST)
    assert blob is not None
    for info in Manifest.from_blob(blob, "rows").segments:
        assert info.rows <= segment.SEGMENT_ROWS
        assert info.bytes <= 2 * segment.SEGMENT_BYTES + (1 << 20)


def test_each_row_is_rewritten_a_logarithmic_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over many small batches, merges rewrite each row about once per size class, and few runs remain."""
    monkeypatch.setattr(compaction, "SMALL_RUN", 4)
    monkeypatch.setattr(segment, "SEGMENT_ROWS", 64)
    store, batches, merged, most_runs = MemoryStore(), 1024, 0, 0
    for batch in range(batches):
        finished = put(store, entries([b"%d %d" % (batch, row) for row in range(4)], seqs=[batch] * 4))
        merged += finished.merged_rows
        most_runs = max(most_runs, finished.state.runs)
    classes = math.ceil(math.log(batches, compaction.FACTOR))
    assert merged <= 4 * batches * classes
    assert most_runs <= 2 * compaction.FACTOR * classes


def test_what_has_cancelled_out_does_not_stay_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """If most stored rows have cancelled out, everything is merged, regardless of the sizes of the runs."""
    monkeypatch.setattr(compaction, "SMALL_RUN", 4)
    monkeypatch.setattr(segment, "SEGMENT_ROWS", 16)
    store = MemoryStore()
    everything = entries([b"%d" % row for row in range(1000)])
    put(store, everything)
    put(store, everything.slice(0, 990).relabel(weight=np.full(990, -1)))
    for batch in range(5):
        finished = put(store, entries([b"late %d" % batch]))
    assert finished.state.rows <= compaction.MOST_GARBAGE * 15 + 16
    assert len(rows(store)) == 15


def test_many_equal_rows_of_one_key_are_merged_in_bounded_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A place with more rows than a segment is split by seq, and opposite entries in it still cancel."""
    monkeypatch.setattr(compaction, "SMALL_RUN", 4)
    monkeypatch.setattr(compaction, "FUEL", 1)
    monkeypatch.setattr(segment, "SEGMENT_ROWS", 8)
    store = MemoryStore()
    for batch in range(40):
        finished = put(store, entries([b"same"] * 10, seqs=list(range(10 * batch, 10 * batch + 10))))
        assert finished.merged_rows <= 10 + 8
    for batch in range(39):
        put(store, entries([b"same"] * 10, seqs=list(range(10 * batch, 10 * batch + 10)), weight=-1))
    assert rows(store) == [b"same"] * 10
    for _ in range(200):
        finished = put(store, entries([b"other"], key=b"other"), entries([b"other"], key=b"other", weight=-1))
    assert finished.state.rows <= compaction.MOST_GARBAGE * 10 + 8


def test_more_rows_of_one_place_and_seq_than_a_segment_holds_survive_a_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows with one place and one seq cannot be split, so a merge handles them in one portion."""
    monkeypatch.setattr(segment, "SEGMENT_ROWS", 1)
    store = MemoryStore()
    payloads = [b"%d" % number for number in range(5)]
    for batch in range(6):
        arrangement = Arrangement(store, ArrangementSpec("rows", "one row per key"), 0)
        arrangement.append(entries(payloads, seqs=[7] * 5, written_at=batch, layout="one row per key"))
        arrangement.finish()
    assert rows(store) == sorted(payloads * 6)


def test_lookup_counts_in_what_is_not_appended_yet() -> None:
    """A lookup subtracts the batch's retractions that are passed to it."""
    store = MemoryStore()
    put(store, entries([b"a", b"b"]))
    arrangement = Arrangement(store, ArrangementSpec("rows", "multiset"), 0)
    left = arrangement.lookup(hash64(binary([b"key"])), less=entries([b"a"], weight=-1))
    assert left.payload.to_pylist() == [b"b"]


def test_a_single_row_is_found_without_reading_the_rest_of_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding a single row of a key with very many rows costs one search per run."""
    store = MemoryStore()
    many = entries([b"%d" % row for row in range(50_000)])
    put(store, many)
    taken: list[int] = []
    take = Entries.take
    monkeypatch.setattr(Entries, "take", lambda self, rows: taken.append(len(rows)) or take(self, rows))
    found = Arrangement(store, ArrangementSpec("rows", "multiset"), 0).at(many.place[:3])
    assert len(found) == 3
    assert sum(taken) <= 6


def test_rows_are_counted_by_key_without_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts by key equal those of a lookup, for expired rows, retractions and keys whose places overlap."""
    monkeypatch.setattr(segment, "SEGMENT_ROWS", 50)
    store = MemoryStore()
    many = entries([b"%d" % row for row in range(300)], key=b"many", written_at=5)
    put(store, many, entries([b"few"], key=b"few", written_at=5), entries([b"old"] * 40, key=b"many"))
    shares = entries([b"%d" % row for row in range(30)], key=b"shares", written_at=5)
    upper = np.uint64(0xFFFFFFFF << 32)
    shares = dataclasses.replace(shares, place=(shares.place & ~upper) | (many.place[:30] & upper))
    put(store, shares, many.slice(0, 100).relabel(weight=np.full(100, -1)))
    keys = binary([b"none", b"many", b"few"])
    counted = Arrangement(store, ArrangementSpec("rows", "multiset", 10), 12).count(
        hash64(keys), keys, entries([b"few"], key=b"few", written_at=5, weight=-1)
    )
    assert counted.tolist() == [0, 200, 0]
