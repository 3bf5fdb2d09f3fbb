"""The arrangement against a plain dict of multisets: random batches, merges, TTL, restarts and lost batches.

After every batch the test compares all live rows, the blobs in the store and the merge work. It detects rows lost or
duplicated in a merge, in particular in a merge that is paused between batches. It also detects blobs deleted too early
or never, work beyond the fuel, and rows visible after they expire. Layouts that count equal rows are checked as well,
also over state of an older version that stored equal rows one by one.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest

from rowkind.operators.arrangement import compaction, prefix_scan, segment
from rowkind.operators.arrangement.arrangement import Arrangement, Finished
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import ArrangementSpec, Layout, places
from rowkind.operators.arrangement.manifest import Manifest
from rowkind.operators.arrangement.store import MANIFEST, MemoryStore
from rowkind.operators.arrangement.summing import consolidate
from rowkind.operators.columns.changes import Uint64s, binary
from rowkind.operators.columns.hashing import hash64
from tests.seeds import drawn, seeds

pytestmark = pytest.mark.sampled(8)

LAYOUTS: tuple[Layout, ...] = ("one row per key", "unique key", "multiset", "ordered")
BATCHES = 24
Top = tuple[int, Entries | None]
TOPS: tuple[Top, ...] = tuple(itertools.product((1, 3, 1000), (None, Entries.empty())))
"""How many rows are enough, and the incoming entries; the last combination reads everything."""

Entry = tuple[bytes | None, bytes, bytes, int, int, int]
"""Key, sub-key, payload, written_at, seq, mark."""


@dataclass
class Kind:
    """The way an arrangement is opened; with `severally`, equal rows are stored one by one, as older versions did."""

    layout: Layout
    ttl_ms: int | None
    by_number: bool
    severally: bool

    @property
    def counts(self) -> bool:
        """Return whether equal rows are counted, so that only their marks distinguish them."""
        return self.ttl_ms is None and (self.layout == "multiset" or self.by_number)

    def open(self, store: MemoryStore, now: int) -> Arrangement:
        """Open the arrangement; with one of the TTLs the rows of a place are ordered latest first."""
        latest_first = self.ttl_ms == 40
        arrangement = Arrangement(
            store,
            ArrangementSpec("test", self.layout, self.ttl_ms, latest_first=latest_first, by_number=self.by_number),
            now,
        )
        if self.severally:
            arrangement._summed = consolidate
        return arrangement

    def alike(self, rows: Counter[Entry]) -> Counter[Entry]:
        """Return the rows without the columns in which counted equal rows may be exchanged (written_at, seq)."""
        if not self.counts:
            return rows
        found: Counter[Entry] = Counter()
        for (key, sub_key, payload, _, _, mark), count in rows.items():
            found[key, sub_key, payload, 0, 0, mark] += count
        return found


@pytest.mark.parametrize("ttl_ms", [None, 3, 40])
@pytest.mark.parametrize("segment_rows", [1, 4, 16])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("number", seeds())
def test_an_arrangement_holds_what_a_dict_of_multisets_holds(
    number: int, layout: Layout, segment_rows: int, ttl_ms: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live rows equal the dict's after every batch, the store has only needed blobs, and merge work is bounded."""
    monkeypatch.setattr(segment, "SEGMENT_ROWS", segment_rows)
    monkeypatch.setattr(compaction, "SMALL_RUN", 2)
    monkeypatch.setattr(compaction, "FUEL", 2)
    monkeypatch.setattr(prefix_scan, "MANY", 1)
    [generator] = drawn(f"{layout}, {segment_rows}, {ttl_ms}", [number])
    changing = Changing.of(generator, layout, ttl_ms)
    old_batches, rested = generator.choice([0, BATCHES // 3]), 0
    for batch in range(BATCHES):
        changing.pass_time(generator.choice([0, 1, 1, 2]))
        changing.kind.severally = batch < old_batches
        shrinks = batch > BATCHES * 2 // 3 or generator.random() < 0.2
        before, live = changing.store.copy(), changing.live
        # A batch that does not commit leaves the store unchanged, and runs again with other contents.
        for _ in range(1 + (generator.random() < 0.1)):
            changing.store, changing.live = before.copy(), live
            changing.batch(segment_rows, shrinks=shrinks)
            _assert_state(changing.kind, changing.store, changing.now, changing.live, TOPS[batch % len(TOPS)])
            rested += bool(_manifest(changing.store).merges)
    assert rested or ttl_ms == 3 or segment_rows > 4, "no merge rested between batches"
    changing.assert_nothing_is_left()


@dataclass
class Changing:
    """A store under random changes, and the rows that an arrangement must find in it."""

    generator: random.Random
    kind: Kind
    keys: list[bytes | None]
    store: MemoryStore = field(default_factory=MemoryStore)
    live: Counter[Entry] = field(default_factory=Counter)
    now: int = 0
    seq: int = 0

    @classmethod
    def of(cls, generator: random.Random, layout: Layout, ttl_ms: int | None) -> Changing:
        """Return an empty store with a random number of keys; the order may be by number."""
        by_number = layout == "ordered" and generator.random() < 0.5
        keys = [b"key %d" % number for number in range(generator.choice([1, 4, 40]))]
        return cls(generator, Kind(layout, ttl_ms, by_number, severally=False), [None, *keys])

    def pass_time(self, ms: int) -> None:
        """Advance the clock and drop the rows that expire meanwhile."""
        self.now += ms
        ttl = self.kind.ttl_ms
        self.live = Counter({row: count for row, count in self.live.items() if ttl is None or row[3] + ttl > self.now})

    def batch(self, segment_rows: int, *, shrinks: bool) -> None:
        """Append random rows and retractions, and check that merges stay within the fuel that these rows pay for."""
        generator, before, step = self.generator, self.live, Counter[Entry]()
        for _ in range(generator.choice([0, 1, 3, 12])):
            if self.live and generator.random() < (0.8 if shrinks else 0.3):
                step[generator.choice(list(self.live.elements()))] -= 1
            else:
                self.seq += 1
                seq = generator.choice([self.seq, max(1, self.seq - 2)])
                step[_random_entry(generator, self.keys, self.now, seq)] += 1
            self.live = Counter({one: count for one, count in (before + step).items() if count})
        finished = _finish(self.store, self.kind, self.now, step)
        appended = sum(1 for count in step.values() if count)
        # Rows of one place and seq are merged together; here there are up to four of them.
        assert finished.merged_rows <= compaction.FUEL * appended + max(segment_rows, 4), "merged beyond the fuel"

    def assert_nothing_is_left(self) -> None:
        """Retract all rows and check that no blobs are left, at the latest once the retracted rows have expired."""
        _finish(self.store, self.kind, self.now, Counter({entry: -count for entry, count in self.live.items()}))
        if self.kind.ttl_ms is None:
            assert list(self.store) == [], "blobs are left although all rows were retracted"
        _finish(self.store, self.kind, self.now + (self.kind.ttl_ms or 0), Counter())
        assert list(self.store) == [], "blobs are left although all rows have expired"


def _assert_state(kind: Kind, store: MemoryStore, now: int, live: Counter[Entry], top: Top) -> None:
    arrangement = kind.open(store, now)
    named = {info.name for info in _manifest(store).segments}
    assert set(store) - {MANIFEST} == named, "the store does not hold just what the manifest names"
    hashes = _hashes([key for key, *_ in live], [entry[2] for entry in live])
    assert kind.alike(_read(arrangement.lookup(hashes))) == kind.alike(live)
    some = Counter({entry: count for entry, count in live.items() if entry[2].endswith((b"0", b"1"))})
    at_places = kind.alike(_read(arrangement.at(_entries(some, kind.layout).place)))
    assert all(at_places[entry] == count for entry, count in kind.alike(some).items())
    _assert_top(kind, arrangement, hashes, live, top)


def _assert_top(kind: Kind, arrangement: Arrangement, hashes: Uint64s, live: Counter[Entry], top: Top) -> None:
    """Check that a scan from the top returns all rows up to its reach, and in the end every row."""
    firsts, everything = arrangement.firsts(hashes), _entries(live, kind.layout)
    for enough, come in (top, TOPS[-1]):
        # If rows are counted, those with one order key are read together.
        divides = come is not None and not kind.counts
        found, reach = arrangement.scan_prefix(firsts, enough, Entries.empty(), come if divides else None)
        assert kind.alike(_read(found)) == kind.alike(_read(everything.filter(reach.holds(everything))))
        assert divides or len(reach.divided) == 0
    assert reach.is_whole.all()


def _finish(store: MemoryStore, kind: Kind, now: int, step: Counter[Entry]) -> Finished:
    arrangement = kind.open(store, now)
    arrangement.append(_entries(step, kind.layout))
    return arrangement.finish()


def _manifest(store: MemoryStore) -> Manifest:
    blob = store.get(MANIFEST)
    return Manifest() if blob is None else Manifest.from_blob(blob, "test")


def _random_entry(generator: random.Random, keys: list[bytes | None], now: int, seq: int) -> Entry:
    payload = b"row %d" % generator.randint(0, 3)
    return generator.choice(keys), b"sub %d" % generator.randint(0, 2), payload, now, seq, generator.randint(0, 1)


def _hashes(keys: list[bytes | None], payloads: list[bytes]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    values = [payload if key is None else key for key, payload in zip(keys, payloads, strict=True)]
    return hash64(binary(values))


def _entries(step: Counter[Entry], layout: Layout) -> Entries:
    keys, subs, payloads, written_at, seq, mark = ([entry[column] for entry in step] for column in range(6))
    hashes = _hashes(keys, payloads)
    return Entries(
        places(layout, hashes, binary(subs), binary(payloads)),
        hashes,
        binary(keys),
        binary(subs),
        binary(payloads),
        np.array(list(step.values()), np.int64),
        np.array(written_at, np.int64),
        np.array(seq, np.int64),
        np.array(mark, np.int8),
    )


def _read(entries: Entries) -> Counter[Entry]:
    columns = (entries.key, entries.sub_key, entries.payload)
    numbers = (entries.written_at, entries.seq, entries.mark)
    rows = zip(*(column.to_pylist() for column in columns), *(column.tolist() for column in numbers), strict=True)
    found: Counter[Entry] = Counter()
    for row, weight in zip(rows, entries.weight.tolist(), strict=True):
        assert weight > 0
        found[row] += weight
    return found
