"""Event-time windows in the in-memory engine: `python -m tests.bench.windows [--rows N] [--only NAME] [--profile]`.

Rows with a key and an amount, out of order by up to two seconds, pass whole plans, without Kafka and Spark. The output
per query: rows per second of CPU, the worst batch, CPU per 100,000 rows in the first and the last quarter of the run,
and the entries of state after each quarter.

- `tumble`, `hop of 60`, `cumulate of 60`: the cost of a window's panes compared with a single window.
- `a million windows`: a window for every few rows. State stays flat as the watermark advances.
- `closing a million`: the same, but one row passes all windows; they are released over several batches.
- `session`, `interval join`: the same rows in sessions, and joined with rows of another table.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from rowkind.avro.codec import encode
from rowkind.avro.schema import Record
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.changes import Rows
from rowkind.service.job.load import load
from rowkind.service.plan.pipeline import plan
from rowkind.service.query.memory import MemoryEngine

COLUMNS = {"id": "BIGINT NOT NULL", "k": "BIGINT NOT NULL", "v": "BIGINT NOT NULL", "ts": "TIMESTAMP NOT NULL"}
START_US = 1_767_225_600_000_000
SECOND_US = 1_000_000


@dataclass(frozen=True)
class Scenario:
    """A query, with `per_second` rows per second of event time and `keys` keys."""

    name: str
    sql: str
    per_second: int = 1_000
    keys: int = 1_000
    emit: str = "changes"
    passes_at_end: bool = False


def _windows(function: str, lengths: str) -> str:
    return (
        "SELECT k, window_start, window_end, COUNT(*) AS n, SUM(v) AS s "
        f"FROM TABLE({function}(TABLE a, DESCRIPTOR(ts), {lengths})) GROUP BY k, window_start, window_end"
    )


SCENARIOS = (
    Scenario("tumble", _windows("TUMBLE", "INTERVAL '1' MINUTE")),
    Scenario("hop of 60", _windows("HOP", "INTERVAL '1' MINUTE, INTERVAL '1' HOUR")),
    Scenario("cumulate of 60", _windows("CUMULATE", "INTERVAL '1' MINUTE, INTERVAL '1' HOUR")),
    Scenario("a million windows", _windows("TUMBLE", "INTERVAL '1' SECOND"), per_second=1_000, keys=1_000_000),
    Scenario(
        "closing a million", _windows("TUMBLE", "INTERVAL '1' DAY"), 1_000, 1_000_000, emit="final", passes_at_end=True
    ),
    Scenario(
        "session",
        "SELECT k, session_window.start AS s, session_window.end AS e, COUNT(*) AS n, SUM(v) AS sum FROM a "
        "GROUP BY k, session_window(ts, '2 seconds')",
    ),
    Scenario(
        "interval join",
        "SELECT a.id, b.id AS other, a.k FROM a JOIN b ON a.k = b.k "
        "AND b.ts BETWEEN a.ts - INTERVAL '1' SECOND AND a.ts",
    ),
)


def main() -> None:
    """Run the selected queries and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=50_000)
    parser.add_argument("--only", default="", help="a part of the names of what is run")
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    for scenario in SCENARIOS:
        if arguments.only in scenario.name:
            _run(scenario, arguments.rows, arguments.batch, cProfile.Profile() if arguments.profile else None)


def _run(scenario: Scenario, rows: int, batch_rows: int, profile: cProfile.Profile | None) -> None:
    engine = _engine(scenario)
    record = Record.of(COLUMNS)
    seconds, entries, out = [], [], 0
    batches = [dict.fromkeys(engine.tables, each) for each in _batches(scenario, record, rows, batch_rows)]
    if scenario.passes_at_end:
        far = _rows(record, rows, np.array([START_US + 10 * 86_400 * SECOND_US]), scenario.keys)
        nothing = _rows(record, rows + 1, np.empty(0, np.int64), scenario.keys)
        batches += [{"a": far}, *({"a": nothing} for _ in range(rows // 100_000))]
    for number, batch in enumerate(batches):
        started = time.process_time()
        if profile:
            profile.enable()
        out += sum(len(changes) for changes in engine.batch(batch, now=number).values())
        if profile:
            profile.disable()
        seconds.append(time.process_time() - started)
        entries.append(sum(size.rows for size in engine.state.values()))
    quarter = max(1, len(seconds) // 4)
    first, last = (sum(part) / quarter / batch_rows * 100_000 for part in (seconds[:quarter], seconds[-quarter:]))
    kept = ", ".join(f"{entries[min(quarter * part, len(entries)) - 1]:,}" for part in (1, 2, 3, 4))
    print(
        f"{scenario.name:20}{rows / sum(seconds):12,.0f} rows/s, {out:,} out, worst batch {max(seconds):.3f} s; "
        f"per 100,000 rows first quarter {first:.3f} s, last {last:.3f} s; entries {kept}",
        flush=True,
    )
    if profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


def _engine(scenario: Scenario) -> MemoryEngine:
    columns = json.dumps(COLUMNS)
    tables = "".join(
        f"  {name}: {{topic: {name}, mode: append, columns: {columns}, watermark: {{column: ts, delay: 2s}}}}\n"
        for name in "ab"
    )
    sink = f"{{topic: r, mode: retract, emit: {scenario.emit}, sql: {json.dumps(scenario.sql)}}}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.yaml"
        path.write_text(f"job: windows\ntables:\n{tables}sinks:\n  result: {sink}\n")
        return MemoryEngine(plan(load(path, {}), "result"))


def _batches(scenario: Scenario, record: Record, rows: int, batch_rows: int) -> Iterator[Rows]:
    random = np.random.default_rng(7)
    for first in range(0, rows, batch_rows):
        at = np.arange(first, first + batch_rows)
        times = START_US + at * SECOND_US // scenario.per_second - random.integers(0, 2 * SECOND_US, batch_rows)
        yield _rows(record, first, times, scenario.keys)


def _rows(record: Record, first: int, times: np.ndarray, keys: int) -> Rows:
    ids = np.arange(first, first + len(times))
    columns = {
        "id": pa.array(ids),
        "k": pa.array((ids * 2654435761 >> 8) % keys),
        "v": pa.array((ids * 40503) % 1_000_003),
        "ts": pa.array(times, pa.timestamp("us", "UTC")),
    }
    payload = encode(record, columns)
    return Rows(np.full(len(ids), RowKind.INSERT, np.int8), ids << 16, payload)


if __name__ == "__main__":
    main()
