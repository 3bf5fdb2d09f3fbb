"""Render the status of a running job in a few terminal lines: input, steps, state, output and problems."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rowkind.quantities import amount, counted, duration, rate, size
from rowkind.service.monitoring.status import (
    LONG_SECONDS,
    OLD_SECONDS,
    JobStatus,
    OperatorStatus,
    QueryStatus,
    TableStatus,
)
from rowkind.service.physical.sink_target import destination
from rowkind.service.web.overview import JobOverview, JobState, Overview

_COLOURS: dict[JobState, str] = {
    "starting": "blue",
    "filling": "yellow",
    "running": "green",
    "idle": "green",
    "waiting": "yellow",
    "failed": "red",
    "refused": "red",
    "stopped": "dim",
}
_BARS = "▁▂▃▄▅▆▇█"
_BAR_WIDTH = 30
_STEP_WIDTH = 23
_NUMBER_WIDTH = 8


def screen(status: JobStatus) -> RenderableType:
    """Render a job: its queries, its long-running work, and its problems."""
    head = Text.assemble((status.job, "bold"), (f"  up {duration(status.at - status.since)}", "dim"))
    if not status.queries:
        head.append("  Spark is starting", "blue")
    parts: list[RenderableType] = [head]
    for query in status.queries:
        parts += [*_lines(query), _steps(query)]
    parts += _progress(status)
    parts += [Text(f"! {warning}", "yellow") for warning in status.warnings]
    if status.incidents and any(query.state in ("waiting", "failed") for query in status.queries):
        last = status.incidents[0]
        parts.append(Text.assemble((f"! {last.what}", "red"), f"\n  → {last.remedy}"))
    return Group(*parts)


def screen_of_all(overview: Overview, url: str) -> RenderableType:
    """Render the jobs of the multi-job service at `url`, one line each, with a hint on how to show one of them."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("job", no_wrap=True)
    table.add_column("", no_wrap=True)
    for name in ("in", "out", "lag", "last batch", "restarts"):
        table.add_column(name, justify="right", no_wrap=True)
    for job in overview.jobs:
        table.add_row(job.name, Text(job.state, _COLOURS[job.state]), *_numbers(job, overview.at))
    parts: list[RenderableType] = [table]
    for job in overview.jobs:
        if job.error:
            remedy = f"\n  → {job.remedy}" if job.remedy else ""
            parts.append(Text.assemble((f"! {job.name}: {job.error}", "red"), remedy))
    parts.append(Text(f"rowkind top {url}/jobs/NAME shows one job", "dim"))
    return Group(*parts)


def _numbers(job: JobOverview, now: float) -> Iterator[str | Text]:
    if job.state in ("failed", "refused"):
        yield from ("", "", "")
    else:
        old = f", {duration(job.lag_seconds)} old" if job.lag_seconds >= 1 else ""
        yield rate(job.read)
        yield rate(job.written)
        yield Text(f"{amount(job.lag_rows)}{old}", "yellow" if job.lag_seconds >= OLD_SECONDS else "")
    yield f"{duration(max(0.0, now - job.last_batch.ended))} ago" if job.last_batch is not None else ""
    yield f"{job.restarts:,}" if job.restarts else ""


def _lines(query: QueryStatus) -> Iterator[Text]:
    kept = sum(step.state_rows for step in query.operators)
    stored = sum(step.state_bytes for step in query.operators)
    yield Text.assemble(
        f"query {query.name} ",
        (query.state, _COLOURS[query.state]),
        f"  in {rate(query.read.rate)}  out {rate(query.written.rate)}",
        f"  state {counted(kept, 'row')}, {size(stored)}" if kept else "",
    )
    behind = "up to date"
    if query.lag_rows:
        old = f", the oldest {duration(query.lag_seconds)} old" if query.lag_seconds >= 1 else ""
        behind = f"lag {counted(query.lag_rows, 'row')}{old}"
    yield Text(f"  {behind}", "yellow" if query.lag_seconds >= OLD_SECONDS else "")
    if query.batches:
        most = max(batch.seconds for batch in query.batches) or 1.0
        bars = "".join(_BARS[int((len(_BARS) - 1) * batch.seconds / most)] for batch in query.batches[-20:])
        numbers = f" batch {query.batches[-1].number:,}, median {duration(query.usual_seconds)}"
        yield Text.assemble("  ", (bars, "blue"), numbers)


def _steps(query: QueryStatus) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    # If the terminal is too narrow, the column of remarks is cut first.
    table.add_column("  step", no_wrap=True, min_width=_STEP_WIDTH)
    for name in ("in", "out", "state"):
        table.add_column(name, justify="right", no_wrap=True, min_width=_NUMBER_WIDTH)
    table.add_column("", no_wrap=True)
    for each in query.tables:
        table.add_row(f"  {each.name}", "", rate(each.read.rate), "", Text(", ".join(_of_table(each)), "yellow"))
    for step in query.operators:
        name = step.name if len(query.sinks) == 1 else f"{step.sink}.{step.name}"
        numbers = (rate(step.taken.rate), rate(step.emitted.rate), amount(step.state_rows) if step.state_rows else "")
        table.add_row(f"  {name}", *numbers, Text(", ".join(_of_operator(step)), "yellow"))
    for sink in query.sinks:
        where = f"to {sink.topic}" if sink.to == "topic" else destination(sink.to, "")
        table.add_row(f"  {sink.name}", rate(sink.written.rate), "", "", Text(where, "dim"))
    return table


def _of_table(table: TableStatus) -> Iterator[str]:
    """Yield remarks about a table, the most severe first, because there may not be room for all."""
    if letters := sum(table.dead_letters.values()):
        yield counted(letters, "dead letter")
    if table.lag_rows:
        yield f"lag {amount(table.lag_rows)}"
    if table.watermark_lag is not None:
        yield f"watermark {duration(table.watermark_lag)} behind"


def _of_operator(operator: OperatorStatus) -> Iterator[str]:
    """Yield remarks about an operator, the most severe first."""
    for what, rows in (("failed", operator.failed), ("unmatched", operator.unmatched), ("late", operator.late)):
        if rows:
            yield f"{rows:,} {what}"
    if (hot := operator.hottest) is not None and hot.hot:
        yield f"shard {hot.number} is {hot.times:.1f} times the mean"


def _progress(status: JobStatus) -> list[RenderableType]:
    """Render long-running work, with a progress bar where the total is known."""
    rows = Table.grid(padding=(0, 1))
    for query in status.queries:
        if query.left is not None and (query.state == "filling" or query.left > LONG_SECONDS):
            what = "filling its state" if query.state == "filling" else "catching up"
            total = query.read.rows + query.lag_rows
            rows.add_row(
                f"{query.name}: {what}",
                ProgressBar(total, query.read.rows, width=_BAR_WIDTH, complete_style="blue"),
                f"{100 * query.read.rows / total:.0f} %, {duration(query.left)} left",
            )
    for work in status.work:
        left, took = work.left(status.at), duration(status.at - work.since)
        if work.total is None:
            rows.add_row(work.what, "", f"{work.done:,} {work.unit}, for {took}" if work.done else f"for {took}")
        else:
            rows.add_row(
                work.what,
                ProgressBar(max(1, work.total), work.done, width=_BAR_WIDTH, complete_style="blue"),
                f"{work.done:,} of {work.total:,} {work.unit}"
                + (f", {duration(left)} left" if left is not None else ""),
            )
    return [rows] if rows.row_count else []
