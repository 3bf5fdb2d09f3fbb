"""Follow the result of a query: draw it again, or print its changes, whenever topics have grown."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from rowkind.quantities import counted
from rowkind.service.cli.query_output import rows, warn_of_undecodable
from rowkind.service.cli.row_output import text_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rowkind.service.client.job_tables import JobTables

_EVERY_SECONDS = 1.0


def draw(tables: JobTables, query: str) -> None:
    """Draw the result on the terminal, and again whenever topics have grown. Raises QueryError or ChangelogError."""
    from rich.console import Console  # noqa: PLC0415 -- loaded when it is needed
    from rich.live import Live  # noqa: PLC0415 -- as above

    console = Console()
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for _ in _news(tables, tables.named_in(query)):
            live.update(_drawn(tables, query, console.height - 3), refresh=True)


def print_changes(tables: JobTables, query: str) -> None:
    """Print the rows that the result gains and loses as JSON lines. Raises QueryError or ChangelogError."""
    names = tables.named_in(query)
    tables.refresh(names)
    compare = tables.compared(query)
    for _ in _news(tables, names):
        for op, result in compare():
            for row in rows(result):
                click.echo(json.dumps({"op": op, "row": row}, ensure_ascii=False))
        sys.stdout.flush()
        warn_of_undecodable(tables)


def _news(tables: JobTables, names: Sequence[str]) -> Iterator[None]:
    """Yield when the tables have been read, and again whenever their topics have grown."""
    tables.refresh(names)
    yield
    while True:
        time.sleep(_EVERY_SECONDS)
        if tables.refresh(names):
            yield


def _drawn(tables: JobTables, query: str, most: int) -> RenderableType:
    """Render the first rows of the result, as many as the terminal has lines."""
    from rich.console import Group  # noqa: PLC0415 -- as above
    from rich.table import Table  # noqa: PLC0415 -- as above
    from rich.text import Text  # noqa: PLC0415 -- as above

    result = tables.ask(query, refresh=False)
    found = rows(result)
    shown: list[dict[str, Any]] = list(islice(found, max(most, 1)))
    more = sum(1 for _ in found)
    drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for name in result.columns:
        drawn.add_column(Text(name), justify="right" if name in result.numbers else "left", no_wrap=True)
    for row in shown:
        cells = row.values()
        drawn.add_row(*(Text("NULL", "dim") if value is None else Text(text_of(value)) for value in cells))
    foot = counted(len(shown) + more, "row") + (f", {more:,} not shown" if more else "")
    return Group(drawn, Text(f"{foot}, {time.strftime('%H:%M:%S')}; Ctrl-C ends", "dim"))
