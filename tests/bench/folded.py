"""Time and memory of `rowkind sql`: `python -m tests.bench.folded`.

The topic has four partitions, with changes of orders as in `compare/workload.py`: an upsert topic, in which 60 % of the
changes are new rows, 30 % updates and 10 % deletes, and a retract topic, in which every change is a new row. The query
counts the rows and adds up a column, so almost all of the time goes into reading and folding the topic.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro.registry import FolderRegistry
from rowkind.service.dev.broker import Broker
from tests.bench.command import measured
from tests.bench.compare import page
from tests.bench.compare.page import Table
from tests.bench.compare.tables import TABLES, Changes
from tests.bench.compare.workload import create_topic, fill, generate

_AT_ONCE = 1_000_000
_MB = 1 << 20
_QUERY = "SELECT count(*) AS rows, sum(amount) AS amount FROM orders"


@dataclass(frozen=True)
class _Figures:
    """One run of the command: wall and CPU seconds, the peak of resident memory in bytes, and the rows it counted."""

    wall: float
    cpu: float
    peak: int
    rows: int


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.folded", description="rowkind sql over large topics.")
    parser.add_argument("--changes", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--write", action="store_true", help="put the table into tests/bench/README.md")
    given, rows = parser.parse_args(), []
    with tempfile.TemporaryDirectory(prefix="rowkind-folded-") as folder, Broker() as broker:
        for mode in ("upsert", "retract"):
            for changes in given.changes:
                found = _run(Path(folder), broker.bootstrap_servers, mode, changes)
                numbers = (found.wall, found.cpu, changes / found.wall, found.peak / _MB)
                rows.append([f"{changes:,} changes, {mode}", f"{found.rows:,}", *(f"{each:,.1f}" for each in numbers)])
                print(rows[-1], flush=True)
    head = ["", "rows", "seconds", "CPU s", "changes/s", "peak MB"]
    note = f'`rowkind sql job.yaml "{_QUERY}"`, from start to exit. {page.machine()}.'
    table = Table("Topics folded by `rowkind sql`", head, rows, note)
    print(table.text())
    if given.write:
        page.write("folded", [table])
    return 0


def _run(folder: Path, servers: str, mode: Literal["upsert", "retract"], changes: int) -> _Figures:
    topic, registry = f"orders-{mode}-{changes}", FolderRegistry(folder / "schemas")
    variant: Literal["changelog", "append"] = "changelog" if mode == "upsert" else "append"
    create_topic(servers, topic)
    for number, first in enumerate(range(0, changes, _AT_ONCE)):
        orders, _ = generate(variant, min(_AT_ONCE, changes - first), 1, seed=number)
        ids = pc.add(orders.columns["order_id"], pa.scalar(first))
        fill(
            servers,
            registry,
            {"orders": topic},
            variant,
            Changes("orders", orders.columns | {"order_id": ids}, orders.deleted),
        )
    table = {"topic": topic, "mode": mode, "columns": dict(TABLES["orders"].columns)}
    table |= {"primary_key": "order_id"} if mode == "upsert" else {"row_kind": {"missing": "insert"}}
    job = {
        "job": "folded",
        "kafka": {"bootstrap.servers": servers},
        "registry": {"folder": "schemas"},
        "tables": {"orders": table},
        "sinks": {"all": {"topic": "all", "mode": "retract", "sql": "SELECT * FROM orders"}},
    }
    (folder / "job.yaml").write_text(json.dumps(job))
    command = [sys.executable, "-m", "rowkind", "sql", str(folder / "job.yaml"), _QUERY, "-o", "json"]
    found = measured(command)
    return _Figures(found.wall, found.cpu, found.peak, json.loads(found.output)["rows"])


if __name__ == "__main__":
    sys.exit(main())
