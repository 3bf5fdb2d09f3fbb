"""Rank and deduplicate alone, over in-memory blobs: `python -m tests.bench.operator_rank [--rows N] [--batch N]`.

The first part measures a batch of retractions as partitions grow: the top 10 of partitions with 100, 10,000 and
1,000,000 rows. Each change updates a random row of its partition; values are all different, a hundred, or all equal.
The output per size: CPU ms of a batch of one change and, per change, of a batch of 1,000, and the number of rows read.
The second part measures rows/s of CPU of the strategies with little state: Top-3 and keep-last over 50,000 keys, with
insert-only input.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes
from rowkind.operators.columns.hashing import hash64
from rowkind.operators.operator import Operator
from rowkind.operators.rank.rank import Rank, RankSpec
from rowkind.operators.rank.ranking import Ranking
from tests.rows_read import rows_read

SIZES = (100, 10_000, 1_000_000)
KEYS = 50_000
"""The number of rows that each read of a segment returned."""


def main() -> None:
    """Run everything and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=100_000)
    parser.add_argument("--state", type=int, default=max(SIZES), help="rows of state at most")
    parser.add_argument("--only", choices=["retraction", "append"], default=None)
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    profile = cProfile.Profile() if arguments.profile else None
    if arguments.only != "append":
        for values in (1 << 50, 100, 1):
            for size in (each for each in SIZES if each <= arguments.state):
                _retraction(size, arguments.state, arguments.batch, values, profile)
        _queue(arguments.state, arguments.batch, profile)
    if arguments.only != "retraction":
        top = RankSpec(Ranking("row_number", 1, 3, strategy="append"))
        last = RankSpec(Ranking("row_number", 1, 1, "latest first", strategy="append"))
        for name, spec, descending in (
            ("Top-3, random order", top, False),
            ("keep-last by event time", last, True),
        ):
            batches = _arrivals(arguments.rows, arguments.batch, descending=descending)
            _append(name, Rank(spec), batches, profile)
    if profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)


