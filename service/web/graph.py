"""Draw a query as a graph with its current numbers, and as a small picture that shows only the shares of time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from math import log10

from rowkind.quantities import amount, counted, duration, rate, size
from rowkind.service.monitoring.status import (
    OLD_SECONDS,
    EdgeStatus,
    OperatorStatus,
    QueryStatus,
    SinkStatus,
    TableStatus,
)
from rowkind.service.physical.generation import is_generated
from rowkind.service.plan.explain.description import QueryDescription
from rowkind.service.plan.explain.html import anchor
from rowkind.service.web.graph_layout import EdgeEnds, GraphLayout, PlacedEdge, lay_out


@dataclass(frozen=True)
class _Node:
    """A node of the graph.

    - `beside`: what a table or a sink is, or the sink of an operator.
    - `of`: what the time was spent on, if not on this node alone.
    - `trouble`: a count of rows that need attention. `odd`: the style of the second line.
    """

    name: str
    beside: str
    kind: str
    link: str
    lines: tuple[str, ...]
    busy: float
    of: str
    trouble: str = ""
    odd: str = ""


def graph(query: QueryStatus, plan: QueryDescription) -> str:
    """Return the graph of a query as HTML. In a narrow window, the style sheet shows the nodes one below the other."""
    nodes, ends = dict(_nodes(query, plan)), _ends(query)
    layout = _laid_out(query, ends)
    inputs: dict[str, list[str]] = {}
    for source, target in layout.edges:
        inputs.setdefault(target, []).append(nodes[source].name)
    order = sorted(nodes, key=lambda name: (layout.nodes[name].x, layout.nodes[name].y))
    boxes = "\n".join(_box(nodes[name], layout, name, inputs.get(name, ())) for name in order)
    edges = "".join(_edge(edge, at, nodes, layout) for edge, at in zip(query.edges, ends, strict=True))
    # The texts come last, so that no edge crosses them.
    texts = "".join(_text(edge, layout.edges[at]) for edge, at in zip(query.edges, ends, strict=True))
    return f"""<div class="graph" role="region" tabindex="0" aria-label="Graph of query {escape(query.name)}">
<div class="canvas" style="width:{layout.width:.0f}px;height:{layout.height:.0f}px">
<svg aria-hidden="true">
{edges}{texts}</svg>
{boxes}
</div></div>"""


def thumbnail(query: QueryStatus) -> str:
    """Return a small picture of a query's graph. Its nodes have the colors of their shares of time."""
    layout = _laid_out(query, _ends(query))
    busy = {f"{each.sink}.{each.name}": each.busy for each in query.operators}
    busy |= {_table_id(each.name): query.reading for each in query.tables}
    busy |= {_sink_id(each.name): query.writing for each in query.sinks}
    paths = "".join(f'<path d="{each.path}"/>' for each in layout.edges.values())
    boxes = "".join(
        f'<rect x="{at.x:.0f}" y="{at.y:.0f}" width="{layout.node_width:.0f}" height="{at.height:.0f}" rx="14" '
        f'style="--heat:{_heat(busy[name])}"/>'
        for name, at in layout.nodes.items()
    )
    return (
        f'<svg class="thumbnail" viewBox="-8 -8 {layout.width + 16:.0f} {layout.height + 16:.0f}" aria-hidden="true">'
        f"{paths}{boxes}</svg>"
    )


def _laid_out(query: QueryStatus, ends: tuple[EdgeEnds, ...]) -> GraphLayout:
    operators = (f"{each.sink}.{each.name}" for each in query.operators)
    tables, sinks = (_table_id(each.name) for each in query.tables), (_sink_id(each.name) for each in query.sinks)
    return _lay_out((*tables, *operators, *sinks), ends)


def _ends(query: QueryStatus) -> tuple[EdgeEnds, ...]:
    """Return the nodes at the ends of each edge. A table and a sink may have the same name."""
    operators = {f"{each.sink}.{each.name}" for each in query.operators}
    return tuple(
        (
            each.source if each.source in operators else _table_id(each.source),
            each.target if each.target in operators else _sink_id(each.target),
        )
        for each in query.edges
    )


def _table_id(name: str) -> str:
    return f"table {name}"


def _sink_id(name: str) -> str:
    return f"sink {name}"


@lru_cache(maxsize=1024)
def _lay_out(nodes: tuple[str, ...], edges: tuple[EdgeEnds, ...]) -> GraphLayout:
    return lay_out(nodes, edges)


