"""The part of the status page about one query: numbers, graph, history, sinks with their last rows, dead letters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

from rowkind.avro.time_text import moment_text
from rowkind.quantities import amount, counted, duration, rate, size, unbroken
from rowkind.service.monitoring.history import HistoryRange
from rowkind.service.monitoring.status import (
    LONG_SECONDS,
    OLD_SECONDS,
    OperatorStatus,
    QueryStatus,
    SinkStatus,
    TableStatus,
)
from rowkind.service.physical.sink_target import destination
from rowkind.service.plan.explain.description import Description, QueryDescription, Step
from rowkind.service.plan.explain.html import anchor, coloured, tree
from rowkind.service.web.batch_chart import chart
from rowkind.service.web.graph import graph, thumbnail
from rowkind.service.web.history_charts import charts, sparkline
from rowkind.service.web.last_rows_table import changes, letters
from rowkind.service.web.live_page import numbers, pill

_MANY_SINKS = 5
"""With this number of sinks or more, sinks are folded, except those with problems."""


def query_part(
    query: QueryStatus,
    plan: QueryDescription,
    history: Sequence[HistoryRange],
    *,
    named: bool,
    shows_rows: bool,
    explain: str,
) -> str:
    """Return the part as HTML. `named`: it has the query's name as heading. `explain`: the address of the plan page."""
    head = f"<h2>query {escape(query.name)} {pill(query.state)}</h2>" if named else ""
    folded = len(plan.sinks) >= _MANY_SINKS
    written = {each.name: each for each in query.sinks}
    sinks = "\n".join(
        _sink(each, written[each.root.name], query, folded=folded, shows_rows=shows_rows, explain=explain)
        for each in plan.sinks
    )
    return f"""<section class="query" id="query.{anchor(query.name)}">
{head}<div class="overview">{_tiles(query)}{chart(query)}</div>
{_time(query)}
{graph(query, plan)}
{charts(query.name, history)}
{_contents(plan)}
{sinks}
{letters(query, shown=shows_rows)}
</section>"""


def query_row(query: QueryStatus, history: Sequence[HistoryRange]) -> str:
    """Return a query as one item of a list, with a link to its page."""
    behind = counted(query.lag_rows, "row")
    if query.lag_rows and query.lag_seconds >= 1:
        behind += f", {unbroken(f'{duration(query.lag_seconds)} old')}"
    lists = (
        ("read", rate(query.read.rate), ""),
        ("written", rate(query.written.rate), ""),
        ("lag", behind, "odd" if query.lag_rows and query.lag_seconds >= OLD_SECONDS else ""),
        ("state", size(sum(each.state_bytes for each in query.operators)), ""),
        ("busy", f"{query.busy:.0%}", ""),
    )
    return (
        f'<li id="query.{anchor(query.name)}"><h2><a href="query/{anchor(query.name)}">{escape(query.name)}</a> '
        f"{pill(query.state)}</h2>{thumbnail(query)}{sparkline(history)}{numbers(lists)}</li>"
    )


def _contents(plan: QueryDescription) -> str:
    """Return links to the sinks, if there are several."""
    links = "".join(f'<a href="#{anchor(each.root.name)}">{escape(each.root.name)}</a>' for each in plan.sinks)
    return f'<nav class="contents" aria-label="Sinks">{links}</nav>' if len(plan.sinks) > 1 else ""


def _tiles(query: QueryStatus) -> str:
    behind = "up to date"
    if query.lag_rows:
        old = duration(query.lag_seconds) if query.lag_seconds >= 1 else "less than a second"
        behind = f"oldest row {old} old"
    if query.left is not None and query.left > LONG_SECONDS:
        behind = f"{duration(query.left)} left"
    found = sum(sum(each.dead_letters.values()) for each in query.tables)
    none = f", {counted(found, 'dead letter')}" if found else ""
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


def _time(query: QueryStatus) -> str:
    """Return how the tasks have spent their time: reading, in operators, writing, or idle."""
    working = sum(each.busy for each in query.operators)
    parts = (("reading", query.reading), ("operators", working), ("writing", query.writing))
    spent = sum(share for _, share in parts)
    whole = max(1.0, spent)
    bars = "".join(f'<i class="{name}" style="width:{share / whole:.1%}"></i>' for name, share in parts)
    words = "".join(f'<span class="{name}">{name} <b>{share / whole:.0%}</b></span>' for name, share in parts)
    idle = 1 - spent / whole
    return (
        f'<div class="time"><div class="parts">{bars}</div><p>task time: {words}'
        f'<span class="idle">idle <b>{idle:.0%}</b></span></p></div>'
    )


