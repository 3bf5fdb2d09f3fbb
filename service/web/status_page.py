"""The status page of a job: its state, problems and queries. With many queries, each has a page of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from rowkind.quantities import counted, duration, rate, size
from rowkind.service.monitoring.history import HistoryRange
from rowkind.service.monitoring.status import JobStatus, Work
from rowkind.service.plan.explain.description import QueryDescription
from rowkind.service.plan.explain.html import anchor
from rowkind.service.web.live_page import about, errors, framed, numbers, pill, trouble
from rowkind.service.web.query_part import query_part, query_row
from rowkind.service.web.timeline_chart import timeline

_MANY_QUERIES = 5
"""With this number of queries or more, the page has a line for each query, with a link to the query's page."""

_LINKS = {"explain": "explain", "metrics": "metrics", "status.json": "JSON", "healthz": "health", "readyz": "ready"}

Histories = Mapping[str, Sequence[HistoryRange]]
"""The history of each query, by its name."""


def page(status: JobStatus, plans: Sequence[QueryDescription], histories: Histories) -> str:
    """Return the status page as HTML."""
    by_name = {plan.name: plan for plan in plans}
    several = len(status.queries) > 1
    if len(status.queries) >= _MANY_QUERIES:
        rows = "\n".join(query_row(each, histories[each.name]) for each in status.queries)
        head = f'<h2>{len(status.queries)} queries</h2>\n<div class="totals">{_totals(status)}</div>'
        queries = [f'<section>{head}\n<ul class="queries">{rows}</ul></section>']
    else:
        queries = [
            query_part(
                each,
                by_name[each.name],
                histories[each.name],
                named=several,
                shows_rows=status.shows_rows,
                explain="explain",
            )
            for each in status.queries
        ]
    calm = "" if status.incidents else " · no errors"
    parts = (
        about(pill(status.state), f" · up {duration(status.at - status.since)}{calm} ·", status.at, status.version),
        *_troubles(status),
        *(_work(each, status.at) for each in status.work),
        timeline(status),
        errors(status.incidents, several=several),
        *queries,
    )
    return framed(f"{status.state}: {status.job}", escape(status.job), _LINKS, "\n".join(filter(None, parts)))


def query_page(name: str, status: JobStatus, plans: Sequence[QueryDescription], histories: Histories) -> str | None:
    """Return the page of the query with this name in addresses as HTML, or None if there is no such query."""
    query = next((each for each in status.queries if anchor(each.name) == name), None)
    if query is None:
        return None
    # A query that was added after the status was read has a plan, but no status.
    plan = next(each for each in plans if each.name == query.name)
    own = [each for each in status.incidents if each.query == query.name]
    parts = (
        about(pill(query.state), f" · query {query.name} of job {status.job} ·", status.at, status.version),
        errors(own, several=False),
        query_part(query, plan, histories[query.name], named=False, shows_rows=status.shows_rows, explain="../explain"),
    )
    links = {"../": "all queries"} | {f"../{address}": text for address, text in _LINKS.items()}
    heading = f'<a href="../">{escape(status.job)}</a> / {escape(query.name)}'
    return framed(f"{query.state}: {query.name}", heading, links, "\n".join(filter(None, parts)))


def _troubles(status: JobStatus) -> Iterator[str]:
    for query in status.queries:
        if query.state in ("failed", "waiting") and query.reason:
            what, _, rest = query.reason.partition("\n")
            told = [(each.what, each.remedy) for each in status.incidents if each.query == query.name]
            head = f"Query {escape(query.name)} {'has failed' if query.state == 'failed' else 'is waiting'}"
            yield trouble(query.state, head, *(told or [(what, rest)])[0])
    for warning in status.warnings:
        yield trouble("warning", "Warning", warning, "")


def _totals(status: JobStatus) -> str:
    """Return the numbers of all queries together."""
    queries = status.queries
    stored = sum(operator.state_bytes for query in queries for operator in query.operators)
    return numbers(
        (
            ("read", rate(sum(each.read.rate for each in queries)), ""),
            ("written", rate(sum(each.written.rate for each in queries)), ""),
            ("lag", counted(sum(each.lag_rows for each in queries), "row"), ""),
            ("state", size(stored), ""),
        )
    )


def _work(work: Work, now: float) -> str:
    """Return the progress of long-running work. If the total is unknown, show how long it has taken so far."""
    left = work.left(now)
    said = [f"for {duration(now - work.since)}" if left is None else f"{duration(left)} left"]
    if work.total is not None:
        said.insert(0, f"{work.done:,} of {work.total:,} {work.unit}")
    value = "" if work.total is None else f' value="{work.done}" max="{max(1, work.total)}"'
    return (
        f'<div class="work"><label>{escape(work.what)}: {escape(", ".join(said))}'
        f"<progress{value}></progress></label></div>"
    )
