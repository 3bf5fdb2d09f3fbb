"""Line charts as SVG for the docs, one panel below the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _GAP = 900, 160, 60, 10, 46
_COLOURS = ("#1f6feb", "#2da44e", "#bf8700", "#8250df", "#cf222e")


@dataclass(frozen=True)
class Panel:
    """Named lines over one axis that starts at 0; `marks` are positions of vertical lines."""

    title: str
    lines: Sequence[tuple[str, Points]]
    marks: Sequence[float] = ()


def chart(panels: Sequence[Panel], along: str, *, doubling: bool = False) -> str:
    """Return the panels as one SVG.

    `along` labels the common axis. With `doubling` the axis is logarithmic.
    """
    everywhere = [x for panel in panels for _, points in panel.lines for x, _ in points]
    first, last = (min(everywhere), max(everywhere)) if doubling else (0.0, max(everywhere))
    total = len(panels) * (_HEIGHT + _GAP) + 30
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{total}" font-family="sans-serif"'
            ' font-size="12"><rect width="100%" height="100%" fill="white"/>'
        )
    ]

    def across(x: float) -> float:
        share = math.log(x / first) / math.log(last / first) if doubling else x / last
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * share

    for number, panel in enumerate(panels):
        top = 25 + number * (_HEIGHT + _GAP)
        most = max(y for _, points in panel.lines for _, y in points) * 1.05 or 1.0
        parts.append(f'<text x="{_LEFT}" y="{top - 6}">{escape(panel.title)}</text>')
        for share in (0.0, 0.5, 1.0):
            y = top + _HEIGHT * (1 - share)
            parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}" stroke="#ddd"/>')
            parts.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{most * share:,.0f}</text>')
        for x in panel.marks:
            place = f'x1="{across(x):.1f}" x2="{across(x):.1f}" y1="{top}" y2="{top + _HEIGHT}"'
            parts.append(f'<line {place} stroke="#f3b0b0"/>')
        for line, (name, points) in enumerate(panel.lines):
            colour = _COLOURS[line % len(_COLOURS)]
            path = " ".join(f"{across(x):.1f},{top + _HEIGHT * (1 - y / most):.1f}" for x, y in points)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
            if doubling:
                parts += [
                    f'<circle cx="{across(x):.1f}" cy="{top + _HEIGHT * (1 - y / most):.1f}" r="2.5" fill="{colour}"/>'
                    for x, y in points
                ]
            at = _WIDTH - _RIGHT - 90 * (len(panel.lines) - line - 1)
            parts.append(f'<text x="{at}" y="{top - 6}" text-anchor="end" fill="{colour}">{escape(name)}</text>')
    for x in sorted(set(everywhere)) if doubling else (last,):
        parts.append(f'<text x="{across(x):.0f}" y="{total - 28}" text-anchor="middle">{x:,.0f}</text>')
    parts.append(f'<text x="{_WIDTH - _RIGHT}" y="{total - 8}" text-anchor="end">{escape(along)}</text></svg>')
    return "".join(parts) + "\n"
