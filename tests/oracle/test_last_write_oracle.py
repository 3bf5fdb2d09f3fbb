"""Layout *last write* against a plain dict: random batches, merges, TTL, and keys that share a place or a hash.

These tests detect rows that return after they were replaced or deleted, in particular when a merge drops the tombstone.
They also detect rows lost or duplicated, rows visible after they expire, and blobs that are left behind.
"""

from __future__ import annotations

import numpy as np
import pytest

from rowkind.operators.arrangement import compaction, segment
from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.layout import ArrangementSpec
from rowkind.operators.arrangement.manifest import Manifest
from rowkind.operators.arrangement.store import MANIFEST, MemoryStore
from rowkind.operators.columns.changes import Uint64s, binary
from tests.seeds import drawn, seeds

pytestmark = pytest.mark.sampled(8)

BATCHES = 40

Row = tuple[bytes, int, int]
"""Payload, written_at, seq."""


@pytest.mark.parametrize("ttl_ms", [None, 3, 40])
@pytest.mark.parametrize("segment_rows", [1, 4, 16])
@pytest.mark.parametrize("places", [1, 3, 1000])
@pytest.mark.parametrize("number", seeds())
def test_an_arrangement_that_replaces_holds_what_a_dict_holds(
    number: int, places: int, segment_rows: int, ttl_ms: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live rows equal the dict's after every batch, and a state without rows leaves no blob."""
    monkeypatch.setattr(segment, "SEGMENT_ROWS", segment_rows)
    monkeypatch.setattr(compaction, "SMALL_RUN", 2)
    monkeypatch.setattr(compaction, "FUEL", 2)
    [generator] = drawn(f"{places}, {segment_rows}, {ttl_ms}", [number])
    keys = [b"key %d" % key for key in range(generator.choice([4, 40]))]
    store, live, now, rested = MemoryStore(), dict[bytes, Row](), 0, 0
    for batch in range(BATCHES):
        now += generator.choice([0, 1, 1, 2])
        live = {key: row for key, row in live.items() if ttl_ms is None or row[1] + ttl_ms > now}
        step: dict[bytes, Row | None] = {}
        for key in generator.sample(keys, generator.choice([0, 1, 3, len(keys) // 2])):
            if generator.random() < (0.7 if batch > BATCHES // 2 else 0.3):
                if key in live:
                    step[key] = None
            else:
                step[key] = (b"row %d" % generator.randint(0, 3), now, generator.randint(0, 5))
        live = _finish(_open(store, ttl_ms, now), places, live, step)
        assert _read(_open(store, ttl_ms, now), places, keys) == live
        manifest = _manifest(store)
        assert set(store) - {MANIFEST} == {info.name for info in manifest.segments}
        rested += bool(manifest.merges)
    assert rested or ttl_ms == 3 or segment_rows > 4, "no merge rested between batches"
    live = _finish(_open(store, ttl_ms, now), places, live, dict.fromkeys(live))
    assert live == {}
    _finish(_open(store, ttl_ms, now + (ttl_ms or 0)), places, {}, {})
    assert list(store) == [], "blobs are left although there are no rows"


def test_what_says_that_a_row_has_gone_does_not_stay_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a merge of all runs, hardly any tombstones are left."""
    monkeypatch.setattr(segment, "SEGMENT_ROWS", 16)
    monkeypatch.setattr(compaction, "SMALL_RUN", 4)
    store, keys = MemoryStore(), [b"key %d" % number for number in range(1000)]
    row: Row = b"row", 0, 0
    live = _finish(_open(store, None, 0), 1000, {}, dict.fromkeys(keys, row))
    live = _finish(_open(store, None, 0), 1000, live, dict.fromkeys(keys[:990]))
    for _ in range(5):
        live = _finish(_open(store, None, 0), 1000, live, {keys[-1]: row})
    assert sum(run.rows for run in _manifest(store).runs) <= compaction.MOST_GARBAGE * 10 + 16
    assert _read(_open(store, None, 0), 1000, keys) == live


def _open(store: MemoryStore, ttl_ms: int | None, now: int) -> Arrangement:
    return Arrangement(store, ArrangementSpec("test", "last write", ttl_ms), now)


def _finish(
    arrangement: Arrangement, places: int, live: dict[bytes, Row], step: dict[bytes, Row | None]
) -> dict[bytes, Row]:
    """Append a step and return the rows after it."""
    keys = list(step)
    rows = [row or live[key] for key, row in step.items()]
    payloads, written_at, seqs = ([row[column] for row in rows] for column in range(3))
    hashes = _hashes(keys, places)
    entries = Entries(
        hashes & np.uint64(0xFFFFFFFF00000000),
        hashes,
        binary(keys),
        binary([b""] * len(keys)),
        binary(payloads),
        np.array([-1 if row is None else 1 for row in step.values()], np.int64),
        np.array(written_at, np.int64),
        np.array(seqs, np.int64),
        np.zeros(len(keys), np.int8),
    )
    arrangement.replace(entries, len(live.keys() & step.keys()))
    arrangement.finish()
    after = live | {key: row for key, row in step.items() if row is not None}
    return {key: row for key, row in after.items() if step.get(key, row) is not None}


def _hashes(keys: list[bytes], places: int) -> Uint64s:
    """Return hashes whose upper halves take few values, some of them equal as a whole."""
    numbers = np.array([int(key.split()[1]) for key in keys], np.uint64)
    return ((numbers % np.uint64(places)) << np.uint64(40)) | (numbers // np.uint64(2))


def _read(arrangement: Arrangement, places: int, keys: list[bytes]) -> dict[bytes, Row]:
    found = arrangement.lookup(_hashes(keys, places))
    assert (found.weight == 1).all()
    rows = zip(found.payload.to_pylist(), found.written_at.tolist(), found.seq.tolist(), strict=True)
    result = dict(zip(found.key.to_pylist(), rows, strict=True))
    assert len(result) == len(found)
    return result


def _manifest(store: MemoryStore) -> Manifest:
    blob = store.get(MANIFEST)
    return Manifest() if blob is None else Manifest.from_blob(blob, "test")
