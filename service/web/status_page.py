"""The status page: the plan as drawn by `rowkind explain`, with the current numbers of each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

from rowkind.avro.time_text import moment_text
from rowkind.quantities import amount, counted, duration, rate, size
from rowkind.service.monitoring.status import LONG_SECONDS, JobStatus, OperatorStatus, QueryStatus, TableStatus, Work
from rowkind.service.plan.explain.description import Description, QueryDescription, Step
from rowkind.service.plan.explain.html import anchor, coloured, tree
from rowkind.service.web.batch_chart import chart
from rowkind.service.web.live_page import about, errors, framed, pill, trouble

_MANY_SINKS = 5
"""With this number of sinks or more, plans are folded, except those with problems."""

_LINKS = {"explain": "explain", "metrics": "metrics", "status.json": "JSON", "healthz": "health", "readyz": "ready"}


def page(status: JobStatus, plans: Sequence[QueryDescription]) -> str:
    """Return the status page as HTML."""
    by_name = {plan.name: plan for plan in plans}
    several = len(status.queries) > 1
    sinks = [sink.root.name for query in status.queries for sink in by_name[query.name].sinks]
    calm = "" if status.incidents else " · no errors"
    parts = (
        about(pill(status.state), f" · up {duration(status.at - status.since)}{calm} ·", status.at, status.version),
        *_troubles(status),
        *(_work(each, status.at) for each in status.work),
        errors(status.incidents, several=several),
        _contents(sinks),
        *(_query(each, by_name[each.name], named=several, folded=len(sinks) >= _MANY_SINKS) for each in status.queries),
    )
    live = "\n".join(filter(None, parts))
    return framed(f"{status.state}: {status.job}", escape(status.job), _LINKS, live)


_Number = tuple[str, str, str]
"""A number's label, value, and style: `bad`, `odd`, or empty for normal."""


def _contents(sinks: Sequence[str]) -> str:
    """Return links to the sinks on the page, if there are several."""
    links = "".join(f'<a href="#{anchor(name)}">{escape(name)}</a>' for name in sinks)
    return f'<nav class="contents" aria-label="Sinks">{links}</nav>' if len(sinks) > 1 else ""


def _troubles(status: JobStatus) -> Iterator[str]:
    for query in status.queries:
        if query.state in ("failed", "waiting") and query.reason:
            what, _, rest = query.reason.partition("\n")
            told = [(each.what, each.remedy) for each in status.incidents if each.query == query.name]
            head = f"Query {escape(query.name)} {'has failed' if query.state == 'failed' else 'is waiting'}"
            yield trouble(query.state, head, *(told or [(what, rest)])[0])
    for warning in status.warnings:
        yield trouble("warning", "Warning", warning, "")


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


def _query(query: QueryStatus, plan: QueryDescription, *, named: bool, folded: bool) -> str:
    head = f"<h2>query {escape(query.name)} {pill(query.state)}</h2>" if named else ""
    sinks = "\n".join(_sink(each, query, folded=folded) for each in plan.sinks)
    return f"""<section class="query" id="query.{anchor(query.name)}">
{head}<div class="overview">{_tiles(query)}{chart(query)}</div>
{sinks}
</section>"""


def _tiles(query: QueryStatus) -> str:
    behind = "up to date"
    if query.lag_rows:
        old = duration(query.lag_seconds) if query.lag_seconds >= 1 else "less than a second"
        behind = f"oldest row {old} old"
    if query.left is not None and query.left > LONG_SECONDS:
        behind = f"{duration(query.left)} left"
    letters = sum(sum(each.dead_letters.values()) for each in query.tables)
    none = f", {counted(letters, 'dead letter')}" if letters else ""
    kept = sum(each.state_rows for each in query.operators)
    stored = sum(each.state_bytes for each in query.operators)
    tiles = (
        ("read", rate(query.read.rate), f"{counted(query.read.rows, 'row')} so far{none}"),
        ("written", rate(query.written.rate), f"{counted(query.written.rows, 'change')} so far"),
        ("lag", counted(query.lag_rows, "row"), behind),
        ("state", counted(kept, "row"), size(stored)),
    )
    items = "".join(
        f"<div><dt>{name}</dt><dd><b>{escape(value)}</b> <small>{escape(more)}</small></dd></div>"
        for name, value, more in tiles
    )
    return f'<dl class="tiles">{items}</dl>'


