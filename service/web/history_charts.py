"""Draw the history of a query as small line charts: one hour and one day, of which the page shows one.

The script of the page reads the values under the pointer from the lines themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape

from rowkind.quantities import counted, duration, rate, size
from rowkind.service.monitoring.history import HistoryRange, HistorySeries

_HEIGHT = 60
_POINTS = 180
"""The maximum number of points of a line. Neighboring slots are combined to the highest of their values."""

_LEAST_POINTS = 30
"""The minimum number of slots of a chart. The chart of a young process does not show the time before it."""

_NAMES = {10: "hour", 300: "day"}


@dataclass(frozen=True)
class _Chart:
    """A chart: its title, its lines, each with a name, and how its values are written. `unit` tells the script."""

    title: str
    lines: tuple[tuple[HistorySeries, str], ...]
    written: Callable[[float], str]
    unit: str


_CHARTS = (
    _Chart("rows per second", (("read", "read"), ("written", "written")), rate, "rate"),
    _Chart("lag", (("lag_rows", "rows"),), partial(counted, noun="row"), "rows"),
    _Chart("age of the lag", (("lag_seconds", "age"),), duration, "seconds"),
    _Chart("latency", (("latency_p50", "p50"), ("latency_p99", "p99")), duration, "seconds"),
    _Chart("state", (("state_bytes", "size"),), size, "bytes"),
    _Chart("time busy", (("busy", "busy"),), "{:.0%}".format, "share"),
)


def charts(query: str, ranges: Sequence[HistoryRange]) -> str:
    """Return the charts of a query's history as HTML."""
    return "\n".join(
        f'<div class="history {_NAMES[each.seconds]}" role="group" aria-label="Last {_NAMES[each.seconds]} of query '
        f'{escape(query)}">{"".join(_figure(chart, each) for chart in _CHARTS)}</div>'
        for each in ranges
    )


def sparkline(ranges: Sequence[HistoryRange]) -> str:
    """Return the rows read per second over the last hour as a small line."""
    _, values = _thinned(ranges[0], "read", 60)
    return (
        f'<svg class="sparkline" viewBox="0 0 {len(values)} {_HEIGHT}" preserveAspectRatio="none" aria-hidden="true">'
        f"{_line(values, max(filter(None, values), default=1.0), 'a')}</svg>"
    )


def _figure(chart: _Chart, over: HistoryRange) -> str:
    lines = [(name, *_thinned(over, series, _POINTS)) for series, name in chart.lines]
    found = [value for *_, values in lines for value in values if value is not None]
    most = 1.0 if chart.unit == "share" else max(found, default=0.0) or 1.0
    last = [(name, next((each for each in reversed(values) if each is not None), None)) for name, _, values in lines]
    words = "".join(
        f'<span class="{"ab"[at]}"><b>{escape(chart.written(value))}</b>{f" {name}" if len(last) > 1 else ""}</span>'
        for at, (name, value) in enumerate(last)
        if value is not None
    )
    _, step, values = lines[0]
    drawn = "".join(_line(each, most, "ab"[at]) for at, (_, _, each) in enumerate(lines))
    highest = f"<small>max {escape(chart.written(max(found)))}</small>" if found else "<small>no values yet</small>"
    return (
        f'<figure class="chart" data-most="{most:.4g}" data-unit="{chart.unit}" data-step="{step}" '
        f'data-until="{over.until}" data-names="{",".join(name for name, *_ in lines)}">'
        f"<figcaption><span>{chart.title}</span>{words}</figcaption>"
        f'<svg viewBox="0 0 {len(values)} {_HEIGHT}" preserveAspectRatio="none" aria-hidden="true">'
        f'<path class="axis" d="M0 {_HEIGHT}H{len(values)}"/>{drawn}</svg>{highest}</figure>'
    )


def _thinned(over: HistoryRange, series: HistorySeries, points: int) -> tuple[int, list[float | None]]:
    """Return the seconds per point, and the points: the highest values of as many slots as necessary."""
    values = over.series(series)[-max(_LEAST_POINTS, over.measured) :]
    width = max(1, -(-len(values) // points))
    first = len(values) % width
    return over.seconds * width, [
        max((value for value in values[at : at + width] if value is not None), default=None)
        for at in range(first, len(values), width)
    ]


def _line(values: Sequence[float | None], most: float, style: str) -> str:
    """Return a line as an SVG path. It has a gap where there is no value; a value between gaps is a short line."""
    path, before = "", False
    for at, value in enumerate(values):
        if value is not None:
            height = _HEIGHT - (_HEIGHT - 3) * min(1.0, value / most)
            path += f"{'L' if before else 'M'}{at + 0.5:g} {height:.1f}{'' if before else 'h.1'}"
        before = value is not None
    return f'<path class="{style}" d="{path}"/>' if path else ""
