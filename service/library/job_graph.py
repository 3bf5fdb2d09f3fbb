"""A job as a graph for notebooks: an SVG picture of its tables, queries and sinks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rowkind.errors import RowkindError
from rowkind.quantities import counted, shortened
from rowkind.service.job.model import Job
from rowkind.service.physical.sink_target import destination
from rowkind.service.plan.explain.describe import describe
from rowkind.service.query.queries import planned

_WIDTH, _HEIGHT, _GAP, _BETWEEN = 230, 46, 14, 80
_LONGEST = 34
_FONT = "font-family: system-ui, sans-serif; font-size: 13px"
_COLOURS = (("#f1f5f9", "#64748b"), ("#dbeafe", "#2563eb"), ("#dcfce7", "#16a34a"))
"""The fill and the border of tables, queries and sinks, as in the plan's flowchart."""


@dataclass(frozen=True)
class _Box:
    name: str
    what: str
    reads: Sequence[str] = ()
    """The names of the boxes in the column to the left from which an arrow leads here."""


def drawn(job: Job) -> str:
    """Return the job's graph as SVG. If a query cannot be planned, show the problem instead of queries and arrows."""
    tables = [_Box(name, f"{table.mode}, topic {table.topic or name}") for name, table in job.tables.items()]
    try:
        planned_queries = planned(job)
        queries = [describe(name, query.sinks) for name, query in planned_queries.items()]
    except RowkindError as error:
        sinks = [_Box(name, f"{sink.mode}, {destination(sink.to, sink.topic)}") for name, sink in job.sinks.items()]
        problem = escape(str(error).partition("\n")[0])
        return f"{_svg(job.name, [tables, [], sinks])}<div>{problem}</div>"
    middle = [_Box(query.name, query.title.partition(", ")[2], query.tables) for query in queries]
    sinks = [
        _Box(sink.name, f"{sink.mode}, {destination(sink.to, sink.topic)}", (name,))
        for name, query in planned_queries.items()
        for sink in query.sinks
    ]
    return _svg(job.name, [tables, middle, sinks])


def _svg(name: str, columns: Sequence[Sequence[_Box]]) -> str:
    most = max(map(len, columns))
    height, width = most * (_HEIGHT + _GAP) + 30, len(columns) * (_WIDTH + _BETWEEN) - _BETWEEN
    parts, places = "", dict[tuple[int, str], float]()
    for number, (boxes, title) in enumerate(zip(columns, ("tables", "queries", "sinks"), strict=True)):
        left = number * (_WIDTH + _BETWEEN)
        parts += f'<text x="{left}" y="14" fill="#64748b">{counted(len(boxes), title[:-1]) if boxes else ""}</text>'
        top = 24 + (most - len(boxes)) * (_HEIGHT + _GAP) / 2
        for box in boxes:
            places[number, box.name] = top + _HEIGHT / 2
            parts += _box(box, left, top, *_COLOURS[number])
            for each in box.reads:
                parts += _arrow(left, places[number - 1, each], top + _HEIGHT / 2)
            top += _HEIGHT + _GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-1 0 {width + 2} {height}" width="{width + 2}" '
        f'style="max-width: 100%; {_FONT}" role="img" aria-label="Graph of job {escape(name)}">{parts}</svg>'
    )


def _box(box: _Box, left: float, top: float, fill: str, border: str) -> str:
    return (
        f'<g><title>{escape(f"{box.name}: {box.what}")}</title><rect x="{left}" y="{top}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" rx="6" fill="{fill}" stroke="{border}"/><text x="{left + 10}" y="{top + 19}" '
        f'fill="#0f172a" font-weight="bold">{escape(_cut(box.name))}</text><text x="{left + 10}" y="{top + 36}" '
        f'fill="#334155" font-size="11">{escape(_cut(box.what))}</text></g>'
    )


def _arrow(left: float, source: float, target: float) -> str:
    """Return a curve from the column before to a box, with a tip."""
    start, middle = left - _BETWEEN, left - _BETWEEN / 2
    curve = f"M{start} {source} C{middle} {source} {middle} {target} {left - 6} {target}"
    tip = f"M{left - 7} {target - 4} L{left} {target} L{left - 7} {target + 4}"
    return f'<path d="{curve}" fill="none" stroke="#94a3b8" stroke-width="1.5"/><path d="{tip}" fill="#94a3b8"/>'


def _cut(text: str) -> str:
    return shortened(text, _LONGEST)
