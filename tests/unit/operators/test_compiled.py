"""The library in C against NumPy: same rows, same blobs, for random entries in all layouts.

The order of rows with equal places and seqs is arbitrary, so the rows are compared in sorted order.

`library.kernels` is replaced to turn the library off. The tests fail if the library was not compiled although there
is a compiler.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from rowkind.operators.arrangement import compiled, segment_format, summing
from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.arrangement.entries import UPPER, Entries
from rowkind.operators.arrangement.layout import ArrangementSpec, Layout, places
from rowkind.operators.arrangement.segment import encode
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.columns import library
from rowkind.operators.columns.changes import Uint64s, binary
from rowkind.operators.columns.grouping import distinct
from rowkind.operators.columns.hashing import hash64
from tests.numpy_only import numpy_only
from tests.seeds import drawn, seeds

LAYOUTS: tuple[Layout, ...] = ("one row per key", "unique key", "multiset", "ordered", "last write")
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no compiler, so there is no library")


def rows_of(entries: Entries) -> list[tuple[Any, ...]]:
    """The rows with all columns, sorted."""
    columns = (column.tolist() if isinstance(column, np.ndarray) else column.to_pylist() for column in entries.columns)
    return sorted(zip(*columns, strict=True), key=repr)


def ascend(entries: Entries) -> bool:
    """Whether the rows are in order of (place, seq)."""
    order = list(zip(entries.place.tolist(), entries.seq.tolist(), strict=True))
    return order == sorted(order)


def random_entries(rng: random.Random, count: int, layout: Layout = "multiset") -> Entries:
    """Entries of few keys, payloads and seqs, so that many are equal; some columns have one value or one width."""
    width = rng.choice((None, None, 0, 3))
    words = [bytes(rng.choices(b"ab", k=rng.randrange(6) if width is None else width)) for _ in range(5)]
    nulls = rng.random() < 0.3 and layout != "last write"
    keys = [None if nulls and rng.random() < 0.2 else b"%d" % rng.randrange(6) for _ in range(count)]
    payload = binary(rng.choice(words) for _ in range(count))
    sub_key = binary(rng.choice((b"", b"s")) if layout in ("unique key", "ordered") else b"" for _ in range(count))
    key = binary(keys)
    hashes = hash64(key)
    times = [rng.choice((1, 5, 9))] * count if rng.random() < 0.3 else [rng.choice((1, 5, 9)) for _ in range(count)]
    return Entries(
        places(layout, hashes, sub_key, payload),
        hashes,
        key,
        sub_key,
        payload,
        np.array([rng.choice((-1, 1, 1, 2)) for _ in range(count)], np.int64),
        np.array(times, np.int64),
        np.array([rng.randrange(4) for _ in range(count)], np.int64),
        np.array([rng.choice((0, 0, 1)) for _ in range(count)], np.int8),
    )


def test_the_library_is_compiled_where_a_compiler_is() -> None:
    """Otherwise all tests would compare NumPy with itself."""
    assert library.kernels() is not None


def test_sums_are_those_of_numpy() -> None:
    """Of several parts with equal entries, views of larger entries, empty parts, and one part in order."""
    for rng in drawn("sums", seeds(60)):
        parts = [random_entries(rng, rng.randrange(12)) for _ in range(rng.randrange(5))]
        parts += [random_entries(rng, 9).slice(2, 7), summing.consolidate(random_entries(rng, 9))]
        found = summing.consolidate(*parts), summing.counted(*parts)
        assert all(map(ascend, found))
        with numpy_only():
            assert [rows_of(each) for each in found] == [
                rows_of(summing.consolidate(*parts)),
                rows_of(summing.counted(*parts)),
            ]


def test_very_many_entries_that_differ_only_in_their_payload_are_summed() -> None:
    """The library compares entries with one (place, seq) in pairs, so it leaves too many of them to NumPy."""
    rng = random.Random(1)
    entries = Entries.concat([random_entries(rng, 400)])
    same = Entries(
        np.zeros(400, np.uint64), *entries.columns[1:5], entries.weight, entries.written_at, entries.seq, entries.mark
    )
    found = summing.consolidate(same)
    with numpy_only():
        assert rows_of(found) == rows_of(summing.consolidate(same))


def test_blobs_are_those_of_numpy() -> None:
    """Segments are named by their content, so every byte must be the same."""
    for rng in drawn("blobs", seeds(60)):
        entries = random_entries(rng, rng.randrange(1, 40))
        entries = entries.slice(rng.randrange(len(entries)), len(entries))
        name, blob = encode(entries)
        with numpy_only():
            assert encode(entries)[0] == name
        assert rows_of(segment_format.from_blob(blob)) == rows_of(entries)


@pytest.mark.parametrize("ttl_ms", [None, 4])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_lookups_are_those_of_numpy(layout: Layout, ttl_ms: int | None) -> None:
    """By key, by place, by interval, of the first rows and by number, with entries treated as stored."""
    for rng in drawn(f"lookups {layout} {ttl_ms}", seeds(25)):
        latest = layout == "ordered" and rng.random() < 0.5
        spec = ArrangementSpec("rows", layout, ttl_ms, latest_first=latest)
        store = MemoryStore()
        for _ in range(rng.randrange(8)):
            with patch("rowkind.operators.arrangement.segment.SEGMENT_ROWS", rng.choice((2, 5, 100))):
                _write(rng, Arrangement(store, spec, 5))
        for question in _questions(rng, layout):
            answers = []
            for with_library in (True, False):
                arrangement = Arrangement(store, spec, 6)
                if with_library:
                    answers.append(question(arrangement))
                else:
                    with numpy_only():
                        answers.append(question(arrangement))
            assert answers[0] == answers[1]


def _write(rng: random.Random, rows: Arrangement) -> None:
    """Insert some rows, and retract some of those that are there."""
    come = random_entries(rng, rng.randrange(1, 12), rows.layout)
    come = come.relabel(weight=abs(come.weight))
    if rows.layout == "last write":
        first = np.unique(come.hash, return_index=True)[1]
        come = come.take(first)
        known = rows.lookup(come.hash)
        deleted = np.isin(come.hash, known.hash) & (np.array([rng.random() for _ in first]) < 0.3)
        written = come.written_at.copy()
        written[deleted] = [int(known.written_at[known.hash == code][0]) for code in come.hash[deleted]]
        rows.replace(Entries(*come.columns[:5], np.where(deleted, -1, 1), written, come.seq, come.mark), len(known))
    else:
        there = rows.lookup(come.hash)
        goes = there.take(np.flatnonzero(np.array([rng.random() for _ in range(len(there))]) < 0.5))
        rows.append(-goes)
        rows.append(come)
    rows.finish()


def _questions(rng: random.Random, layout: Layout) -> list[Callable[[Arrangement], Any]]:
    keys = binary(b"%d" % number for number in rng.sample(range(8), rng.randrange(1, 7)))
    hashes = hash64(keys)
    asked: list[Callable[[Arrangement], Any]] = [
        lambda rows: rows_of(rows.lookup(hashes)),
        lambda rows: rows_of(rows.at(places(layout, hashes, binary([b""] * len(keys)), keys))),
        lambda rows: rows_of(rows.between(np.zeros(1, np.uint64), np.full(1, ~np.uint64(0)))),
    ]
    if layout == "last write":
        return asked
    share = rng.random()

    def less(rows: Arrangement) -> Entries:
        there = rows.between(np.zeros(1, np.uint64), np.full(1, ~np.uint64(0)))
        some = np.flatnonzero(hash64(there.payload) % np.uint64(100) < np.uint64(round(100 * share)))
        goes = there.take(some)
        return Entries.concat([-goes, goes.slice(0, len(goes) // 2).relabel(mark=np.full(len(goes) // 2, 3, np.int8))])

    asked += [
        lambda rows: rows_of(rows.lookup(hashes, less(rows))),
        lambda rows: rows.count(hashes, keys, -less(rows).filter(less(rows).weight < 0)).tolist(),
        lambda rows: rows.count(hashes, keys, less(rows)).tolist(),
    ]
    if layout == "ordered":
        for enough in (1, 3, 100):
            for come in (None, Entries.empty()):
                asked.append(lambda rows, enough=enough, come=come: _first(rows, hashes, enough, come))
    return asked


def _first(rows: Arrangement, hashes: Uint64s, enough: int, come: Entries | None) -> Any:
    live, reach = rows.scan_prefix(rows.firsts(hashes), enough, Entries.empty(), come)
    return rows_of(live), reach.place.tolist(), reach.seq.tolist()


def test_many_rows_in_one_interval_are_found() -> None:
    """There are more rows than the library has room for at first, and more segments than intervals."""
    count = 5000
    entries = random_entries(random.Random(2), count)
    entries = Entries(
        entries.hash & UPPER, *entries.columns[1:5], np.ones(count, np.int64), entries.written_at,
        np.arange(count), entries.mark,
    )  # fmt: skip
    store = MemoryStore()
    spec = ArrangementSpec("rows", "one row per key")
    for first in range(0, count, 1000):
        rows = Arrangement(store, spec, 5)
        rows.append(entries.slice(first, first + 1000))
        rows.finish()
    asked = distinct(entries.hash)[:2]
    found = Arrangement(store, spec, 5).lookup(asked)
    assert len(found) > 1000
    with numpy_only():
        assert rows_of(found) == rows_of(Arrangement(store, spec, 5).lookup(asked))
    bounds = np.column_stack([asked & UPPER, asked | ~UPPER])
    assert rows_of(Arrangement(store, spec, 5).between(bounds[:, 0], bounds[:, 1])) == rows_of(found)


def test_a_view_keeps_what_it_describes() -> None:
    """Entries over strided arrays are viewed through copies, which live as long as they are needed."""
    entries = random_entries(random.Random(3), 20)
    every_second = Entries(
        *(
            column[::2] if isinstance(column, np.ndarray) else column.take(pa.array(range(0, 20, 2)))
            for column in entries.columns
        )
    )
    view, kept = compiled.view_of(every_second)
    assert view[0] == 10
    assert kept
    found = summing.consolidate(every_second, every_second)
    with numpy_only():
        assert rows_of(found) == rows_of(summing.consolidate(every_second, every_second))
