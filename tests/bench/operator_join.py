"""The join alone, over in-memory blobs: `python -m tests.bench.operator_join [--rows N] [--batch N] [--profile]`.

Batches have half orders and half payments; payments follow their orders. The scenarios add nothing, updates and deletes
of earlier rows, duplicate keys, or null-padded rows. The output per scenario: rows/s, seconds per 100,000 rows by
stage, the worst batch, and the cost in the first and the last quarter of the run.
"""

from __future__ import annotations

import argparse
import cProfile
import functools
import pstats
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement import compaction
from rowkind.operators.arrangement.arrangement import Arrangement
from rowkind.operators.arrangement.layout import Layout
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes
from rowkind.operators.columns.hashing import hash64
from rowkind.operators.join import input as input_module
from rowkind.operators.join import join as join_module
from rowkind.operators.join.input import Side
from rowkind.operators.join.join import Join, JoinKind, JoinSpec

HOUR = 3_600_000


@dataclass(frozen=True)
class Scenario:
    """The join and its layouts; `changed` is the share of changes that update or delete an earlier row."""

    name: str
    kind: JoinKind
    orders: Layout
    payments: Layout
    changed: float
    ttl_ms: int | None = None


SCENARIOS = (
    Scenario("inner, insertions only", "inner", "one row per key", "unique key", 0.0),
    Scenario("inner, 40 % updates and deletes", "inner", "one row per key", "unique key", 0.4),
    Scenario("inner, multisets, 40 % updates and deletes", "inner", "multiset", "multiset", 0.4),
    Scenario("left, 40 % updates and deletes", "left", "one row per key", "unique key", 0.4),
    Scenario("left, TTL, 40 % updates and deletes", "left", "one row per key", "unique key", 0.4, ttl_ms=HOUR),
)


