"""`python -m tests.bench.intervals`: latency and CPU time with a minimum interval between batches (`min_interval`).

The job joins orders with payments at a fixed rate, as in the section on latency of `tests.bench.compare`. With
`--write`, the table and a chart are put into docs/explanation/scaling.md.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rowkind.service.dev.broker import Broker
from tests.bench.compare import page
from tests.bench.compare.bench import Bench
from tests.bench.compare.latency import Latency, latency
from tests.bench.compare.page import Table
from tests.bench.compare.queries import QUERIES
from tests.bench.compare.rowkind_engine import Rowkind
from tests.bench.plot import Panel, chart

_PAGE = Path("docs/explanation/scaling.md")
_PICTURE = _PAGE.with_name("intervals.svg")
_QUERY = "inner join"
_INTERVALS = (0, 500, 1000, 2000)
"""Milliseconds; 0 if the setting is omitted."""


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.intervals", description="What an interval saves.")
    parser.add_argument("--only", nargs="+", type=int, default=list(_INTERVALS), metavar="MS", help="intervals")
    parser.add_argument("--rate", type=int, default=1_000, help="changes per second")
    parser.add_argument("--warm-up", type=float, default=60.0, help="seconds before the measurement")
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds of the measurement")
    parser.add_argument("--write", action="store_true", help=f"put the table and the chart into {_PAGE}")
    given = parser.parse_args()
    (query,) = (each for each in QUERIES if each.name == _QUERY)
    found: list[Latency] = []
    with Broker(busy=True) as broker, tempfile.TemporaryDirectory(prefix="rowkind-bench-") as name:
        bench = Bench(broker.bootstrap_servers, Path(name), {})
        for each in given.only:
            engine = Rowkind(interval=f"{each}ms" if each else None)
            found.append(latency(bench, engine, query, given.rate, warm_up=given.warm_up, seconds=given.seconds))
    result = table(given.only, found, given.rate)
    print(result.text())
    if given.write:
        page.write("intervals", [result], _PAGE)
        _PICTURE.write_text(drawn(given.only, found))
    return 0


def table(intervals: Sequence[int], found: Sequence[Latency], rate: int) -> Table:
    """Return the figures of each interval."""
    head = ("min_interval", "p50 ms", "p99 ms", "cores")
    rows = [
        [f"{length} ms" if length else "omitted", f"{each.p50:,.0f}", f"{each.p99:,.0f}", f"{each.cores:.2f}"]
        for length, each in zip(intervals, found, strict=True)
    ]
    note = f"Inner join, {rate:,} changes a second. Cores: CPU seconds of the job per second, the warm-up included. "
    picture = f"![latency and cores by min_interval]({_PICTURE.name})"
    return Table("Minimum interval of batches", head, rows, f"{note}{page.machine()}.\n\n{picture}")


def drawn(intervals: Sequence[int], found: Sequence[Latency]) -> str:
    """Return a chart with a panel for the latency and one for the CPU time."""
    # Without an interval, a batch begins when the last one has ended.
    across = [max(length, each.batches["batch"]) for length, each in zip(intervals, found, strict=True)]
    times = [
        ("p50", list(zip(across, [each.p50 for each in found], strict=True))),
        ("p99", list(zip(across, [each.p99 for each in found], strict=True))),
    ]
    cores = list(zip(across, [100 * each.cores for each in found], strict=True))
    panels = [Panel("latency, ms", times), Panel("CPU time of the job, % of a core", [("", cores)])]
    return chart(panels, "time between batches, ms", doubling=True)


if __name__ == "__main__":
    raise SystemExit(main())
