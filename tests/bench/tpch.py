"""`python -m tests.bench.tpch`: TPC-H's 22 queries kept up to date in memory, each in its own process.

All tables are inserted first, the small ones before orders and lines. Then rows change in batches: orders are inserted
and deleted, as many as in twenty of the benchmark's refreshes, and lines, customers and costs are updated. Whole plans
run in one shard, without Kafka and Spark. At the end each result is compared with DuckDB's over the current tables.

- `rows/s`: per core, while the tables are inserted; `changes/s`: the same while rows change. Rows that a query does not
  read are not counted.
- `CPU s/M`: per million rows of both. `peak`: the most memory of the process, before the comparison.
- `state`: rows and bytes in state at the end; `largest in`: the operator with the most rows, and their number.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from rowkind.avro import codec
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import Rows
from rowkind.service.job.columns import declared
from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.plan.pipeline import plan
from rowkind.service.query.memory import Fold, MemoryEngine
from tests.bench.compare import page
from tests.bench.compare.page import Table
from tests.examples.jobs import InDuckDB, bag
from tests.tpch.refreshes import Step, final, steps

_JOB = Path(__file__).parents[2] / "examples" / "tpch" / "job.yaml"


def main() -> int:
    """Return the exit code: 1 if a result was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tpch", description="TPC-H's queries in memory.")
    parser.add_argument("--scale", type=float, default=0.1, help="the scale factor, of which 1 has 6,000,000 lines")
    parser.add_argument("--only", nargs="+", default=list(load(_JOB, {}).sinks), help="queries, such as q5")
    parser.add_argument("--write", action="store_true", help=f"put the table into {page.PAGE.name}")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one, given.scale)))
        return 0
    found = []
    for name in given.only:
        command = [sys.executable, "-m", "tests.bench.tpch", "--scale", str(given.scale), "--one", name]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        found.append(json.loads(told))
        print(name, told.strip(), file=sys.stderr, flush=True)
    table = _table(found, given.scale)
    print(table.text())
    if given.write:
        page.write("tpch", [table])
    return int(any(figures["wrong"] for figures in found))


def _table(found: Sequence[Mapping[str, object]], scale: float) -> Table:
    head = ("query", "rows/s", "changes/s", "CPU s/M", "peak MB", "state rows", "state MB", "largest in", "result")
    rows = []
    for each in found:
        numbers = [f"{each[name]:,.0f}" for name in ("rate", "changes")]
        numbers += [f"{each['cpu']:,.1f}", f"{each['peak']:,.0f}", f"{each['rows']:,}", f"{each['bytes']:,.1f}"]
        rows.append((str(each["query"]), *numbers, str(each["most"]), str(each["wrong"] or "right")))
    machine = page.machine().removesuffix(", the broker on the same machine")
    return Table("TPC-H", head, rows, f"Scale factor {scale:g}, one shard in memory, one core. {machine}.")


def measure(name: str, scale: float) -> dict[str, object]:
    """Return the figures of a query, and how its result is wrong."""
    job = load(_JOB, {})
    sink = plan(job, name)
    engine, fold = MemoryEngine(sink), Fold(keyed=sink.mode == "upsert")
    seconds, rows, arrived = {False: 0.0, True: 0.0}, {False: 0, True: 0}, 0
    for number, step in enumerate(steps(scale, engine.tables)):
        batch = _packed(job, step, arrived)
        count = sum(map(len, batch.values()))
        began = time.process_time()
        given = engine.batch(batch, now=number)[name]
        seconds[step.refreshes] += time.process_time() - began
        rows[step.refreshes] += count
        arrived += count
        fold.apply(given)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    in_duckdb = InDuckDB(job)
    in_duckdb.show({each: declared(job, each).arrow.empty_table() for each in job.tables} | final(scale, engine.tables))
    expected, got = in_duckdb.rows(name, sink.value), bag(sink.value, pa.array(fold.payloads, pa.binary()))
    state = engine.state
    largest = max(state, key=lambda node: state[node].rows)
    return {
        "query": name,
        "rate": rows[False] / seconds[False],
        "changes": rows[True] / seconds[True],
        "cpu": sum(seconds.values()) / sum(rows.values()) * 1e6,
        "peak": peak,
        "rows": sum(size.rows for size in state.values()),
        "bytes": sum(size.bytes for size in state.values()) / 1e6,
        "most": f"{largest}: {state[largest].rows:,}",
        "wrong": "" if got == expected else f"{(got - expected).total()} too many, {(expected - got).total()} missing",
    }


def _packed(job: Job, step: Step, arrived: int) -> dict[str, Rows]:
    """Return a batch in the form that the engine takes, after `arrived` earlier rows."""
    found: dict[str, Rows] = {}
    for name, table in step.tables.items():
        record = declared(job, name)
        columns = {each: table[each].combine_chunks() for each in record.names}
        seq = ArrivalNumber.pack(np.arange(arrived, arrived + len(table)))
        found[name] = Rows(step.kinds[name], seq, codec.encode(record, columns))
        arrived += len(table)
    return found


if __name__ == "__main__":
    sys.exit(main())