def _retraction(size: int, most: int, batch_rows: int, different: int, profile: cProfile.Profile | None) -> None:
    """Measure the top 10 of at most 100 partitions of `size` rows with `different` values, `most` rows in all."""
    random = np.random.default_rng(7)
    partitions = min(100, most // size)
    rows = size * partitions
    values = random.integers(0, different, rows)
    operator = Rank(RankSpec(Ranking("row_number", 1, 10)))
    stores = {name: MemoryStore() for name in operator.arrangements}
    seq = 0
    for first in range(0, rows, batch_rows):
        numbers = np.arange(first, min(rows, first + batch_rows))
        batch = _changes(numbers, numbers % partitions, values[numbers], RowKind.INSERT, seq)
        operator.process(Batch(batch), stores, now=seq)
        seq += len(numbers)
    print(f"\ntop 10 of {partitions} partitions of {size} rows, {different if different < rows else 'all'} values")
    for changed in (1, 1000):
        taken, read = [], []
        for _ in range(20):
            numbers = np.unique(random.integers(0, rows, changed))
            before = _changes(numbers, numbers % partitions, values[numbers], RowKind.UPDATE_BEFORE, seq)
            values[numbers] = random.integers(0, different, len(numbers))
            after = _changes(numbers, numbers % partitions, values[numbers], RowKind.UPDATE_AFTER, seq + len(numbers))
            seq += 2 * len(numbers)
            started = time.process_time()
            with rows_read() as of_batch, _profiling(profile):
                operator.process(Batch(Changes.concat([before, after])), stores, now=seq)
            taken.append((time.process_time() - started) / len(numbers))
            read.append(sum(of_batch) / len(numbers))
        print(
            f"  {changed:5} updates a batch: {1000 * float(np.median(taken)):9.3f} ms and {np.median(read):9.1f} rows "
            f"read per update, worst batch {1000 * max(taken):.3f} ms per update"
        )


def _queue(size: int, batch_rows: int, profile: cProfile.Profile | None) -> None:
    """Measure the top 10 of one partition; every batch deletes the first 2,000 rows, as from a queue."""
    values = np.random.default_rng(7).permutation(size)
    at = np.argsort(values)
    operator = Rank(RankSpec(Ranking("row_number", 1, 10)))
    stores = {name: MemoryStore() for name in operator.arrangements}
    for first in range(0, size, batch_rows):
        numbers = np.arange(first, min(size, first + batch_rows))
        batch = _changes(numbers, 0 * numbers, values[numbers], RowKind.INSERT, first)
        operator.process(Batch(batch), stores, now=first)
    taken = []
    for first in range(0, size // 2, 2000):
        numbers = at[first : first + 2000]
        batch = _changes(numbers, 0 * numbers, values[numbers], RowKind.DELETE, size + first)
        started = time.process_time()
        with _profiling(profile):
            operator.process(Batch(batch), stores, now=size + first)
        taken.append(time.process_time() - started)
    print(f"\ntop 10 of a queue of {size} rows, 2000 taken a batch")
    quarters = [f"{1000 * float(np.mean(part)):.1f}" for part in np.array_split(taken, 4)]
    print(f"  ms a batch by quarter {' '.join(quarters)}, worst {1000 * max(taken):.1f}")


def _append(name: str, operator: Operator, batches: Iterator[Changes], profile: cProfile.Profile | None) -> None:
    stores = {name: MemoryStore() for name in operator.arrangements}
    taken, rows, out, state = [], 0, 0, None
    for batch in batches:
        started = time.process_time()
        with _profiling(profile):
            output = operator.process(Batch(batch), stores, now=rows)
        taken.append(time.process_time() - started)
        rows, out, state = rows + len(batch), out + len(output.rows), output.state
    print(f"\n{name}, {KEYS} keys: {rows} rows in, {out} out, state {state}")
    print(f"  {rows / sum(taken):12,.0f} rows/s, worst batch {max(taken):.3f} s")


def _arrivals(rows: int, batch_rows: int, *, descending: bool) -> Iterator[Changes]:
    """Yield insert-only rows, ordered by a time in almost ascending order, latest first, or by random numbers."""
    random = np.random.default_rng(7)
    for first in range(0, rows, batch_rows):
        numbers = np.arange(first, first + batch_rows)
        times, others = (numbers + random.integers(0, 1000, batch_rows)) * 1000, random.integers(0, 1 << 50, batch_rows)
        keys = random.integers(0, KEYS, batch_rows)
        yield _changes(numbers, keys, -times if descending else others, RowKind.INSERT, first)


@contextmanager
def _profiling(profile: cProfile.Profile | None) -> Iterator[None]:
    if profile:
        profile.enable()
    yield
    if profile:
        profile.disable()


def _changes(numbers: Any, keys: Any, values: Any, kind: RowKind, seq: int) -> Changes:
    """Return rows with 44 bytes of payload, ordered by a number of eight bytes."""
    count = len(numbers)
    key, order = (
        np.concatenate([np.ones((count, 1), np.uint8), _big_endian(column)], axis=1) for column in (keys, values)
    )
    order[:, 1] ^= 0x80
    payload = np.zeros((count, 44), np.uint8)
    payload[:, :8], payload[:, 8:16] = _big_endian(numbers), _big_endian(values)
    packed = _binary(key)
    return Changes(
        np.zeros(count, np.int8),
        np.full(count, kind, np.int8),
        hash64(packed),
        packed,
        _binary(order),
        np.arange(seq, seq + count),
        _binary(payload),
    )


def _big_endian(numbers: Any) -> Any:
    return numbers.astype(">i8").view(np.uint8).reshape(-1, 8)


def _binary(rows: Any) -> pa.BinaryArray:
    count, width = rows.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    data = pa.py_buffer(np.ascontiguousarray(rows))
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), data])


if __name__ == "__main__":
    main()
