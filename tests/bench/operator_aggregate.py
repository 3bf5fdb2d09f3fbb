"""The aggregate alone, over in-memory blobs: `python -m tests.bench.operator_aggregate [--rows N] [--profile]`.

Rows with a group number and an amount arrive in batches. In the scenarios with updates, that share of the changes
replaces earlier rows. The output per scenario: rows/s of CPU, the worst batch, CPU seconds per 100,000 rows in the
first and the last quarter of the run, and the size of the state. Decoding is not included: arguments are slices of
payloads of fixed width.

At the end, the benchmark compares the cost of 100,000 changes with and without pre-aggregation, for more and more
groups, including blocks and the final operator. `partial_aggregate.WORTH` is derived from this.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rowkind.operators.aggregate.accumulators import AccumulatorCall
from rowkind.operators.aggregate.aggregate import Aggregate
from rowkind.operators.aggregate.partial import add_up, partial
from rowkind.operators.aggregate.spec import AggregateSpec
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.block import Block
from rowkind.operators.columns.changes import Changes
from rowkind.operators.columns.hashing import hash64
from rowkind.operators.columns.packed_columns import fixed_width

BIGINT, DOUBLE = pa.int64(), pa.float64()
COUNT, SUM = AccumulatorCall("count", BIGINT), AccumulatorCall("sum", BIGINT, "amount", BIGINT)
DOUBLES = AccumulatorCall("sum", DOUBLE, "price", DOUBLE)
EXTREMES = (AccumulatorCall("min", BIGINT, "amount", BIGINT), AccumulatorCall("max", BIGINT, "amount", BIGINT))
GREATEST = AccumulatorCall("max", DOUBLE, "price", DOUBLE)
DISTINCT = AccumulatorCall("count", BIGINT, "amount", BIGINT, distinct=True)


@dataclass(frozen=True)
class Scenario:
    """The calls and the number of groups; `changed` is the share of changes that update an earlier row."""

    name: str
    calls: tuple[AccumulatorCall, ...]
    groups: int
    changed: float = 0.0
    two_phase: bool = False


SCENARIOS = (
    Scenario("count and sum, 100,000 groups, insertions only", (COUNT, SUM), 100_000),
    Scenario("count and sum, 100,000 groups, 40 % updates", (COUNT, SUM), 100_000, 0.4),
    Scenario("sum of doubles, 100,000 groups, 40 % updates", (DOUBLES,), 100_000, 0.4),
    Scenario("count, sum, max of doubles, 500,000 groups, insertions only", (COUNT, DOUBLES, GREATEST), 500_000),
    Scenario("min and max, 100,000 groups, insertions only", EXTREMES, 100_000),
    Scenario("min and max, 100,000 groups, 40 % updates", EXTREMES, 100_000, 0.4),
    Scenario("min and max, one group, 40 % updates", EXTREMES, 1, 0.4),
    Scenario("count distinct, 1,000 groups, 40 % updates", (DISTINCT,), 1000, 0.4),
    Scenario("count and sum, 100 groups, 40 % updates", (COUNT, SUM), 100, 0.4),
    Scenario("count and sum, 100 groups, 40 % updates, two phases", (COUNT, SUM), 100, 0.4, two_phase=True),
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
            _run(scenario, arguments.rows, arguments.batch, cProfile.Profile() if arguments.profile else None)
    if arguments.only is None:
        _compare_phases(arguments.batch)


def _compare_phases(batch_rows: int, batches: int = 8) -> None:
    """Print CPU ms per batch in one phase and in two, for more and more groups; the first two batches do not count."""
    print("\ncount and sum, 40 % updates: rows sent per change, ms and MB per batch added up, ms and MB as they are")
    for groups in (100, 1000, 10_000, 20_000, 50_000, 100_000, 1_000_000):
        spec = AggregateSpec((COUNT, SUM), _arguments, _group, _result)
        figures = []
        for prepare in (add_up, lambda _, changes: changes):
            aggregate, taken, sent, size = Aggregate(spec), [], [], []
            stores = {name: MemoryStore() for name in aggregate.arrangements}
            scenario = Scenario("", spec.calls, groups, 0.4)
            for number, changes in enumerate(_changes(scenario, batches * batch_rows, batch_rows)):
                started = time.process_time()
                block = Block(Batch(prepare(spec, changes))).to_bytes()
                aggregate.process(Block.from_bytes(block).batch, stores, now=number)
                taken.append(time.process_time() - started)
                sent.append(len(Block.from_bytes(block).changes) / len(changes))
                size.append(len(block) / 1e6)
            figures.append([float(np.mean(part[2:])) for part in (sent, taken, size)])
        (ratio, summed, small), (_, plain, large) = figures
        print(f"  {ratio:6.2f}{1000 * summed:10.1f}{small:6.1f}{1000 * plain:10.1f}{large:6.1f}", flush=True)


def _run(scenario: Scenario, rows: int, batch_rows: int, profile: cProfile.Profile | None) -> None:
    spec = AggregateSpec(scenario.calls, _arguments, _group, _result, retracts=scenario.changed > 0)
    aggregate = Aggregate(spec)
    stores = {name: MemoryStore() for name in aggregate.arrangements}
    seconds, out, state, sent = [], 0, None, 0
    for number, changes in enumerate(_changes(scenario, rows, batch_rows)):
        started = time.process_time()
        if profile:
            profile.enable()
        if scenario.two_phase:
            changes = partial(spec, changes)  # noqa: PLW2901 - the rows that are sent instead
        output = aggregate.process(Batch(changes), stores, now=number * 1000)
        if profile:
            profile.disable()
        seconds.append(time.process_time() - started)
        out, state, sent = out + len(output.rows), output.state, sent + len(changes)
    per_100k, quarter = 100_000 / batch_rows, max(1, len(seconds) // 4)
    first, last = (sum(part) / quarter * per_100k for part in (seconds[:quarter], seconds[-quarter:]))
    print(f"\n{scenario.name}: {rows} rows in, {sent} sent, {out} out, state {state}")
    print(
        f"  {len(seconds) * batch_rows / sum(seconds):12,.0f} rows/s, worst batch {max(seconds):.3f} s; "
        f"per 100,000 rows first quarter {first:.4f} s, last {last:.4f} s",
        flush=True,
    )
    if profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


def _changes(scenario: Scenario, rows: int, batch_rows: int) -> Iterator[Changes]:
    """Yield batches of changes; a row's amount follows from its number, so that it can be retracted later."""
    random = np.random.default_rng(7)
    live, taken = 0, np.empty(0, np.int64)
    for first in range(0, rows, batch_rows):
        updates = round(batch_rows * scenario.changed / 2) if live else 0
        # Some of the existing rows.
        old = random.integers(0, max(live, 1), updates)
        gone = np.setdiff1d(old, taken)
        taken = np.concatenate([taken, gone])
        fresh = np.arange(live, live + batch_rows - len(gone))
        live += len(fresh)
        numbers = np.concatenate([gone, fresh])
        kinds = np.repeat([RowKind.DELETE, RowKind.INSERT], [len(gone), len(fresh)]).astype(np.int8)
        group = (numbers * 2654435761 >> 8) % scenario.groups
        amount = (numbers * 40503) % 1_000_003
        payload = np.stack([group, amount], axis=1).astype("<i8")
        key = np.concatenate(
            [np.ones((len(group), 1), np.uint8), group.astype(">i8").view(np.uint8).reshape(-1, 8)], axis=1
        )
        keys = fixed_width(np.ascontiguousarray(key), 9, len(group))
        nothing = fixed_width(b"", 0, len(group))
        seq = np.arange(first, first + batch_rows)
        yield Changes(
            np.zeros(batch_rows, np.int8), kinds, hash64(keys), keys, nothing, seq, fixed_width(payload, 16, len(group))
        )


def _numbers(payloads: pa.BinaryArray) -> Any:
    offsets = np.frombuffer(payloads.buffers()[1], np.int32, len(payloads) + 1, payloads.offset * 4)
    data = payloads.buffers()[2]
    return np.frombuffer(data, "<i8", 2 * len(payloads), int(offsets[0])).reshape(-1, 2) if data else np.empty((0, 2))


def _arguments(payloads: pa.BinaryArray) -> Mapping[str, pa.Array]:
    amount = np.ascontiguousarray(_numbers(payloads)[:, 1])
    return {"amount": pa.array(amount), "price": pa.array(amount / 100)}


def _group(payloads: pa.BinaryArray) -> pa.BinaryArray:
    return fixed_width(np.ascontiguousarray(_numbers(payloads)[:, 0]), 8, len(payloads))


def _result(columns: Sequence[pa.Array]) -> pa.BinaryArray:
    filled = [column.cast(DOUBLE).to_numpy(zero_copy_only=False) for column in columns]
    return fixed_width(np.stack(filled, axis=1), 8 * len(columns), len(columns[0]))


if __name__ == "__main__":
    main()
