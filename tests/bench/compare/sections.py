"""The sections of the comparison: the runs of each, and its tables."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.bench.compare import page
from tests.bench.compare.bench import Bench, Measured
from tests.bench.compare.engine import Engine, EngineError
from tests.bench.compare.flink_engine import Flink
from tests.bench.compare.latency import latency
from tests.bench.compare.measure import Span
from tests.bench.compare.nexmark import NEXMARK
from tests.bench.compare.page import Table
from tests.bench.compare.queries import QUERIES, Query
from tests.bench.compare.rowkind_engine import Rowkind
from tests.bench.compare.windows import WINDOWS
from tests.bench.compare.workload import Variant

_OF_LATENCY: Mapping[str, Sequence[int]] = {"inner join": (1_000, 5_000, 20_000), "join, top 3": (5_000,)}
"""Changes per second, by query."""

_OF_STATE = ("inner join",)
_OF_SCALING = ("inner join", "join, top 3")
_OF_SKEW = ("inner join", "top 3", "aggregate", "join, top 3")
_OF_MEMORY = ("inner join", "join, top 3")
_LIMITS = (None, "2g")
_LATENCY_WARM_UP_SECONDS = 90.0
"""For this long Java still compiles code that runs three times per second."""
_SMALLEST_STATE = 100_000


@dataclass(frozen=True)
class Comparison:
    """The options of a comparison.

    - `rows`: changes to each table. `keys`: orders in the largest state. `seconds`: how long latency is measured.
    - `runs`: how often throughput is measured; the run with the median rate counts.
    """

    bench: Bench
    engines: Sequence[Engine]
    queries: Sequence[Query]
    rows: int
    runs: int
    keys: int
    seconds: float

    def chosen(self, of: Sequence[Query], names: Sequence[str] = ()) -> list[Query]:
        """Return the selected queries of a section."""
        return [query for query in of if query in self.queries and (not names or query.name in names)]

    def measure(self, engine: Engine, query: Query, variant: Variant, parallelism: int = 2) -> Measured:
        """Return the run with the median rate; if a result is wrong, that run."""
        runs = [
            self.bench.throughput(engine, query, variant, self.rows, parallelism=parallelism) for _ in range(self.runs)
        ]
        runs.sort(key=lambda run: run.span.rate)
        return next((run for run in runs if run.wrong), runs[len(runs) // 2])

    def note(self, text: str) -> str:
        """Return the note under a table."""
        options = ", ".join(f"{name}={value}" for name, value in self.bench.options.items())
        return f"{text}{f' Flink with {options}.' if options else ''} {page.machine()}."


def throughput(comparison: Comparison) -> Iterator[Table]:
    """Yield rates, CPU time, memory and state of every query, and the stages of Rowkind's time."""
    yield from _rates(comparison, "append", comparison.chosen(QUERIES), "Append topics")


def windows(comparison: Comparison) -> Iterator[Table]:
    """Yield the same for event-time windows, whose rows are emitted once, when the windows close."""
    yield from _rates(comparison, "append", comparison.chosen(WINDOWS), "Time windows")


def of_nexmark(comparison: Comparison) -> Iterator[Table]:
    """Yield the same for Nexmark's queries over its events."""
    yield from _rates(comparison, "nexmark", comparison.chosen(NEXMARK), "Nexmark")


def changelog(comparison: Comparison) -> Iterator[Table]:
    """Yield the same over keyed topics with updates and deletes."""
    queries = [query for query in comparison.chosen(QUERIES) if not query.appended]
    yield from _rates(comparison, "changelog", queries, "Upsert topics: 60 % new rows, 30 % updates, 10 % deletes")


def skewed(comparison: Comparison) -> Iterator[Table]:
    """Yield the same with a few orders that have most of the payments."""
    title = "Append topics, orders of payments by Zipf's law with exponent 1.1"
    yield from _rates(comparison, "skewed", comparison.chosen(QUERIES, _OF_SKEW), title)


