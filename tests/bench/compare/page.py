"""Tables in Markdown: on the terminal, and in README.md between the marks of their section."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

PAGE = Path(__file__).parents[1] / "README.md"


@dataclass(frozen=True)
class Table:
    """Rows of text under a title, with a note about how they were measured."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str

    def text(self) -> str:
        """Return the table as Markdown."""
        widths = [max(len(row[at]) for row in (self.head, *self.rows)) for at in range(len(self.head))]
        lines = [_line(self.head, widths), _line([("-" if at == 0 else "-:") for at in range(len(widths))], widths)]
        lines += [_line(row, widths) for row in self.rows]
        return "\n".join([f"### {self.title}", "", *lines, "", self.note])


def write(section: str, tables: Sequence[Table], page: Path = PAGE) -> None:
    """Replace the tables of this section in a page."""
    put(section, "\n\n".join(table.text() for table in tables), page)


def put(section: str, inner: str, page: Path) -> None:
    """Replace the text of this section in a page."""
    text = page.read_text("utf-8")
    pattern = re.compile(rf"(<!-- {section} -->\n).*?(<!-- end of {section} -->)", re.DOTALL)
    assert pattern.search(text), f"{page.name} has no place for {section}"
    page.write_text(pattern.sub(lambda found: f"{found[1]}\n{inner}\n\n{found[2]}", text), "utf-8")


def machine() -> str:
    """Return the date and a description of the machine."""
    models = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores of {models[0] if models else platform.machine()}, "
        f"{memory:.0f} GiB, the broker on the same machine"
    )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        (cell.ljust if at == 0 else cell.rjust)(width, "-" if cell in {"-", "-:"} else " ")
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return f"| {' | '.join([first, *others])} |"
