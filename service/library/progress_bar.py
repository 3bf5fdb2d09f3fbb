"""A progress bar while a program waits: in a notebook's cell, in the last line of a terminal, or nowhere.

A notebook shows plain HTML, which needs no widgets.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any

from rowkind.quantities import duration

_TRACK = "display: inline-block; width: 12em; height: 0.7em; border-radius: 0.35em; background: #94a3b855"
_BAR = "display: block; height: 100%; border-radius: 0.35em; background: #2459c4"


@dataclass(frozen=True)
class ReadyProgress:
    """What is done of some work. `share`: from 0 to 1, None if unknown. `seconds`: the time spent so far."""

    name: str
    text: str
    share: float | None
    seconds: float = 0.0

    def __repr__(self) -> str:
        return f"{self.name}: {self.text}, {duration(self.seconds)}"

    def _repr_html_(self) -> str:
        percent = f"{100 * (self.share or 0):.0f}"
        bar = f'<span style="{_BAR}; width: {percent}%"></span>'
        return (
            f'<div><b>{escape(self.name)}</b> <span style="{_TRACK}" role="progressbar" aria-valuenow="{percent}">'
            f"{bar}</span> {escape(self.text)}, {duration(self.seconds)}</div>"
        )


@contextmanager
def progress_bar() -> Iterator[Callable[[ReadyProgress], None]]:
    """Yield a function that shows the current progress, each time in the same place."""
    if _in_notebook():
        yield _in_cell()
    elif sys.stderr.isatty():
        with _on_terminal() as show:
            yield show
    else:
        yield lambda _: None


def _in_notebook() -> bool:
    """Return whether this program runs in a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


def _in_cell() -> Callable[[ReadyProgress], None]:
    display: Any = sys.modules["IPython"].display.display
    show: Callable[[ReadyProgress], None] = display(display_id=True).update
    return show


@contextmanager
def _on_terminal() -> Iterator[Callable[[ReadyProgress], None]]:
    from rich.console import Console  # noqa: PLC0415 -- loaded when it is needed
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415 -- as above
    from rich.progress import Progress as TerminalProgress  # noqa: PLC0415 -- as above

    columns = (TextColumn("{task.fields[name]}"), BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with TerminalProgress(*columns, console=Console(stderr=True)) as shown:
        task = shown.add_task("", total=1.0, name="")

        def show(progress: ReadyProgress) -> None:
            shown.update(task, description=progress.text, name=progress.name, completed=progress.share or 0)

        yield show