def scaling(comparison: Comparison) -> Iterator[Table]:
    """Compare one task with two."""
    head = ("query", "system", "rows/s, 1 task", "2 tasks", "speed-up", "CPU s/M rows, 1 task", "2 tasks", "result")
    rows = []
    for query in comparison.chosen(QUERIES, _OF_SCALING):
        for engine in comparison.engines:

            def cells(engine: Engine = engine, query: Query = query) -> list[str]:
                one, two = (comparison.measure(engine, query, "append", parallelism) for parallelism in (1, 2))
                return [
                    f"{one.span.rate:,.0f}",
                    f"{two.span.rate:,.0f}",
                    f"{two.span.rate / one.span.rate:.2f}",
                    f"{one.span.cpu_per_million:.1f}",
                    f"{two.span.cpu_per_million:.1f}",
                    _verdict(one, two),
                ]

            rows.append(_row(head, (query.name, engine.name), cells))
    yield Table("Parallelism", head, rows, comparison.note(f"{comparison.rows:,} changes to each table."))


def state(comparison: Comparison) -> Iterator[Table]:
    """Yield the cost of a change with states of different sizes."""
    head = (
        "query",
        "orders",
        "system",
        "rows/s",
        "CPU s/M",
        "cores",
        "peak MB",
        "state MB",
        "batch s: median, p99",
        "result",
    )
    rows = []
    for query in comparison.chosen(QUERIES, _OF_STATE):
        keys = _SMALLEST_STATE
        while keys <= comparison.keys:
            for engine in comparison.engines:

                def cells(engine: Engine = engine, query: Query = query, keys: int = keys) -> list[str]:
                    measured = comparison.bench.over_state(engine, query, keys, comparison.rows)
                    return [*_figures(measured.span), _batch_seconds(measured.span), _verdict(measured)]

                rows.append(_row(head, (query.name, f"{keys:,}", engine.name), cells))
            keys *= 10
    note = (
        f"{comparison.rows:,} payments of uniformly drawn orders, after all orders and 300,000 payments were processed."
    )
    yield Table("Cost of a change as state grows", head, rows, comparison.note(note))


def latencies(comparison: Comparison) -> Iterator[Table]:
    """Yield end-to-end latency at fixed rates, with a Flink checkpoint every second."""
    head = ("query", "changes/s", "system", "sent/s", "p50 ms", "p99 ms", "worst ms", "cores", "payments seen")
    # Mini-batches wait for a second before they are processed.
    engines = [engine for engine in comparison.engines if not (isinstance(engine, Flink) and engine.tuned)]
    if any(isinstance(engine, Flink) for engine in engines):
        engines.append(Flink(transactional=True))
    rows = []
    batches: dict[str, dict[str, float]] = {}
    for query in comparison.chosen(QUERIES, list(_OF_LATENCY)):
        for rate in _OF_LATENCY[query.name]:
            for engine in engines:

                def cells(engine: Engine = engine, query: Query = query, rate: int = rate) -> list[str]:
                    warm_up, seconds = _LATENCY_WARM_UP_SECONDS, comparison.seconds
                    found = latency(comparison.bench, engine, query, rate, warm_up=warm_up, seconds=seconds)
                    times = (found.rate, found.p50, found.p99, found.worst)
                    if found.batches:
                        batches[f"{query.name}, {rate:,}/s"] = found.batches
                    return [
                        *(f"{each:,.0f}" for each in times),
                        f"{found.cores:.2f}",
                        f"{found.seen / found.sent:.0%}",
                    ]

                name = engine.name if engine.transactional else f"{engine.name}, at least once"
                rows.append(_row(head, (query.name, f"{rate:,}", name), cells))
    note = (
        f"Measured for {comparison.seconds:.0f} s after {_LATENCY_WARM_UP_SECONDS:.0f} s of warm-up. Latency: from the "
        "sender's timestamp of a payment until a consumer of committed records sees its first result row. Flink makes "
        "a checkpoint every second; with exactly once, its rows become visible at the checkpoint."
    )
    yield Table("Latency", head, rows, comparison.note(note))
    if batches:
        names = list(dict.fromkeys(name for found in batches.values() for name in found))
        spent = [[name, *(f"{found.get(name, 0.0):.1f}" for found in batches.values())] for name in names]
        note = (
            "Mean milliseconds. The stages `batch …`, except `batch commit`, run one after the other and make up a "
            "batch. The others are part of `batch tasks`, summed over all tasks; `write send` has Kafka's transaction."
        )
        yield Table("Latency: where a batch's time goes", ("stage", *batches), spent, note)


