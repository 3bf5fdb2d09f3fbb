"""Rowkind and Flink SQL, in turn: `python -m tests.bench.compare [--only SECTION …] [--rows N] [--write]`.

Sections: throughput (all queries, append topics), windows (event time), nexmark, changelog, skewed, scaling (one and
two tasks), state (the cost of a change with 1e5 to `--keys` orders in state), memory (Rowkind within a limit), latency
(at fixed rates). All results except those of the last section are checked against DuckDB over the same rows.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from rowkind.service.dev.broker import Broker
from tests.bench.compare import page
from tests.bench.compare.bench import Bench
from tests.bench.compare.engine import Engine
from tests.bench.compare.flink_engine import Flink
from tests.bench.compare.nexmark import NEXMARK
from tests.bench.compare.queries import QUERIES
from tests.bench.compare.rowkind_engine import Rowkind
from tests.bench.compare.sections import SECTIONS, Comparison
from tests.bench.compare.windows import WINDOWS

EVERY = (*QUERIES, *WINDOWS, *NEXMARK)
ENGINES: dict[str, Engine] = {"rowkind": Rowkind(), "flink": Flink(), "tuned": Flink(tuned=True)}


def main() -> int:
    """Run the sections and print their tables; return 1 if a query failed or its result is wrong, else 0."""
    failed = False
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="sections, default all")
    parser.add_argument("--queries", nargs="+", choices=[query.name for query in EVERY], help="default all")
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--rows", type=int, default=1_000_000, help="changes to each table")
    parser.add_argument("--runs", type=int, default=1, help="of which the one with the median rate counts")
    parser.add_argument("--keys", type=int, default=1_000_000, help="orders in the largest state")
    parser.add_argument("--seconds", type=float, default=40.0, help="for which latency is measured")
    parser.add_argument("--flink", nargs="*", default=[], metavar="NAME=VALUE", help="further settings of Flink")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {page.PAGE.name}")
    given = parser.parse_args()
    with Broker(busy=True) as broker, tempfile.TemporaryDirectory(prefix="rowkind-bench-") as name:
        comparison = Comparison(
            Bench(broker.bootstrap_servers, Path(name), dict(each.split("=", 1) for each in given.flink)),
            [ENGINES[each] for each in given.engines],
            [query for query in EVERY if not given.queries or query.name in given.queries],
            given.rows,
            given.runs,
            given.keys,
            given.seconds,
        )
        for section in given.only:
            tables = list(SECTIONS[section](comparison))
            for table in tables:
                print(f"\n{table.text()}", flush=True)
                failed |= table.head[-1] == "result" and any(row[-1] != "right" for row in table.rows)
            if given.write:
                page.write(section, tables)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
