"""`python -m tests.chaos.load`: heavy loads for a job in a control group of the size that its memory setting gives.

The loads are a backlog of twenty million rows; joins and aggregates with half of the keys NULL; and one key with a
million rows, which are all retracted and inserted again when the row on the other side of the join changes. The rows
and the check of the result are those of the benchmark. A row of 10 MB is a test (`tests/run/test_big_rows.py`).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from rowkind.service.dev.broker import Broker
from tests.bench.compare import page
from tests.bench.compare.bench import Bench
from tests.bench.compare.measure import span, watch
from tests.bench.compare.page import Table
from tests.bench.compare.queries import Query
from tests.bench.compare.rowkind_engine import Rowkind
from tests.bench.compare.tables import Changes
from tests.bench.compare.workload import Variant, fill

_PAGE = Path("docs/explanation/tested-faults.md")
_HALF_NULL = "CASE WHEN MOD(p.payment_id, CAST(2 AS BIGINT)) = 0 THEN p.order_id END"
_HALF_HOT = "CASE WHEN MOD(p.payment_id, CAST(2 AS BIGINT)) = 0 THEN p.order_id ELSE CAST(0 AS BIGINT) END"
_COLUMNS = {"payment_id": "BIGINT NOT NULL", "order_id": "BIGINT", "amount": "DOUBLE", "paid": "DOUBLE"}
_SUMS = {"k": "BIGINT", "n": "BIGINT NOT NULL", "s": "DOUBLE", "mx": "DOUBLE"}


def _join(name: str, kind: str, key: str) -> Query:
    columns = "p.payment_id, o.order_id, o.amount, p.paid"
    sql = f"SELECT {columns} FROM payments p {kind} JOIN orders o ON {key} = o.order_id"
    return Query(name, sql, ("orders", "payments"), _COLUMNS, ("payment_id",))


def _sum(name: str, key: str) -> Query:
    sql = f"SELECT {key} AS k, COUNT(*) AS n, SUM(p.paid) AS s, MAX(p.paid) AS mx FROM payments p GROUP BY {key}"
    return Query(name, sql, ("payments",), _SUMS, ("k",), mode="retract")


@dataclass(frozen=True)
class Load:
    """A query, and the number of changes of each table; with `touched` the first order changes again at the end."""

    title: str
    query: Query
    variant: Variant
    rows: int
    touched: bool = False


LOADS = (
    Load("a backlog of 20 million rows: inner join", _join("backlog", "", "p.order_id"), "append", 10_000_000),
    Load("half of the keys are NULL: left join", _join("half null", "LEFT", _HALF_NULL), "changelog", 2_000_000),
    Load("half of the keys are NULL: MAX", _sum("half null max", _HALF_NULL), "changelog", 2_000_000),
    Load("a key with a million rows: MAX", _sum("hot key max", _HALF_HOT), "changelog", 4_000_000),
    Load("the same key, updated: inner join", _join("hot key", "", _HALF_HOT), "changelog", 4_000_000, touched=True),
)


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.load", description="What a job must bear.")
    parser.add_argument("--only", type=int, nargs="+", default=range(1, len(LOADS) + 1), help="by their numbers")
    parser.add_argument("--share", type=float, default=1.0, help="of the rows; to try it")
    parser.add_argument("--memory", default="2g", help="what the job may take")
    parser.add_argument("--write", action="store_true", help=f"put the table into {_PAGE}")
    given = parser.parse_args()
    rows = []
    for number in given.only:
        load = replace(LOADS[number - 1], rows=round(LOADS[number - 1].rows * given.share))
        rows.append(bear(load, given.memory))
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    head = ("load", "rows read", "rows/s", "last batch s", "peak MB", "state MB", "result")
    note = f"With `memory: {given.memory}`, in a cgroup that is limited to that size. {page.machine()}."
    table = Table("Loads", head, rows, note)
    print(table.text())
    if given.write:
        page.write("load", [table], _PAGE)
    return 0 if all(row[-1] == "right" for row in rows) else 1


def bear(load: Load, memory: str) -> Sequence[str]:
    """Run a load and return its row of the table."""
    engine, query = Rowkind(memory), load.query
    with Broker(busy=True) as broker, tempfile.TemporaryDirectory(prefix="rowkind-load-") as folder:
        bench = Bench(broker.bootstrap_servers, Path(folder), {})
        topics, (orders, payments) = bench.filled(load.variant, load.rows)
        with bench.running(engine, query, load.variant, topics) as (setting, running):
            total = load.rows * len(query.tables)
            samples = watch(bench.servers, setting.sink, running, total)
            if load.touched:
                last = _touched(orders)
                fill(bench.servers, bench.registry, topics, load.variant, last)
                orders = _concat(orders, last)
                samples += watch(bench.servers, setting.sink, running, total + len(last))
            found = span(samples, 0, running.state_bytes())
        wrong = bench.wrong(engine, setting, (orders, payments))
    figures = (found.rows, found.rate, found.memory / 1e6, found.state / 1e6)
    read, rate, peak, state = (f"{figure:,.0f}" for figure in figures)
    return load.title, read, rate, f"{found.batches[-1]:.1f}", peak, state, wrong or "right"


def _touched(orders: Changes) -> Changes:
    """Return the first order once more, with another amount."""
    at = int(np.flatnonzero(orders.columns["order_id"].to_numpy() == 0)[0])
    columns = {name: column.slice(at, 1) for name, column in orders.columns.items()}
    return Changes("orders", {**columns, "amount": pa.array([-1.0])}, np.zeros(1, np.bool_))


def _concat(first: Changes, second: Changes) -> Changes:
    columns = pa.concat_tables([pa.table(first.columns), pa.table(second.columns)])
    return Changes(
        first.table, {name: columns[name] for name in first.columns}, np.concatenate([first.deleted, second.deleted])
    )


if __name__ == "__main__":
    sys.exit(main())
