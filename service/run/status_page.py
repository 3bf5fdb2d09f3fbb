"""The status page: the drawing of `rowkind explain`, with what each step does at this moment.

It is made here whole and needs nothing but itself. Its script only asks for it again every two seconds and puts the new
one in the place of the old; without it the browser does so, less smoothly.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib import resources
from string import Template

from rowkind.service.plan.explain.description import Description, QueryDescription, Step
from rowkind.service.plan.explain.html import anchor, coloured, style, tree
from rowkind.service.run.batch_chart import chart
from rowkind.service.run.quantities import amount, duration, rate, size
from rowkind.service.run.status import (
    LONG_SECONDS,
    Incident,
    JobStatus,
    OperatorStatus,
    QueryStatus,
    TableStatus,
    Work,
)

_FILES = resources.files("rowkind.service.run")
STYLE = style() + (_FILES / "status.css").read_text("utf-8")
"""How the page and its like look."""
_TEMPLATE = Template((_FILES / "status.html").read_text("utf-8"))
_SCRIPT = (_FILES / "status.js").read_text("utf-8")

HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; connect-src 'self'; script-src 'sha256-"
    + base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    + "'",
}
"""What a browser is told with the page: to run its own script, and to fetch nothing from elsewhere."""


def page(status: JobStatus, plans: Sequence[QueryDescription]) -> str:
    """The page."""
    by_name = {plan.name: plan for plan in plans}
    several = len(status.queries) > 1
    return _TEMPLATE.substitute(
        job=escape(status.job),
        state=_state(_worst(status)),
        title=f"{_worst(status)}: {escape(status.job)}",
        about=f"for {duration(status.at - status.since)} · seen {_moment(status.at)} · Rowkind {status.version}",
        troubles="".join(_troubles(status)),
        works="".join(_work(each, status.at) for each in status.work),
        queries="\n".join(_query(query, by_name[query.name], named=several) for query in status.queries),
        incidents=_incidents(status.incidents, several=several),
        style=STYLE,
        script=_SCRIPT,
    )


def _worst(status: JobStatus) -> str:
    """The state of the job: that of the query which needs most looking after."""
    states = {query.state for query in status.queries}
    order = ("failed", "waiting", "starting", "filling", "stopped", "running", "idle")
    return next((state for state in order if state in states), "starting")


def _state(state: str) -> str:
    return f'<span class="pill {state}">{state}</span>'


def _moment(at: float) -> str:
    """A moment in Unix time, as people read it."""
    moment = datetime.fromtimestamp(at, UTC)
    return f'<time datetime="{moment.isoformat()}">{moment:%Y-%m-%d %H:%M:%S} UTC</time>'


def _troubles(status: JobStatus) -> Iterator[str]:
    for query in status.queries:
        if query.state in ("failed", "waiting") and query.reason:
            what, _, rest = query.reason.partition("\n")
            told = [(each.what, each.remedy) for each in status.incidents if each.query == query.name]
            head = f"Query {escape(query.name)} {'has failed' if query.state == 'failed' else 'waits'}"
            yield _trouble(query.state, head, *(told or [(what, rest)])[0])
    for warning in status.warnings:
        yield _trouble("warning", "Warning", warning, "")


def _trouble(kind: str, head: str, what: str, remedy: str) -> str:
    todo = f'<p class="remedy">{escape(remedy)}</p>' if remedy else ""
    return f'<div class="trouble {kind}"><h2>{head}</h2><p>{escape(what)}</p>{todo}</div>'


def _work(work: Work, now: float) -> str:
    """How far something is that takes long; of an unknown total for how long it has been."""
    left = work.left(now)
    said = [f"for {duration(now - work.since)}" if left is None else f"{duration(left)} left"]
    if work.total is not None:
        said.insert(0, f"{work.done:,} of {work.total:,} {work.unit}")
    value = "" if work.total is None else f' value="{work.done}" max="{max(1, work.total)}"'
    return (
        f'<div class="work"><label>{escape(work.what)}: {escape(", ".join(said))}'
        f"<progress{value}></progress></label></div>"
    )


def _query(query: QueryStatus, plan: QueryDescription, *, named: bool) -> str:
    head = f"<h2>query {escape(query.name)} {_state(query.state)}</h2>" if named else ""
    sinks = "\n".join(_sink(each, query) for each in plan.sinks)
    return f"""<section class="query" id="query.{anchor(query.name)}">
{head}<div class="overview">{_tiles(query)}{chart(query)}</div>
{sinks}
</section>"""


def _tiles(query: QueryStatus) -> str:
    behind = "up to date"
    if query.lag_rows:
        old = duration(query.lag_seconds) if query.lag_seconds >= 1 else "less than a second"
        behind = f"first of them {old} old"
    if query.left is not None and query.left > LONG_SECONDS:
        behind = f"{duration(query.left)} to go"
    kept = sum(each.state_rows for each in query.operators)
    stored = sum(each.state_bytes for each in query.operators)
    tiles = (
        ("read", rate(query.read.rate), f"{amount(query.read.rows)} rows so far"),
        ("written", rate(query.written.rate), f"{amount(query.written.rows)} changes so far"),
        ("still to read", amount(query.lag_rows), behind),
        ("kept", f"{amount(kept)} rows", size(stored)),
    )
    items = "".join(
        f"<div><dt>{name}</dt><dd><b>{escape(value)}</b> <small>{escape(more)}</small></dd></div>"
        for name, value, more in tiles
    )
    return f'<dl class="tiles">{items}</dl>'


def _sink(description: Description, query: QueryStatus) -> str:
    root = description.root
    sql = ""
    if description.sql:
        sql = (
            f'<details class="sql" id="sql.{anchor(root.name)}"><summary>SQL</summary>{coloured(description.sql)}'
            f'<p><a href="explain#{anchor(root.name)}">explain: how this is kept up to date, and advice</a></p>'
            "</details>"
        )
    return f"""<section class="sink" id="{anchor(root.name)}">
