"""A chart of the ratios in tests/bench/README.md: `python -m tests.bench.ratios` draws docs/pictures/ratios.svg.

For each query, a bar for Flink with its defaults and one for Flink tuned. The chart has no data of its own: a test
draws it again and compares.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

_PAGE = Path("tests/bench/README.md")
_PICTURE = Path("docs/pictures/ratios.svg")
_SECTIONS = {
    "throughput": "append topics",
    "changelog": "upsert topics",
    "windows": "time windows",
    "nexmark": "Nexmark",
}
"""The titles of the sections with ratios."""
_COLOURS = {"Flink": "#1f6feb", "Flink, tuned": "#8250df"}
_WIDTH, _LEFT, _RIGHT, _BAR, _ROW = 900, 160, 60, 7, 20
_TICKS = (1, 2, 3, 5, 10)


@dataclass
class _Section:
    title: str
    ratios: dict[str, dict[str, float]] = field(default_factory=dict)
    """By query and system, Rowkind's rate divided by the system's."""


def main() -> None:
    """Draw the chart."""
    _PICTURE.write_text(chart(_PAGE.read_text("utf-8")), "utf-8")


def chart(page: str) -> str:
    """Return the chart of a page's tables as SVG. The axis is logarithmic."""
    sections = [_section(page, name, title) for name, title in _SECTIONS.items()]
    most = max(ratio for each in sections for query in each.ratios.values() for ratio in query.values())
    least = min(0.9, *(ratio for each in sections for query in each.ratios.values() for ratio in query.values()))
    height = 60 + sum(36 + _ROW * len(each.ratios) for each in sections)

    def across(ratio: float) -> float:
        share = math.log(ratio / least) / math.log(most / least)
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * share

    size = f'width="{_WIDTH}" height="{height}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">']
    parts.append('<rect width="100%" height="100%" fill="white"/>')
    for tick in _TICKS:
        colour = "#888" if tick == 1 else "#ddd"
        x = f"{across(tick):.1f}"
        parts.append(f'<line x1="{x}" x2="{x}" y1="36" y2="{height - 6}" stroke="{colour}"/>')
        parts.append(f'<text x="{x}" y="30" text-anchor="middle">{tick}&#215;</text>')
    legend = "  ".join(f'<tspan fill="{colour}">■ {name}</tspan>' for name, colour in _COLOURS.items())
    parts.append(f'<text x="{_LEFT}" y="14">Rate of Rowkind divided by that of {legend}</text>')
    top = 40
    for section in sections:
        top += 22
        parts.append(f'<text x="10" y="{top}" font-weight="bold">{escape(section.title)}</text>')
        top += 14
        for query, ratios in section.ratios.items():
            parts.append(f'<text x="{_LEFT - 8}" y="{top + 10}" text-anchor="end">{escape(query)}</text>')
            parts += _bars(ratios, top, across(1.0), {name: across(ratio) for name, ratio in ratios.items()})
            top += _ROW
    return "".join([*parts, "</svg>\n"])


def _bars(ratios: Mapping[str, float], top: int, one: float, ends: Mapping[str, float]) -> list[str]:
    """Return a bar per system, from 1 to its ratio."""
    found = []
    for number, (name, ratio) in enumerate(ratios.items()):
        y, left, right = top + number * (_BAR + 1), min(one, ends[name]), max(one, ends[name])
        place = f'x="{left:.1f}" y="{y}" width="{right - left:.1f}" height="{_BAR}"'
        found.append(f'<rect {place} fill="{_COLOURS[name]}"><title>{name}: {ratio:.2f}</title></rect>')
        found.append(f'<text x="{right + 4:.1f}" y="{y + _BAR}" font-size="9">{ratio:.1f}</text>')
    return found


def _section(page: str, name: str, title: str) -> _Section:
    """Return the ratios of the first table of a section."""
    text = re.search(rf"<!-- {name} -->\n(.*?)<!-- end of {name} -->", page, re.DOTALL)
    assert text is not None, f"{_PAGE} has no section {name}"
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text[1].splitlines() if line[:1] == "|"]
    at, found = rows[0].index("Rowkind : Flink"), _Section(title)
    for row in rows[2:]:
        if len(row) == len(rows[0]) and row[1] in _COLOURS:
            found.ratios.setdefault(row[0], {})[row[1]] = float(row[at])
    assert found.ratios, f"section {name} of {_PAGE} has no ratios"
    return found


if __name__ == "__main__":
    main()