def memory(comparison: Comparison) -> Iterator[Table]:
    """Yield Rowkind's figures within a memory limit, which also applies to the control group of its processes."""
    head = ("query", "memory", "rows/s", "CPU s/M", "cores", "peak MB", "state MB", "result")
    rows = []
    for query in comparison.chosen(QUERIES, _OF_MEMORY):
        for limit in _LIMITS:

            def cells(query: Query = query, limit: str | None = limit) -> list[str]:
                measured = comparison.measure(Rowkind(limit), query, "append")
                return [*_figures(measured.span), _verdict(measured)]

            rows.append(_row(head, (query.name, limit or "no limit"), cells))
    note = (
        f"{comparison.rows:,} changes to each table; the first third of the rows is warm-up. If the job's "
        "cgroup exceeds the limit, page cache included, the kernel kills one of its processes."
    )
    yield Table("Within a memory limit", head, rows, comparison.note(note))


SECTIONS: dict[str, Callable[[Comparison], Iterator[Table]]] = {
    "throughput": throughput,
    "windows": windows,
    "nexmark": of_nexmark,
    "changelog": changelog,
    "skewed": skewed,
    "scaling": scaling,
    "state": state,
    "memory": memory,
    "latency": latencies,
}


def _rates(comparison: Comparison, variant: Variant, queries: Sequence[Query], title: str) -> Iterator[Table]:
    head = ("query", "system", "rows/s", "CPU s/M", "cores", "peak MB", "state MB", "Rowkind : Flink", "load", "result")
    rows: list[list[str]] = []
    spans: dict[str, Span] = {}
    for query in queries:
        rates: dict[str, float] = {}
        for engine in comparison.engines:

            def cells(engine: Engine = engine, query: Query = query, rates: dict[str, float] = rates) -> list[str]:
                measured = comparison.measure(engine, query, variant)
                rates[engine.name] = measured.span.rate
                if measured.span.stages:
                    spans[query.name] = measured.span
                compared = isinstance(engine, Flink) and "Rowkind" in rates
                ratio = f"{rates['Rowkind'] / rates[engine.name]:.2f}" if compared else ""
                return [*_figures(measured.span), ratio, f"{measured.load:.1f}", _verdict(measured)]

            rows.append(_row(head, (query.name, engine.name), cells))
    what = "rows of the tables that are read" if variant == "nexmark" else "changes to each table"
    note = (
        f"{comparison.rows:,} {what}; the first third of the rows is warm-up. Rowkind delivers exactly "
        f"once, Flink at least once with a checkpoint every 10 s. Flink, tuned, knows the keys of append topics and "
        f"aggregates in mini-batches. Number of runs: {comparison.runs}; the median is shown."
    )
    yield Table(title, head, rows, comparison.note(note))
    if spans:
        yield _stages(spans, title)


def _stages(spans: dict[str, Span], title: str) -> Table:
    """Return task seconds by stage, one line per stage."""
    names = sorted({name for span in spans.values() for name in span.stages if not name.startswith("batch ")})
    rows = [[name, *(f"{span.stages.get(name, 0.0):.2f}" for span in spans.values())] for name in names]
    rows.append(["all CPU of the job", *(f"{span.cpu_per_million:.2f}" for span in spans.values())])
    note = "Task seconds per million rows. Spark's own time (shuffles, planning, commits) is in no stage."
    return Table(f"{title}: where Rowkind's time goes", ("stage", *spans), rows, note)


def _row(head: Sequence[str], labels: Sequence[str], cells: Callable[[], list[str]]) -> list[str]:
    """Return a row, printed at once; a run that could not be measured is marked FAILED."""
    try:
        row = [*labels, *cells()]
    except EngineError as error:
        print(f"{', '.join(labels)}: {error}", flush=True)
        row = [*labels, *[""] * (len(head) - len(labels) - 1), "FAILED"]
    print("  ".join(row), flush=True)
    return row


def _figures(span: Span) -> list[str]:
    own, machine = span.cores
    return [
        f"{span.rate:,.0f}",
        f"{span.cpu_per_million:.1f}",
        f"{own:.2f} of {machine:.2f}",
        f"{span.memory / 1e6:,.0f}",
        f"{span.state / 1e6:,.0f}",
    ]


def _batch_seconds(span: Span) -> str:
    if len(span.batches) < 2:
        return ""
    p99 = statistics.quantiles(span.batches, n=100, method="inclusive")[-1]
    return f"{statistics.median(span.batches):.2f}, {p99:.2f}"


def _verdict(*runs: Measured) -> str:
    return next((f"WRONG: {run.wrong}" for run in runs if run.wrong), "right")