def _sink(
    description: Description, sink: SinkStatus, query: QueryStatus, *, folded: bool, shows_rows: bool, explain: str
) -> str:
    """Return a sink: its last changes, its SQL and its plan. A folded sink has a summary line with its main numbers."""
    root = description.root
    name = anchor(root.name)
    sql = ""
    if description.sql:
        sql = (
            f'<details class="sql" id="sql.{name}"><summary>SQL</summary>{coloured(description.sql)}'
            f'<p><a href="{explain}#{name}">Details of the plan, and advice</a></p></details>\n'
        )
    plan = (
        f'<details class="plan" id="plan.{name}"><summary>Plan</summary>{tree(description, _beside(query, sink))}'
        f"</details>"
    )
    inside = f"{changes(sink, shown=shows_rows)}\n{sql}{plan}"
    if not folded:
        head = f"<h3>{escape(root.name)} <small>{escape(destination(sink.to, sink.topic))}</small></h3>"
        return f'<section class="sink" id="{name}">\n{head}\n{inside}\n</section>'
    found = list(_of_sink(sink, query))
    shown = " open" if any(look for _, _, look in found) else ""
    return f"""<details class="sink" id="sink.{name}"{shown}>
<summary><h3>{escape(root.name)}</h3>{numbers(found)}</summary>
<div id="{name}">
{inside}
</div>
</details>"""


_Number = tuple[str, str, str]


def _of_sink(sink: SinkStatus, query: QueryStatus) -> Iterator[_Number]:
    """Yield the numbers of a folded sink: what it writes, its state, and all numbers that show a problem."""
    own = [each for each in query.operators if each.sink == sink.name]
    yield from _of_written(sink)
    if kept := sum(each.state_rows for each in own):
        yield "state", counted(kept, "row"), ""
    for operator in own:
        for what, value, look in _of_operator(operator):
            if look:
                yield f"{operator.name}: {what}", value, look


def _beside(query: QueryStatus, sink: SinkStatus) -> Callable[[Step], str]:
    """Return a function that renders the current numbers of a step in the plan of this sink."""
    tables = {each.name: each for each in query.tables}
    operators = {(each.sink, each.name): each for each in query.operators}

    def beside(step: Step) -> str:
        if step.kind == "sink":
            return numbers(_of_written(sink))
        if step.kind == "scan":
            return "" if step.same_as else numbers(_of_table(tables[step.value("table")]))
        found = operators.get(step.same_as or (sink.name, step.name))
        return "" if found is None else numbers(_of_operator(found))

    return beside


def _of_written(sink: SinkStatus) -> Iterator[_Number]:
    yield "written", rate(sink.written.rate), ""
    yield "so far", amount(sink.written.rows), ""


def _of_table(table: TableStatus) -> Iterator[_Number]:
    yield "read", rate(table.read.rate), ""
    old = f", {duration(table.lag_seconds)} old" if table.lag_seconds >= 1 else ""
    yield "lag", f"{amount(table.lag_rows)}{old}", "odd" if table.lag_seconds >= OLD_SECONDS else ""
    if table.watermark is not None:
        moment = moment_text(int(table.watermark), 1).replace("T", " ")
        behind = "" if table.watermark_lag is None else f", {duration(table.watermark_lag)} behind"
        yield "watermark", f"{moment} UTC{behind}", ""
    found = {reason: count for reason, count in table.dead_letters.items() if count}
    reasons = ", ".join(found) if len(found) < 2 else ", ".join(f"{found[each]:,} {each}" for each in found)
    yield "dead letters", f"{sum(found.values()):,} ({reasons})" if found else "0", "bad" if found else ""


def _of_operator(operator: OperatorStatus) -> Iterator[_Number]:
    yield "in", rate(operator.taken.rate), ""
    yield "out", rate(operator.emitted.rate), ""
    yield "busy", f"{operator.busy:.0%}", ""
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