def _sink(description: Description, query: QueryStatus, *, folded: bool) -> str:
    """Return the plan of a sink. A folded plan has a summary line with its main numbers."""
    root = description.root
    name, plan = anchor(root.name), tree(description, _beside(query, root.name))
    sql = ""
    if description.sql:
        sql = (
            f'<details class="sql" id="sql.{name}"><summary>SQL</summary>{coloured(description.sql)}'
            f'<p><a href="explain#{name}">Details of the plan, and advice</a></p></details>\n'
        )
    if not folded:
        return f'<section class="sink" id="{name}">\n<h3>{escape(root.name)}</h3>\n{sql}{plan}\n</section>'
    numbers = list(_of_sink(description, query))
    shown = " open" if any(look for _, _, look in numbers) else ""
    return f"""<details class="sink" id="sink.{name}"{shown}>
<summary><h3>{escape(root.name)}</h3>{_numbers(numbers)}</summary>
<div id="{name}">
{sql}{plan}
</div>
</details>"""


def _of_sink(description: Description, query: QueryStatus) -> Iterator[_Number]:
    """Yield the numbers for a folded plan: what it writes, its state, and all numbers that show a problem."""
    root = description.root
    (written,) = (each.written for each in query.sinks if each.name == root.name)
    own = [each for each in query.operators if each.sink == root.name]
    yield "written", rate(written.rate), ""
    yield "so far", amount(written.rows), ""
    if kept := sum(each.state_rows for each in own):
        yield "state", counted(kept, "row"), ""
    for operator in own:
        for what, value, look in _of_operator(operator):
            if look:
                yield f"{operator.name}: {what}", value, look


def _beside(query: QueryStatus, sink: str) -> Callable[[Step], str]:
    """Return a function that renders the current numbers of a step in a sink's plan."""
    tables = {each.name: each for each in query.tables}
    operators = {(each.sink, each.name): each for each in query.operators}
    sinks = {each.name: each for each in query.sinks}

    def beside(step: Step) -> str:
        if step.kind == "sink":
            written = sinks[step.name].written
            return _numbers((("written", rate(written.rate), ""), ("so far", amount(written.rows), "")))
        if step.kind == "scan":
            return "" if step.same_as else _numbers(_of_table(tables[step.value("table")]))
        found = operators.get(step.same_as or (sink, step.name))
        return "" if found is None else _numbers(_of_operator(found))

    return beside


def _of_table(table: TableStatus) -> Iterator[_Number]:
    yield "read", rate(table.read.rate), ""
    old = f", {duration(table.lag_seconds)} old" if table.lag_seconds >= 1 else ""
    yield "lag", f"{amount(table.lag_rows)}{old}", "odd" if table.lag_seconds >= 60 else ""
    if table.watermark is not None:
        moment = moment_text(int(table.watermark), 1).replace("T", " ")
        behind = "" if table.watermark_lag is None else f", {duration(table.watermark_lag)} behind"
        yield "watermark", f"{moment} UTC{behind}", ""
    letters = {reason: count for reason, count in table.dead_letters.items() if count}
    reasons = ", ".join(letters) if len(letters) < 2 else ", ".join(f"{letters[each]:,} {each}" for each in letters)
    yield "dead letters", f"{sum(letters.values()):,} ({reasons})" if letters else "0", "bad" if letters else ""


def _of_operator(operator: OperatorStatus) -> Iterator[_Number]:
    yield "in", rate(operator.taken.rate), ""
    yield "out", rate(operator.emitted.rate), ""
    if operator.state_rows or operator.state_bytes:
        yield "state", f"{counted(operator.state_rows, 'row')}, {size(operator.state_bytes)}", ""
    if (hot := operator.hottest) is not None and hot.tells:
        share = f"{hot.number}: {amount(hot.rows)} rows, {hot.times:.1f} times the mean"
        yield "hottest shard", share, "odd" if hot.hot else ""
    for what, rows in (
        ("late", operator.late),
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