<h3>{escape(root.name)}</h3>
{sql}
{tree(description, _beside(query, root.name))}
</section>"""


def _beside(query: QueryStatus, sink: str) -> Callable[[Step], str]:
    """What is shown of each step of a sink's plan."""
    tables = {each.name: each for each in query.tables}
    operators = {(each.sink, each.name): each for each in query.operators}
    sinks = {each.name: each for each in query.sinks}

    def beside(step: Step) -> str:
        if step.kind == "sink":
            written = sinks[step.name].written
            return _numbers((("written", rate(written.rate), ""), ("so far", amount(written.rows), "")))
        if step.kind == "scan":
            return "" if step.same_as else _numbers(_of_table(tables[step.values["table"]]))
        found = operators.get(step.same_as or (sink, step.name))
        return "" if found is None else _numbers(_of_operator(found))

    return beside


_Number = tuple[str, str, str]
"""What it is, how much, and how it looks: `bad`, `odd`, or like the others."""


def _of_table(table: TableStatus) -> Iterator[_Number]:
    yield "read", rate(table.read.rate), ""
    old = f", {duration(table.lag_seconds)} old" if table.lag_seconds >= 1 else ""
    yield "still to read", f"{amount(table.lag_rows)}{old}", "odd" if table.lag_seconds >= 60 else ""
    if table.watermark is not None:
        moment = datetime.fromtimestamp(table.watermark, UTC)
        behind = "" if table.watermark_lag is None else f", {duration(table.watermark_lag)} behind"
        yield "watermark", f"{moment:%Y-%m-%d %H:%M:%S} UTC{behind}", ""
    letters = {reason: count for reason, count in table.dead_letters.items() if count}
    reasons = ", ".join(letters) if len(letters) < 2 else ", ".join(f"{letters[each]:,} {each}" for each in letters)
    yield "dead letters", f"{sum(letters.values()):,} ({reasons})" if letters else "0", "bad" if letters else ""


def _of_operator(operator: OperatorStatus) -> Iterator[_Number]:
    yield "in", rate(operator.taken.rate), ""
    yield "out", rate(operator.emitted.rate), ""
    if operator.state_rows or operator.state_bytes:
        yield "keeps", f"{amount(operator.state_rows)} rows, {size(operator.state_bytes)}", ""
    if (hot := operator.hottest) is not None and hot.tells:
        share = f"{hot.number}: {amount(hot.rows)} rows, {hot.times:.1f} times the mean"
        yield "hottest shard", share, "odd" if hot.hot else ""
    for what, rows in (
        ("came too late", operator.late),
        ("unmatched", operator.unmatched),
        ("dead letters", operator.failed),
    ):
        if rows:
            yield what, f"{rows:,}", "bad"


def _numbers(numbers: Sequence[_Number] | Iterator[_Number]) -> str:
    items = "".join(
        f'<div class="{look}"><dt>{name}</dt><dd>{escape(value)}</dd></div>' for name, value, look in numbers
    )
    return f'<dl class="numbers">{items}</dl>'


def _incidents(incidents: Sequence[Incident], *, several: bool) -> str:
    if not incidents:
        return '<p class="none">None since it was started.</p>'
    items = "".join(
        f"<li>{_moment(each.at)}{f' <b>{each.times} times</b>' if each.times > 1 else ''}"
        f"{f' <span>query {escape(each.query)}</span>' if several and each.query else ''}"
        f'<p>{escape(each.what)}</p><p class="remedy">{escape(each.remedy)}</p></li>'
        for each in incidents
    )
    return f'<ol class="incidents">{items}</ol>'