def main() -> None:
    """Run all scenarios and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=100_000)
    parser.add_argument("--only", type=int, default=None, help="number of the only scenario to run")
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    for number, scenario in enumerate(SCENARIOS):
        if arguments.only in (None, number):
            profile = cProfile.Profile() if arguments.profile else None
            _report(scenario, *_run(scenario, arguments.rows, arguments.batch, profile), arguments.batch)
            if profile:
                pstats.Stats(profile).sort_stats("tottime").print_stats(30)


def _run(
    scenario: Scenario, rows: int, batch_rows: int, profile: cProfile.Profile | None
) -> tuple[list[dict[str, float]], int, Any]:
    side = functools.partial(Side, ttl_ms=scenario.ttl_ms, by_seq=True)
    spec = JoinSpec(scenario.kind, side(scenario.orders), side(scenario.payments), None, b"\0" * 5, b"\0" * 5)
    join = Join(spec)
    stores = {name: MemoryStore() for name in join.arrangements}
    batches, out, state = [], 0, None
    for number, changes in enumerate(_changes(scenario, rows, batch_rows)):
        with _stages() as stages:
            started = time.process_time()
            if profile:
                profile.enable()
            output = join.process(Batch(changes), stores, now=number * 1000)
            if profile:
                profile.disable()
            stages["all"] = time.process_time() - started
        batches.append(dict(stages))
        out += len(output.rows)
        state = output.state
    return batches, out, state


def _report(scenario: Scenario, batches: list[dict[str, float]], out: int, state: Any, batch_rows: int) -> None:
    per_100k = 100_000 / batch_rows
    total = sum(batch["all"] for batch in batches)
    print(f"\n{scenario.name}: {len(batches) * batch_rows} rows in, {out} out, state {state}")
    print(f"  {len(batches) * batch_rows / total:12,.0f} rows/s, worst batch {max(b['all'] for b in batches):.3f} s")
    quarter = max(1, len(batches) // 4)
    for name in sorted({name for batch in batches for name in batch}, key=lambda name: (name == "all", name)):
        values = [batch.get(name, 0.0) * per_100k for batch in batches]
        first, last = (sum(part) / quarter for part in (values[:quarter], values[-quarter:]))
        print(
            f"  {name:24} {sum(values) / len(values):.4f} s per 100,000 rows; "
            f"first quarter {first:.4f}, last {last:.4f}"
        )


@contextmanager
def _stages() -> Iterator[dict[str, float]]:
    """Measure the time spent in the stages of the join, while in the context."""
    seconds: dict[str, float] = defaultdict(float)
    patched: list[tuple[Any, str, Any]] = []

    def timed(owner: Any, name: str, label: str) -> None:
        function = owner.__dict__[name]
        patched.append((owner, name, function))
        inner: Callable[..., Any] = function.__func__ if isinstance(function, classmethod) else function

        @functools.wraps(inner)
        def wrapper(*arguments: Any, **options: Any) -> Any:
            started = time.process_time()
            try:
                return inner(*arguments, **options)
            finally:
                seconds[label] += time.process_time() - started

        setattr(owner, name, classmethod(wrapper) if isinstance(function, classmethod) else wrapper)

    timed(input_module, "resolve", "1 resolve")
    timed(Join, "_rows_of_touched_keys", "2 look up and number keys")
    timed(join_module.Pairs, "of", "3 pairs")
    timed(join_module, "pads", "4 pads")
    timed(join_module, "emit", "5 emitted")
    timed(Arrangement, "finish", "6 append and merge")
    timed(compaction, "advance", "6a of which merge")
    try:
        yield seconds
    finally:
        for owner, name, function in patched:
            setattr(owner, name, function)


def _changes(scenario: Scenario, rows: int, batch_rows: int) -> Iterator[Changes]:
    """Yield batches of changes; orders have 44 bytes of payload and payments 36."""
    random = np.random.default_rng(7)
    seq = 0
    for first in range(0, rows // 2, batch_rows // 2):
        orders = np.arange(first, first + batch_rows // 2)
        payments = orders - batch_rows // 10
        parts = []
        for side, numbers, width in ((0, orders, 44), (1, payments, 36)):
            count = round(len(numbers) * scenario.changed / 2)
            earlier = random.integers(0, max(first, 1), count) if first else numbers[:0]
            earlier = np.unique(earlier)
            earlier = earlier[earlier % 10 != 9]
            # A row has one version per change, and changes at most once, in the batch of its last digit.
            fresh = numbers[: len(numbers) - 2 * len(earlier)]
            old, new = (_columns(scenario, side, earlier, width, version) for version in (0, 1))
            parts += [
                (_columns(scenario, side, fresh, width, 0), RowKind.INSERT),
                (old, RowKind.UPDATE_BEFORE),
                (new, RowKind.UPDATE_AFTER),
            ]
        pieces = []
        for (side_of, key, sub_key, payload), kind in parts:
            count = len(key)
            pieces.append(
                Changes(
                    np.full(count, side_of, np.int8),
                    np.full(count, kind, np.int8),
                    hash64(key),
                    key,
                    sub_key,
                    np.arange(seq, seq + count),
                    payload,
                )
            )
            seq += count
        yield Changes.concat(pieces)


def _columns(
    scenario: Scenario, side: int, numbers: Any, width: int, version: int
) -> tuple[int, pa.BinaryArray, pa.BinaryArray, pa.BinaryArray]:
    layout = scenario.orders if side == 0 else scenario.payments
    key = _binary(np.concatenate([np.ones((len(numbers), 1), np.uint8), _big_endian(numbers)], axis=1))
    sub_key = key if layout == "unique key" else _binary(np.empty((len(numbers), 0), np.uint8))
    payload = np.full((len(numbers), width), side * 2 + version, np.uint8)
    payload[:, :8] = _big_endian(numbers)
    return side, key, sub_key, _binary(payload)


def _big_endian(numbers: Any) -> Any:
    return numbers.astype(">i8").view(np.uint8).reshape(-1, 8)


def _binary(rows: Any) -> pa.BinaryArray:
    count, width = rows.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    data = pa.py_buffer(np.ascontiguousarray(rows))
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), data])


if __name__ == "__main__":
    main()
