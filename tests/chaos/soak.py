"""`python -m tests.chaos.soak`: a join at a steady rate for an hour, with a process killed now and then.

The changes are those of the latency benchmark. The job's memory is measured every ten seconds. Every 90 seconds, plus
or minus half of that, a process is killed: Java, a worker, a writer or the planner. Rows have a TTL of five minutes, so
that state is as large after ten minutes as after an hour. At the end the result is compared with DuckDB's. A job that
leaks shows growing memory or latency.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from confluent_kafka import Producer

from rowkind.service.dev.broker import Broker
from tests.bench.compare import page
from tests.bench.compare.bench import Bench
from tests.bench.compare.latency import await_first, drain, note_results, send, trailing
from tests.bench.compare.page import Table
from tests.bench.compare.process import memory_bytes, of_kind
from tests.bench.compare.queries import QUERIES
from tests.bench.compare.rowkind_engine import Rowkind
from tests.bench.compare.workload import records
from tests.bench.plot import Panel, Points, chart

_KINDS = ("JVM", "workers of tasks", "writers", "source runners")
_TTL = "5m"
_LATE_SECONDS = 60
"""How late payments are: a minute is enough to recover from any kill before their orders expire."""

_WINDOW_SECONDS = 10.0
_PAGE = Path("docs/explanation/tested-faults.md")
_PLOT = Path("docs/explanation/soak.svg")
Times = npt.NDArray[np.float64]


@dataclass
class Course:
    """The measurements, by seconds since the start.

    - `memory`: bytes. `kills`: the kind of process. `p50`, `p99`: milliseconds for the payments sent in a window.
    """

    memory: list[tuple[float, float]] = field(default_factory=list)
    kills: list[tuple[float, str]] = field(default_factory=list)
    p50: list[tuple[float, float]] = field(default_factory=list)
    p99: list[tuple[float, float]] = field(default_factory=list)


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak", description="A steady load with kills.")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=int, default=5_000, help="changes a second")
    parser.add_argument("--every", type=float, default=90.0, help="seconds between kills; 0 for none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help=f"put the outcome into {_PAGE}, and the plot into {_PLOT}")
    given = parser.parse_args()
    course, wrong = soak(given.minutes * 60, given.rate, given.every, random.Random(given.seed))
    found = table(course, wrong, given.minutes, given.rate)
    print(found.text())
    if given.write:
        _PLOT.write_text(plot(course))
        page.write("soak", [found], _PAGE)
    return 1 if wrong else 0


def soak(seconds: float, rate: int, every: float, chance: random.Random) -> tuple[Course, str]:
    """Return the measurements, and how the result is wrong (empty if it is right)."""
    count = round(rate * seconds / 2)
    orders, payments = trailing(count, rate * _LATE_SECONDS)
    query = next(query for query in QUERIES if query.name == "inner join")
    course, ended = Course(), threading.Event()
    sent_at, seen_at = np.full(count, np.nan), np.full(count, np.nan)
    with Broker() as broker, tempfile.TemporaryDirectory(prefix="rowkind-soak-") as folder:
        bench = Bench(broker.bootstrap_servers, Path(folder), {})
        topics = bench.topics("soak")
        with bench.running(Rowkind(ttl=_TTL), query, "append", topics, quick=True) as (setting, running):
            queues = (
                (topics["orders"], records(bench.registry, topics["orders"], "append", orders)),
                (topics["payments"], records(bench.registry, topics["payments"], "append", payments)),
            )
            watcher = threading.Thread(target=note_results, args=(setting.servers, setting.sink, True, seen_at, ended))
            watcher.start()
            producer = Producer({"bootstrap.servers": setting.servers, "linger.ms": 5})
            send(producer, queues, rate / 2, sent_at[:1])
            await_first(seen_at)
            began = time.time()
            harm = threading.Thread(
                target=_harm, args=(running.pid, course, began, ended), kwargs={"every": every, "chance": chance}
            )
            harm.start()
            try:
                send(producer, queues, rate / 2, sent_at[1:])
                drain(seen_at)
            finally:
                ended.set()
                watcher.join()
                harm.join()
            wrong = bench.wrong(Rowkind(), setting, (orders, payments))
    _windows(course, sent_at - began, seen_at - began)
    return course, wrong


def _harm(
    root: int, course: Course, began: float, ended: threading.Event, *, every: float, chance: random.Random
) -> None:
    """Measure the memory and kill processes."""
    due = began + every * chance.uniform(0.5, 1.5)
    while not ended.wait(_WINDOW_SECONDS):
        course.memory.append((time.time() - began, memory_bytes(root)))
        if every and time.time() >= due:
            kind = chance.choice(_KINDS)
            found = of_kind(root, kind)
            if found:
                with suppress(ProcessLookupError):
                    os.kill(chance.choice(found), signal.SIGKILL)
                course.kills.append((time.time() - began, kind))
            due = time.time() + every * chance.uniform(0.5, 1.5)


def _windows(course: Course, sent: Times, seen: Times) -> None:
    """Compute the latencies of the payments sent in each window for which a result was seen."""
    known = ~np.isnan(seen) & ~np.isnan(sent)
    sent, took = sent[known], 1000 * (seen - sent)[known]
    for begin in np.arange(0, sent.max(initial=0.0), _WINDOW_SECONDS):
        of = took[(sent >= begin) & (sent < begin + _WINDOW_SECONDS)]
        if len(of):
            p50, p99 = np.percentile(of, [50, 99])
            course.p50.append((float(begin), float(p50)))
            course.p99.append((float(begin), float(p99)))


def table(course: Course, wrong: str, minutes: float, rate: int) -> Table:
    """Return the measurements by quarter."""
    end = max((at for at, _ in course.memory), default=1.0)
    rows = []
    for quarter in range(4):
        span = (end * quarter / 4, end * (quarter + 1) / 4)
        memory, p50, p99 = (_median(each, span) for each in (course.memory, course.p50, course.p99))
        kills = sum(span[0] <= at < span[1] for at, _ in course.kills)
        rows.append((str(quarter + 1), str(kills), f"{memory / 1e6:,.0f}", f"{p50:,.0f}", f"{p99:,.0f}"))
    note = (
        f"Medians. {minutes:.0f} minutes at {rate:,} changes a second, {len(course.kills)} processes killed; the result"
        f" is {f'wrong: {wrong}' if wrong else 'right'}. {page.machine()}.\n\n![memory and latency]({_PLOT.name})"
    )
    return Table("By quarter", ("quarter", "kills", "memory MB", "p50 ms", "p99 ms"), rows, note)


def _median(values: Sequence[tuple[float, float]], span: tuple[float, float]) -> float:
    found = [value for at, value in values if span[0] <= at < span[1]]
    return float(np.median(found)) if found else 0.0


def plot(course: Course) -> str:
    """Return a chart of memory and latency with a vertical line per kill, as SVG."""
    kills = [at / 60 for at, _ in course.kills]

    def minutes(points: Points, scale: float = 1.0) -> Points:
        return [(at / 60, value * scale) for at, value in points]

    latencies = (("p50", minutes(course.p50)), ("p99", minutes(course.p99)))
    memory = (("all processes", minutes(course.memory, 1e-6)),)
    return chart([Panel("memory, MB", memory, kills), Panel("latency, ms", latencies, kills)], "minutes; red: a kill")


if __name__ == "__main__":
    sys.exit(main())
