"""The page of all jobs of a service, and the page of a job whose process does not serve its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from urllib.parse import quote

from rowkind.quantities import counted, duration, rate, unbroken
from rowkind.service.monitoring.status import OLD_SECONDS, Incident
from rowkind.service.web.live_page import about, errors, framed, pill, trouble
from rowkind.service.web.overview import JobOverview, Overview

_LINKS = {"metrics": "metrics", "status.json": "JSON", "healthz": "health", "readyz": "ready"}
_SOON = "The page of the job appears as soon as its process answers."


def page(overview: Overview) -> str:
    """Return the page of all jobs as HTML."""
    counts = Counter(job.state for job in overview.jobs)
    states = "".join(pill(state, count) for state, count in sorted(counts.items())) or "no jobs"
    jobs = "\n".join(_job(job, overview.at) for job in overview.jobs)
    where = "of" if overview.path.endswith((".yaml", ".yml")) else "in the folder"
    live = f'{about(states, " ·", overview.at, overview.version)}\n<ul class="jobs">\n{jobs}\n</ul>'
    return framed(
        f"{_count(overview)}: all jobs", f"All jobs <span>{where} {escape(overview.path)}</span>", _LINKS, live
    )


def page_of(job: JobOverview, seen: float, version: str, incidents: Sequence[Incident]) -> str:
    """Return the page of a job that is not running: the reason, the remedy, and earlier errors."""
    head = {"failed": "Not running", "refused": "Refused"}.get(job.state, "Starting")
    live = "\n".join(
        (
            about(pill(job.state), " ·", seen, version),
            trouble(job.state, head, job.error or _SOON, job.remedy),
            errors(incidents, several=False),
        )
    )
    return framed(f"{job.state}: {job.name}", escape(job.name), {"../../": "all jobs"}, live)


def _count(overview: Overview) -> str:
    bad = sum(job.state in ("failed", "refused", "waiting") for job in overview.jobs)
    return f"{bad} of {len(overview.jobs)} not running" if bad else f"{len(overview.jobs)} running"


def _job(job: JobOverview, now: float) -> str:
    numbers = "".join(
        f'<div class="{look}"><dt>{what}</dt><dd>{escape(value)}</dd></div>' for what, value, look in _numbers(job, now)
    )
    wrong = trouble(job.state, "", job.error, job.remedy) if job.error else ""
    link = f'<a href="jobs/{quote(job.name)}/">{escape(job.name)}</a>'
    return f'<li><h2>{link} {pill(job.state)}</h2><dl class="numbers">{numbers}</dl>{wrong}</li>'


def _numbers(job: JobOverview, now: float) -> Iterator[tuple[str, str, str]]:
    """Yield label, value and style of a job's numbers. Every job has the same numbers, so that they align."""
    read = written = left = last = "-"
    if job.state not in ("failed", "refused"):
        old = f", {unbroken(f'{duration(job.lag_seconds)} old')}" if job.lag_seconds >= 1 else ""
        read, written, left, last = (
            rate(job.read),
            rate(job.written),
            f"{counted(job.lag_rows, 'row')}{old}",
            "none yet",
        )
    if job.last_batch is not None:
        last = f"{duration(max(0.0, now - job.last_batch.ended))} ago"
    yield "read", read, ""
    yield "written", written, ""
    yield "lag", left, "odd" if job.lag_seconds >= OLD_SECONDS and left != "-" else ""
    yield "last batch", last, ""
    yield "restarts", f"{job.restarts:,}", "odd" if job.restarts else ""