def _nodes(query: QueryStatus, plan: QueryDescription) -> Iterator[tuple[str, _Node]]:
    """Yield the nodes with their names in the layout."""
    places = {
        (step.value("table") if step.kind == "scan" else f"{sink.root.name}.{step.name}"): anchor(
            sink.root.name, step.name
        )
        for sink in reversed(plan.sinks)
        for step in sink.root.walk()
        if step.kind == "scan" or step.same_as is None
    }
    several = len(query.sinks) > 1
    for table in query.tables:
        yield _table_id(table.name), _table(table, query.reading, places[table.name])
    for operator in query.operators:
        name = f"{operator.sink}.{operator.name}"
        yield name, _operator(operator, places[name], operator.sink if several else "")
    for sink in query.sinks:
        yield _sink_id(sink.name), _sink(sink, query.writing)


def _table(table: TableStatus, busy: float, link: str) -> _Node:
    lag, late = "no lag", ""
    if table.lag_rows:
        lag = f"lag {counted(table.lag_rows, 'row')}"
        if table.lag_seconds >= 1:
            lag += f" · {duration(table.lag_seconds)}"
        late = "odd" if table.lag_seconds >= OLD_SECONDS else ""
    letters = sum(table.dead_letters.values())
    trouble = counted(letters, "dead letter") if letters else ""
    what = "generated" if is_generated(table.topic) else "table"
    return _Node(
        table.name, what, "scan", link, (rate(table.read.rate), lag), busy, "reading all tables", trouble, late
    )


def _operator(operator: OperatorStatus, link: str, sink: str) -> _Node:
    flow = f"{rate(operator.taken.rate)} → {rate(operator.emitted.rate)}"
    kept = "no state"
    if operator.state_rows or operator.state_bytes:
        kept = f"{counted(operator.state_rows, 'row')} · {size(operator.state_bytes)}"
    bad = (("late", operator.late), ("unmatched", operator.unmatched), ("dead letters", operator.failed))
    trouble = ", ".join(f"{amount(count)} {what}" for what, count in bad if count)
    odd = ""
    if operator.hottest is not None and operator.hottest.hot:
        trouble = trouble or f"hot shard {operator.hottest.number}"
        odd = "odd"
    return _Node(operator.name, sink, operator.kind, link, (flow, kept), operator.busy, "", trouble, odd)


def _sink(sink: SinkStatus, busy: float) -> _Node:
    lines = (rate(sink.written.rate), f"{amount(sink.written.rows)} so far")
    what = "sink" if sink.to == "topic" else sink.to
    return _Node(sink.name, what, "sink", anchor(sink.name), lines, busy, "writing all sinks")


def _box(node: _Node, layout: GraphLayout, name: str, inputs: Sequence[str]) -> str:
    at = layout.nodes[name]
    place = f"left:{at.x:.0f}px;top:{at.y:.0f}px;width:{layout.node_width:.0f}px;height:{at.height:.0f}px"
    first, second = node.lines
    sources = f'<span class="sources">from {escape(", ".join(inputs))}</span>' if inputs else ""
    trouble = f"<em>{escape(node.trouble)}</em>" if node.trouble else ""
    share = f"{node.busy:.0%} busy"
    said = f"{node.name}: {share}{f' with {node.of}' if node.of else ''}; {first}; {second}"
    return (
        f'<a class="node {node.kind}" href="#{node.link}" title="{escape(said)}" '
        f'style="{place};--busy:{node.busy:.0%};--heat:{_heat(node.busy)}">'
        f'<span class="name"><b>{escape(node.name)}</b><small>{escape(node.beside)}</small></span>{sources}'
        f'<span>{escape(first)}</span><span class="{node.odd}">{escape(second)}</span>'
        f'<span class="share"><small>{share}</small>{trouble}</span><i class="bar"></i></a>'
    )


def _heat(busy: float) -> str:
    """Return how red a node is. Shares are often small, because all operators of a query share its tasks."""
    return f"{busy**0.6:.0%}"


def _edge(edge: EdgeStatus, ends: EdgeEnds, nodes: dict[str, _Node], layout: GraphLayout) -> str:
    placed, (source, target) = layout.edges[ends], ends
    thick = 1.2 + 0.6 * log10(1 + edge.sent.rate)
    moves = ' class="moves"' if edge.sent.rate else ""
    title = (
        f"{nodes[source].name} to {nodes[target].name}: {rate(edge.sent.rate)}, "
        f"{counted(edge.sent.rows, 'change')} so far"
    )
    return (
        f'<g{moves}><path d="{placed.path}" style="stroke-width:{thick:.1f}"><title>{escape(title)}</title></path>'
        f'<path class="tip" d="M{placed.x - 7:.0f} {placed.y - 4:.1f}l7 4l-7 4z"/>'
        f"</g>\n"
    )


def _text(edge: EdgeStatus, at: PlacedEdge) -> str:
    y = at.y + (13 if at.text_below else -5)
    return f'<text x="{at.x - 9:.0f}" y="{y:.1f}">{escape(rate(edge.sent.rate))}</text>'
